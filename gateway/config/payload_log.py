"""The keys of `log.payloads`: the selection of calls, the visible contents, and the destination of the log."""

from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from gateway.config.fields import (
    VALUE,
    Bytes,
    EachHeaderOnce,
    HeaderName,
    Keys,
    Name,
    Names,
    Period,
    SecretHeaderValue,
    Share,
    refusal,
)
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
    """Fraction of calls that are logged, chosen at random. The gateway logs the request, and the response or the
    error."""
    routes: Names | None = None
    """Names of the routes, and of the graphs in `models`, whose calls are logged. Default: all routes except routes
    with `passthrough`, because the gateway does not decode their messages."""
    max_bytes: Annotated[Bytes, Field(le=2**26)] = 64 * 2**10
    """Maximum size of the tensors and parameters that the log shows for one request or response, in bytes. If a tensor
    does not fit into the remaining bytes, the log omits all of its values and marks the tensor."""
    hide: Names = ()
    """Names or globs (`*`, `?`, `[...]`) of tensors and parameters whose values are hidden. A tensor is hidden if its
    name at the client or at the backend matches, or if its name is unknown."""
    tensors: Literal["json", "binary"] = "json"
    """Format of tensors: `json`, as in V2, or `binary`, as in V2's binary tensor data extension (after the JSON)."""
    events: Literal["binary", "structured", "batch"] | None = None
    """Format of events in requests to a URL: with attributes in headers (`binary`, the default, like KServe's logger),
    as one JSON object (`structured`), or as a JSON list of several events (`batch`). In a file, each event is a JSON
    object in one line."""
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
