"""Makes the Records of a listener's requests."""

from collections.abc import Callable, Sequence
from random import random
from time import monotonic
from typing import TypeAlias

from gateway.core.frozen import set_field
from gateway.core.protocol import Protocol
from gateway.core.record import TIMED, ListenerRecords, Observer, Record, Telling
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
        # What is called with a new Record may give it a place in a trace, which is forwarded.
        forwards = telling.forwards or bool(starts)
        self._of_listener = ListenerRecords(listener, tuple(observers), telling, forwards)
        self._tells = telling.id or telling.route
        self._accepts_ids = accepts_ids

    def _start(self, message: Message, protocol: Protocol) -> Record:
        """The Record of a request that has arrived with `message`, or that is refused; it is set in `message`."""
        headers, parts = message.headers, message.parts
        # Clients that send the same head again share its Headers, in which most have no ids.
        if headers.ids is NO_IDS:
            id, trace = new_id(), b""
        else:
            id, trace = self._ids(headers)
        size = len(parts[0]) if len(parts) == 1 else bytes_of(message)
        # Not `message.received`: the loop's clock, on which that is, has milliseconds only (uvloop).
        record = Record(
            self._of_listener, self._tells, id, trace, protocol.name, message.peer, size, monotonic(),
            random() < SHARE_TIMED,
        )  # fmt: skip
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

    def _ids(self, headers: Headers) -> tuple[str, bytes]:
        """The id of a request with these headers, and the client's `traceparent`."""
        if headers.ids is None:
            headers.ids = accepted_id(headers.first)
        accepted, trace = headers.ids
        return accepted if accepted and self._accepts_ids else new_id(), trace
