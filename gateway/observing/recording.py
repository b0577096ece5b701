"""Create a Record for each request on a listener, with the client's request id or a new one.
`gateway/assembly/observing.py` creates a Recording for each listener."""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count, cycle
from random import random, shuffle
from time import monotonic
from typing import NamedTuple, TypeAlias

from gateway.core.frozen import set_field
from gateway.core.messages import Message
from gateway.core.protocol import Protocol
from gateway.core.record import ID_HEADER, TIMED, TRACE_HEADER, ListenerRecords, Observer, Record, RecordDisclosure
from gateway.core.spans import UNSAMPLED
from gateway.core.transport import StartRecord

ID, TRACE = ID_HEADER.encode(), TRACE_HEADER.encode()

_SANE = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
"""The pattern of accepted ids. UUIDs, ULIDs, base64 and proxies' ids use only these characters. The gateway copies
accepted ids into logs and headers unchanged."""

# W3C Trace Context, section 3.2: version, trace id, parent id, flags. Later versions can contain more after the flags.
_TRACEPARENT = re.compile(
    rb"(?!ff|00-.{53})[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-[!-~]*)?"
)

_LONGEST_TRACE = 512
"""Maximum size of a `traceparent` in bytes; version 00 has 55. The value stays in memory with the record."""

_LAST_DIGITS = tuple(f"{number:02x}" for number in range(256))


def accepted_id(headers: Mapping[bytes, bytes]) -> tuple[str, bytes]:
    """Return the client's request id and the value of TRACE_HEADER. The id is the value of ID_HEADER if that value is
    valid, otherwise the trace id in TRACE_HEADER, or an empty string. If TRACE_HEADER is missing or invalid, its
    returned value is empty."""
    given, trace = headers.get(ID), headers.get(TRACE)
    accepted = given.decode() if given is not None and _SANE.fullmatch(given) else ""
    if trace is None or len(trace) > _LONGEST_TRACE or (found := _TRACEPARENT.fullmatch(trace)) is None:
        return accepted, b""
    return accepted or found[1].decode(), trace


def _blocks_of_ids() -> Iterator[Iterator[str]]:
    prefix = os.urandom(8).hex()
    for number in count(int.from_bytes(os.urandom(2))):
        block = f"{prefix}{number:06x}"
        yield iter([block + last for last in _LAST_DIGITS])


new_id = chain.from_iterable(_blocks_of_ids()).__next__
"""A function that creates a new id of 24 hexadecimal digits. The first 16 digits are the same in all ids of this
process."""


OnStart: TypeAlias = Callable[[Record, Message, Protocol], None]
"""A function that is called with each new Record, the request's message, and its protocol."""


def _shuffled() -> list[bool]:
    """Return flags in random order. One in TIMED flags is True."""
    flags = [number % TIMED == 0 for number in range(512 * TIMED)]
    shuffle(flags)
    return flags


next_is_timed = cycle(_shuffled()).__next__
"""A function that returns `is_timed` for the next request. It iterates over shuffled flags, because drawing a random
number for each request would take longer."""


class Traces(NamedTuple):
    """The traced requests on a listener: all requests whose client sets the flag, and the fraction `sample` of the
    others. The listener calls `begin` for traced requests; other requests are UNSAMPLED."""

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
        """Return the Record of a request that has arrived in `message`, or that is rejected. Store the Record in
        `message`."""
        accepted, trace = accepted_id(message.headers.first)
        id = accepted if accepted and self._accepts_ids else new_id()
        # Not `message.received`, which uses the loop's clock, because uvloop's clock counts only milliseconds.
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
