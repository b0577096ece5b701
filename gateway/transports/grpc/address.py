"""Where a gRPC endpoint is: `host:port`, `dns:///name:port` or `unix:path`."""

import re
from ipaddress import IPv6Address
from typing import NoReturn

from gateway.core.address import Address

# RFC 1123 labels, with the underscore that container names use
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_HOST_PORT = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<host>[^:/\[\]]*)):(?P<port>[0-9]{1,5})")
_TLS = ("https://", "grpcs://")
_EXPECTED = "expected host:port, dns:///name:port or unix:/path"


def parse_address(text: str) -> Address:
    """The Address that `text` names. All addresses that a name resolves to are used, in turn.

    Raises:
        ValueError: saying what is wrong with `text` and what is right.
    """
    if not text.isascii() or not text.isprintable() or " " in text:
        _refuse(text, "it holds a blank or a character outside ASCII")
    if text.lower().startswith(_TLS):
        _refuse(text, "TLS towards gRPC backends is not supported")
    if text.startswith("unix:"):
        return _socket(text)
    name = text.removeprefix("dns:///")
    if "://" in name:
        _refuse(text, f"the scheme {name.partition('://')[0]!r} is not one of dns, unix")
    return _host_port(name, text)


def _socket(text: str) -> Address:
    path = text.removeprefix("unix:").removeprefix("//")
    if not path.startswith("/"):
        _refuse(text, "the path of a unix socket is absolute")
    return Address(path=path)


def _host_port(name: str, text: str) -> Address:
    parts = _HOST_PORT.fullmatch(name)
    if parts is None:
        _refuse(text, _shape(name))
    if not 0 < int(parts["port"]) < 65536:
        _refuse(text, "its port is not between 1 and 65535")
    if parts["six"] is not None:
        if not _is_ipv6(parts["six"]):
            _refuse(text, f"{parts['six']!r} is not an IPv6 address")
    elif not _is_name(parts["host"]):
        _refuse(text, f"{parts['host']!r} is not a host name" if parts["host"] else "it has no host")
    host = parts["host"].lower() if parts["six"] is None else str(IPv6Address(parts["six"]))
    return Address(host, int(parts["port"]))


def _shape(name: str) -> str:
    """What is wrong with a text that does not even look like host:port."""
    if "/" in name:
        return "a gRPC endpoint has no path"
    if name.count(":") > 1 and "[" not in name:
        return "an IPv6 address stands in brackets: [::1]:8001"
    return "it has no port"


def _is_name(host: str) -> bool:
    return len(host) <= 253 and all(_LABEL.fullmatch(label) for label in host.removesuffix(".").split("."))


def _is_ipv6(host: str) -> bool:
    try:
        return IPv6Address(host).scope_id is None
    except ValueError:
        return False


def _refuse(text: str, why: str) -> NoReturn:
    raise ValueError(f"bad address {text!r}: {why}; {_EXPECTED}")
