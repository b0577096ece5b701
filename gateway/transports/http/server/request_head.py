"""Classes that receive, parse and check the head of an HTTP/1 request.

httptools (llhttp, strict) parses the head. llhttp rejects bare LF, folded lines, a space before the colon, control
characters, repeated or malformed Content-Lengths, and Content-Length together with Transfer-Encoding. httptools
receives only heads. HeadReader finds the end of a head, so it can limit the size of the head (`limits.headers`), and
the bytes after the head can wait. `Timeouts.head` limits the time until the head is complete.

RequestHead rejects some heads that llhttp accepts. It rejects a missing or repeated Host header, `Transfer-Encoding:
gzip, chunked`, HTTP/0.9 and HTTP/2.0, fragments, and targets other than a path or an http URL.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from sys import intern
from typing import Any, Protocol, TypeAlias

import httptools

from gateway.core.errors import GatewayError, Reason, invalid_input, refusal
from gateway.core.messages import Headers
from gateway.transports.http.compression import CODINGS
from gateway.transports.memory import FIELD_BYTES, ConnectionMemory

END_OF_HEAD = b"\r\n\r\n"

# Host is uri-host [":" port] (RFC 9110, section 7.2); the status for anything else MUST be 400.
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%!$&'()*+,;=-]*)(?::[0-9]*)?")
_SECONDS = re.compile(rb"[0-9]{1,9}(?:\.[0-9]*)?")

# If one of these fields had two values, different servers could read different requests.
_SINGLE = frozenset(
    (
        b"host",
        b"content-length",
        b"transfer-encoding",
        b"expect",
        b"request-timeout",
        b"inference-header-content-length",
    )
)

_BYTES_PER_FIELD, _FEWEST_FIELDS = 32, 100
"""A head can have one field per `_BYTES_PER_FIELD` bytes of the size limit, but always at least `_FEWEST_FIELDS`
fields. HTTP/2 adds the same number of bytes to the size of each field."""

_VERSIONS = ("1.1", "1.0")
_KEEP_LINES = {"1.1": b"", "1.0": b"Connection: keep-alive\r\n"}

Fields: TypeAlias = Mapping[bytes, bytes]


class UnknownExpectationError(GatewayError):
    """`Expect` has a value other than `100-continue`.

    RFC 9110, section 10.1.1, defines a separate status (417) for this error."""

    def __init__(self, expected: str) -> None:
        reason = Reason.INVALID_INPUT
        super().__init__(
            reason.status, reason, f"Expect: {expected!r} is not supported; send 100-continue, or leave it out"
        )


class Http2PrefaceError(GatewayError):
    """The client uses HTTP/2. The head that ends at `at` is the first line of the HTTP/2 preface (RFC 9113, section
    3.4)."""

    def __init__(self, at: int) -> None:
        error = version_refused()
        super().__init__(error.status, error.reason, error.message)
        self.at = at


class HeadReader:
    """Receives heads sequentially. Each head can arrive in any number of pieces, and has at most `limit` bytes."""

    __slots__ = ("_held", "_parser", "_tail", "complete", "headers", "limit", "size", "target")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = 0
        self._parser: Any = None
        self.start()

    def start(self) -> None:
        """Prepare for the next head."""
        self._tail = b""
        self.size = 0
        self.target = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.complete = False

    def stop(self) -> None:
        """Drop the parser. Otherwise, the parser and this reader, which refer to each other, would stay in memory until
        the next garbage collection."""
        self._parser = None

    def feed(self, data: bytes, at: int) -> int:
        """Continue to read at `at`. Return the position in `data` after the last byte of this head.

        Raises:
            GatewayError: the data is not HTTP/1, or exceeds the limit.
        """
        if not self.size:
            # A new parser costs no more than feeding the body to the old parser, and contains no old state.
            self._parser = httptools.HttpRequestParser(self)
            at = _skip_empty_lines(data, at)
        end = self._end(data, at)
        limit_at = at + self.limit - self.size
        stop = min(end or len(data), limit_at)
        self._parse(data[at:stop])
        self.size += stop - at
        if len(self.headers) > (most := max(_FEWEST_FIELDS, self.limit // _BYTES_PER_FIELD)):
            text = f"the request has more than {most} headers, one for each {_BYTES_PER_FIELD} bytes of limits.headers"
            raise refusal(Reason.HEADERS_TOO_LARGE, f"{text}; send fewer, or raise the limit")
        if end and stop == end and not self.complete:
            raise Http2PrefaceError(stop)  # no other head has bytes after its empty line
        if stop == limit_at and not self.complete:
            text = f"the request line and headers are larger than limits.headers, {self.limit} bytes"
            raise refusal(Reason.HEADERS_TOO_LARGE, f"{text}; send less, or raise the limit")
        return stop

    def hold(self, connection_memory: ConnectionMemory) -> None:
        """Count the memory of the received part of the head. Raises the same errors as `ConnectionMemory.add`."""
        held = 2 * self.size + FIELD_BYTES * len(self.headers)
        connection_memory.add(held - self._held)
        self._held = held

    def release(self, connection_memory: ConnectionMemory) -> None:
        """Stop counting the memory of this head, and prepare for the next head."""
        self.start()
        connection_memory.free(self._held)
        self._held = 0

    @property
    def method(self) -> str:
        """The request's method, which is available when the head is complete."""
        method: bytes = self._parser.get_method()
        return intern(method.decode())  # one shared object for the many heads in the caches

    @property
    def version(self) -> str:
        """The HTTP version in the request, such as `1.1`. The version can be unknown."""
        version: str = self._parser.get_http_version()
        return version

    def on_url(self, piece: bytes) -> None:
        """Handle the target or a piece of it (httptools callback)."""
        self.target += piece

    def on_header(self, name: bytes, text: bytes) -> None:
        """Handle one header (httptools callback). httptools has already removed blanks before the value."""
        self.headers.append((name.lower(), text.rstrip()))

    def on_headers_complete(self) -> None:
        """Handle the empty line after the headers (httptools callback)."""
        self.complete = True

    def _end(self, data: bytes, at: int) -> int:
        """Return the position in `data` after the head's end; 0 if the head continues."""
        if self._tail and (found := (self._tail + data[at : at + 3]).find(END_OF_HEAD)) >= 0:
            return at + found + len(END_OF_HEAD) - len(self._tail)
        found = data.find(END_OF_HEAD, at)
        if found >= 0:
            return found + len(END_OF_HEAD)
        self._tail = (self._tail + data[max(at, len(data) - 3) :])[-3:]
        return 0

    def _parse(self, piece: bytes) -> None:
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            pass  # `Upgrade` and CONNECT, which a server can ignore (RFC 9110, section 7.8)
        except httptools.HttpParserError as error:
            raise _parse_error(str(error)) from error


