"""The keys of `log`, `request_ids`, `metrics` and `tracing`.

An attribute is a key, and its docstring is the key's description in `docs/configuration`.
"""

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, Strict

from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import (
    VALUE,
    Bytes,
    EachHeaderOnce,
    Flag,
    HeaderName,
    Keys,
    Name,
    Names,
    Period,
    SecretHeaderValue,
    Share,
    refusal,
)
from gateway.config.problems import Finding, unused
from gateway.config.tls import BackendTlsConfig


def _place(place: str) -> str:
    if place.startswith("/"):
        return place
    parts = urlsplit(place)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise refusal(f"expected the absolute path of a file, or a URL such as http://127.0.0.1:8080/, got {VALUE}")
    if parts.username or parts.password:
        raise refusal("the URL contains a password, which would not stay secret; use a header in `headers`")
    if parts.fragment or not place.isascii() or not place.isprintable() or " " in place:
        raise refusal(f"expected a URL without a fragment, in visible ASCII characters, got {VALUE}")
    return place


class PayloadLogConfig(Keys):
    """The payload log: requests and responses of a sample of calls. For all protocols, the log contains V2 messages in
    CloudEvents, like KServe's logger. It contains no header values, API keys or principals."""

    to: Annotated[Name, AfterValidator(_place)]
    """Destination: the absolute path of a file, or a URL for POST requests. The gateway appends one line per event to
    the file, and reopens the file on SIGHUP and at every reload."""
    sample: Share = 0.01
    """Fraction of calls that the gateway logs, chosen at random. The log contains the request, and the response or the
    error."""
    routes: Names | None = None
    """Names of the routes, and of the graphs in `models`, whose calls the gateway logs. Default: all routes except
    routes with `passthrough`, because the gateway does not decode their messages."""
    max_bytes: Annotated[Bytes, Field(le=2**26)] = 64 * 2**10
    """Maximum size of the tensors and parameters that the log shows for one request or response, in bytes. If a tensor
    does not fit into the remaining bytes, the log omits all of its values and marks the tensor."""
    hide: Names = ()
    """Names or globs (`*`, `?`, `[...]`) of tensors and parameters whose values the log hides. The log hides a tensor
    if its name at the client or at the backend matches, or if its name is unknown."""
    tensors: Literal["json", "binary"] = "json"
    """Format of tensors: `json`, as in V2, or `binary`, as in V2's binary tensor data extension (after the JSON)."""
    events: Literal["binary", "structured", "batch"] | None = None
    """Format of events in requests to a URL: with attributes in headers (`binary`, the default, like KServe's logger),
    as one JSON object (`structured`), or as a JSON list of several events (`batch`). In a file, each event is a JSON
    object on one line."""
    source: Name = "modelglot"
    """Attribute `source` of the events: a URI or a name."""
    namespace: str = ""
    """Attribute `namespace` of the events: the namespace of a KServe InferenceService. Default: no attribute."""
    headers: Annotated[Mapping[HeaderName, SecretHeaderValue], EachHeaderOnce] = {}
    """`{NAME: VALUE}`: additional headers for requests to the URL."""
    tls: BackendTlsConfig | None = None
    """TLS settings for the URL. Default for `https`: trust the system's CAs."""
    timeout: Period = 10
    """Timeout of a request to the URL, in seconds. Within this time, the gateway resends an event if the receiver is
    unreachable or returns 429 or 503."""
    memory: Bytes = 64 * 2**20
    """Maximum memory for requests and responses that wait for the file or the receiver, in bytes. Above this limit, the
    gateway drops calls from the log, and counts the dropped calls."""

    @property
    def is_file(self) -> bool:
        """True if `to` is a file."""
        return self.to.startswith("/")

    @property
    def origin(self) -> str:
        """The scheme, host and port of the URL in `to`."""
        parts = urlsplit(self.to)
        return f"{parts.scheme}://{parts.netloc}"

    def findings(self, location: Location, catalog: Catalog) -> Iterator[Finding]:
        """Find keys that do not apply to the destination, and errors in `tls`."""
        if self.is_file:
            for key in _OF_REQUESTS:
                if key in self.model_fields_set:
                    yield Finding((*location, key), "is for a URL in `to`, but `to` is a file; remove it", at_key=True)
        elif self.tls is not None and not self.to.startswith("https:"):
            yield Finding((*location, "tls"), "needs https in `to`", at_key=True)
        elif self.tls is not None:
            yield from self.tls.findings((*location, "tls"), catalog)


_OF_REQUESTS = ("events", "headers", "tls", "timeout")
"""Keys of `log.payloads` that apply only if events are sent to a URL."""


def _log_path(path: str) -> str:
    if path not in ("stdout", "stderr") and not path.startswith("/"):
        raise refusal("expected stdout, stderr or the absolute path of a file, got {value}")
    return path


