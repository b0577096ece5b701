"""Makes the Records of a listener's requests."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from gateway.core.frozen import set_field
from gateway.core.protocol import Protocol
from gateway.core.record import Observer, Record, Telling
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
        self._listener = listener
        self._observers = tuple(observers)
        self._telling = telling
        self._accepts_ids = accepts_ids

    def start(self, message: Message, protocol: Protocol) -> Record:
        """The Record of a request that has arrived with `message`, or that is refused; it is set in `message`."""
        accepted, traceparent, headers, parts = "", b"", message.headers.first, message.parts
        if ID in headers or TRACE in headers:
            accepted, traceparent = accepted_id(headers)
        record = Record().begin(
            self._observers,
            accepted if accepted and self._accepts_ids else next(new_ids),
            self._listener,
            protocol.name,
            message.peer,
            message.received,
            len(parts[0]) if len(parts) == 1 and type(parts[0]) is bytes else bytes_of(message),
            self._telling,
            traceparent,
        )
        set_field(message, "record", record)
        for start in self._starts:
            start(record, message, protocol)
        return record
