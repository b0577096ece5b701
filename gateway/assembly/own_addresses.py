"""Detects the gateway's own addresses. Discovered or started servers cannot have these addresses."""

import asyncio
import socket
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, TypeAlias

from gateway.core.address import ALL_ADDRESSES

Ip: TypeAlias = IPv4Address | IPv6Address

RESOLVING_SECONDS = 2.0
LOOPBACK = frozenset({ip_address("127.0.0.1"), ip_address("::1")})


async def resolved(host: str) -> frozenset[Ip]:
    """Resolve a host name to its current addresses.

    Return an empty result if the resolver finds no address within RESOLVING_SECONDS."""
    try:
        async with asyncio.timeout(RESOLVING_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # includes TimeoutError
        return frozenset()
    return frozenset(_plain(str(place[0])) for *_, place in found)


def why_own(place: Any, own: Iterable[str], named: frozenset[Ip] = frozenset()) -> str:
    """Return the reason why an address, with `host` and `port` or the `path` of a unix socket, belongs to the gateway
    itself. If the address does not belong to the gateway, the reason is empty. `own` contains the addresses that the
    gateway has bound, and `named` contains the known addresses of the host name. Other host names are not resolved,
    except names of this machine."""
    for address in own:
        if _is_at(place, address, named):
            return f"it is the gateway's own address {address}"
    return ""


def _is_at(place: Any, own: str, named: frozenset[Ip]) -> bool:
    text = own.partition("://")[2] or own
    if path := getattr(place, "path", ""):
        return bool(text == path)
    host, _, port = text.rpartition(":")
    if str(place.port) != port:
        return False
    host = host.strip("[]")
    if host == place.host:
        return True
    named |= _named(place.host)
    return any(map(_is_local, named)) if host in ALL_ADDRESSES else not named.isdisjoint(_named(host))


def _named(host: str) -> frozenset[Ip]:
    """Return the addresses of this machine that a host represents, or an empty result for any other host. Connections
    to 0.0.0.0 and :: go to loopback."""
    if host.rstrip(".").lower() in ("localhost", socket.gethostname().lower()):
        return LOOPBACK
    try:
        # The C library parses 127.1, 0x7f.1 and 2130706433 as 127.0.0.1, and 0 as 0.0.0.0.
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return frozenset()
    return frozenset(_plain(str(place[0])) for *_, place in found)


def _plain(text: str) -> Ip:
    """Convert an address that the C library has written to the form that connections use."""
    found = ip_address(text)
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return ip_address("127.0.0.1" if found.version == 4 else "::1") if found.is_unspecified else found


def _is_local(address: Ip) -> bool:
    """Return True if this machine has the address. The function tries to bind the address, because a machine can bind
    only its own addresses."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
