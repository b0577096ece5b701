"""Makes the Records of a listener's requests."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from gateway.core.frozen import set_field
from gateway.core.protocol import Protocol
from gateway.core.record import Observer, Record, Telling, records_of
from gateway.core.types import Message, bytes_of
from gateway.observing.request_ids import ID, TRACE, accepted_id, new_ids

OnStart: TypeAlias = Callable[[Record, Message, Protocol], None]
"""What is called with a new Record, the message that has arrived, and its protocol."""


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
        self._record = records_of(listener, observers, telling)
        self._accepts_ids = accepts_ids

    def start(self, message: Message, protocol: Protocol) -> Record:
        """The Record of a request that has arrived with `message`, or that is refused; it is set in `message`."""
        record = self._record()
        headers, parts = message.headers.first, message.parts
        if ID in headers or TRACE in headers:
            accepted, record.traceparent = accepted_id(headers)
            record.id = accepted if accepted and self._accepts_ids else next(new_ids)
        else:
            record.id = next(new_ids)
        record.in_protocol = protocol.name
        record.events = None  # it is asked for often, and those of the class are found last
        record.client = message.peer
        record.received = message.received
        record.bytes_in = len(parts[0]) if len(parts) == 1 else bytes_of(message)
        set_field(message, "record", record)
        for start in self._starts:
            start(record, message, protocol)
        return record
