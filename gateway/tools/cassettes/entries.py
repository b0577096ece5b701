"""Entries of a recording. An entry is one recorded request with its response, encoded as a line of JSON. `recorder`
creates entries, `files` reads and writes their lines, and `replaying` uses them.

docs/record-and-replay.md documents the format. Readers ignore unknown members. A change that old readers would
misinterpret increments VERSION.
"""

import math
from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.core import bytes_elements
from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.errors import REASONS, DecodeError, GatewayError, Reason, Status
from gateway.core.frozen import frozen
from gateway.core.messages import Buffer, Headers, Message
from gateway.core.operations import CALLS, Operation
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import MAX_RANK, Parameters, Tensor
from gateway.policies.comparing import Outcome

FORMAT = "gateway-cassette"
VERSION = 1

RECORDED = CALLS - {Operation.STREAM}
"""The operations whose requests are recorded."""

_PIECE = 3 * 2**16
"""Number of bytes to encode in base64 in one step. Larger pieces would block all other threads for too long. The number
is a multiple of 3, which allows joining the base64 texts of the pieces."""


class CassetteError(Exception):
    """The file is not a recording, or its content is invalid. The message states the position, the fault and the
    expected content."""


@frozen
class Entry:
    """One recorded request.

    - `at`: the time when the request arrived, in ISO 8601. `seconds`: the time from the arrival to the complete
      response.
    - `protocol`: the client's protocol. `listener`, `route`, `backend`: the parts of the gateway that handled the
      request.
    - `request` (JSON member `request`): the request as decoded by the codec, before any conversion for a model.
      `message` (JSON member `request_wire`): the encoded request.
    - `outcome` (JSON member `reply`): the response or error for the client. `reply` (JSON member `reply_wire`): the
      encoded response.
    """

    at: str
    protocol: str
    listener: str
    route: str
    backend: str
    request: Request
    message: Message
    outcome: Outcome
    reply: Message
    seconds: float


# --- Writing ---


def header_line(made_by: str) -> bytes:
    """Return the first line of a recording."""
    return orjson.dumps({"format": FORMAT, "version": VERSION, "made_by": made_by}) + b"\n"


def entry_line(entry: Entry) -> bytes:
    """Return the line of an entry.

    Raises:
        TypeError: a string is not valid Unicode, or a number is too large for the JSON writer.
    """
    request, outcome = entry.request, entry.outcome
    document = {
        "at": entry.at,
        "seconds": round(entry.seconds, 9),
        "protocol": entry.protocol,
        "listener": entry.listener,
        "route": entry.route,
        "backend": entry.backend,
        "request": {
            "operation": request.operation.value,
            "model": request.model,
            "version": request.version,
            "id": request.id,
            "inputs": _tensors(request.inputs),
            "outputs": [{"name": each.name, "parameters": _parameters(each.parameters)} for each in request.outputs],
            "parameters": _parameters(request.parameters),
            "schemaless": request.schemaless,
        },
        "reply": _outcome(outcome),
        "request_wire": {
            "method": entry.message.method,
            "path": entry.message.path,
            "query": entry.message.query,
            **_wire(entry.message),
        },
        "reply_wire": {"status": entry.reply.status, **_wire(entry.reply)},
    }
    return orjson.dumps(document) + b"\n"


def _outcome(outcome: Outcome) -> dict[str, object]:
    if isinstance(outcome, GatewayError):
        return {"status": outcome.status.name, "reason": outcome.reason.value, "message": outcome.message}
    return {
        "status": Status.OK.name,
        "model": outcome.model,
        "version": outcome.version,
        "outputs": _tensors(outcome.outputs),
        "parameters": _parameters(outcome.parameters),
    }


def _tensors(tensors: Sequence[Tensor]) -> list[dict[str, object]]:
    return [
        {
            "name": each.name,
            "datatype": each.datatype.value,
            "shape": each.shape,
            "data": _base64((each.data,)),
            "content_type": each.content_type,
            "untyped": each.untyped,
            "parameters": _parameters(each.parameters),
        }
        for each in tensors
    ]


def _parameters(parameters: Parameters) -> dict[str, object]:
    """Return the parameters for JSON. JSON cannot represent NaN and infinities, so the file contains {"float": "nan"}
    instead."""
    return {
        name: {"float": str(value)} if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in parameters.items()
    }


def _wire(message: Message) -> dict[str, object]:
    return {"headers": list(message.headers), "body": _base64(message.parts)}


def _base64(parts: Sequence[Buffer]) -> orjson.Fragment:
    """Return the base64 of these buffers, joined, as a JSON text."""
    data = memoryview(parts[0] if len(parts) == 1 else b"".join(parts)).cast("B")
    pieces = [b2a_base64(data[at : at + _PIECE], newline=False) for at in range(0, len(data), _PIECE)]
    return orjson.Fragment(b'"%b"' % b"".join(pieces))


# --- Reading ---


class _Document(BaseModel):
    model_config = ConfigDict(strict=True)


class _Float(_Document):
    float: Literal["nan", "inf", "-inf"]


_Parameters: TypeAlias = dict[str, bool | int | float | str | _Float]


class _TensorDocument(_Document):
    name: str
    datatype: str
    shape: Annotated[list[Annotated[int, Field(ge=0)]], Field(max_length=MAX_RANK)]
    data: str
    content_type: str = ""
    untyped: bool = False
    parameters: _Parameters = {}


class _RequestedOutputDocument(_Document):
    name: str
    parameters: _Parameters = {}


class _RequestDocument(_Document):
    operation: str
    model: str = ""
    version: str = ""
    id: str | None = None
    inputs: list[_TensorDocument] = []
    outputs: list[_RequestedOutputDocument] = []
    parameters: _Parameters = {}
    schemaless: bool = False