class ReadHead(Protocol):
    """A head that the gateway has parsed but not checked, such as a complete HeadReader."""

    @property
    def target(self) -> bytes: ...
    @property
    def method(self) -> str: ...
    @property
    def version(self) -> str: ...
    @property
    def headers(self) -> list[tuple[bytes, bytes]]: ...


class RequestHead:
    """The head of a request.

    `length` is the size of the body in bytes, or None for a chunked body. `keep_line` is the Connection line for a
    reply that keeps the connection open. It is empty for HTTP/1.1, which keeps connections open by default."""

    __slots__ = (
        "accepted_coding",
        "expects_continue",
        "fields",
        "headers",
        "keep_alive",
        "keep_line",
        "length",
        "method",
        "path",
        "query",
        "target",
        "version",
    )

    def __init__(self, reader: ReadHead) -> None:
        self.target = reader.target
        self.method = reader.method
        self.version = reader.version
        self.headers = Headers(reader.headers)
        self.path = self.query = ""
        self.accepted_coding = ""
        """The content coding to use for the reply; empty for an uncompressed reply."""

    def check(self) -> None:
        """Check the head, and set the remaining attributes. The constructor does not check the head, because error
        replies need the method and path of invalid heads too.

        Raises:
            GatewayError: the head violates HTTP.
        """
        version = self.version
        self.path, self.query = read_target(self.target)
        if version not in _VERSIONS:
            raise version_refused()
        self.fields = fields = _fields(self.headers)
        _check_host(fields, version)
        self.length = _body_length(fields, version)
        self.expects_continue = b"expect" in fields and _expects_continue(fields, version)
        self.keep_alive = _keep_alive(fields, version)
        self.keep_line = _KEEP_LINES[version]
        # The gateway compresses the reply only if the client requests exactly one coding. By default, many clients list
        # all codings that they support, and would pay for compression that they do not need.
        self.accepted_coding = CODINGS.get(fields.get(b"accept-encoding", b"").decode("latin-1").lower(), "")

    def with_values(self, headers: Headers, length: int) -> "RequestHead":
        """Return a copy of this checked head with other values for fields that do not affect decisions. Each name must
        occur only once in `headers`."""
        head = RequestHead.__new__(RequestHead)
        head.target = self.target
        head.method, head.path, head.query, head.version = self.method, self.path, self.query, self.version
        head.headers, head.fields = headers, headers.first
        head.length = length
        head.expects_continue, head.accepted_coding = self.expects_continue, self.accepted_coding
        head.keep_alive, head.keep_line = self.keep_alive, self.keep_line
        return head

    @property
    def coding(self) -> str:
        """The body's content coding; empty for an uncompressed body.

        Raises:
            GatewayError: UNSUPPORTED_ENCODING if the gateway does not support the coding.
        """
        name = self.fields.get(b"content-encoding", b"").decode("latin-1").lower()
        if name in ("", "identity"):
            return ""
        if name not in CODINGS:
            text = f"Content-Encoding {name[:100]!r} is not supported; gzip, deflate and identity are"
            raise refusal(Reason.UNSUPPORTED_ENCODING, text)
        return CODINGS[name]

    @property
    def timeout(self) -> float | None:
        """The client's `Request-Timeout`, in seconds.

        Raises:
            GatewayError: INVALID_ARGUMENT if the value is not a positive decimal number.
        """
        text = self.fields.get(b"request-timeout")
        if text is None:
            return None
        seconds = float(text) if _SECONDS.fullmatch(text) else 0.0
        if seconds <= 0:
            shown = text.decode("latin-1")[:100]
            raise invalid_input(f"Request-Timeout {shown!r} is not a positive number of seconds")
        return seconds


