"""The keys of `listeners`, and the addresses to listen on: `127.0.0.1:8080`, `[::1]:8080`, `tcp://127.0.0.1:9100` or
`unix:///run/gateway.sock`.

An attribute is a key, and its docstring is the key's description in `docs/configuration`.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from ipaddress import AddressValueError, IPv6Address, ip_address
from itertools import combinations
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, Strict

from gateway.config.access import ListenerAuthConfig
from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE, Flag, HeaderName, Keys, Name, SomeNames, Written, distinct, refusal
from gateway.config.limits import ListenerLimitsKey
from gateway.config.problems import Finding, listed, suggestion, unknown, wrong_settings
from gateway.config.tls import ListenerTlsConfig
from gateway.core.address import HOST_PORT, MAX_SOCKET_PATH, Address
from gateway.core.protocol import ANY_ORIGIN, CrossOrigin, HttpBinding, Limits, Protocol, StreamBinding

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


def _prefix(path: str) -> str:
    if not path.startswith("/") or path.endswith("/") or not set(path).isdisjoint("{}?# %"):
        raise refusal("expected a path such as /science, without a slash at its end and without { } ? # %, got {value}")
    return path


class ErrorsConfig(Keys):
    """Level of detail in error messages to clients."""

    detail: Literal["full", "brief"] = "full"
    """`brief` hides backend names, backend addresses, and the reason why a backend is unreachable. The log always
    contains these details."""


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::[0-9]{1,5})?")


_USUAL_PORTS = {"http": ":80", "https": ":443"}


def _origin(origin: str) -> str:
    if origin == ANY_ORIGIN:
        return origin
    if not _ORIGIN.fullmatch(origin):
        raise refusal(f"expected an origin as browsers send it, such as https://app.example.com, or *, got {VALUE}")
    port = _USUAL_PORTS.get(origin.partition(":")[0])
    if port and origin.endswith(port):
        raise refusal(f"browsers leave out the default port; expected {origin.removesuffix(port)}, got {VALUE}")
    return origin


def _named_header(name: str) -> str:
    if name == "*":
        raise refusal(f"expected the names of headers, such as authorization, got {VALUE}")
    return name


class CorsConfig(Keys):
    """CORS settings. Web pages of the allowed origins can call the listener over HTTP and read its responses."""

    origins: Annotated[
        tuple[Annotated[Name, AfterValidator(_origin)], ...], Field(min_length=1), AfterValidator(distinct)
    ]
    """Allowed origins of web pages, such as `https://app.example.com`. `"*"` allows any origin, and requires a listener
    without client authentication."""
    headers: Annotated[tuple[Annotated[HeaderName, AfterValidator(_named_header)], ...], AfterValidator(distinct)] = (
        "authorization",
        "content-type",
    )
    """Request headers that web pages can send."""
    max_age: Annotated[int, Strict(), Field(ge=0, le=86_400)] = 600
    """Time for which browsers cache these permissions, in seconds."""


class ListenerConfig(Keys):
    """An address on which the gateway accepts client connections."""

    name: Name
    """Name of the listener in routes, logs and metrics."""
    bind: Bind
    """Address as `HOST:PORT`. If the port is 0, the system chooses a port. If all protocols are byte streams, the
    address can also be `tcp://HOST:PORT`. For a single byte-stream protocol, it can also be `unix:///PATH`."""
    protocols: SomeNames
    """Protocols of the listener. For a form, write `json:NAME`. The first bytes of each connection determine its
    transport (HTTP, gRPC, byte streams). For HTTP requests to unknown paths, the gateway returns an error in the format
    of the first HTTP protocol."""
    model: Name = ""
    """Model for requests without a model name."""
    prefix: Mapping[Name, Annotated[Name, AfterValidator(_prefix)]] = {}
    """`{PROTOCOL: PATH}`: path prefix of the protocol's URLs."""
    flavor: Mapping[Name, Name] = {}
    """`{PROTOCOL: FLAVOR}`: server type that the listener emulates, for protocols with several server types. For
    v1-rest: `kserve` (the default) or `tensorflow`. For v2-grpc: `triton` (the default) or `mlserver`, which sends
    typed responses to typed requests."""
    settings: Mapping[Name, Mapping[Name, Name]] = {}
    """`{PROTOCOL: {KEY: TEXT}}`: [protocol-specific settings](protocols/grps.md#settings). For grps-rest, `ctrl_mode`
    and `ctrl_key` set how clients request a stream, and `res_content_type` sets the stream's content type."""
    allow_offline: Flag = False
    """Allow clients to take the listener offline and online (grps). An offline listener reports that it is not ready,
    but still serves requests."""
    allow_control: Flag = False
    """Allow clients to load and unload models on the model servers, and to read and change the servers' trace and log
    settings (V2)."""
    allow_explain: Flag = False
    """Allow clients to request explanations: for a request with the header `gateway-explain: 1`, the response has the
    header `gateway-explanation`. The explanation contains the names of routes, backends and endpoints. If the listener
    has `auth`, clients need the permission `explain`. If it has `errors: {detail: brief}`, they also need `details`."""
    metrics_page: Flag = False
    """Serve the metrics page that a protocol of the listener defines (grps-rest: `/`)."""
    limits: ListenerLimitsKey = Field(default_factory=Limits)
    """Limits for client messages and client connections."""
    errors: ErrorsConfig = ErrorsConfig()
    """Level of detail in error messages to the listener's clients."""
    reply_headers: Flag = False
    """Add headers with details about the call to HTTP and gRPC responses: `gateway-route` (the route's name),
    `gateway-backend`, `gateway-tries`, and, if a cache is configured, `gateway-cache`."""
    auth: ListenerAuthConfig | None = None
    """Client authentication. Each client has the permissions of its principal. Default: no authentication; every client
    has all permissions."""
    tls: ListenerTlsConfig | None = None
    """TLS for connections from the listener's clients. Default: no TLS."""
    cors: CorsConfig | None = None
    """Origins of web pages that can call the listener from browsers. Default: browsers prevent web pages from other
    origins from reading responses."""

    @property
    def has_credentials(self) -> bool:
        """True if clients authenticate."""
        return self.auth is not None or (self.tls is not None and self.tls.client != "none")

    @property
    def cross_origin(self) -> CrossOrigin | None:
        """`cors` in the format of the transport. Pages can use certificates and cookies if clients have credentials."""
        cors = self.cors
        return None if cors is None else CrossOrigin(cors.origins, cors.headers, cors.max_age, self.has_credentials)

    def findings(self, location: Location, catalog: Catalog) -> Iterator[Finding]:
        """Find inconsistent keys, and keys that the protocols do not support."""
        spoken = {name: catalog.protocols[name] for name in self.protocols if name in catalog.protocols}
        for key, names in (("prefix", self.prefix), ("flavor", self.flavor), ("settings", self.settings)):
            for name in names:
                if name not in self.protocols:
                    hint = suggestion(name, self.protocols) or "; add it to `protocols`, or remove the key"
                    yield Finding((*location, key, name), f"the listener does not serve {name!r}{hint}", at_key=True)
        for name, flavor in self.flavor.items():
            place: Location = (*location, "flavor", name)
            if name in spoken and (emulated := spoken[name].emulated_servers):
                yield from unknown(place, f"flavor of {name} for clients", flavor, emulated)
            elif name in spoken:
                yield Finding(place, f"clients of {name} see only one server type; remove the key", at_key=True)
        for name, values in self.settings.items():
            if name in spoken:
                yield from wrong_settings((*location, "settings", name), spoken[name], values)
        yield from _shared_address(location, self, spoken.values())
        yield from tls_on_socket(location, self.bind, self.tls)
        if self.cors is not None:
            yield from _cross_origin((*location, "cors"), self.cors, self, spoken.values())
        having = [name for name, protocol in catalog.protocols.items() if protocol.http.pages]
        if self.metrics_page and not any(name in having for name in self.protocols):
            text = f"the listener's protocols have no metrics page; remove the key, or add {listed(having)}"
            yield Finding((*location, "metrics_page"), text, at_key=True)


