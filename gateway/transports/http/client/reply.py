"""Readers that convert the bytes of an endpoint's reply to one Message or many Messages, without sockets.

The reader of many Messages splits the body as it arrives, and stores the Messages until the caller pulls them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import httptools

from gateway.core.errors import DecodeError, GatewayError, Reason, Status, TransportError
from gateway.core.messages import Buffer, Headers, Message, ReplyMessage
from gateway.core.protocol import Limits, StreamFraming
from gateway.transports.errors import beyond_limit
from gateway.transports.http.client.reply_heads import ReplyHead, ReplyHeadCache
from gateway.transports.memory import MIN_COUNTED, PROCESS_MEMORY, ArrivingBody
from gateway.transports.protocol_hints import FIRST_BYTES, foreign

# The gateway receives a body of at least this Content-Length directly into its buffer, because the parser would copy
# it.
_LARGE = 64 * 2**10
_VERSIONS = ("1.1", "1.0")
_NO_BODY = (204, 304)  # RFC 9112, section 6.3: independent of the headers


class ReplyReader:
    """Reads one reply. Each exchange uses a new reader, so one reply cannot affect the next.

    - `to_head`: True if the reply responds to a HEAD request.
    - `close`: Closes the connection.
    - `heads`: The known heads of the endpoint's earlier replies.

    If `body_buffer` is not None, the caller receives the next bytes into it, and reports them with `filled`. Otherwise,
    the caller passes the bytes to `read`. While `is_paused` is True, the caller should not read. `message` is None
    until the reply is complete. Then `keep_alive` is True if the connection can have another exchange. `coding` is the
    Content-Encoding. `has_extra_bytes` is True if bytes that belong to no reply follow the reply. Every method raises
    TransportError for a malformed reply.
    """

    message: Message | None = None
    body_buffer: memoryview | None = None
    keep_alive = False
    coding: bytes | None = None
    is_paused = False
    has_extra_bytes = False
    _status = 0  # 0 until the head of the final reply is complete; interim replies (1xx) do not count
    _length: int | None = None
    _until_close = False
    _body: bytes = b""  # the body while it consists of one piece
    _arriving: ArrivingBody | None = None
    _size = 0  # bytes of the body that have arrived
    _fed = 0  # bytes since the body last grew

    _parser: Any = None  # httptools.HttpResponseParser; it refers to this reader

    def __init__(
        self,
        limits: Limits,
        to_head: bool = False,
        close: Callable[[], None] | None = None,
        heads: ReplyHeadCache | None = None,
    ) -> None:
        self._limits = limits
        self._to_head = to_head
        self._close = close
        self._heads = None if to_head else heads

    def read(self, data: memoryview) -> Message | None:
        """Process `data`. Return the message if it is complete.

        If the first bytes are exactly one complete reply with a known head, the method skips the parser, whose result
        would be the same. The parser reads all other replies."""
        heads = self._heads
        if heads is None:
            return self._parse(data)
        self._heads = None  # only the first bytes can be a head
        first = data.tobytes()
        head = heads.find(first)
        limits = self._limits
        if head is None or head.whole != len(first) or head.size > limits.headers or len(first) > limits.message:
            return self._parse_first(first, heads)
        self.coding = head.coding
        return self._completed(head.headers, first[head.size :], head.status, head.keep_alive)

    def _parse_first(self, data: bytes, heads: ReplyHeadCache) -> Message | None:
        """Process the first bytes with the parser.

        If these bytes are a complete reply with a Content-Length, add its head to the known heads."""
        message, length, whole = self._parse(data), self._length, len(data)
        if message is not None and length is not None:
            size = whole - length
            heads.add(data, ReplyHead(message.headers, self._status, size, whole, self.coding, self.keep_alive))
        return message

    def _parse(self, data: memoryview | bytes) -> Message | None:
        size = self._size
        self._fed += len(data)
        if self._parser is None:
            self._parser = httptools.HttpResponseParser(self)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._end_parsing(error, data)
        if self.message is None:
            self._expect_more(size)
        return self.message

    def filled(self, count: int) -> Message | None:
        """Handle `count` bytes that were received into `body_buffer`. Return the message if it is complete."""
        assert self.body_buffer is not None
        assert self._arriving is not None
        self._size += count
        with overload_as_transport_error():
            self._arriving.filled(count)
        if self._arriving.missing:
            self._make_room(self._arriving)
        else:
            self.complete(self._parser.should_keep_alive())
        return self.message

    def end(self) -> Message:
        """Handle a connection that the peer has closed, and return the message. If the close does not mark the end of
        the reply, raise TransportError."""
        if not self._until_close:
            raise self.broken_off("closed")
        self.complete(keep_alive=False)
        assert self.message is not None
        return self.message

    def stop(self) -> None:
        """Drop the received part of a reply that will stay incomplete. Otherwise, this part would stay in memory until
        the next garbage collection, because the parser and this reader refer to each other."""
        self._parser = self._arriving = self.body_buffer = None
        self._body = b""

    def broken_off(self, verb: str) -> TransportError:
        """Return the error for a connection that ended before the reply was complete. `verb` is "closed" or "reset"."""
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
            # Heads, interim replies, chunk extensions and trailers each have a size limit.
            self._refuse_headers()
        if self._arriving is not None and self._length is not None and self._length >= _LARGE:
            self._make_room(self._arriving)

    def _make_room(self, arriving: ArrivingBody) -> None:
        arriving.reserve()
        self.body_buffer = arriving.unfilled

    def _end_parsing(self, error: Exception, data: memoryview | bytes) -> None:
        """Handle the end of parsing. Possible causes are bytes after a complete reply, an error in a callback, and data
        that is not HTTP/1.
        """
        if self.message is not None:
            self.keep_alive = False
            self.has_extra_bytes = True
            return
        if isinstance(error.__context__, TransportError):
            raise error.__context__
        text = "switched protocols" if isinstance(error, httptools.HttpParserUpgrade) else str(error)
        is_first = not self._status and self._fed == len(data)
        hint = foreign(bytes(data[:FIRST_BYTES]), "http") if is_first else ""
        raise malformed(f"reply is not HTTP/1.1: {text}{hint}") from error

    # Callbacks of the parser.

    def on_message_begin(self) -> None:
        if self.message is not None:
            raise malformed("bytes after the end of the reply")
        self._fields: list[tuple[bytes, bytes]] = []

    def on_header(self, name: bytes, text: bytes) -> None:
        self._fields.append((name.lower(), text))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            if status < 100:
                raise malformed(f"reply has the status {status}, which HTTP/1.1 does not have")
            return
        if self._parser.get_http_version() not in _VERSIONS:
            raise malformed(f"reply is HTTP/{self._parser.get_http_version()}, expected HTTP/1.1")
        self._status = status
        self._headers, self._fields = self._fields, []  # trailers are dropped
        if self._fed > self._limits.headers:
            self._check_headers()
        self.begin_body(dict(self._headers))

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
            self.complete(self._parser.should_keep_alive())

    def begin_body(self, fields: dict[bytes, bytes]) -> None:
        """Handle a complete head, whose headers determine how the body ends."""
        self.coding = fields.get(b"content-encoding")
        length = fields.get(b"content-length")  # the parser accepts only digits, and only one Content-Length
        is_coded = b"transfer-encoding" in fields
        if self._to_head or (self._status in _NO_BODY and (length or is_coded)):
            # The parser would wait for a body. The gateway cannot trust any following bytes.
            self.complete(keep_alive=False)
        elif is_coded:
            self._check_transfer_codings()
        elif length is None:
            self._until_close = self._status not in _NO_BODY
        else:
            self._begin_sized_body(int(length))

    def _begin_sized_body(self, length: int) -> None:
        if length > self._limits.message:
            self._refuse_size(str(length))
        self._length = length
        if length >= _LARGE:
            with overload_as_transport_error():
                PROCESS_MEMORY.check(length)
            self._arriving = ArrivingBody(length, PROCESS_MEMORY)

    def _check_transfer_codings(self) -> None:
        codings = [text for name, text in self._headers if name == b"transfer-encoding"]
        if len(codings) > 1 or codings[0].strip().lower() != b"chunked":
            text = b", ".join(codings).decode("latin-1")
            raise malformed(f"reply has Transfer-Encoding {text!r}, expected chunked")

    def _check_headers(self) -> None:
        if sum(len(name) + len(text) + 4 for name, text in self._headers) > self._limits.headers:
            self._refuse_headers()

    def _append(self, data: bytes) -> None:
        with overload_as_transport_error():
            if self._arriving is None:
                self._arriving = ArrivingBody(self._limits.message, PROCESS_MEMORY)
                self._arriving.append(self._body)
            self._arriving.append(data)

    def complete(self, keep_alive: bool) -> None:
        """Handle the end of the body, and create `message`."""
        body: Buffer = self._body if self._arriving is None else self._arriving.body
        self.body_buffer = None
        self._parser = None
        self._completed(Headers(self._headers), body, self._status, keep_alive)

    def _completed(self, headers: Headers, body: Buffer, status: int, keep_alive: bool) -> Message:
        if self._arriving is None and len(body) >= MIN_COUNTED:
            body = PROCESS_MEMORY.track(body)
        self.message = message = ReplyMessage(headers=headers, parts=(body,), status=status, close=self._close)
        self.keep_alive = keep_alive
        return message

    def _refuse_headers(self) -> NoReturn:
        text = f"reply has more than {self._limits.headers} bytes of headers (limits.headers)"
        raise beyond_limit(f"{text}; raise the limit")

    def _refuse_size(self, size: str) -> NoReturn:
        raise beyond_limit(
            f"reply's body has {size} bytes, at most {self._limits.message} are allowed (limits.message)"
        )


@contextmanager
def overload_as_transport_error() -> Iterator[None]:
    """Return a context that converts the GatewayError for exhausted memory to a TransportError for the exchange."""
    try:
        yield
    except GatewayError as error:
        text = f"reply refused: {error.message}"
        raise TransportError(error.status, error.reason, text, sent=True, answered=True) from error


def malformed(text: str) -> TransportError:
    """Return the error for a reply that violates HTTP."""
    return TransportError(Status.INTERNAL, Reason.INVALID_OUTPUT, text, sent=True)


def unreadable(error: DecodeError | GatewayError) -> TransportError:
    """Return the error for a body that cannot be split or decompressed.

    A DecodeError means that the body is malformed. A GatewayError means that the body is too large or that the process
    does not have enough memory."""
    if isinstance(error, GatewayError) and error.reason is Reason.OVERLOADED:
        return TransportError(error.status, error.reason, f"reply refused: {error.message}", sent=True)
    make = malformed if isinstance(error, DecodeError) else beyond_limit
    return make(f"reply: {error}")


_MAX_WAITING = 64 * 2**10
"""The maximum total size of the waiting messages, in bytes. Further bytes stay in the kernel, so the endpoint must
wait."""
_OVERHEAD = 64
"""The number of bytes to add to the size of each message, which is the memory for an empty message."""


class StreamedReplyReader(ReplyReader):
    """Reads one reply.

    `framing` splits the body of a reply with status 200, and `pop` returns the messages. For any other reply, and for
    replies to HEAD requests, the class works like ReplyReader, and `message` contains the body.

    `news` is set when a message arrives and when the reply ends. `is_paused` is True while too many bytes are
    waiting."""

    is_cut = False
    """True if the reader splits the body into messages, because the status is 200."""

    def __init__(self, limits: Limits, framing: StreamFraming, *, to_head: bool) -> None:
        super().__init__(limits, to_head=to_head)
        self.news = asyncio.Event()
        self._cutter = framing.cutter(limits.message)
        self._keeps_coding = framing.keeps_coding
        self._arrived: deque[Buffer] = deque()
        self._waiting = 0

    def pop(self) -> Message | None:
        """Return the next message, with the reply's status and headers; None if it has not arrived."""
        if not self._arrived:
            self.news.clear()
            self._waiting = 0
            self.is_paused = False
            return None
        return Message(status=self._status, headers=self._all_headers, parts=(self._arrived.popleft(),))

    def ended(self, end: "asyncio.Future[ReplyReader]") -> None:
        """Handle the end of the reply, which can be incomplete, and wake the task that waits for a message. Also mark
        the error as retrieved, in case no task waits."""
        if not end.cancelled():
            end.exception()
        self.news.set()

    def on_body(self, data: bytes) -> None:
        if not self.is_cut:
            super().on_body(data)
            return
        self._size += len(data)
        self._cut(lambda: self._cutter.feed(data))

    def on_chunk_complete(self) -> None:
        if self.is_cut:
            self._cut(self._cutter.boundary)

    def begin_body(self, fields: dict[bytes, bytes]) -> None:
        if self._status != 200 or self._to_head:
            super().begin_body(fields)
            return
        coding = fields.get(b"content-encoding", b"identity").decode("latin-1")
        if coding.strip().lower() != "identity" and not self._keeps_coding:
            # The gateway did not request a Content-Encoding, and no known server uses one.
            raise malformed(f"streamed reply has Content-Encoding {coding!r}, expected an unencoded reply")
        self.is_cut = True
        self._all_headers = Headers(self._headers)
        if b"transfer-encoding" in fields:
            self._check_transfer_codings()
        elif b"content-length" in fields:
            self._length = int(fields[b"content-length"])
        else:
            self._until_close = True

    def complete(self, keep_alive: bool) -> None:
        if self.is_cut:
            self._cut(self._cutter.end)
        super().complete(keep_alive)

    def _cut(self, cut: Callable[[], list[Buffer]]) -> None:
        try:
            messages = cut()
        except (DecodeError, GatewayError) as error:
            raise unreadable(error) from error
        if messages:
            self._arrived.extend(messages)
            self._waiting += sum([len(message) + _OVERHEAD for message in messages])
            self.is_paused = self._waiting > _MAX_WAITING
            self.news.set()
