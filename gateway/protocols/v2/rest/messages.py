"""Types for the messages of an inference, with names and order as in the specification (section "Inference").

    {"id": "1", "inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1.5, 2.5]}]}

msgspec reads the members in one pass and keeps the contents of tensors as text; it also writes them from text. In
documents above CUT_FROM bytes, the contents are cut out first, so they are not scanned twice. A member that is missing
is UNSET, a member that is null is None. Both mean that it is absent: KServe and MLServer write null for missing values.

msgspec ignores members without a field, and keeps the last of equal keys. Therefore colons are counted: a message that
is written again has as many colons as its document only if each member was read. If the typed reader might not read a
document completely, the general reader (`general_request`, `general_response`) reads it. It reports errors, or returns
the same messages (a missing id is None in that case, and missing outputs are []).

A new member needs a field in this module and an argument in the general reader; `server`, `client` and `core.types`
must then carry it.
"""

import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.core import json
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.json import Array, ArrayForm, Pieces, Text
from gateway.core.types import ParameterValue
from gateway.protocols.v2.rest.json_bodies import JsonObject, read_list, read_name
from gateway.protocols.v2.tensors import read_datatype


class BodyForm(Enum):
    """The form of all tensors in a body, and of the outputs that a request asks for."""

    JSON = auto()
    BINARY = auto()


Parameters: TypeAlias = Mapping[str, ParameterValue | None]

if TYPE_CHECKING:
    Contents: TypeAlias = Raw | Text | Array | Pieces | list[str] | UnsetType
    """A tensor's `data`. When read: its text, in large documents a place in the document, from the general reader an
    Array. When written: its text, or what `json.write_message` makes text of."""
    Dimensions: TypeAlias = list[Any] | tuple[int, ...]
else:
    # The types that msgspec reads; it does not accept 1.0 or true as an integer. When it writes, it does not check
    # types.
    Contents = Raw | UnsetType
    Dimensions = list[int]


class InferenceTensor(Struct, gc=False):
    """`$request_input` and `$response_output`. With the binary tensor data extension the parameter `binary_data_size`
    replaces `data`."""

    name: str
    datatype: Datatype
    shape: Dimensions
    parameters: Parameters | UnsetType | None = UNSET
    data: Contents = UNSET


class RequestOutput(Struct, gc=False):
    """`$request_output`: an output that the client asks for."""

    name: str
    parameters: Parameters | UnsetType | None = UNSET


class InferenceRequest(Struct, kw_only=True, gc=False):
    """`$inference_request` of the specification."""

    id: str | UnsetType | None = UNSET
    parameters: Parameters | UnsetType | None = UNSET
    inputs: list[InferenceTensor]
    outputs: list[RequestOutput] | UnsetType | None = UNSET

    @property
    def tensors(self) -> list[InferenceTensor]:
        """The request's inputs."""
        return self.inputs


class InferenceResponse(Struct, kw_only=True, gc=False):
    """`$inference_response`, in Triton's order."""

    id: str | UnsetType | None = UNSET
    model_name: str | UnsetType | None = UNSET
    model_version: str | UnsetType | None = UNSET
    parameters: Parameters | UnsetType | None = UNSET
    outputs: list[InferenceTensor]

    @property
    def tensors(self) -> list[InferenceTensor]:
        """The outputs of the response."""
        return self.outputs


# --- typed reader ---

CUT_FROM = 2**11
"""Minimum bytes of a document for which cutting the contents out costs less than having msgspec skip them."""
MOST_AS_TYPES = 2**16
"""Maximum bytes of a document for the typed reader, counted after the contents were cut out. The general reader counts
the values of a larger document before it creates objects for them."""
MOST_CUT = 1000
"""Maximum number of contents that are cut out of a document. The general reader reads a document with more."""

_DATA = {"data": ArrayForm.ARRAY}
_TENSOR_LEVEL = 3  # {"inputs": [{"data": here}]}