def tls_on_socket(location: Location, bind: Address, tls: ListenerTlsConfig | None) -> Iterator[Finding]:
    """Find the key `tls` of a unix socket."""
    if tls is not None and bind.path:
        yield Finding((*location, "tls"), "a unix socket has no TLS; remove the key", at_key=True)


def _shared_address(location: Location, listener: ListenerConfig, spoken: Collection[Protocol]) -> Iterator[Finding]:
    """Find protocols that the first bytes of a connection cannot distinguish."""
    streams = {each.name: each.binding for each in spoken if isinstance(each.binding, StreamBinding)}
    if not streams or len({each.name for each in spoken}) == 1:
        return
    place: Location = (*location, "protocols")
    for name, form in streams.items():
        if not form.framing.magic:
            text = f"the first bytes of {name} do not identify it among other protocols"
            yield Finding(place, f"{text}; use a separate listener for it")
    for (one, first), (other, second) in combinations(streams.items(), 2):
        magics = sorted((first.framing.magic, second.framing.magic))
        if magics[0] and magics[1].startswith(magics[0]):
            text = f"{one} and {other} begin with the same bytes; use a listener for each protocol"
            yield Finding(place, text)
    if listener.bind.path:
        text = f"a unix socket serves one protocol; use HOST:PORT, or a listener for each protocol, got {VALUE}"
        yield Finding((*location, "bind"), text)


def _cross_origin(
    location: Location, cors: CorsConfig, listener: ListenerConfig, spoken: Collection[Protocol]
) -> Iterator[Finding]:
    """Find `cors` without HTTP protocols, and `cors` that lets any web page use a browser's credentials."""
    if spoken and not any(isinstance(each.binding, HttpBinding) for each in spoken):
        text = "`cors` is for HTTP, but no protocol of the listener uses HTTP; remove the key"
        yield Finding(location, text, at_key=True)
    if ANY_ORIGIN in cors.origins and listener.has_credentials:
        text = f"clients of this listener have credentials (`auth`, or `tls.client`): name the origins, got {VALUE}"
        yield Finding((*location, "origins", cors.origins.index(ANY_ORIGIN)), text)
