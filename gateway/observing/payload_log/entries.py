"""Entries of the payload log: the data of one call, and its events. No I/O."""

from typing import TypeAlias

from msgspec import Struct

from gateway.core.frozen import frozen
from gateway.core.record import OK
from gateway.observing.payload_log import v2
from gateway.observing.payload_log.copies import CopiedMessage
from gateway.observing.payload_log.events import HEADER_LENGTH, JSON, OCTETS, REPLY_TYPE, REQUEST_TYPE, Event, moment

ENTRY_SIZE = 1024
"""Approximate size of an entry without its message, in bytes."""
COMPONENT = "predictor"
"""KServe's name for the part of an InferenceService that runs the model."""


class CallFacts(Struct, frozen=True):
    """The facts of a call that both of its events contain. `id` is the request's id in logs and headers. `message_id`
    is the id that the client wrote into the message, if any. Times are Unix times in seconds."""

    id: str
    message_id: str
    model: str
    version: str
    operation: str
    route: str
    backend: str
    protocol: str
    received: float


class LoggedRequest(Struct, frozen=True):
    """A request as the client sent it."""

    call: CallFacts
    message: CopiedMessage

    @property
    def held(self) -> int:
        """The approximate size of the entry, in bytes."""
        return ENTRY_SIZE + self.message.held


class LoggedReply(Struct, frozen=True):
    """A response, or an error instead of a response, which has no `message`. `number` is the number of the response in
    a stream, starting at 1; it is 0 outside of streams."""

    call: CallFacts
    message: CopiedMessage | None
    ended: float
    status: str = OK
    reason: str = ""
    text: str = ""
    version: str = ""
    number: int = 0

    @property
    def held(self) -> int:
        """The approximate size of the entry, in bytes."""
        return ENTRY_SIZE + (len(self.text) if self.message is None else self.message.held)


Entry: TypeAlias = LoggedRequest | LoggedReply


@frozen
class EventForm:
    """The format of events. `is_binary` is True if tensor data follows the JSON instead of being part of it. `source`
    and `namespace` are the values of the attributes with these names."""

    source: str
    namespace: str = ""
    is_binary: bool = False


def event(entry: Entry, form: EventForm) -> Event:
    """Return the event of an entry."""
    message = entry.message
    attributes = _of_call(entry.call, form)
    if isinstance(entry, LoggedRequest):
        attributes |= {"type": REQUEST_TYPE, "time": moment(entry.call.received)}
    else:
        attributes |= {"type": REPLY_TYPE, "time": moment(entry.ended), "status": entry.status}
        attributes |= {"reason": entry.reason} if entry.reason else {}
        attributes |= {"sequence": str(entry.number)} if entry.number else {}
    attributes["complete"] = message is None or message.is_complete
    if message is None or not form.is_binary:
        return Event(attributes, JSON, _json(entry))
    length, data = _binary(entry, message)
    return Event({**attributes, HEADER_LENGTH: length}, OCTETS, data)


def _json(entry: Entry) -> bytes:
    id = _id_in_message(entry.call)
    if isinstance(entry, LoggedRequest):
        return v2.request_json(id, entry.message)
    if entry.message is None:
        return v2.error_json(id, entry.text)
    return v2.reply_json(id, entry.call.model, entry.version, entry.message)


def _binary(entry: Entry, message: CopiedMessage) -> tuple[int, bytes]:
    id = _id_in_message(entry.call)
    if isinstance(entry, LoggedRequest):
        return v2.request_binary(id, message)
    return v2.reply_binary(id, entry.call.model, entry.version, message)


def _id_in_message(call: CallFacts) -> str:
    return call.message_id or call.id


def _of_call(call: CallFacts, form: EventForm) -> dict[str, str | bool | int]:
    """Return the attributes that both events of a call share. The attributes of KServe's logger come first."""
    found: dict[str, str | bool | int] = {"id": call.id, "source": form.source, "inferenceservicename": call.model}
    found |= {"namespace": form.namespace, "component": COMPONENT, "endpoint": call.backend, "metadata": "{}"}
    found |= {"modelversion": call.version, "operation": call.operation, "route": call.route, "protocol": call.protocol}
    # CloudEvents requires non-empty attribute values
    return {name: each for name, each in found.items() if each != ""}
