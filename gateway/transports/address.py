"""What the address of an endpoint is made of in every transport: host names, IPv6 addresses, ports, socket paths."""

import re
from ipaddress import IPv6Address
from typing import NoReturn

from gateway.core.address import Address

# RFC 1123 labels, with the underscore that container names use
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")
_HOST_PORT = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<host>[^:/\[\]]*)):(?P<port>[0-9]{1,5})")
# sockaddr_un has room for 108 bytes, the last of them NUL
_LONGEST_SOCKET_PATH = 107
PORT_RANGE = "its port is not between 1 and 65535"


class BadAddressError(ValueError):
    """What is wrong with a part of an address: "it has no port"."""


def refuse(text: str, why: object, expected: str) -> NoReturn:
    """Raise the ValueError of the address `text`, with what would be right."""
    raise ValueError(f"bad address {text!r}: {why}; {expected}")


def check_characters(text: str) -> None:
    """Raises BadAddressError for blanks, control characters and anything outside ASCII."""
    if not text.isascii() or not text.isprintable() or " " in text:
        raise BadAddressError("it holds a blank or a character outside ASCII")


def host_and_port(text: str, scheme: str = "") -> Address:
    """The Address of `host:port` or `[IPv6]:port`; names in lower case, IPv6 in its canonical form.

    Raises:
        BadAddressError: it is neither.
    """
    check_characters(text)
    parts = _HOST_PORT.fullmatch(text)
    if parts is None:
        raise BadAddressError(_shape(text))
    port = int(parts["port"])
    if not 0 < port < 65536:
        raise BadAddressError(PORT_RANGE)
    host = host_name(parts["host"]) if parts["six"] is None else ipv6(parts["six"])
    return Address(host, port, scheme=scheme)


def host_name(text: str) -> str:
    """The host name, or IPv4 address, in lower case.

    Raises:
        BadAddressError: it is none.
    """
    if not text:
        raise BadAddressError("it has no host")
    if len(text) > 253 or not all(_LABEL.fullmatch(label) for label in text.removesuffix(".").split(".")):
        raise BadAddressError(f"{text!r} is not a host name")
    return text.lower()


def ipv6(text: str) -> str:
    """The IPv6 address between brackets, in its canonical form.

    Raises:
        BadAddressError: it is none, or has a zone.
    """
    try:
        address = IPv6Address(text)
    except ValueError:
        address = None
    if address is None or address.scope_id is not None:
        raise BadAddressError(f"{text!r} is not an IPv6 address")
    return str(address)


def socket_path(path: str, scheme: str = "") -> Address:
    """The Address of the unix socket at `path`.

    Raises:
        BadAddressError: the path is relative, too long, or holds NUL.
    """
    if not path.startswith("/"):
        raise BadAddressError("the path of a unix socket is absolute")
    if len(path.encode()) > _LONGEST_SOCKET_PATH or "\0" in path:
        raise BadAddressError(f"the path of a unix socket has at most {_LONGEST_SOCKET_PATH} bytes and no NUL")
    return Address(path=path, scheme=scheme)


def _shape(text: str) -> str:
    """What is wrong with a text that does not look like host:port at all."""
    if "/" in text:
        return "it has a path"
    if text.count(":") > 1 and "[" not in text:
        return "an IPv6 address stands in brackets: [::1]:8001"
    return "it has no port"
