"""The addresses of listeners and backends."""

import re
from ipaddress import IPv6Address, ip_address, ip_network

from gateway.core.frozen import frozen

HOST_PORT = re.compile(r"(?:\[(?P<six>[^\[\]]*)\]|(?P<host>[^:/\[\]]*)):(?P<port>[0-9]{1,5})")
"""Matches a host name or IP address with a port. IPv6 addresses are in brackets."""
MAX_SOCKET_PATH = 107
"""Maximum length of a unix socket's path, in bytes. The path in `sockaddr_un` has 108 bytes, including the final
NUL."""
ALL_ADDRESSES = ("0.0.0.0", "::")


@frozen
class Address:
    """A host and port, or the path of a unix socket.

    If the port is 0, the operating system chooses one. `scheme` is the part before `://` in the configuration, and can
    be empty."""

    host: str = ""
    port: int = 0
    path: str = ""
    scheme: str = ""
    shared: bool = False
    """True if other processes of this gateway also bind this address (SO_REUSEPORT)."""

    def __str__(self) -> str:
        if self.path:
            return f"unix://{self.path}"
        text = _host_port(self.host, self.port)
        return f"{self.scheme}://{text}" if self.scheme else text

    @property
    def loopback(self) -> bool:
        """True if the address is reachable only from this machine."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def clashes(self, other: "Address") -> bool:
        """Return whether the two addresses cannot be bound at the same time."""
        if self.path or other.path:
            return self.path == other.path
        if self.port != other.port or self.port == 0:
            return False
        ours, theirs = _canonical(self.host), _canonical(other.host)
        same_family = (":" in ours) == (":" in theirs)
        return ours == theirs or (same_family and not {ours, theirs}.isdisjoint(ALL_ADDRESSES))


def is_ip(host: str) -> bool:
    """Return whether `host` (without brackets) is an IP address."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def peer_address(name: tuple[str, int] | str | None) -> str:
    """Return a socket's peer name as `host:port`. The result is empty for a unix socket, because its clients have no
    address."""
    return _host_port(*name[:2]) if isinstance(name, tuple) else ""


def client_of(peer: str) -> str:
    """Return the key by which per-client limits count the requests of `peer` (`host:port`).

    The key is the IPv4 address, or the /64 network of the IPv6 address, because a host can choose any address in its
    /64 network. If the client has no address (unix sockets), the key is empty."""
    host = peer.rpartition(":")[0].strip("[]").partition("%")[0]
    if ":" not in host:
        return host
    address = ip_address(host)
    assert isinstance(address, IPv6Address)
    return str(address.ipv4_mapped or ip_network((address, 64), strict=False))


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _canonical(host: str) -> str:
    return "127.0.0.1" if host == "localhost" else host
