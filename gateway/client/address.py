"""A server's address as users of the client write it: a URL whose scheme is the protocol.

| address | meaning | |---|---| | `v2-rest://host:8000` | protocol, host and port; over HTTP also a path prefix for
every request | | `v2-rest+tls://host:8000` | the same over TLS | | `json:mlflow://host:5000` | a JSON form: a built-in
form, or a form given in the `form` of the server's `kind` | | `mip:///run/model.sock` | a unix socket (byte streams and
gRPC) | | `https://host/prefix`, `grpcs://host:1`, `host:port` | any address that a backend accepts, with the protocol
in `protocol=` |
"""

from collections.abc import Iterable
from difflib import get_close_matches

from gateway.core.frozen import frozen

TLS_MARK = "+tls"

_SCHEMES = {"http": ("http", "https"), "grpc": ("", "grpcs"), "tcp": ("tcp", "tcps")}
"""The address schemes of each transport, without and with TLS."""
_ALL_SCHEMES = ("http", "https", "grpcs", "dns", "tcp", "tcps", "unix")
_SCHEMES_OF_TLS = ("https", "grpcs", "tcps")


@frozen
class ServerAddress:
    """A protocol, and the server's address in the format of the protocol's transport."""

    protocol: str
    address: str

    @property
    def tls(self) -> bool:
        """True if the address requires TLS."""
        return self.address.partition("://")[0] in _SCHEMES_OF_TLS


def named_protocol(address: str) -> str:
    """Return the protocol in the scheme of `address`, or an empty string."""
    scheme, separator, _ = address.partition("://")
    return scheme.partition(TLS_MARK)[0] if separator else ""


def split_address(address: str, protocol: str, transports: "dict[str, str]", *, tls: bool) -> ServerAddress:
    """Return the ServerAddress in `address`.

    `protocol` is the client's argument of that name, or empty. `transports` maps each protocol to its transport. `tls`
    turns on TLS even if the address does not.

    Raises:
        ValueError: the address names no protocol, an unknown protocol, or a protocol that differs from `protocol`.
    """
    scheme, separator, rest = address.partition("://")
    name, mark, _ = scheme.partition(TLS_MARK)
    if separator and name in transports:
        if protocol and protocol != name:
            raise ValueError(f"the address {address!r} is for {name}, not for protocol={protocol!r}; use one of them")
        return ServerAddress(name, _transport_address(rest, transports[name], tls=tls or bool(mark)))
    if not protocol and separator and scheme not in _ALL_SCHEMES:
        raise ValueError(f"no protocol {name!r}{_meant(name, transports)}")
    if not protocol:
        raise ValueError(f"the address {address!r} does not say the protocol; {_expected(address, transports)}")
    if protocol not in transports:
        raise ValueError(f"no protocol {protocol!r}{_meant(protocol, transports)}")
    if not separator and tls:
        return ServerAddress(protocol, _transport_address(address, transports[protocol], tls=True))
    return ServerAddress(protocol, address)


def _transport_address(rest: str, transport: str, *, tls: bool) -> str:
    if rest.startswith("/") and transport != "http":
        return f"unix://{rest}"
    scheme = _SCHEMES[transport][tls]
    return f"{scheme}://{rest}" if scheme else rest


def _meant(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the most similar name, or a list of all names."""
    close = get_close_matches(name, known := list(known), n=1, cutoff=0.7)
    return f"; did you mean {close[0]!r}?" if close else f"; expected {', '.join(known)}"


def _expected(address: str, names: Iterable[str]) -> str:
    scheme, _, rest = address.rpartition("://")
    example = f"{_EXAMPLES.get(scheme, 'v2-rest')}://{rest}"
    return (
        f"write it like {example}, or add the argument `protocol`; `gateway probe {address}` reports what the"
        f" server speaks. Protocols: {', '.join(names)}"
    )


_EXAMPLES = {"grpcs": "v2-grpc+tls", "https": "v2-rest+tls", "tcp": "mip", "tcps": "mip+tls", "unix": "mip"}
"""An example protocol for each address scheme."""
