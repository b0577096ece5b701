"""`log.payloads`: which calls the payload log has, what it shows of them, and where it goes."""

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
        raise refusal("the URL has a password, which would be shown; a header in `headers` can carry it")
    if parts.fragment or not place.isascii() or not place.isprintable() or " " in place:
        raise refusal(f"expected a URL without a fragment, in visible ASCII characters, got {VALUE}")
    return place


class PayloadLogConfig(Keys):
    """The payload log: the requests and replies of a share of calls, in the form of V2 whatever protocols are spoken,
    as CloudEvents like those of KServe's logger. It has no values of headers, no keys and no principals."""

    to: Annotated[Name, AfterValidator(_place)]
    """The absolute path of a file, to which a line is appended for each event, and which is opened again on SIGHUP and
    at every reload; or the URL that events are sent to with POST."""
    share: Share = 0.01
    """The share of the calls that are logged, chosen at random for each call: its request and its reply, or the error
    in place of the reply."""
    routes: Names | None = None
    """The names of the routes whose calls are logged, and the names of graphs in `models`. The default is all routes
    except those with `passthrough`, whose messages are not read."""
    most_bytes: Annotated[Bytes, Field(le=2**26)] = 64 * 2**10
    """The most bytes of tensors and parameters that are shown of one request or reply. A tensor that is larger than
    what is left of it is shown without its values, and says so; never a part of one."""
    hide: Names = ()
    """Names or globs (`*`, `?`, `[...]`) of tensors and parameters whose values are not shown. A tensor is hidden if
    the client's or the backend's name of it fits, and if it came without a name that anybody knows."""
    tensors: Literal["json", "binary"] = "json"
    """How tensors are written: as V2's `json`, or in `binary` behind it, by the binary tensor data extension."""
    events: Literal["binary", "structured", "batch"] | None = None
    """How events stand in requests to a URL: their attributes in headers (`binary`, as KServe's logger sends them, the
    default), as one JSON object (`structured`), or several as a JSON list (`batch`). A file has one JSON object in each
    line."""
    source: Name = "modelglot"
    """The attribute `source` of the events: a URI or a name."""
    namespace: str = ""
    """The attribute `namespace` of the events, that of a KServe InferenceService; without it they have none."""
    headers: Annotated[Mapping[HeaderName, SecretHeaderValue], EachHeaderOnce] = {}
    """`{NAME: VALUE}`: further headers of the requests to the URL."""
    tls: BackendTlsConfig | None = None
    """TLS towards the URL. Without it the CAs of the system are trusted for `https`."""
    timeout: Period = 10
    """Seconds that a request to the URL may take. Within them an event is sent again while the receiver cannot be
    reached, or answers 429 or 503."""
    memory: Bytes = 64 * 2**20
    """The most bytes of requests and replies that wait for the file or the receiver. Beyond it calls are not logged,
    but counted as dropped."""

    @property
    def is_file(self) -> bool:
        """Whether `to` is a file."""
        return self.to.startswith("/")

    @property
    def origin(self) -> str:
        """The scheme, host and port of the URL in `to`."""
        parts = urlsplit(self.to)
        return f"{parts.scheme}://{parts.netloc}"
