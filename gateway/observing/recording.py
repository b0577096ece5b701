"""Makes the Records of a listener's requests."""

from collections.abc import Callable, Sequence
from random import random
from time import monotonic
from typing import TypeAlias

from gateway.core.frozen import set_field
from gateway.core.protocol import Protocol
from gateway.core.record import TIMED, Observer, Record, Telling
from gateway.core.transport import StartRecord
from gateway.core.types import Headers, Message, bytes_of
from gateway.observing.request_ids import NO_IDS, accepted_id, new_id

OnStart: TypeAlias = Callable[[Record, Message, Protocol], None]
"""What is called with a new Record, the message that has arrived, and its protocol."""


SHARE_TIMED = 1 / TIMED
"""The share of requests that `is_timed`."""


class Recording:
    """Makes the Records of one listener: `start` is its StartRecord.

    - `observers`: whom the Records go to.
    - `accepts_ids`: the client's request id is used if it sends one.
    - `starts`: what is called with each new Record, its message and protocol.
    """

    def __init__(
        self,
        listener: str,
        observers: Sequence[Observer],
        telling: Telling,
        *,
        accepts_ids: bool = True,
        starts: Sequence[OnStart] = (),
    ) -> None:
        self._starts = tuple(starts)
        self.start: StartRecord = self._start_for_all if starts else self._start
        self._of_listener = (listener, tuple(observers), telling)
        self._accepts_ids = accepts_ids

    def _start(self, message: Message, protocol: Protocol) -> Record:
        """The Record of a request that has arrived with `message`, or that is refused; it is set in `message`."""
        record = Record(*self._of_listener)
        # Not `message.received`: the loop's clock, on which that is, has milliseconds only (uvloop).
        record.received = monotonic()
        # Clients that send the same head again share its Headers, in which most have no ids.
        record.id = new_id() if message.headers.ids is NO_IDS else self._id(record, message.headers)
        record.in_protocol = protocol.name
        record.client = message.peer
        parts = message.parts
        record.bytes_in = len(parts[0]) if len(parts) == 1 else bytes_of(message)
        record.is_timed = random() < SHARE_TIMED
        set_field(message, "record", record)
        return record

    def _start_for_all(self, message: Message, protocol: Protocol) -> Record:
        """As `_start`, for others who are told of the record."""
        record = self._start(message, protocol)
        for start in self._starts:
            start(record, message, protocol)
        if record.events is not None:
            record.is_timed = True
        return record

    def _id(self, record: Record, headers: Headers) -> str:
        """The id of a request with these headers."""
        if headers.ids is None:
            headers.ids = accepted_id(headers.first)
        accepted, record.traceparent = headers.ids
        return accepted if accepted and self._accepts_ids else new_id()
