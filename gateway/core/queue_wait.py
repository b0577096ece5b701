"""The time that a call waited in a queue: in the headers of its reply, PLACE_HEADER and SECONDS_HEADER, and in the
error if its time is over.

The backend stores the wait in the context of the task that answers the request; `exchange.answer` adds it to the reply.
A call made in a task of its own (a row of a batch) stores it in that task's context, so the reply to the whole request
does not contain it.
"""

import asyncio
from contextvars import ContextVar
from math import inf

from gateway.core.errors import GatewayError, Reason, TransportError, refusal
from gateway.core.frozen import frozen, replace
from gateway.core.types import Headers, Message

PLACE_HEADER = "gateway-queue-place"
"""The header or metadata key with the position of the call when it joined the queue: 1 for the next call."""
SECONDS_HEADER = "gateway-queue-seconds"
"""The header or metadata key with the seconds that the call waited in the queue."""
LATER = 1.0
"""Default number of seconds after which to retry a call that got its slot too late, if the duration of calls is
unknown."""
_PLACE, _SECONDS = PLACE_HEADER.encode(), SECONDS_HEADER.encode()


@frozen
class QueueWait:
    """A wait in a queue. `place`: the value of PLACE_HEADER, for the first queue if there were several; `seconds`: in
    total. `until`: when the last wait ended, on the loop's clock.

    `retry_after`: the call has left the queue without a slot, so nothing was sent; after this many seconds another call
    might get a slot.
    """

    place: int
    seconds: float
    until: float = inf
    retry_after: float | None = None


queue_wait: ContextVar[QueueWait | None] = ContextVar("queue_wait", default=None)
"""The wait of the request that the current task answers; None if it did not wait."""


def note_wait(place: int, seconds: float, retry_after: float | None = None) -> None:
    """Record that the request which the current task answers has waited; with `retry_after`, without success."""
    before = queue_wait.get()
    if before is not None:
        place, seconds = before.place, before.seconds + seconds
    queue_wait.set(QueueWait(place, seconds, asyncio.get_running_loop().time(), retry_after))


def out_of_time(before: str, after: str = "", since: float = -inf) -> GatewayError:
    """Return the error for a call whose time is over, and which began at `since` on the loop's clock. Between its two
    texts it says how much of the time the call waited in queues. If the call left the last queue without a slot, it was
    not sent, and the error says when to retry.

    Must be called in the task that answers the request.
    """
    wait = queue_wait.get()
    if wait is None or wait.until <= since:
        return refusal(Reason.TIMEOUT, before + after)
    seconds = min(wait.seconds, wait.until - since)
    return refusal(
        Reason.TIMEOUT, f"{before}, of which {seconds:.2f} s waiting for a free slot{after}", wait.retry_after
    )


def tell_wait(error: Exception) -> None:
    """Add to the `error` of a call whose time was over before it could be sent how long it had waited for its slot, and
    when to retry. Other errors, and errors of calls without a wait, do not change.

    Must be called in the task that answers the request.
    """
    wait = queue_wait.get()
    if wait is None or not isinstance(error, TransportError) or error.sent or error.reason is not Reason.TIMEOUT:
        return
    error.message = f"{error.message}, after {wait.seconds:.2f} s of waiting for a free slot"
    error.args = (error.message,)
    error.retry_after = error.retry_after or LATER


def with_wait(reply: Message, wait: QueueWait) -> Message:
    """Return `reply` with the headers about `wait`, and remove the wait from the context, because the same task can
    begin the next request of its connection."""
    queue_wait.set(None)
    about = (_PLACE, b"%d" % wait.place), (_SECONDS, b"%.3f" % wait.seconds)
    return replace(reply, headers=Headers((*reply.headers.raw, *about)))
