"""Where an endpoint of a byte stream is: `host:port`, `tcp://host:port` or `unix:///path`."""

import re
from ipaddress import IPv6Address

from gateway.core.address import Address

_HOST_PORT = re.compile(
    r"(?:\[(?P<six>[^\[\]]+)\]|(?P<host>[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_.])?)):(?P<port>\d{1,5})", re.A
)
_EXPECTED = "expected host:port, tcp://host:port or unix:///path"
# sockaddr_un has room for 108 bytes, the last of them NUL
_MAX_SOCKET_PATH = 107


def parse_address(text: str) -> Address:
    """The Address that `text` names.

    Raises:
        ValueError: saying what is wrong with `text` and what is right.
    """
    scheme, found, rest = text.partition("://")
    if not found:
        scheme, rest = "tcp", text
    if scheme == "unix":
        return _socket_path(rest, text)
    if scheme != "tcp":
        raise _bad(text, f"the scheme {scheme!r} is neither tcp nor unix")
    return _host_port(rest, text)


def _host_port(rest: str, text: str) -> Address:
    parts = _HOST_PORT.fullmatch(rest)
    if parts is None:
        raise _bad(text, "it is no host and port")
    port = int(parts["port"])
    if not 0 < port < 65536:
        raise _bad(text, "its port is not between 1 and 65535")
    if parts["six"] and not _is_ipv6(parts["six"]):
        raise _bad(text, f"{parts['six']!r} is no IPv6 address")
    host = str(IPv6Address(parts["six"])) if parts["six"] else parts["host"].lower()
    return Address(host, port, scheme="tcp")


def _is_ipv6(host: str) -> bool:
    try:
        return IPv6Address(host).scope_id is None
    except ValueError:
        return False


def _socket_path(path: str, text: str) -> Address:
    if not path.startswith("/"):
        raise _bad(text, "the path of its socket is not absolute")
    if len(path.encode()) > _MAX_SOCKET_PATH or "\0" in path:
        raise _bad(text, f"the path of a unix socket has at most {_MAX_SOCKET_PATH} bytes and no NUL")
    return Address(path=path, scheme="unix")


def _bad(text: str, why: str) -> ValueError:
    return ValueError(f"bad address {text!r}: {why}; {_EXPECTED}")
