"""Reads the JSON bodies of V2 REST: typed access to the fields of a document, for all codecs of this folder, and types
for the messages of an inference. A field that is null counts as absent, because KServe and MLServer write null for
missing values.

The names and the order of the types follow the specification (section "Inference").

    {"id": "1", "inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1.5, 2.5]}]}

REQUESTS and RESPONSES read the members in one pass and keep the contents of tensors as text. msgspec also writes these
contents from text. A missing member is UNSET, and a member that is null is None. The general reader (`general_request`,
`general_response`) reads documents that do not match the types. It reports errors, or returns the same messages, in
which a missing id is None and missing outputs are [].

To support a new member, add a field in this module and an argument in the general reader, and add the member to
`server`, `client` and `core.requests`.
"""

from collections.abc import Mapping
from enum import Enum, auto
from reprlib import repr as shown
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.core import json
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.json import Array, ArrayForm, Pieces, Text
from gateway.core.messages import JSON_HEADERS, Message
from gateway.core.protocol import Limits
from gateway.core.tensors import ParameterValue
from gateway.protocols.v2.tensors import read_datatype

# --- Fields of documents ---

JsonObject: TypeAlias = dict[str, Any]


def json_reply(document: object, status: int = 200) -> Message:
    """Return the response whose body is `document` as JSON."""
    return Message(headers=JSON_HEADERS, parts=(json.write(document),), status=status)


def read_reply(reply: Message, limits: Limits) -> JsonObject:
    """Return the JSON object in a backend's response. Raise DecodeError for anything else."""
    # Triton writes NaN and Infinity if a configuration contains them
    return json.read(reply.body, {}, values=limits.json_values, literals=True)


def read_string(document: JsonObject, key: str) -> str:
    """Return the string at `key`, or an empty string if `key` is absent or null. Raise DecodeError for anything
    else."""
    return checked_string(document.get(key), key)


def checked_string(given: object, key: str) -> str:
    """Return `given`, the value of `key`, or an empty string if it is absent (UNSET) or null. Raise DecodeError for
    anything else."""
    if isinstance(given, str):
        return given
    if given is not None and given is not UNSET:
        raise DecodeError(f"{key} must be a string, not {shown(given)}")
    return ""


def read_list(document: JsonObject, key: str) -> list[Any]:
    """Return the array at `key`, or an empty list if `key` is absent or null. Raise DecodeError for anything else."""
    entries = document.get(key)
    if entries is not None and not isinstance(entries, list):
        raise DecodeError(f"{key} must be a list, not {shown(entries)}")
    return entries or []


def read_strings(document: JsonObject, key: str) -> tuple[str, ...]:
    """Return the strings of the array at `key`. Raise DecodeError for anything else."""
    texts = read_list(document, key)
    if not all(isinstance(text, str) for text in texts):
        raise DecodeError(f"{key} must be a list of strings, not {shown(texts)}")
    return tuple(texts)


def read_name(entry: object, role: str, position: int) -> str:
    """Return the `name` of `entry`, the object at `position` in a list of `role` (input, output, model).

    Raises:
        DecodeError: the entry is not an object, or has no name.
    """
    if not isinstance(entry, dict):
        raise DecodeError(f"{role} {position} must be an object, not {shown(entry)}")
    name = entry.get("name")
    if not isinstance(name, str):
        raise DecodeError(f"{role} {position}: name must be a string, not {shown(name)}")
    return name


def checked_id(given: object) -> str | None:
    """Return `given`, a request's `id`, or None if it is absent (UNSET) or null. Raise DecodeError for any other value
    that is not a string."""
    return None if given is None or given is UNSET else checked_string(given, "id")


# --- Inferences ---


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
    # The types that msgspec reads. msgspec accepts neither 1.0 nor true as an integer, and does not check types when it
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
    """`$request_output` of the specification, which is an output that the client asks for."""

    name: str
    parameters: Parameters | UnsetType | None = UNSET


class InferenceRequest(Struct, kw_only=True, gc=False):
    """`$inference_request` of the specification."""

    id: str | UnsetType | None = UNSET
    parameters: Parameters | UnsetType | None = UNSET
    inputs: list[InferenceTensor]
    outputs: list[RequestOutput] | UnsetType | None = UNSET


class InferenceResponse(Struct, kw_only=True, gc=False):
    """`$inference_response` of the specification, with its members in Triton's order."""

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
