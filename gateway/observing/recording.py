"""Create a Record for each request on a listener. `gateway/assembly/observing.py` makes a Recording for each
listener."""

from collections.abc import Callable, Sequence
from itertools import cycle
from random import random, shuffle
from time import monotonic
from typing import NamedTuple, TypeAlias

from gateway.core.frozen import set_field
from gateway.core.messages import Message
from gateway.core.protocol import Protocol
from gateway.core.record import TIMED, ListenerRecords, Observer, Record, RecordDisclosure
from gateway.core.spans import UNSAMPLED
from gateway.core.transport import StartRecord
from gateway.observing.request_ids import accepted_id, new_id

OnStart: TypeAlias = Callable[[Record, Message, Protocol], None]
"""A function that is called with each new Record, the request's message, and its protocol."""


def _shuffled() -> list[bool]:
    """Return flags in random order, of which 1 in TIMED is True."""
    flags = [number % TIMED == 0 for number in range(512 * TIMED)]
    shuffle(flags)
    return flags


next_is_timed = cycle(_shuffled()).__next__
"""A function that returns `is_timed` for the next request. It goes through shuffled flags, because drawing a random
number for each request would take longer."""


class Traces(NamedTuple):
    """The traced requests on a listener: all requests with the client's flag, and the fraction `sample` of the others.
    The listener calls `begin` for traced requests; other requests are UNSAMPLED."""

    sample: float
    begin: OnStart


class Recording:
    """Creates the Records of one listener. The attribute `start` is the listener's StartRecord.

    - `observers`: the receivers of the Records.
    - `accepts_ids`: True if clients can choose the request id.
    - `traces`: The traced requests; None if tracing is off.
    - `starts`: functions to call with each new Record, its message and its protocol.
    - `step_observers`: the receivers of the Records of graph steps.
    """

    def __init__(
        self,
        listener: str,
        observers: Sequence[Observer],
        telling: RecordDisclosure,
        *,
        accepts_ids: bool = True,
        traces: Traces | None = None,
        starts: Sequence[OnStart] = (),
        step_observers: Sequence[Observer] = (),
    ) -> None:
        self._listener = listener
        self._starts = tuple(starts)
        self._start_one: StartRecord = self._start
        self._context = None
        if traces is not None:
            self._start_one = self._start_traced
            self._context = UNSAMPLED
            self._sample, self._trace = traces
        self.start: StartRecord = self._start_for_all if starts else self._start_one
        # With tracing, requests to backends carry the trace context.
        forwards = telling.forwards or traces is not None
        self._of_listener = ListenerRecords(tuple(observers), telling, forwards, tuple(step_observers))
        self._tells = telling.id or telling.route
        self._accepts_ids = accepts_ids

    def _start(self, message: Message, protocol: Protocol, size: int) -> Record:
        """Return the Record of a request that has arrived in `message`, or that is refused. Store the Record in
        `message`."""
        accepted, trace = accepted_id(message.headers.first)
        id = accepted if accepted and self._accepts_ids else new_id()
        # Not `message.received`, which is on the loop's clock: uvloop's clock counts only milliseconds.
        record = Record(
            self._listener, protocol.name, received=monotonic(), bytes_in=size, id=id, client=message.peer,
            of_listener=self._of_listener, tells=self._tells, is_timed=next_is_timed(), traceparent=trace,
            context=self._context,
        )  # fmt: skip
        set_field(message, "record", record)
        return record

    def _start_traced(self, message: Message, protocol: Protocol, size: int) -> Record:
        """Like `_start`, for a request that might be traced."""
        record = self._start(message, protocol, size)
        if record.traceparent or random() < self._sample:
            self._trace(record, message, protocol)
        return record

    def _start_for_all(self, message: Message, protocol: Protocol, size: int) -> Record:
        """Like `_start`, and call `starts` for the Record."""
        record = self._start_one(message, protocol, size)
        for start in self._starts:
            start(record, message, protocol)
        record.is_timed = record.is_timed or record.events is not None
        return record
