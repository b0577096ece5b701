"""What the head of an HTTP/1 request says, and the refusal of what httptools lets through: no Host or two,
`Transfer-Encoding: gzip, chunked`, HTTP/0.9 and HTTP/2.0, fragments, and every form of target."""

import re
from collections.abc import Sequence
from functools import lru_cache

from gateway.core.errors import GatewayError, Reason, invalid_input, refusal
from gateway.core.types import Headers
from gateway.transports.http.compression import CODINGS
from gateway.transports.http.server.reading import HeadReader, version_refused

# RFC 9110 section 7.2: Host is uri-host [":" port]; anything else MUST be answered 400.
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~%!$&'()*+,;=-]*)(?::[0-9]*)?")
_SECONDS = re.compile(rb"[0-9]{1,9}(?:\.[0-9]*)?")

# Where two values would be two different requests, depending on who reads them.
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

_VERSIONS = ("1.1", "1.0")

Fields = dict[bytes, bytes]


class UnknownExpectationError(GatewayError):
    """`Expect` asks for something else than `100-continue`: RFC 9110 section 10.1.1 gives it a number of its own."""

    def __init__(self, expected: str) -> None:
        reason = Reason.INVALID_INPUT
        super().__init__(reason.status, reason, f"Expect: {expected!r} is not known; only 100-continue is")


class Head:
    """What a request's head says. `length` is the body's in bytes, None if it is chunked."""

    __slots__ = (
        "_target", "expects_continue", "fields", "headers", "keep_alive", "length", "method", "path", "query", "version"
    )  # fmt: skip

    def __init__(self, reader: HeadReader) -> None:
        self._target = reader.target
        self.method = reader.method
        self.version = reader.version
        self.headers = Headers(reader.headers)
        self.path = self.query = ""

    def check(self) -> None:
        """Read the rest, which may be wrong.

        Raises:
            GatewayError: it is.
        """
        version = self.version
        self.path, self.query = read_target(self._target)
        if version not in _VERSIONS:
            raise version_refused()
        self.fields = fields = _fields(self.headers.raw)
        _check_host(fields, version)
        self.length = _body_length(fields, version)
        self.expects_continue = b"expect" in fields and _expects_continue(fields, version)
        self.keep_alive = _keep_alive(fields, version)

    @property
    def coding(self) -> str:
        """The body's content coding, empty for none.

        Raises:
            GatewayError: UNSUPPORTED_ENCODING.
        """
        name = self.fields.get(b"content-encoding", b"").decode("latin-1").lower()
        if name in ("", "identity"):
            return ""
        if name not in CODINGS:
            text = f"Content-Encoding {name[:100]!r} is not supported; gzip, deflate and identity are"
            raise refusal(Reason.UNSUPPORTED_ENCODING, text)
        return CODINGS[name]

    @property
    def accepted_coding(self) -> str:
        """The one coding the client asks the reply to be in, else empty: many clients name all that they know by
        default, and would pay for it."""
        return CODINGS.get(self.fields.get(b"accept-encoding", b"").decode("latin-1").lower(), "")

    @property
    def timeout(self) -> float | None:
        """`Request-Timeout` in seconds.

        Raises:
            GatewayError: INVALID_ARGUMENT, not a positive decimal number.
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
    """The path and the query of a request's target, in origin form or absolute form.

    Raises:
        GatewayError: INVALID_ARGUMENT, another form, or with a fragment.
    """
    text = target.decode("latin-1")
    if not text.startswith("/"):
        text = _after_authority(text)
    if "#" in text:
        raise invalid_input("the request target has a fragment, which no client may send")
    path, _, query = text.partition("?")
    return path, query


def _after_authority(text: str) -> str:
    scheme, separator, rest = text.partition("://")
    if not separator or scheme.lower() not in ("http", "https"):
        raise invalid_input(f"the request target {text[:100]!r} is neither a path nor an http URL")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    path = rest[len(authority) :]
    return path if path.startswith("/") else "/" + path


def _fields(headers: Sequence[tuple[bytes, bytes]]) -> Fields:
    fields = dict(headers)
    return fields if len(fields) == len(headers) else _joined(headers)


def _joined(headers: Sequence[tuple[bytes, bytes]]) -> Fields:
    fields: Fields = {}
    for name, text in headers:
        if name in _SINGLE and name in fields:
            raise invalid_input(f"the request has more than one {name.decode().title()} header")
        # RFC 9110 section 5.3: several lines of one field are one list
        fields[name] = fields[name] + b", " + text if name in fields else text
    return fields


def _check_host(fields: Fields, version: str) -> None:
    host = fields.get(b"host")
    if host is None:
        if version == "1.1":
            raise invalid_input("the request has no Host header, which HTTP/1.1 requires")
    elif not _is_host(host):
        raise invalid_input("the request's Host header is not a host and port")


@lru_cache(64)
def _is_host(host: bytes) -> bool:
    return _HOST.fullmatch(host) is not None


def _body_length(fields: Fields, version: str) -> int | None:
    if b"transfer-encoding" in fields:
        if version == "1.0" or fields[b"transfer-encoding"].lower() != b"chunked":
            raise invalid_input("the only Transfer-Encoding is chunked, alone and in HTTP/1.1")
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
