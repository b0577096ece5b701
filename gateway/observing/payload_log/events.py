"""Entries of the payload log: the data of one call, and its CloudEvents 1.0 in the format of KServe's logger, with
their HTTP content modes. No I/O.

KServe uses the same `id` for the request and the response of one call, and distinguishes them by their `type`.

The events contain requests and responses as messages of V2 REST (KServe's "Open Inference Protocol", section
"Inference"): as JSON, or as JSON followed by the tensor data (Triton's binary tensor data extension). If a tensor
contains no data, the parameter LEFT_OUT gives the reason. In JSON, NaN and infinities are strings in numpy's spelling.
BYTES that are not UTF-8 are encoded in base64, as the parameter `content_type` indicates."""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any, TypeAlias
from urllib.parse import quote

from msgspec import Raw, Struct

from gateway.core import bytes_elements, json
from gateway.core.datatypes import BYTES
from gateway.core.frozen import frozen
from gateway.core.record import OK
from gateway.core.tensors import Parameters
from gateway.observing.payload_log.copies import CopiedMessage, CopiedTensor

LEFT_OUT, NOT_SHOWN = "log.left_out", "log.not_shown"
"""Parameters for omissions: the reason why a value was omitted, and the number of tensors, parameters and requested
outputs whose names were omitted."""


def request_json(id: str, message: CopiedMessage) -> bytes:
    """Return a request as JSON: `$inference_request`."""
    return _joined(_request(id, message, [_with_data(each) for each in message.tensors]))


def reply_json(id: str, model: str, version: str, message: CopiedMessage) -> bytes:
    """Return a response as JSON: `$inference_response`."""
    return _joined(_reply(id, model, version, message, [_with_data(each) for each in message.tensors]))


def request_binary(id: str, message: CopiedMessage) -> tuple[int, bytes]:
    """Return a request as JSON followed by its data, and the length of the JSON."""
    return _with_raw(_request(id, message, [_with_size(each) for each in message.tensors]), message)


def reply_binary(id: str, model: str, version: str, message: CopiedMessage) -> tuple[int, bytes]:
    """Return a response as JSON followed by its data, and the length of the JSON."""
    return _with_raw(_reply(id, model, version, message, [_with_size(each) for each in message.tensors]), message)


def error_json(id: str, text: str) -> bytes:
    """Return the message for an error instead of a response: `$inference_error_response`, with the request's id."""
    return _joined({"id": readable(id), "error": readable(text)})


def readable(text: str) -> str:
    """Return `text` with unpaired surrogates escaped, because UTF-8 cannot represent them."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _request(id: str, message: CopiedMessage, tensors: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"id": readable(id), **_of_message(message), "inputs": tensors}
    if message.requested:
        found["outputs"] = [{"name": readable(name)} for name in message.requested]
    return found


def _reply(id: str, model: str, version: str, message: CopiedMessage, tensors: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {"model_name": readable(model)}
    if version:
        found["model_version"] = readable(version)
    return {**found, "id": readable(id), **_of_message(message), "outputs": tensors}


def _of_message(message: CopiedMessage) -> dict[str, Any]:
    parameters = _plain(message.parameters)
    if message.left_out:
        parameters[LEFT_OUT] = "; ".join(f"{readable(name)}: {why}" for name, why in message.left_out.items())
    if message.uncounted:
        parameters[NOT_SHOWN] = message.uncounted
    return {"parameters": parameters} if parameters else {}


def _plain(parameters: Parameters) -> dict[str, Any]:
    """Return parameters as values that JSON can represent."""
    return {readable(name): _value(value) for name, value in parameters.items()}


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return readable(value)
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _head(tensor: CopiedTensor, further: Parameters) -> dict[str, Any]:
    parameters = {**_plain(tensor.parameters), **further}
    if tensor.left_out:
        parameters[LEFT_OUT] = f"{tensor.left_out} ({tensor.size} bytes)"
    found: dict[str, Any] = {
        "name": readable(tensor.name), "shape": list(tensor.shape), "datatype": tensor.datatype.value,
    }  # fmt: skip
    return {**found, "parameters": parameters} if parameters else found


def _with_size(tensor: CopiedTensor) -> dict[str, Any]:
    return _head(tensor, {} if tensor.data is None else {"binary_data_size": len(tensor.data)})


def _with_data(tensor: CopiedTensor) -> dict[str, Any]:
    data = tensor.data
    if data is None:
        return _head(tensor, {})
    if tensor.datatype is not BYTES:
        written = Raw(b"".join(json.written(data, tensor.datatype, "string", tensor.name)))
        return {**_head(tensor, {}), "data": written}
    elements = bytes_elements.unpack(data)
    try:
        return {**_head(tensor, {}), "data": [each.decode() for each in elements]}
    except UnicodeDecodeError:
        texts = [b64encode(each).decode() for each in elements]
        return {**_head(tensor, {"content_type": "base64"}), "data": texts}


def _joined(document: dict[str, Any]) -> bytes:
    return b"".join(json.write_message(document))


def _with_raw(document: dict[str, Any], message: CopiedMessage) -> tuple[int, bytes]:
    header = _joined(document)
    return len(header), b"".join((header, *_raw(message)))


def _raw(message: CopiedMessage) -> Iterator[bytes]:
    return (each.data for each in message.tensors if each.data is not None)


REQUEST_TYPE = "org.kubeflow.serving.inference.request"
REPLY_TYPE = "org.kubeflow.serving.inference.response"

JSON, OCTETS = "application/json", "application/octet-stream"
HEADER_LENGTH = "headerlength"
"""For events with the content type OCTETS, the attribute that contains the length of the JSON before the tensor
data."""

_PLAIN = re.compile(r"[!#-$&-~]*")
"""Characters of an attribute's value that are not escaped in a header (CloudEvents' HTTP Protocol Binding, section
3.1.3.2)."""


@frozen
class Event:
    """An event: its attributes, except `specversion` and `datacontenttype`, and its `data`, whose media type is
    `content`."""

    attributes: Mapping[str, str | bool | int]
    content: str
    data: bytes


def moment(seconds: float) -> str:
    """Return a Unix time as the attribute `time`: RFC 3339 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def structured(event: Event) -> bytes:
    """Return the event in the JSON Event Format."""
    return b"".join(json.write_message(_document(event)))