class AccessConfig(Keys):
    """The access log: one line for each request, written when the request ends. The log contains no header values, keys
    or tensors."""

    when: Literal["auto", "always", "never"] = "auto"
    """When the gateway writes the access log. `auto`: if `format` is `json`, or if `path` is a file or a terminal."""
    sample: Share = 1
    """Fraction of successful requests that the gateway logs. It always logs failed requests."""
    path: Annotated[Name, AfterValidator(_log_path)] = "stdout"
    """`stdout`, `stderr` or the absolute path of a file. The gateway reopens the file on SIGHUP and at every reload."""

    def warnings(self, location: Location) -> Iterator[Finding]:
        """Find keys without effect."""
        for key in ("sample", "path"):
            if self.when == "never" and key in self.model_fields_set:
                yield unused((*location, key), "`when` is never")


class LogConfig(Keys):
    """The gateway's log on standard error, the access log and the payload log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum severity of the gateway's log lines. For libraries, the minimum is always `warning`."""
    format: Literal["text", "json"] = "text"
    """`text`: readable lines, with colors only on a terminal. `json`: one JSON object per line."""
    access: AccessConfig = AccessConfig()
    """The access log, with one line for each request."""
    payloads: PayloadLogConfig | None = None
    """The payload log: requests and responses of a sample of calls, with their tensors. Off if absent."""


class RequestIdsConfig(Keys):
    """Request ids in responses and in requests to backends. Every request has an id in the access log, in traces, and
    in log lines about unexpected errors. If this key is absent, only error responses contain the id."""

    accept: Flag = True
    """Use the client's id: the value of `x-request-id` if it has at most 128 letters, digits and `._:/+=@-`, otherwise
    the trace id in a valid `traceparent`. If `false`, the gateway generates every id."""
    reply: Flag = True
    """Return the id to clients as `x-request-id`, in an HTTP response header or a gRPC trailer."""
    forward: Flag = True
    """Send the id to backends: over HTTP and gRPC as `x-request-id`, over brpc in the frame's meta. The gateway also
    forwards a valid `traceparent` from the client."""


def _ascending(bounds: tuple[float, ...]) -> tuple[float, ...]:
    for at in range(1, len(bounds)):
        if bounds[at] <= bounds[at - 1]:
            raise refusal(f"{VALUE} is not more than the bound before it, {bounds[at - 1]:g}", at)
    return bounds


class MetricsConfig(Keys):
    """`/metrics` on the health port, for Prometheus. If the health port is not enabled, the gateway records no
    metrics."""

    enabled: Flag = True
    """Record metrics, and serve the metrics page."""
    models: Annotated[int, Strict(), Field(ge=0)] = 100
    """Maximum number of models with their own value of the label `model`, in addition to the models with an exact name
    in a route. The first models that return a response have their own values. The gateway counts all other models
    together as `other`."""
    buckets: Annotated[tuple[Period, ...], Field(min_length=1, max_length=50), AfterValidator(_ascending)] = (
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
    )  # fmt: skip
    """Upper bounds of the histogram buckets, in ascending order, in seconds."""

    def warnings(self, location: Location) -> Iterator[Finding]:
        """Find keys without effect."""
        for key in ("models", "buckets"):
            if not self.enabled and key in self.model_fields_set:
                yield unused((*location, key), "`enabled` is false")


def _collector(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise refusal(f"expected a URL such as http://127.0.0.1:4318, got {VALUE}")
    if parts.username or parts.password:
        raise refusal("the URL contains a password, which would not stay secret; use a header in `headers`")
    if find_spec("requests") is None:
        text = 'needs the package of the extra `tracing`: pip install "modelglot[tracing]"'
        raise refusal(text)
    return url if parts.path.strip("/") else f"{url.rstrip('/')}/v1/traces"


class TracingConfig(Keys):
    """OpenTelemetry tracing. Needs `pip install "modelglot[tracing]"`."""

    otlp: Annotated[Name, AfterValidator(_collector)]
    """URL of a collector that accepts OTLP over HTTP. The gateway appends `/v1/traces` to a URL without a path."""
    headers: Annotated[Mapping[HeaderName, SecretHeaderValue], EachHeaderOnce] = {}
    """`{NAME: VALUE}`: headers for requests to the collector."""
    sample: Share = 0.01
    """Fraction of the traces starting at this gateway that the gateway records. If a request has a `traceparent`
    header, the header determines whether the gateway records the trace."""
    service: Name = "modelglot"
    """Value of `service.name` in the spans."""
    interval: Period = 5
    """Interval between batches of spans, in seconds."""
    timeout: Period = 10
    """Timeout for sending a batch to the collector, in seconds. While the collector is slow, the gateway keeps the
    trace data of at most 2048 requests, and drops the rest."""

    def warnings(self, location: Location) -> Iterator[Finding]:
        """Find a collector's port for a protocol that the gateway does not use."""
        if urlsplit(self.otlp).port == 4317:
            text = "4317 is the OTLP port for gRPC, but the gateway uses OTLP over HTTP; write 4318"
            yield Finding((*location, "otlp"), text)
