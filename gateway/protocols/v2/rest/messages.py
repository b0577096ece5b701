"""Types for the messages of an inference. Names and order follow the specification (section "Inference").

    {"id": "1", "inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1.5, 2.5]}]}

REQUESTS and RESPONSES read the members in one pass and keep the contents of tensors as text; msgspec also writes them
from text. A missing member is UNSET, and a member that is null is None. Both mean that the member is absent, because
KServe and MLServer write null for missing values. The general reader (`general_request`, `general_response`) reads
documents that the types do not match. It reports errors, or returns the same messages, in which a missing id is None
and missing outputs are [].

To support a new member, add a field in this module and an argument in the general reader, and carry it through
`server`, `client` and `core.requests`.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.core import json
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.json import Array, ArrayForm, Pieces, Text
from gateway.core.tensors import ParameterValue
from gateway.protocols.v2.rest.json_bodies import JsonObject, read_list, read_name
from gateway.protocols.v2.tensors import read_datatype


class BodyForm(Enum):
    """The format of all tensors in a body, and of the outputs that a request asks for."""

    JSON = auto()
    BINARY = auto()


Parameters: TypeAlias = Mapping[str, ParameterValue | None]

if TYPE_CHECKING:
    Contents: TypeAlias = Raw | Text | Array | Pieces | list[str] | UnsetType
    """A tensor's `data`.

    In a message that was read, it is its text. In large documents, it is a place in the document. From the general
    reader, it is an Array. In a message to write, it is its text, or something that `json.write_message` makes text of.
    """
    Dimensions: TypeAlias = list[Any] | tuple[int, ...]
else:
    # The types that msgspec reads. It accepts neither 1.0 nor true as an integer, and does not check types when it
    # writes.
    Contents = Raw | UnsetType
    Dimensions = list[int]


class InferenceTensor(Struct, gc=False):
    """`$request_input` and `$response_output` of the specification.

    In the binary tensor data extension, the parameter `binary_data_size` replaces `data`."""

    name: str
    datatype: Datatype
    shape: Dimensions
    parameters: Parameters | UnsetType | None = UNSET
    data: Contents = UNSET


class RequestOutput(Struct, gc=False):
    """`$request_output`, an output that the client asks for."""

    name: str
    parameters: Parameters | UnsetType | None = UNSET


class InferenceRequest(Struct, kw_only=True, gc=False):
    """`$inference_request` of the specification."""

    id: str | UnsetType | None = UNSET
    parameters: Parameters | UnsetType | None = UNSET
    inputs: list[InferenceTensor]
    outputs: list[RequestOutput] | UnsetType | None = UNSET


class InferenceResponse(Struct, kw_only=True, gc=False):
    """`$inference_response`, in Triton's order."""

    id: str | UnsetType | None = UNSET
    model_name: str | UnsetType | None = UNSET
    model_version: str | UnsetType | None = UNSET
    parameters: Parameters | UnsetType | None = UNSET
    outputs: list[InferenceTensor]


REQUESTS = json.TypedReader(InferenceRequest, entries=lambda request: request.inputs)
RESPONSES = json.TypedReader(InferenceResponse, entries=lambda response: response.outputs)
DATA = b"data"
"""The key of a tensor's contents, which the typed reader cuts out of the text."""


# --- general reader ---


_ARRAYS = {"data": ArrayForm.ARRAY}
_TENSOR_LEVEL = 3  # {"inputs": [{"data": here}]}


def general_request(header: bytes, values: int) -> InferenceRequest:
    """Return the request in the JSON `header`, decoded by the general reader.

    `data` is an Array. Shapes, parameters and the id can have any type. NaN and Infinity count as numbers, because
    rapidjson, which tritonclient and Triton use, writes them.

    Raises:
        DecodeError: the header is not a JSON object, has no inputs, contains an invalid name or datatype, or contains
            more JSON values than `values`.
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
    return json.read(header, _ARRAYS, values=values, literals=True, level=_TENSOR_LEVEL)


def _tensors(document: JsonObject, role: str) -> list[InferenceTensor]:
    if document.get(f"{role}s") is None:
        raise DecodeError(f"{role}s are missing")
    return [_tensor(entry, role, position) for position, entry in enumerate(read_list(document, f"{role}s"))]


def _tensor(entry: JsonObject, role: str, position: int) -> InferenceTensor:
    name = read_name(entry, role, position)
    datatype = read_datatype(entry.get("datatype"), f"{role} {name!r}")
    shape, data = entry.get("shape"), entry.get("data", UNSET)
    return InferenceTensor(name, datatype, shape, entry.get("parameters", UNSET), data)  # type: ignore[arg-type]
