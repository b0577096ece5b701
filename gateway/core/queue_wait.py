"""Headers that tell a client how long its call waited in a queue: PLACE_HEADER and SECONDS_HEADER.

The backend notes the wait in the context of the task that answers the request; `exchange.answer` adds it to the reply.
A call made in a task of its own (a row of a batch) notes it there, so the reply to the whole does not have it.
"""

from contextvars import ContextVar

from gateway.core.frozen import frozen, replace
from gateway.core.types import Headers, Message

PLACE_HEADER = "gateway-queue-place"
"""The header or metadata key with the place that the call had when it joined the queue: 1 if it was the next one."""
SECONDS_HEADER = "gateway-queue-seconds"
"""The header or metadata key with the seconds that the call waited in the queue."""
_PLACE, _SECONDS = PLACE_HEADER.encode(), SECONDS_HEADER.encode()


@frozen
class QueueWait:
    """A wait in a queue. `place`: as in PLACE_HEADER, of the first queue if there were several; `seconds`: in all."""

    place: int
    seconds: float


queue_wait: ContextVar[QueueWait | None] = ContextVar("queue_wait", default=None)
"""The wait of the request that the current task answers; None if it did not wait."""


def note_wait(place: int, seconds: float) -> None:
    """Note that the request which the current task answers has waited."""
    before = queue_wait.get()
    if before is not None:
        place, seconds = before.place, before.seconds + seconds
    queue_wait.set(QueueWait(place, seconds))


def with_wait(reply: Message, wait: QueueWait) -> Message:
    """`reply` with the headers that tell of `wait`, which is forgotten: the same task may begin the next request of its
    connection."""
    queue_wait.set(None)
    about = (_PLACE, b"%d" % wait.place), (_SECONDS, b"%.3f" % wait.seconds)
    return replace(reply, headers=Headers((*reply.headers.raw, *about)))