class _ReplyDocument(_Document):
    status: str
    reason: str = ""
    message: str = ""
    model: str = ""
    version: str = ""
    outputs: list[_TensorDocument] = []
    parameters: _Parameters = {}


class _WireDocument(_Document):
    method: str = ""
    path: str = ""
    query: str = ""
    status: int = 0
    headers: list[Annotated[list[str], Field(min_length=2, max_length=2)]] = []
    body: str = ""


class _EntryDocument(_Document):
    at: str = ""
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    protocol: str
    listener: str = ""
    route: str = ""
    backend: str = ""
    request: _RequestDocument
    reply: _ReplyDocument
    request_wire: _WireDocument = _WireDocument()
    reply_wire: _WireDocument = _WireDocument()


class _HeaderDocument(_Document):
    format: Literal["gateway-cassette"]
    version: int


_D = TypeVar("_D", bound=BaseModel)


def check_header(line: bytes) -> None:
    """Raise CassetteError if the line is not the first line of a recording, or if it states a version other than
    VERSION."""
    try:
        header = _HeaderDocument.model_validate(orjson.loads(line))
    except ValueError:
        raise CassetteError(
            f'this is not a recording: expected a first line such as {{"format": "{FORMAT}", "version": {VERSION}}}'
        ) from None
    if header.version != VERSION:
        raise CassetteError(
            f"this recording has version {header.version}; record again with this gateway, which reads version "
            f"{VERSION}"
        )


def read_entry(line: bytes) -> Entry:
    """Return the entry in a line.

    Raises:
        CassetteError: the line is malformed.
    """
    document = _validated(_EntryDocument, line)
    asked, reply = document.request, document.reply
    request = Request(
        _operation(asked.operation),
        asked.model,
        asked.version,
        asked.id,
        _read_tensors(asked.inputs, "request.inputs"),
        tuple(RequestedOutput(each.name, _read_parameters(each.parameters)) for each in asked.outputs),
        _read_parameters(asked.parameters),
        protocol=document.protocol,
        schemaless=asked.schemaless,
    )
    return Entry(
        at=document.at,
        protocol=document.protocol,
        listener=document.listener,
        route=document.route,
        backend=document.backend,
        request=request,
        message=_read_wire(document.request_wire, "request_wire"),
        outcome=_read_outcome(reply),
        reply=_read_wire(document.reply_wire, "reply_wire"),
        seconds=document.seconds,
    )


def _validated(kind: type[_D], line: bytes) -> _D:
    try:
        return kind.model_validate(orjson.loads(line))
    except orjson.JSONDecodeError as error:
        raise CassetteError(f"not JSON: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the line"
        raise CassetteError(f"{place}: {first['msg']}") from None


def _operation(word: str) -> Operation:
    known = {each.value: each for each in Operation if each in RECORDED}
    if word not in known:
        raise CassetteError(f"request.operation: {word[:40]!r} is unknown; expected one of {', '.join(known)}")
    return known[word]


def _read_tensors(documents: Sequence[_TensorDocument], place: str) -> tuple[Tensor, ...]:
    return tuple(_read_tensor(each, f"{place}.{at}") for at, each in enumerate(documents))


def _read_tensor(document: _TensorDocument, place: str) -> Tensor:
    datatype = DATATYPES.get(document.datatype)
    if datatype is None:
        raise CassetteError(f"{place}.datatype: {document.datatype[:40]!r} is not one of {', '.join(DATATYPES)}")
    data, shape = _decoded(document.data, f"{place}.data"), tuple(document.shape)
    elements = math.prod(shape)
    if datatype is Datatype.BYTES:
        try:
            found = bytes_elements.count(data)
        except DecodeError as error:
            raise CassetteError(f"{place}.data: {error}") from None
        if found != elements:
            raise CassetteError(f"{place}.data: {found} elements, and the shape {list(shape)} has {elements}")
    elif len(data) != elements * datatype.size:
        wanted = f"{datatype.value} of shape {list(shape)} takes {elements * datatype.size}"
        raise CassetteError(f"{place}.data: {len(data)} bytes, and {wanted}")
    parameters = _read_parameters(document.parameters)
    return Tensor(document.name, datatype, shape, data, document.content_type, parameters, document.untyped)


def _read_parameters(parameters: _Parameters) -> Parameters:
    return {name: float(value.float) if isinstance(value, _Float) else value for name, value in parameters.items()}


def _read_outcome(reply: _ReplyDocument) -> Outcome:
    if reply.status not in Status.__members__:
        raise CassetteError(
            f"reply.status: {reply.status[:40]!r} is unknown; expected one of {', '.join(Status.__members__)}"
        )
    status = Status[reply.status]
    if status is not Status.OK:
        return GatewayError(status, REASONS.get(reply.reason, Reason.MODEL_ERROR), reply.message)
    outputs = _read_tensors(reply.outputs, "reply.outputs")
    return Response(outputs, reply.model, reply.version, parameters=_read_parameters(reply.parameters))


def _read_wire(document: _WireDocument, place: str) -> Message:
    headers = Headers([(_latin(name, place), _latin(value, place)) for name, value in document.headers])
    body = _decoded(document.body, f"{place}.body")
    return Message(document.method, document.path, headers, (body,) if body else (), document.status, document.query)


def _latin(text: str, place: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise CassetteError(f"{place}.headers: {text[:40]!r} is not Latin-1") from None


def _decoded(text: str, place: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError as error:
        raise CassetteError(f"{place}: not base64: {error}") from None
