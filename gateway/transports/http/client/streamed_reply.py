"""A reply of many messages: its body is cut as it arrives, and the messages wait here until they are taken."""

import asyncio
from collections import deque
from collections.abc import Callable

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.protocol import Limits, StreamFraming
from gateway.core.types import Buffer, Headers, Message
from gateway.transports.http.client.reply import Reply, malformed, unreadable

_ENOUGH = 64 * 2**10
"""Bytes of messages that may wait; more stays in the kernel, which holds the endpoint back."""
_LEAST = 64
"""What a message counts at least: the memory that an empty one takes."""


class StreamedReply(Reply):
    """Reads one reply. The body of a 200 is cut by `framing` as it comes, and `pop` gives its messages; any other
    reply, and one to HEAD, is read whole: `message` has its body, as a Reply's has.

    `news` is set when a message arrives. `is_full` while so many wait that no more is to be read.
    """

    is_cut = False
    """Whether this is a 200, whose messages are popped."""

    def __init__(self, limits: Limits, framing: StreamFraming, *, to_head: bool) -> None:
        super().__init__(limits, to_head=to_head)
        self.news = asyncio.Event()
        self._cutter = framing.cutter(limits.message)
        self._keeps_coding = framing.keeps_coding
        self._arrived: deque[Buffer] = deque()
        self._waiting = 0

    def pop(self) -> Message | None:
        """The next message, with the status and the headers of the reply; None if it has not arrived."""
        if not self._arrived:
            self.news.clear()
            self._waiting = 0
            self.is_full = False
            return None
        return Message(status=self._status, headers=self._all_headers, parts=(self._arrived.popleft(),))

    def ended(self, end: "asyncio.Future[Reply]") -> None:
        """The reply is complete or broken off: whoever waits for a message has to look. If nobody does, the error is
        nobody's."""
        if not end.cancelled():
            end.exception()
        self.news.set()

    def on_body(self, data: bytes) -> None:
        if not self.is_cut:
            super().on_body(data)
            return
        self._size += len(data)
        self._keep(lambda: self._cutter.feed(data))

    def on_chunk_complete(self) -> None:
        if self.is_cut:
            self._keep(self._cutter.boundary)

    def _plan_body(self, fields: dict[bytes, bytes]) -> None:
        if self._status != 200 or self._to_head:
            super()._plan_body(fields)
            return
        coding = fields.get(b"content-encoding", b"identity").decode("latin-1")
        if coding.strip().lower() != "identity" and not self._keeps_coding:
            # Nobody asked for it, and no known server does it.
            raise malformed(f"streamed reply has Content-Encoding {coding!r}, expected none")
        self.is_cut = True
        self._all_headers = Headers(self._headers)
        if b"transfer-encoding" in fields:
            self._check_transfer_codings()
        elif b"content-length" in fields:
            self._length = int(fields[b"content-length"])
        else:
            self._until_close = True

    def _complete(self, keep_alive: bool) -> None:
        if self.is_cut:
            self._keep(self._cutter.end)
        super()._complete(keep_alive)

    def _keep(self, cut: Callable[[], list[Buffer]]) -> None:
        try:
            messages = cut()
        except (DecodeError, GatewayError) as error:
            raise unreadable(error) from error
        if messages:
            self._arrived.extend(messages)
            self._waiting += sum([len(message) + _LEAST for message in messages])
            self.is_full = self._waiting > _ENOUGH
            self.news.set()
