"""Messages between the supervisor and one worker, over a pair of sockets.

A frame is a 4-byte big-endian length, followed by this number of bytes in Python's `marshal` format, which encode the
list `[kind, number, values]`. `number` is 0 for a message without a reply. Otherwise, the receiver replies with the
kind REPLY or ERROR and the same number. Both ends are processes of one gateway and run the same code, so messages are
not validated.
"""

import asyncio
import inspect
import logging
import marshal
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, TypeAlias

from gateway.core.errors import GatewayError, Reason, Status, TransportError
from gateway.core.surviving import log_survived
from gateway.core.tasks import spawn

log = logging.getLogger(__name__)

Handlers: TypeAlias = Mapping[str, Callable[..., Any]]
"""Maps each kind of message to the function that is called with the message's values.

The reply is the function's result or, if the result is an awaitable, the awaited result.
"""

REPLY, ERROR, CANCEL = "reply", "error", "cancel"


class ChannelClosedError(ConnectionError):
    """The other process has exited or is exiting."""


class Channel(asyncio.Protocol):
    """One end of the connection. The channel calls `lost` when the other end has closed."""

    def __init__(self, handlers: Handlers, lost: Callable[[], None]) -> None:
        self._handlers = handlers
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._number = 0
        self._asked: dict[int, tuple[asyncio.Future[Any], Callable[[Any], None] | None]] = {}
        self._running: dict[int, asyncio.Task[Any]] = {}
        """The tasks for whose replies the other end waits, by the other end's message numbers."""
        self._closed = False

    @property
    def unanswered(self) -> int:
        """The number of messages sent from this end that have no reply yet, including messages whose future was
        cancelled."""
        return len(self._asked)

    def tell(self, kind: str, *values: object) -> None:
        """Send a message that needs no reply. If the channel is closed, do nothing."""
        self._send(kind, 0, values)

    def ask(self, kind: str, *values: object, unclaimed: Callable[[Any], None] | None = None) -> "asyncio.Future[Any]":
        """Send a message and return a future for its reply.

        If the caller cancels the future, notify the other end. If a reply arrives anyway, call `unclaimed` with it.

        The future raises:
            GatewayError: the handler at the other end raised it. ChannelClosedError: the channel is closed, or closes
            during the wait."""
        self._number = number = self._number + 1
        future = asyncio.get_running_loop().create_future()
        if self._closed or self._transport is None:
            future.set_exception(ChannelClosedError())
            return future
        self._asked[number] = future, unclaimed
        future.add_done_callback(lambda done: self._send(CANCEL, 0, (number,)) if done.cancelled() else None)
        self._send(kind, number, values)
        return future

    def close(self) -> None:
        """Close this end."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        self._transport = transport  # type: ignore[assignment]

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`. Fail all pending messages."""
        self._closed = True
        for task in list(self._running.values()):
            task.cancel()
        for future, _ in self._asked.values():
            if not future.done():
                future.set_exception(ChannelClosedError())
                future.exception()  # marks the exception as retrieved; a waiting caller still receives it
        self._asked.clear()
        self._lost()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        received = self._received
        received += data
        at = 0
        while len(received) - at >= 4:
            end = at + 4 + int.from_bytes(received[at : at + 4], "big")
            if len(received) < end:
                break
            kind, number, values = marshal.loads(memoryview(received)[at + 4 : end])
            at = end
            try:
                self._handle(kind, number, values)
            except Exception as error:  # later messages must still be read
                log_survived("a message between the supervisor and a worker", error)
        del received[:at]

    def _send(self, kind: str, number: int, values: object) -> None:
        if self._transport is None or self._closed:
            return
        frame = marshal.dumps([kind, number, values])
        self._transport.write(len(frame).to_bytes(4, "big") + frame)

    def _handle(self, kind: str, number: int, values: Any) -> None:
        if kind in (REPLY, ERROR):
            self._replied(kind, number, values)
        elif kind == CANCEL:
            if (task := self._running.get(values[0])) is not None:
                task.cancel()
        else:
            try:
                result = self._handlers[kind](*values)
            except Exception as error:
                self._failed(number, error)
            else:
                if inspect.iscoroutine(result):
                    self._reply_later(number, result)
                elif number:
                    self._send(REPLY, number, result)

    def _reply_later(self, number: int, waited: Coroutine[Any, Any, Any]) -> None:
        """Reply with the result of `waited`, even if this task is cancelled before it starts."""
        task = spawn(waited)
        if number:
            self._running[number] = task
        task.add_done_callback(partial(self._ended, number))

    def _ended(self, number: int, task: "asyncio.Task[Any]") -> None:
        self._running.pop(number, None)
        if task.cancelled():
            if number:
                self._send(ERROR, number, None)
        elif isinstance(error := task.exception(), Exception):
            self._failed(number, error)
        elif number:
            self._send(REPLY, number, task.result())

    def _failed(self, number: int, error: Exception) -> None:
        if not isinstance(error, GatewayError):
            log.error("unexpected error between the supervisor and a worker", exc_info=error)
        if number:
            self._send(ERROR, number, written_error(error))

    def _replied(self, kind: str, number: int, values: Any) -> None:
        future, unclaimed = self._asked.pop(number)
        if kind == ERROR:
            if not future.done():
                future.set_exception(ChannelClosedError() if values is None else read_error(values))
        elif not future.done():
            future.set_result(values)
        elif unclaimed is not None:
            unclaimed(values)


def written_error(error: Exception) -> tuple[object, ...]:
    """Return the values that represent an error in a message."""
    if not isinstance(error, GatewayError):
        return Status.INTERNAL.value, Reason.INTERNAL.value, "the gateway failed; its log says why", None, None
    sent = error.sent if isinstance(error, TransportError) else None
    return error.status.value, error.reason.value, error.message, error.retry_after, sent


def read_error(values: tuple[Any, ...]) -> GatewayError:
    """Return the error with these values."""
    status, reason, message, retry_after, sent = values
    if sent is not None:
        return TransportError(Status(status), _REASONS[reason], message, sent=sent, retry_after=retry_after)
    return GatewayError(Status(status), _REASONS[reason], message, retry_after)


_REASONS = {each.value: each for each in Reason}
