"""The protocols that a server at an address can use, according to the format of the address.

| address | candidates |
|---|---|
| `HOST:PORT` | every protocol except `json:FORM` |
| `http://HOST:PORT[/PATH]`, `https://...` | protocols over HTTP |
| `grpcs://HOST:PORT` | protocols over gRPC |
| `tcp://HOST:PORT`, `tcps://HOST:PORT` | protocols over byte streams |
| `unix:///PATH`, `/PATH` | protocols over gRPC and byte streams |
| `PROTOCOL://...`, `PROTOCOL+tls://...` | this protocol |
"""

from collections.abc import Mapping

from gateway.assembly.forms import PREFIX
from gateway.client.settings import TLS_MARK, split_address
from gateway.core.frozen import frozen
from gateway.core.protocol import Protocol

_SCHEMES = {
    "http": ("http", False), "https": ("http", True), "grpcs": ("grpc", True), "tcp": ("tcp", False),
    "tcps": ("tcp", True),
}  # fmt: skip
"""The transport of each scheme, and True if the scheme uses TLS."""
_EXPECTED = "expected HOST:PORT, http[s]://HOST:PORT[/PATH], unix:///PATH or PROTOCOL://HOST:PORT"


@frozen
class FormCandidate:
    """A protocol that the server at an address might use. The address is in the format of backends with this
    protocol."""

    protocol: Protocol
    address: str

    @property
    def transport(self) -> str:
        """The transport of the protocol."""
        return self.protocol.transport


@frozen
class Candidates:
    """All candidates for one address."""

    each: tuple[FormCandidate, ...]
    tls: bool
    """True if the address requires TLS."""
    open: bool
    """True if the address contains neither a scheme nor a protocol, so the probe also tries TLS."""


def candidates(address: str, protocols: Mapping[str, Protocol], *, tls: bool = False) -> Candidates:
    """Return the protocols that are possible for `address`. If `tls` is set, the probe uses TLS even if the address
    does not request it.

    Raises:
        ValueError: the address is invalid (the message states the fault and the expected format).
    """
    scheme, separator, rest = address.partition("://")
    name, _, _ = scheme.partition(TLS_MARK)
    if separator and name in protocols:
        place = split_address(address, "", {name: protocols[name].transport}, tls=tls)
        return Candidates((FormCandidate(protocols[name], place.address),), place.tls, open=False)
    protocols = {each: protocols[each] for each in protocols if not each.startswith(PREFIX)}
    if address.startswith("/") or scheme == "unix":
        path = rest if separator else address
        found = [each for each in protocols.values() if each.transport != "http"]
        return Candidates(tuple(FormCandidate(each, f"unix://{path}") for each in found), False, open=False)
    if not separator:
        return Candidates(_of_each_transport(address, protocols, tls=tls), tls, open=not tls)
    if scheme not in _SCHEMES:
        raise ValueError(f"bad address {address!r}: {scheme!r} is not a scheme or a protocol; {_EXPECTED}")
    transport, secured = _SCHEMES[scheme]
    found = [each for each in protocols.values() if each.transport == transport]
    if tls and not secured:
        return candidates(f"{scheme}s://{rest}", protocols)
    return Candidates(tuple(FormCandidate(each, address) for each in found), secured, open=False)


def _of_each_transport(address: str, protocols: Mapping[str, Protocol], *, tls: bool) -> tuple[FormCandidate, ...]:
    if "/" in address:
        raise ValueError(f"bad address {address!r}: a path needs a scheme before the host; {_EXPECTED}")
    written = {each.transport: _written(address, each.transport, tls=tls) for each in protocols.values()}
    return tuple(FormCandidate(each, written[each.transport]) for each in protocols.values())


def _written(address: str, transport: str, *, tls: bool) -> str:
    schemes = {"http": "https" if tls else "", "grpc": "grpcs" if tls else "", "tcp": "tcps" if tls else "tcp"}
    return f"{schemes[transport]}://{address}" if schemes[transport] else address
