"""Makes the Records of a listener's requests."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from gateway.core.frozen import set_field
from gateway.core.protocol import Protocol
from gateway.core.record import Observer, Record
from gateway.core.types import Message, bytes_of
from gateway.observing.request_ids import request_id

OnStart: TypeAlias = Callable[[Record, Message, Protocol], None]
"""What is called with a new Record, the message that has arrived, and its protocol."""


class Recording:
    """A StartRecord for one listener, whose Records go to `observers`.

    `starts`: what is called with each new Record, its message and protocol.
    `tells_id`: replies have the request id. `tells_route`: they name route, backend and tries.
    """

    def __init__(
        self,
        listener: str,
        observers: Sequence[Observer],
        *,
        tells_id: bool = False,
        tells_route: bool = False,
        starts: Sequence[OnStart] = (),
    ) -> None:
        self._starts = tuple(starts)
        self._listener = listener
        self._observers = tuple(observers)
        self._tells_id = tells_id
        self._tells_route = tells_route

    def __call__(self, message: Message, protocol: Protocol) -> Record:
        """The Record of a request that has arrived with `message`, or that is refused; it is set in `message`."""
        record = Record(
            self._observers,
            request_id(message.headers),
            self._listener,
            protocol.name,
            message.peer,
            message.received,
            bytes_of(message),
            self._tells_id,
            self._tells_route,
        )
        set_field(message, "record", record)
        for start in self._starts:
            start(record, message, protocol)
        return record
