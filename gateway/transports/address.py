"""Functions that parse the common parts of endpoint addresses: host names, IPv6 addresses, ports, and socket paths. The
`parse_address` of each transport calls these functions."""

import re
from ipaddress import IPv6Address
from typing import NoReturn

from gateway.core.address import HOST_PORT, MAX_SOCKET_PATH, Address

# RFC 1123 labels, plus the underscore, which container names use
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
PORT_RANGE = "its port is not between 1 and 65535"


class BadAddressError(ValueError):
    """A part of an address is invalid. The message describes the fault, for example "it has no port"."""


def refuse(text: str, why: object, expected: str) -> NoReturn:
    """Raise a ValueError for the invalid address `text`. The message contains the reason (`why`) and the `expected`
    format."""
    raise ValueError(f"bad address {text!r}: {why}; {expected}")


def check_characters(text: str) -> None:
    """Check that `text` is printable ASCII without blanks.

    Raises:
        BadAddressError: `text` contains other characters.
    """
    if not text.isascii() or not text.isprintable() or " " in text:
        raise BadAddressError("it holds a blank or a character outside ASCII")


def host_and_port(text: str, scheme: str = "") -> Address:
    """Return the Address for `host:port` or `[IPv6]:port`, with a lowercase host name or the canonical form of the IPv6
    address.

    Raises:
        BadAddressError: `text` is neither.
    """
    check_characters(text)
    parts = HOST_PORT.fullmatch(text)
    if parts is None:
        raise BadAddressError(_why_not_host_port(text))
    port = int(parts["port"])
    if not 0 < port < 65536:
        raise BadAddressError(PORT_RANGE)
    host = host_name(parts["host"]) if parts["six"] is None else ipv6(parts["six"])
    return Address(host, port, scheme=scheme)


def host_name(text: str) -> str:
    """Return the host name or IPv4 address `text` in lowercase.

    Raises:
        BadAddressError: `text` is neither.
    """
    if not text:
        raise BadAddressError("it has no host")
    if len(text) > 253 or not all(_LABEL.fullmatch(label) for label in text.removesuffix(".").split(".")):
        raise BadAddressError(f"{text!r} is not a host name")
    return text.lower()


def ipv6(text: str) -> str:
    """Return the canonical form of the IPv6 address `text`, which is passed without its brackets.

    Raises:
        BadAddressError: `text` is not an IPv6 address, or has a zone.
    """
    try:
        address = IPv6Address(text)
    except ValueError:
        address = None
    if address is None or address.scope_id is not None:
        raise BadAddressError(f"{text!r} is not an IPv6 address")
    return str(address)


def socket_path(path: str, scheme: str = "") -> Address:
    """Return the Address for the unix socket at `path`.

    Raises:
        BadAddressError: the path is not absolute, is too long, or contains NUL.
    """
    if not path.startswith("/"):
        raise BadAddressError("the path of a unix socket must be absolute")
    if len(path.encode()) > MAX_SOCKET_PATH or "\0" in path:
        raise BadAddressError(f"the path of a unix socket must have at most {MAX_SOCKET_PATH} bytes and no NUL")
    return Address(path=path, scheme=scheme)


def _why_not_host_port(text: str) -> str:
    if "/" in text:
        return "it has a path"
    if text.count(":") > 1 and "[" not in text:
        return "an IPv6 address needs brackets: [::1]:8001"
    return "it has no port"
