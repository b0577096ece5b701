"""A client's arguments, including the server's address, and their validation before the client connects."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from typing import Any, TypeAlias

from gateway.assembly import registry
from gateway.assembly.forms import PREFIX, FormError, form, known, transports
from gateway.client.credentials import RawHeaders, check_headers, raw_headers
from gateway.core.certificates import CertificateError, TlsFiles
from gateway.core.frozen import frozen
from gateway.core.protocol import Limits, Protocol
from gateway.transports.certificates import client_context
from gateway.transports.tls import ClientTls

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
    """Return the ServerAddress for `address`, a server's address as users of the client write it: a URL whose scheme is
    the protocol.

    | address | meaning |
    |---|---|
    | `v2-rest://host:8000` | protocol, host and port; over HTTP also a path prefix for every request |
    | `v2-rest+tls://host:8000` | the same over TLS |
    | `json:mlflow://host:5000` | a JSON form: a built-in form, or a form given in the `form` of the server's `kind` |
    | `mip:///run/model.sock` | a unix socket (byte streams and gRPC) |
    | `https://host/prefix`, `grpcs://host:1`, `host:port` | any address that a backend accepts; needs `protocol` |

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


@dataclass(frozen=True)
class Tls:
    """TLS settings for connections to a server."""

    ca: str | None = None
    """The PEM file of the CA that signed the server's certificate. None means the system's CAs."""
    certificate: str | None = None
    """The PEM file with the client certificate; requires `certificate_key`."""
    certificate_key: str | None = None
    server_name: str | None = None
    """The name in the server's certificate, if it differs from the address's host."""
    verify: bool = True
    """True checks the server's certificate. False accepts any certificate."""


MOST_AT_ONCE = 256
"""Default of `max_in_flight` for a server that has no limit of its own.

The default is limited because each concurrent HTTP call needs its own connection, and on most systems a process can
open only 1,024 files."""

TIMEOUT = 60.0
"""Default time limit of a call, in seconds."""


class Unset(Enum):
    """The default value of arguments for which None has a meaning of its own."""

    UNSET = "unset"


UNSET = Unset.UNSET
Seconds: TypeAlias = float | Unset | None
"""The time limit of one call in seconds. None means no limit; UNSET means the client's limit."""


@dataclass(frozen=True)
class CallLimits:
    """The limits of a client's calls."""

    max_message: int = 2**30
    """Maximum size of a response, in bytes."""
    max_in_flight: int | None = None
    """Maximum number of concurrent calls; additional calls wait for their turn.

    0: no limit. None: the number that the server accepts, at most MOST_AT_ONCE. MIP and UM-Bridge servers that are not
    gateways accept one call at a time."""
    max_waiting: int | None = None
    """Maximum number of calls that wait for their turn. The client rejects additional calls. None: no limit."""


@dataclass(frozen=True)
class ServerKind:
    """Facts about a server in addition to its protocol. Each field corresponds to a backend key in the gateway's
    configuration."""

    flavor: str = ""
    batch: str = ""
    trust_metadata: bool = False
    form: Mapping[str, Any] | None = None
    """A description of the server's JSON, in the format of `forms` in the configuration. Required for an address
    `json:NAME://HOST:PORT` whose NAME is not a built-in form."""


DEFAULT_LIMITS = CallLimits()
DEFAULT_KIND = ServerKind()


@dataclass(frozen=True)
class ServerArguments:
    """The client arguments that describe the server and the requests, as the user passed them."""

    address: str
    protocol: str | None = None
    headers: Mapping[str, str] | None = None
    key: str | None = None
    tls: Tls | None = None
    limits: CallLimits = DEFAULT_LIMITS
    kind: ServerKind = DEFAULT_KIND

    def checked(self) -> "ClientSettings":
        """Return the settings that the arguments describe.

        Raises:
            ValueError: an argument is invalid; the message names the argument and the expected value.
        """
        protocols = self._protocols()
        place = split_address(self.address, self.protocol or "", transports(protocols), tls=self.tls is not None)
        protocol = protocols[place.protocol]
        transport = registry.transport(protocol.transport)
        transport.parse_address(place.address)
        if self.tls is not None and not place.tls:
            raise ValueError(
                f"the address {self.address!r} has no TLS, but other arguments set TLS; use an address with TLS"
            )
        check_headers(protocol, headers := raw_headers(self.headers, self.key))
        flavors = protocol.traits.servers.flavors
        _check_name("flavor", self.kind.flavor, flavors.names if flavors else (), protocol)
        _check_name("batch", self.kind.batch, tuple(protocol.batches), protocol)
        longest = self.limits.max_message
        if not 0 < longest < 2**31:
            raise ValueError(f"max_message is {longest}, expected bytes between 1 and {2**31 - 1}")
        for name, number in (("max_in_flight", self.limits.max_in_flight), ("max_waiting", self.limits.max_waiting)):
            if number is not None and number < 0:
                raise ValueError(f"{name} is {number}, expected 0 or more calls, or None")
        tls = _client_tls(transport.ALPN, self.tls or Tls()) if place.tls else None
        return ClientSettings(protocol, place, tls, headers, Limits(message=longest), self.limits, self.kind)

    def _protocols(self) -> Mapping[str, Protocol]:
        """Return all protocols that the address can name, including the JSON form that these arguments describe."""
        if self.kind.form is None:
            return known()
        name = self.protocol or named_protocol(self.address)
        if not name.startswith(PREFIX):
            raise ValueError(f"a form needs an address such as {PREFIX}NAME://HOST:PORT, got {self.address!r}")
        try:
            return known({name: form(name.removeprefix(PREFIX), self.kind.form)})
        except FormError as error:
            place = ".".join(map(str, error.path))
            raise ValueError(f"the form {name!r} at {place or 'its top'}: {error}") from error


@dataclass(frozen=True)
class ClientSettings:
    """A client's settings for its server."""

    protocol: Protocol
    place: ServerAddress
    tls: ClientTls | None
    headers: RawHeaders
    """Headers to send with every request, including requests for metadata."""
    limits: Limits
    """The limits on message sizes."""
    calls: CallLimits
    kind: ServerKind


def _check_name(argument: str, name: str, known: tuple[str, ...], protocol: Protocol) -> None:
    if name and name not in known:
        expected = f"expected one of {', '.join(known)}" if known else f"{protocol.name} has none"
        raise ValueError(f"no {argument} {name!r}; {expected}")


_ARGUMENTS = {"certificate": "certificate", "key": "certificate_key", "ca": "ca", "client_ca": "ca"}
"""The name of the argument that specifies each file."""


def _client_tls(alpn: str, tls: Tls) -> ClientTls:
    if bool(tls.certificate) != bool(tls.certificate_key):
        raise ValueError("`certificate` and `certificate_key` go together")
    files = TlsFiles(tls.certificate or "", tls.certificate_key or "", tls.ca or "")
    try:
        context = client_context(files, verify=tls.verify, alpn=(alpn,) if alpn else ())
    except CertificateError as error:
        raise ValueError(f"`{_ARGUMENTS[error.key]}`: {error}") from error
    return ClientTls(lambda: context, tls.server_name or "")
