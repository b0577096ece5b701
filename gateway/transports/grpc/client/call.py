"""One call to a backend: the received part of its reply, and the future for which its caller waits."""

import asyncio
from collections import deque
from collections.abc import MutableSequence

from gateway.core.deadlines import Deadline
from gateway.core.errors import DecodeError, GatewayError, TransportError
from gateway.core.http2.connection import Stream
from gateway.core.http2.hpack import HeadersTooLargeError
from gateway.core.messages import Buffer, Message, reply
from gateway.core.protocol import Limits
from gateway.transports.grpc.client import failures, heads
from gateway.transports.grpc.client.heads import ResponseHead
from gateway.transports.grpc.messages import PREFIX_SIZE, MessageReader, Received, TooLargeError, only_message


class ClientCall:
    """One call.

    If the call is `streamed`, the caller pulls its replies one by one. Otherwise, the call has one reply, and the
    caller waits for the end."""

    __slots__ = (
        "_has_head",
        "_limits",
        "_reader",
        "_waiter",
        "deadline",
        "encoding",
        "end",
        "ends_at",
        "error",
        "held",
        "is_streamed",
        "replies",
        "stream",
    )

    def __init__(self, limits: Limits, *, streamed: bool) -> None:
        self.stream: Stream
        """The HTTP/2 stream, which is set when the call begins."""
        self.encoding = b""
        """The encoding of compressed replies."""
        # Most calls never use this sequence, and creating an empty deque takes as long as the rest of the constructor.
        self.replies: MutableSequence[Received] = deque() if streamed else []
        self.held = 0
        """The size of the replies that the caller has not pulled yet, in bytes."""
        self.end: ResponseHead | None = None
        self.error: TransportError | None = None
        self.ends_at: float | None = None
        """The time of the call's deadline, on the loop's clock."""
        self.deadline: Deadline | None = None
        """Ends a streamed call at `ends_at`. All other calls are cancelled by their callers at this time."""
        self._limits = limits
        self.is_streamed = streamed
        self._reader: MessageReader | None = None
        """The message reader; None until the first data that is not a complete reply."""
        self._has_head = False
        self._waiter: asyncio.Future[Message | None] | None = None

    # For the caller.

    def news(self, loop: asyncio.AbstractEventLoop) -> "asyncio.Future[Message | None]":
        """Return a future that is done when the call has ended or, for a streamed call, when a reply can be pulled. If
        `replied` has accepted a complete reply, the future's result is this reply. Otherwise, the result is None, and
        `pull` and `result` return the reply."""
        self._waiter = waiter = loop.create_future()
        if self.end is not None or self.error is not None or (self.is_streamed and self.replies):
            waiter.set_result(None)
        return waiter

    def pull(self) -> Received | None:
        """Return the next reply, or None if no reply is available."""
        if not self.replies:
            return None
        reply = self.replies[0]
        del self.replies[0]
        self.held -= PREFIX_SIZE + len(reply)
        return reply

    @property
    def is_over(self) -> bool:
        """True if the call has ended or failed."""
        return self.end is not None or self.error is not None

    def is_late(self, now: float) -> bool:
        """Return whether the call's deadline has passed."""
        return self.ends_at is not None and self.ends_at <= now

    def result(self, body: Buffer | None) -> Message:
        """Return the last message of the call: its metadata and, if the call is not streamed, the reply.

        If the status is not 0, the message contains the status and, as its body, the status text.

        Raises:
            TransportError: the call failed, or its reply is missing.
        """
        if self.error is not None:
            raise self.error
        assert self.end is not None
        if self.end.status:
            return Message(headers=self.end.metadata, parts=(self.end.text,), status=self.end.status)
        if body is None and not self.is_streamed:
            raise failures.no_message()
        return reply(self.end.metadata, () if body is None else (body,))

    # For the connection. All methods except `replied` and `fail` raise TransportError for an invalid reply.

    def replied(self, head: bytes, data: memoryview, trailers: bytes) -> bool:
        """Accept a complete reply and return True if the reply and the call have the usual pattern. The reply must
        contain one uncompressed message and status 0. The call must not be streamed, and a caller must be waiting for
        its reply. For any other pattern, do nothing and return False."""
        waiter = self._waiter
        if self.is_streamed or self._has_head or waiter is None:
            return False
        end = heads.plain_end(head, trailers, self._limits.headers)
        if end is None:
            return False
        message = only_message(data, self._limits.message)
        if message is None:
            return False
        self.end = end
        if not waiter.done():  # not counted in memory, because a frame has fewer than MIN_COUNTED bytes
            waiter.set_result(reply(end.metadata, (message,)))
        return True

    def headed(self, block: bytes, *, ends: bool) -> None:
        """Handle a header block."""
        if len(block) > self._limits.headers:
            raise failures.too_much_metadata(self._limits)
        try:
            head = heads.read_response(block, self._limits.headers)
        except DecodeError as error:
            raise failures.malformed(f"reply: {error}") from error
        except HeadersTooLargeError as error:
            raise failures.too_much_metadata(self._limits) from error
        if ends:
            self._finish(head)
        elif self._has_head:
            raise failures.malformed("reply has trailers that do not end it")
        elif not 100 <= head.http_status < 200:
            _check_carrier(head)
            self._has_head = True
            self.encoding = head.encoding

    def received(self, data: memoryview, *, ends: bool) -> bool:
        """Handle data. Return whether the data completes a message."""
        if not self._has_head:
            raise failures.malformed("reply begins without a head")
        if self._reader is None:
            self._reader = MessageReader(self._limits.message)
        try:
            replies = self._reader.read(data)
        except DecodeError as error:
            raise failures.malformed(f"reply: {error}") from error
        except TooLargeError as error:
            raise failures.too_large(error.size, self._limits) from error
        except GatewayError as error:
            raise failures.no_memory(error) from error
        if replies:
            self._arrived(replies)
        if ends:
            raise failures.malformed("reply ended without a status")
        return bool(replies)

    def fail(self, error: TransportError) -> None:
        """End the call with this error."""
        self.error = error
        self._wake()

    def _finish(self, head: ResponseHead) -> None:
        if head.status is None:
            if not self._has_head:
                _check_carrier(head)
            raise failures.malformed("reply ended without a status")
        if head.status == 0 and self._reader is not None and not self._reader.is_between:
            raise failures.malformed("reply ended within a message")
        self.end = head
        self._wake()

    def _arrived(self, replies: list[Received]) -> None:
        self.replies += replies
        if not self.is_streamed:
            if len(self.replies) > 1:
                raise failures.malformed("reply has more than one message")
            return
        self.held += PREFIX_SIZE * len(replies) + sum(map(len, replies))
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _check_carrier(head: ResponseHead) -> None:
    """Raise TransportError if the response is not from a gRPC server."""
    if not head.http_status:
        raise failures.malformed("reply has no HTTP status")
    if head.http_status != 200 or not head.content_type.startswith(b"application/grpc"):
        raise failures.http_answer(head)
