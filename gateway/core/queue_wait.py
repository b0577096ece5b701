"""The time that a call waits in queues. `routing` records this time.

Responses contain the position and the time in the headers PLACE_HEADER and SECONDS_HEADER. The message of a timeout
error also contains the time.

The backend stores the wait in the context of the task that handles the request, and `exchange.answer` adds the wait to
the response. Calls that run in their own tasks (batch rows, graph steps) store their waits in the contexts of these
tasks. The caller starts these calls with `PartWaits`, which stores the longest wait for the entire request.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, Token, copy_context
from math import inf
from typing import Any, TypeVar

from gateway.core.errors import GatewayError, Reason, TransportError, refusal
from gateway.core.frozen import frozen, replace
from gateway.core.messages import Headers, Message
from gateway.core.tasks import spawn

T = TypeVar("T")

PLACE_HEADER = "gateway-queue-place"
"""The header or metadata key with the position at which the call joined the queue. Position 1 is the front of the
queue."""
SECONDS_HEADER = "gateway-queue-seconds"
"""The header or metadata key with the number of seconds that the call waited in the queue."""
LATER = 1.0
"""Default number of seconds after which to retry a call that left the queue without a slot, if the duration of calls is
unknown."""
_PLACE, _SECONDS = PLACE_HEADER.encode(), SECONDS_HEADER.encode()


@frozen
class QueueWait:
    """A wait in a queue.

    `place` is the value of PLACE_HEADER. If the call waited in several queues, `place` is the position in the first
    queue. `seconds` is the total time. `until` is the end of the last wait, on the loop's clock.

    `retry_after` is set if the call left the queue without a slot, so the gateway did not send it. A slot might be free
    after this number of seconds.

    `since` is the start of the current wait, on the loop's clock. While this field is set, `seconds` counts only
    earlier waits. `parts_were_sent` is True if the gateway has sent some parts of the call."""

    place: int
    seconds: float
    until: float = inf
    retry_after: float | None = None
    since: float | None = None
    parts_were_sent: bool = False


queue_wait: ContextVar[QueueWait | None] = ContextVar("queue_wait", default=None)
"""The wait of the request that the current task handles; None if the request did not wait."""


def begin_wait(place: int) -> Token[QueueWait | None]:
    """Record that the current task's request starts to wait at the position `place` of a queue. At the end of the wait,
    call `note_wait`. If the request did not need to wait, pass the result to `queue_wait.reset`."""
    before = queue_wait.get()
    seconds, were_sent = 0.0, False
    if before is not None:
        place, seconds, were_sent = before.place, before.seconds, before.parts_were_sent
    now = asyncio.get_running_loop().time()
    return queue_wait.set(QueueWait(place, seconds, since=now, parts_were_sent=were_sent))


def note_wait(place: int, seconds: float, retry_after: float | None = None) -> None:
    """Record that the current task's request has waited. Set `retry_after` if the request did not get a slot."""
    before, were_sent = queue_wait.get(), False
    if before is not None:
        place, seconds, were_sent = before.place, before.seconds + seconds, before.parts_were_sent
    if were_sent:
        retry_after = None
    now = asyncio.get_running_loop().time()
    queue_wait.set(QueueWait(place, seconds, now, retry_after, parts_were_sent=were_sent))


def was_in_vain() -> bool:
    """Return True if the current task's request waited but did not get a slot, so the gateway did not send it."""
    wait = queue_wait.get()
    return wait is not None and wait.retry_after is not None


def note_sent() -> None:
    """Record that the gateway has sent a part of the current task's request, even if the last wait ended without a slot
    for another part."""
    wait = queue_wait.get()
    if wait is not None:
        queue_wait.set(replace(wait, retry_after=None, parts_were_sent=True))


class PartWaits:
    """The waits of calls that are parts of one request, or that several requests share. `spawn` starts a separate task
    for each call."""

    __slots__ = ("_contexts",)

    def __init__(self) -> None:
        self._contexts: list[Context] = []

    def spawn(self, part: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start the task for a part in the same way as `tasks.spawn`."""
        context = copy_context()
        if queue_wait.get() is not None:
            context.run(queue_wait.set, None)
        self._contexts.append(context)
        return spawn(part, context)

    def note(self, since: float = -inf, *, go_on: bool = False) -> None:
        """Record the longest wait of the parts as a wait of the current task's request.

        Some parts can still be waiting. `since` is the time, on the loop's clock, when the request joined the parts.
        `go_on` is True if the parts continue after the request has ended."""
        found = [each.get(queue_wait) for each in self._contexts]
        waits = [each for each in found if each is not None]
        if not waits:
            return
        now = asyncio.get_running_loop().time()
        waits = [_given_up(each, now) for each in waits]
        longest = max(waits, key=lambda each: each.seconds)
        later = [each.retry_after for each in waits if each.retry_after is not None]
        is_unsent = len(later) == len(found) and not go_on
        note_wait(longest.place, min(longest.seconds, now - since), max(later) if is_unsent else None)
        if not is_unsent and len(found) > 1:
            note_sent()


def _given_up(wait: QueueWait, now: float) -> QueueWait:
    """Return `wait` as a wait that ends now without a slot. If `wait` has already ended, return it unchanged."""
    if wait.since is None:
        return wait
    return QueueWait(wait.place, wait.seconds + now - wait.since, now, LATER)


def out_of_time(before: str, after: str = "", since: float = -inf) -> GatewayError:
    """Return the timeout error for a call that began at `since` on the loop's clock.

    The message consists of `before`, the time that the call waited in queues, and `after`. If the call left the last
    queue without a slot, the gateway did not send it, and the error contains the time after which to retry.

    Call this in the task that handles the request."""
    wait = queue_wait.get()
    if wait is None or wait.until <= since:
        return refusal(Reason.TIMEOUT, before + after)
    seconds = min(wait.seconds, wait.until - since)
    return refusal(
        Reason.TIMEOUT, f"{before}, of which {seconds:.2f} s waiting for a free slot{after}", wait.retry_after
    )


def tell_wait(error: Exception) -> None:
    """If the call timed out before the gateway sent it, add to `error` how long the call waited for a slot, and when to
    retry. If the gateway sent parts of the call, remove the retry time of the part that did not get a slot. All other
    errors, and errors of calls that did not wait, stay unchanged.

    Call this in the task that handles the request."""
    wait = queue_wait.get()
    if wait is None or not isinstance(error, GatewayError) or error.reason is not Reason.TIMEOUT:
        return
    if wait.parts_were_sent:
        error.retry_after = None
    if not isinstance(error, TransportError) or error.sent:
        return
    error.message = f"{error.message}, after {wait.seconds:.2f} s of waiting for a free slot"
    error.args = (error.message,)
    error.retry_after = error.retry_after or LATER


def with_wait(reply: Message, wait: QueueWait) -> Message:
    """Return `reply` with the headers for `wait`. The function also removes the wait from the context, because the same
    task can start the next request on its connection."""
    queue_wait.set(None)
    about = (_PLACE, b"%d" % wait.place), (_SECONDS, b"%.3f" % wait.seconds)
    return replace(reply, headers=Headers((*reply.headers.raw, *about)))