_Message = TypeVar("_Message", InferenceRequest, InferenceResponse)

_DECODERS: dict[Any, Callable[[bytes], Any]] = {
    kind: msgspec.json.Decoder(kind).decode for kind in (InferenceRequest, InferenceResponse)
}
_write = msgspec.json.Encoder().encode


def read_as_type(kind: type[_Message], header: bytes, values: int) -> _Message | None:
    """Return the message in `header`, the body's JSON, or None if the typed reader might not read all of it, or if it
    has more than `values` JSON values outside of tensor data."""
    text, cuts = header, None
    try:
        if len(header) > CUT_FROM and _BACKSLASH not in header:
            text, cuts = json.cut_out(header, b"data", MOST_CUT)
        if len(text) > MOST_AS_TYPES:
            return None
        message: _Message = _DECODERS[kind](text)
    except (DecodeError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    colons = text.count(b":")
    if _write(message).count(b":") != colons or (_BACKSLASH in text and _ESCAPED_COLON.search(text)):
        return None
    if len(text) > values and _values(message, colons) > values:
        return None
    return message if cuts is None or _put_back(message, cuts) else None


_BACKSLASH = ord("\\")
_ESCAPED_COLON = re.compile(rb"\\u003[aA]")


def _values(message: InferenceRequest | InferenceResponse, members: int) -> int:
    """Return the number of JSON values outside of tensor data."""
    asked = message.outputs if isinstance(message, InferenceRequest) else None
    return 1 + members + len(message.tensors) + sum(len(each.shape) for each in message.tensors) + len(asked or ())


def _put_back(message: InferenceRequest | InferenceResponse, cuts: list[Text]) -> bool:
    """Make the texts that were cut out the data of the tensors. Return False if the number of texts does not match."""
    with_data = [each for each in message.tensors if each.data is not UNSET]
    for each, text in zip(with_data, cuts, strict=False):
        each.data = text
    return len(with_data) == len(cuts)


# --- general reader ---


def general_request(header: bytes, values: int) -> InferenceRequest:
    """Return the request in the JSON `header`, decoded by the general reader. `data` is an Array. Shapes, parameters
    and the id can have any type. NaN and Infinity count as numbers, because rapidjson, which tritonclient and Triton
    use, writes them.

    Raises:
        DecodeError: the header is not a JSON object, has no inputs, an invalid name or datatype, or more JSON values
            than `values`.
    """
    document = _general(header, values)
    inputs = _tensors(document, "input")
    outputs = [
        RequestOutput(read_name(each, "output", position), each.get("parameters", UNSET))
        for position, each in enumerate(read_list(document, "outputs"))
    ]
    return InferenceRequest(
        id=document.get("id"), parameters=document.get("parameters"), inputs=inputs, outputs=outputs
    )


def general_response(header: bytes, values: int) -> InferenceResponse:
    """Return the response in the JSON `header`, like `general_request`."""
    document = _general(header, values)
    outputs = _tensors(document, "output")
    members = {key: document.get(key) for key in ("id", "model_name", "model_version", "parameters")}
    return InferenceResponse(**members, outputs=outputs)


def _general(header: bytes, values: int) -> JsonObject:
    return json.read(header, _DATA, values=values, literals=True, level=_TENSOR_LEVEL)


def _tensors(document: JsonObject, role: str) -> list[InferenceTensor]:
    if document.get(f"{role}s") is None:
        raise DecodeError(f"{role}s are missing")
    return [_tensor(entry, role, position) for position, entry in enumerate(read_list(document, f"{role}s"))]


def _tensor(entry: JsonObject, role: str, position: int) -> InferenceTensor:
    name = read_name(entry, role, position)
    datatype = read_datatype(entry.get("datatype"), f"{role} {name!r}")
    shape, data = entry.get("shape"), entry.get("data", UNSET)
    return InferenceTensor(name, datatype, shape, entry.get("parameters", UNSET), data)  # type: ignore[arg-type]
