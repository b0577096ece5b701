"""One reply of an endpoint: its bytes in, a Message out. No sockets."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import httptools

from gateway.core.errors import DecodeError, GatewayError, Reason, Status, TransportError
from gateway.core.protocol import Limits
from gateway.core.types import Buffer, Headers, Message, ReplyMessage
from gateway.transports.memory import PROCESS, Arriving

# A sized body of at least this is received straight into its buffer, past the parser, which would copy it.
_LARGE = 64 * 2**10
_VERSIONS = ("1.1", "1.0")
_NO_BODY = (204, 304)  # RFC 9112 section 6.3, whatever their headers say


class Reply:
    """Reads one reply. A new one for each exchange, so that nothing of a reply can reach the next. `close` closes
    its connection.

    `rest`, where there is one, is where the next bytes are to be put, told by `filled`; else they are given to `read`.
    `is_full`: none are to be read for now. `message` is None until the reply is complete; then `keep_alive` tells
    whether its connection can carry another exchange, and `coding` is its Content-Encoding. Every method raises
    TransportError for what is not a good reply. `is_followed`: bytes came behind it that belong to nothing.
    """

    message: Message | None = None
    rest: memoryview | None = None
    keep_alive = False
    coding: bytes | None = None
    is_full = False
    is_followed = False
    _status = 0  # of the final reply; 0 while only interim ones came
    _length: int | None = None
    _until_close = False
    _body: bytes = b""  # all of it, as long as it came in one piece
    _arriving: Arriving | None = None
    _size = 0  # of the body so far
    _fed = 0  # bytes since the body last grew

    def __init__(self, limits: Limits, *, to_head: bool = False, close: Callable[[], None] | None = None) -> None:
        self._limits = limits
        self._close = close
        self._to_head = to_head
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []

    def read(self, data: memoryview) -> Message | None:
        """Take bytes off the wire."""
        size = self._size
        self._fed += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._end_parsing(error)
        if self.message is None:
            self._expect_more(size)
        return self.message

    def filled(self, count: int) -> Message | None:
        """`count` bytes were put into `rest`."""
        assert self.rest is not None
        assert self._arriving is not None
        self._size += count
        with refused_as_overloaded():
            self._arriving.filled(count)
        if self._arriving.missing:
            self._make_room(self._arriving)
        else:
            self._complete(self._parser.should_keep_alive())
        return self.message

    @property
    def has_begun(self) -> bool:
        """Whether anything of it has come."""
        return bool(self._fed or self._status)

    def end(self) -> Message:
        """The peer closed its side: the end of a reply that is delimited so."""
        if not self._until_close:
            raise self.broken_off("closed")
        self._complete(keep_alive=False)
        assert self.message is not None
        return self.message

    def broken_off(self, verb: str) -> TransportError:
        """The error of a connection that the peer `verb` (closed or reset) before the reply was complete."""
        return TransportError(
            Status.UNAVAILABLE, Reason.UNREACHABLE, f"{verb} the connection {self._progress()}", sent=True
        )

    def _progress(self) -> str:
        if not self._fed and not self._status:
            return "before it answered"
        if not self._status:
            return "in the middle of its reply's headers"
        total = "" if self._length is None else f" of {self._length}"
        return f"in the middle of its reply, after {self._size}{total} bytes of the body"

    def _expect_more(self, size_before: int) -> None:
        if self._size != size_before:
            self._fed = 0
        elif self._fed > self._limits.headers:
            # Heads, interim replies, chunk extensions and trailers alike: they may not go on for ever.
            self._refuse_headers()
        if self._arriving is not None and self._length is not None and self._length >= _LARGE:
            self._make_room(self._arriving)

    def _make_room(self, arriving: Arriving) -> None:
        arriving.reserve()
        self.rest = arriving.room

    def _end_parsing(self, error: Exception) -> None:
        """The parser stopped: at bytes behind a complete reply, at a refusal of ours, or at what is not HTTP/1."""
        if self.message is not None:
            self.keep_alive = False
            self.is_followed = True
            return
        if isinstance(error.__context__, TransportError):
            raise error.__context__
        text = "switched protocols" if isinstance(error, httptools.HttpParserUpgrade) else str(error)
        raise malformed(f"reply is not HTTP/1.1: {text}") from error

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self.message is not None:
            raise malformed("bytes after the end of the reply")
        self._fields: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, text: bytes) -> None:
        self._fields.append((name.lower(), text))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return
        if self._parser.get_http_version() not in _VERSIONS:
            raise malformed(f"reply is HTTP/{self._parser.get_http_version()}, expected HTTP/1.1")
        self._status = status
        self._headers, self._fields = self._fields, []  # those that follow the body are dropped
        if self._fed > self._limits.headers:
            self._check_headers()
        self._plan_body(dict(self._headers))

    def on_body(self, data: bytes) -> None:
        size = self._size
        self._size += len(data)
        if self._size > self._limits.message:
            self._refuse_size(f"more than {self._limits.message}")
        if self._arriving is None and not size:
            self._body = data
        else:
            self._append(data)

    def on_message_complete(self) -> None:
        if self._status and self.message is None:
            self._complete(self._parser.should_keep_alive())

    def _plan_body(self, fields: dict[bytes, bytes]) -> None:
        self.coding = fields.get(b"content-encoding")
        length = fields.get(b"content-length")  # digits: the parser saw to it, and to there being only one
        is_coded = b"transfer-encoding" in fields
        if self._to_head or (self._status in _NO_BODY and (length or is_coded)):
            # The parser would wait for a body: what follows is not to be trusted.
            self._complete(keep_alive=False)
        elif is_coded:
            self._check_transfer_codings()
        elif length is None:
            self._until_close = self._status not in _NO_BODY
        else:
            self._plan_sized(int(length))

    def _plan_sized(self, length: int) -> None:
        if length > self._limits.message:
            self._refuse_size(str(length))
        self._length = length
        if length >= _LARGE:
            with refused_as_overloaded():
                PROCESS.check(length)
            self._arriving = Arriving(length, PROCESS)

    def _check_transfer_codings(self) -> None:
        codings = [text for name, text in self._headers if name == b"transfer-encoding"]
        if len(codings) > 1 or codings[0].strip().lower() != b"chunked":
            text = b", ".join(codings).decode("latin-1")
            raise malformed(f"reply has Transfer-Encoding {text!r}, expected chunked")

    def _check_headers(self) -> None:
        if sum(len(name) + len(text) + 4 for name, text in self._headers) > self._limits.headers:
            self._refuse_headers()

    def _append(self, data: bytes) -> None:
        with refused_as_overloaded():
            if self._arriving is None:
                self._arriving = Arriving(self._limits.message, PROCESS)
                self._arriving.append(self._body)
            self._arriving.append(data)

    def _complete(self, keep_alive: bool) -> None:
        body: Buffer = PROCESS.hold(self._body) if self._arriving is None else self._arriving.body
        self.rest = None
        self.message = ReplyMessage(
            status=self._status, headers=Headers(self._headers), parts=(body,), close=self._close
        )
        self.keep_alive = keep_alive
        del self._parser  # it refers back

    def _refuse_headers(self) -> NoReturn:
        raise too_large(f"reply has more than {self._limits.headers} bytes of headers (limits.headers)")

    def _refuse_size(self, size: str) -> NoReturn:
        raise too_large(f"reply's body has {size} bytes, at most {self._limits.message} are allowed (limits.message)")


@contextmanager
def refused_as_overloaded() -> Iterator[None]:
    """Tell that the process has no memory left for a reply as the TransportError that it is to whoever asked."""
    try:
        yield
    except GatewayError as error:
        text = f"reply refused: {error.message}"
        raise TransportError(error.status, error.reason, text, sent=True, answered=True) from error


def malformed(text: str) -> TransportError:
    """The error of what is not a good reply."""
    return TransportError(Status.INTERNAL, Reason.INVALID_OUTPUT, text, sent=True)


def too_large(text: str) -> TransportError:
    """The error of a reply beyond a limit."""
    return TransportError(Status.INTERNAL, Reason.INVALID_OUTPUT, text, sent=True, answered=True)


def unreadable(error: DecodeError | GatewayError) -> TransportError:
    """The error of a body that cannot be cut or inflated: malformed, or too large where it is a GatewayError; or there
    is no memory left for it."""
    if isinstance(error, GatewayError) and error.reason is Reason.OVERLOADED:
        return TransportError(error.status, error.reason, f"reply refused: {error.message}", sent=True)
    make = malformed if isinstance(error, DecodeError) else too_large
    return make(f"reply: {error}")
