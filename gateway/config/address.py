"""Addresses to listen on: `127.0.0.1:8080`, `[::1]:8080`, `tcp://127.0.0.1:9100` or `unix:///run/gateway.sock`."""

import re
from ipaddress import AddressValueError, IPv6Address, ip_address
from typing import Annotated

from gateway.config.fields import Written, refusal
from gateway.core.address import HOST_PORT, MAX_SOCKET_PATH, Address

_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63})*\.?")
_EXAMPLES = "expected HOST:PORT such as 127.0.0.1:8080 or [::1]:8080"


def parse_address(text: str) -> Address:
    """Return the Address in `text`. Raises pydantic's error for an invalid address."""
    scheme, found, rest = text.partition("://")
    if not found:
        return _host_port(text, "")
    if scheme == "tcp":
        return _host_port(rest, scheme)
    if scheme == "unix":
        return _socket_path(rest)
    raise refusal(f"{_EXAMPLES}, tcp://HOST:PORT or unix:///PATH, got {{value}}")


def _host_port(text: str, scheme: str) -> Address:
    parts = HOST_PORT.fullmatch(text)
    if parts is None:
        raise refusal(f"{_EXAMPLES}, got {{value}}")
    port = int(parts["port"])
    if port > 65535:
        raise refusal("expected a port up to 65535, got {value}")
    return Address(_ipv6(parts["six"]) if parts["six"] is not None else _host(parts["host"]), port, "", scheme)


def _ipv6(text: str) -> str:
    try:
        return str(IPv6Address(text))
    except AddressValueError as error:
        raise refusal("expected an IPv6 address between the brackets, got {value}") from error


def _host(text: str) -> str:
    if not text:
        raise refusal("no host in {value}; 0.0.0.0 or [::] is every address of this machine")
    if all(part.isdigit() for part in text.split(".")):
        try:
            return str(ip_address(text))
        except ValueError as error:
            raise refusal("expected an IPv4 address with four numbers up to 255, got {value}") from error
    if not _HOST_NAME.fullmatch(text):
        raise refusal(f"{_EXAMPLES}, got {{value}}")
    return text.lower()


def _socket_path(path: str) -> Address:
    if not path.startswith("/"):
        raise refusal("expected unix:///PATH with an absolute path, got {value}")
    if len(path.encode()) > MAX_SOCKET_PATH or "\0" in path:
        raise refusal(f"expected a unix socket path of at most {MAX_SOCKET_PATH} bytes, without NUL")
    return Address(path=path, scheme="unix")


Bind = Annotated[Address, Written(str, parse_address)]
