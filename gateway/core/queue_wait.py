"""The time that a call waited in a queue: in the headers of its reply, PLACE_HEADER and SECONDS_HEADER, and in the
error if its time is over.

The backend notes the wait in the context of the task that answers the request; `exchange.answer` adds it to the reply.
Calls that are made in tasks of their own (rows of a batch, steps of a graph) note it there. Their caller starts them by
`PartWaits`, which notes the longest of their waits for the request as a whole.
"""

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar, Token, copy_context
from math import inf
from typing import Any, TypeVar

from gateway.core.errors import GatewayError, Reason, TransportError, refusal
from gateway.core.frozen import frozen, replace
from gateway.core.tasks import spawn
from gateway.core.types import Headers, Message

T = TypeVar("T")

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

    `retry_after`: the call has left the queue without a slot, so that nothing was sent; after so many seconds another
    one may get a slot.

    `since`: on the loop's clock, where the call waits still; `seconds` has only the waits before this one.
    `parts_were_sent`: it is the wait of one of several parts of a call, of which others were sent.
    """

    place: int
    seconds: float
    until: float = inf
    retry_after: float | None = None
    since: float | None = None
    parts_were_sent: bool = False


queue_wait: ContextVar[QueueWait | None] = ContextVar("queue_wait", default=None)
"""The wait of the request that the current task answers; None if it did not wait."""


def begin_wait(place: int) -> Token[QueueWait | None]:
    """Note that the request which the current task answers begins to wait, at this place of a queue. At the end of the
    wait, `note_wait` is called; if it was none after all, `queue_wait.reset` with the result."""
    before = queue_wait.get()
    seconds, were_sent = 0.0, False
    if before is not None:
        place, seconds, were_sent = before.place, before.seconds, before.parts_were_sent
    now = asyncio.get_running_loop().time()
    return queue_wait.set(QueueWait(place, seconds, since=now, parts_were_sent=were_sent))


def note_wait(place: int, seconds: float, retry_after: float | None = None) -> None:
    """Note that the request which the current task answers has waited; with `retry_after`, in vain."""
    before, were_sent = queue_wait.get(), False
    if before is not None:
        place, seconds, were_sent = before.place, before.seconds + seconds, before.parts_were_sent
    if were_sent:
        retry_after = None
    now = asyncio.get_running_loop().time()
    queue_wait.set(QueueWait(place, seconds, now, retry_after, parts_were_sent=were_sent))


def was_in_vain() -> bool:
    """Whether the request which the current task answers waited, and was not sent."""
    wait = queue_wait.get()
    return wait is not None and wait.retry_after is not None


def note_sent() -> None:
    """Note that a part of the request which the current task answers has been sent, even if the last wait was in
    vain."""
    wait = queue_wait.get()
    if wait is not None:
        queue_wait.set(replace(wait, retry_after=None, parts_were_sent=True))


class PartWaits:
    """The waits of calls that are parts of one request, or that several requests share. Each is made in a task of its
    own, which `spawn` starts."""

    __slots__ = ("_contexts",)

    def __init__(self) -> None:
        self._contexts: list[Context] = []

    def spawn(self, part: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start the task of a part, as `tasks.spawn`."""
        context = copy_context()
        if queue_wait.get() is not None:
            context.run(queue_wait.set, None)
        self._contexts.append(context)
        return spawn(part, context)

    def note(self, since: float = -inf, *, go_on: bool = False) -> None:
        """Note the longest wait of the parts, which may not have ended, as one of the request that the current task
        answers. It joined the parts at `since`, on the loop's clock. `go_on`: its parts are sent even if it has ended.
        """
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
    """A wait that is given up now, if it has not ended."""
    if wait.since is None:
        return wait
    return QueueWait(wait.place, wait.seconds + now - wait.since, now, LATER)


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
    """Say in the `error` of a call whose time was over before it could be sent how long it had waited for its slot, and
    when to try again. If parts of the call were sent, drop the time to try again which the part that waited in vain has
    named. Nothing happens to other errors, and if it did not wait.

    Must be called in the task that answers the request.
    """
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
    """Return `reply` with the headers about `wait`, and remove the wait from the context, because the same task can
    begin the next request of its connection."""
    queue_wait.set(None)
    about = (_PLACE, b"%d" % wait.place), (_SECONDS, b"%.3f" % wait.seconds)
    return replace(reply, headers=Headers((*reply.headers.raw, *about)))
