"""Ends stalled streams on a connection:

- a request that has stopped arriving, or arrives too slowly,
- a stream in which neither side sends anything,
- a reply that the client receives too slowly.

The caller passes the time.
"""

import typing

from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.http2.connection import Http2Connection, Stream
from gateway.core.http2.frames import ErrorCode
from gateway.core.surviving import log_and_continue
from gateway.transports.reply_progress import ReplyProgress
from gateway.transports.timeouts import Timeouts


class _Call(typing.Protocol):
    """The attributes of a call that this module checks (see ServerCall)."""

    arriving_since: float
    arrived_bytes: int

    @property
    def is_arriving(self) -> bool: ...
    def idle_for_too_long(self, now: float) -> str | None: ...
    def fail(self, error: GatewayError) -> None: ...
    def cancel(self) -> None: ...


def end_stalled(http2: Http2Connection, timeouts: Timeouts, looked: float, now: float) -> None:
    """End the streams of `http2` that have been stalled for longer than `timeouts` allow.

    `looked` is the time of the previous check. While the client reads none of the streams, the check uses the progress
    of the connection instead of the progress of each stream."""
    for stream in list(http2.streams.values()):
        with log_and_continue("checking a gRPC stream"):
            _end_if_stalled(stream, http2, timeouts, looked, now)


def _end_if_stalled(stream: Stream, http2: Http2Connection, timeouts: Timeouts, looked: float, now: float) -> None:
    call: _Call | None = stream.handler
    if call is not None:
        late = _too_slow(call, stream, now, timeouts) if call.is_arriving else call.idle_for_too_long(now)
        if late is not None:
            call.fail(refusal(Reason.REQUEST_TIMEOUT, late))
            return
    unsent = stream.unsent
    if unsent is None:
        return
    if unsent.progress is None:
        unsent.progress = ReplyProgress(unsent.size, now)
        return
    if http2.is_paused:
        unsent.progress.excuse(now - looked)
    if unsent.progress.is_too_slow(unsent.size, now, timeouts):
        http2.reset(stream, ErrorCode.CANCEL)
        if call is not None:
            call.cancel()


def _too_slow(call: _Call, stream: Stream, now: float, timeouts: Timeouts) -> str | None:
    """Return the reason to end the arriving message, or None if it can continue. While the stream's window is closed,
    the client cannot send, so only the time limit for the whole message applies."""
    if stream.room > 0 and now - stream.heard > timeouts.body:
        return f"nothing of the message came for {timeouts.body:g} s"
    waited = now - call.arriving_since
    if waited > timeouts.message:
        return f"the message did not arrive within {timeouts.message:g} s"
    if stream.room > 0 and waited > timeouts.body + call.arrived_bytes / timeouts.rate:
        return f"the message came at less than {timeouts.rate:g} bytes a second"
    return None