def batch(events: Iterable[Event]) -> bytes:
    """Return events in the JSON Batch Format."""
    return b"".join(json.write_message([_document(each) for each in events]))


def headers(event: Event) -> list[tuple[bytes, bytes]]:
    """Return the attributes as headers for a request with the body `data` (the binary content mode)."""
    attributes = {"specversion": "1.0", **event.attributes}
    return [(f"ce-{name}".encode(), _escaped(_text(value))) for name, value in attributes.items()]


def _document(event: Event) -> dict[str, Any]:
    found = {
        "specversion": "1.0",
        **{name: readable(each) if isinstance(each, str) else each for name, each in event.attributes.items()},
        "datacontenttype": event.content,
    }
    if event.content == JSON:
        return {**found, "data": Raw(event.data)}
    return {**found, "data_base64": b64encode(event.data).decode()}


def _text(value: str | bool | int) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escaped(text: str) -> bytes:
    if _PLAIN.fullmatch(text):
        return text.encode()
    # All characters except those in _PLAIN are encoded as UTF-8 and percent-encoded.
    return quote(readable(text), safe="!#$&'()*+,/:;=?@[]^`{|}<>\\").encode()


ENTRY_SIZE = 1024
"""Approximate size of an entry without its message, in bytes."""
COMPONENT = "predictor"
"""KServe's name for the part of an InferenceService that runs the model."""


class CallFacts(Struct, frozen=True):
    """The facts about a call that all its events contain. `id` is the request's id in logs and headers. `message_id` is
    the id in the client's message, if any. Times are Unix times in seconds."""

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
    a stream, starting at 1, or 0 outside streams."""

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
        return request_json(id, entry.message)
    if entry.message is None:
        return error_json(id, entry.text)
    return reply_json(id, entry.call.model, entry.version, entry.message)


def _binary(entry: Entry, message: CopiedMessage) -> tuple[int, bytes]:
    id = _id_in_message(entry.call)
    if isinstance(entry, LoggedRequest):
        return request_binary(id, message)
    return reply_binary(id, entry.call.model, entry.version, message)


def _id_in_message(call: CallFacts) -> str:
    return call.message_id or call.id


def _of_call(call: CallFacts, form: EventForm) -> dict[str, str | bool | int]:
    """Return the attributes that all events of a call share, starting with the attributes of KServe's logger."""
    found: dict[str, str | bool | int] = {"id": call.id, "source": form.source, "inferenceservicename": call.model}
    found |= {"namespace": form.namespace, "component": COMPONENT, "endpoint": call.backend, "metadata": "{}"}
    found |= {"modelversion": call.version, "operation": call.operation, "route": call.route, "protocol": call.protocol}
    # CloudEvents requires non-empty attribute values
    return {name: each for name, each in found.items() if each != ""}
