"""Reads a reply that contains many messages. The reader splits the body as it arrives; the messages wait until the
caller pulls them."""

import asyncio
from collections import deque
from collections.abc import Callable

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.messages import Buffer, Headers, Message
from gateway.core.protocol import Limits, StreamFraming
from gateway.transports.http.client.reply import ReplyReader, malformed, unreadable

_MAX_WAITING = 64 * 2**10
"""The maximum size of the waiting messages, in bytes. Further bytes stay in the kernel, so the endpoint must wait."""
_OVERHEAD = 64
"""The number of bytes to add to the size of each message: the memory for an empty message."""


class StreamedReplyReader(ReplyReader):
    """Reads one reply.

    `framing` splits the body of a reply with status 200, and `pop` returns the messages. For any other reply, and for
    replies to HEAD, the class works like ReplyReader, and `message` contains the body.

    `news` is set when a message arrives and when the reply ends. `is_paused` is True while too many bytes wait."""

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
        """Handle the end of the reply, which can be incomplete. Wake the task that waits for a message. Mark the error
        as retrieved, in case no task waits."""
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