def read_target(target: bytes) -> tuple[str, str]:
    """Return the path and the query of a request target, which is in origin form or absolute form.

    Raises:
        GatewayError: INVALID_ARGUMENT if the target has another form, or a fragment.
    """
    text = target.decode("latin-1")
    if not text.startswith("/"):
        text = _after_authority(text)
    if "#" in text:
        raise invalid_input("the request target has a fragment; remove it")
    path, _, query = text.partition("?")
    return path, query


def version_refused() -> GatewayError:
    """Return the error for an unsupported HTTP version."""
    return refusal(Reason.VERSION_NOT_SUPPORTED, "only HTTP/1.1 and HTTP/1.0 are supported; send one of them")


def _skip_empty_lines(data: bytes, at: int) -> int:
    """Skip empty lines before the request line (RFC 9112, section 2.2).

    Some clients write an empty line after a body."""
    while at < len(data) and data[at] in b"\r\n":
        at += 1
    return at


def _parse_error(text: str) -> GatewayError:
    # httptools has no exception class for this error; the message is from llhttp.
    if text == "Invalid HTTP version":
        return version_refused()
    return invalid_input(f"the request is malformed HTTP: {text}")


def _after_authority(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        raise invalid_input(f"expected a path or an http URL as request target, got {text[:100]!r}")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    path = rest[len(authority) :]
    return path if path.startswith("/") else "/" + path


def _fields(headers: Headers) -> Fields:
    fields = headers.first
    return fields if len(fields) == len(headers.raw) else _joined(headers.raw)


def _joined(headers: Sequence[tuple[bytes, bytes]]) -> Fields:
    fields: dict[bytes, bytes] = {}
    for name, text in headers:
        if name in _SINGLE and name in fields:
            raise invalid_input(f"the request has more than one {name.decode().title()} header; send it once")
        # several lines of one field form one list (RFC 9110, section 5.3)
        fields[name] = fields[name] + b", " + text if name in fields else text
    return fields


def _check_host(fields: Fields, version: str) -> None:
    host = fields.get(b"host")
    if host is None:
        if version == "1.1":
            raise invalid_input("the request has no Host header, which HTTP/1.1 requires; add it")
    elif not _is_host(host):
        raise invalid_input("the request's Host header is not a host and port; send the host of the URL")


@lru_cache(64)
def _is_host(host: bytes) -> bool:
    return _HOST.fullmatch(host) is not None


def _body_length(fields: Fields, version: str) -> int | None:
    if b"transfer-encoding" in fields:
        if version == "1.0" or fields[b"transfer-encoding"].lower() != b"chunked":
            raise invalid_input("Transfer-Encoding must be chunked and nothing else, and needs HTTP/1.1")
        return None
    return int(fields.get(b"content-length", 0))


def _expects_continue(fields: Fields, version: str) -> bool:
    expected = fields[b"expect"].lower()
    if version == "1.0":
        return False
    if expected != b"100-continue":
        raise UnknownExpectationError(expected.decode("latin-1")[:100])
    return True


def _keep_alive(fields: Fields, version: str) -> bool:
    options = fields.get(b"connection")
    if options is None:
        return version == "1.1"
    if options == b"keep-alive":
        return True
    names = [name.strip() for name in options.lower().split(b",")]
    return b"close" not in names and (version == "1.1" or b"keep-alive" in names)
