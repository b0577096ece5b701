"""Which bodies of inferences can go on as they came: those that say what the gateway would write, and nothing else.

V2 REST has two forms, and a body goes on only to a receiver that the gateway would write the same one for: all tensors
in JSON, or all in the binary tensor data extension. Every other body is written anew: one with members that the
specification does not have, with parameters that are addressed to the gateway, with null, nested data, NaN, numbers
of another kind than the datatype's, base64, escapes, a byte order mark, or blanks around the document.
"""

from enum import Enum, auto
from math import isfinite
from typing import TypeAlias

from gateway.core.datatypes import Datatype, Kind
from gateway.core.frozen import replace
from gateway.core.original import Original
from gateway.core.types import (
    Headers,
    Message,
    Parameters,
    Request,
    RequestedOutput,
    Response,
    Tensor,
    Translate,
)
from gateway.json import Array
from gateway.protocols.v2.rest.binary import binary_headers
from gateway.protocols.v2.rest.json_bodies import JSON_HEADERS, JsonObject
from gateway.protocols.v2.tensors import WIDER


class BodyForm(Enum):
    """The form of all tensors in a body, and of the outputs that a request asks for."""

    JSON = auto()
    BINARY = auto()


# Python 3.11 takes ten times as long to find a member in its class.
_JSON, _BINARY = BodyForm.JSON, BodyForm.BINARY

Evidence: TypeAlias = tuple[JsonObject | None, bytes]
"""The document and its text. Without the document it is known already that the body says nothing else; its text is then
empty where no binary data follows it."""

_LARGE = 8192
"""Bytes of a document from which on it is looked at at once, so that it need not be kept. That takes a small part of
the time that reading it took; a smaller one is looked at when it is to be sent."""


# --- noting where a value came from ---


def of_request(
    document: JsonObject,
    header: bytes,
    message: Message,
    inputs: tuple[Tensor, ...],
    outputs: tuple[RequestedOutput, ...],
    parameters: Parameters,
) -> Original | None:
    """The Original of a request that was read from `document`, the JSON in `header`.

    `parameters` are those of the request, without those that are not forwarded.
    """
    if not inputs:
        return None
    form = BodyForm.JSON if "data" in document["inputs"][0] else BodyForm.BINARY
    text: Evidence = document, header
    original = Original(form, message.parts, inputs, outputs, parameters, document.get("id"), None, None, text)
    return original if len(header) <= _LARGE else _forgetting(original, request_says_no_more(original))


def of_response(
    document: JsonObject, header: bytes, reply: Message, outputs: tuple[Tensor, ...], parameters: Parameters
) -> Original | None:
    """The Original of a backend's response that was read from `document`, the JSON in `header`."""
    if not outputs:
        return None
    form = BodyForm.JSON if "data" in document["outputs"][0] else BodyForm.BINARY
    id, name, version = document.get("id"), document.get("model_name"), document.get("model_version")
    original = Original(form, reply.parts, outputs, (), parameters, id, name, version, (document, header))
    return original if len(header) <= _LARGE else _forgetting(original, response_says_no_more(original))


def _forgetting(original: Original, says_no_more: bool) -> Original | None:
    """`original` without its document; None if that says more than the value."""
    if not says_no_more:
        return None
    return replace(original, evidence=(None, b"" if original.form is BodyForm.JSON else original.evidence[1]))


# --- sending it on ---


def request_as_it_came(request: Request, form: BodyForm, lacking: frozenset[Datatype]) -> Original | None:
    """The Original of `request`, if it says what the gateway would write in `form` to a server without the datatypes in
    `lacking`."""
    original = request.original
    if original is None or original.form is not form or not original.is_of_request(request):
        return None
    if form is _BINARY and lacking and any(each.datatype in lacking for each in request.inputs):
        return None
    if request.translate.bytes == "base64" and _writes_base64(form, request.inputs):
        return None
    return original if original.evidence[0] is None or request_says_no_more(original) else None


def response_as_it_came(
    response: Response, request: Request, form: BodyForm | None, translate: Translate
) -> Original | None:
    """The Original of `response`, if it says what the gateway would write in `form` to the client of `request`."""
    original = response.original
    if (
        original is None
        or original.form is not form
        or not original.is_of_response(response)
        or original.id != request.id
        or original.model != (request.model or response.model)
        or original.version != (request.version or response.version or None)
        or (translate.bytes == "base64" and _writes_base64(form, response.outputs))
    ):
        return None
    return original if original.evidence[0] is None or response_says_no_more(original) else None


def headers_of(original: Original) -> Headers:
    """The headers that describe the body."""
    return JSON_HEADERS if original.form is _JSON else binary_headers(len(original.evidence[1]))


def _writes_base64(form: BodyForm | None, tensors: tuple[Tensor, ...]) -> bool:
    return form is BodyForm.JSON and any(each.datatype is Datatype.BYTES for each in tensors)


# --- whether a body says nothing else than its value ---
#
# This is asked of documents that the decoder has accepted: names, datatypes, shapes and sizes are known to be right, no
# key occurs twice, and numbers outside tensors are JSON's.

_REQUEST = frozenset({"id", "parameters", "inputs", "outputs"})
_RESPONSE = frozenset({"id", "model_name", "model_version", "parameters", "outputs"})
_NO_PARAMETERS: Parameters = {}


def request_says_no_more(original: Original) -> bool:
    """Whether the body of a request says nothing else than its value."""
    document = original.evidence[0]
    if document is None:
        return True
    if (
        not document.keys() <= _REQUEST
        or None in document.values()
        or not _tensors_say_no_more(original, document, "inputs")
    ):
        return False
    given, outputs = document.get("parameters", _NO_PARAMETERS), document.get("outputs")
    consumed = len(given) - len(original.parameters)  # parameters that are not forwarded
    if original.form is BodyForm.JSON:
        return not consumed and (outputs is None or (outputs != [] and all(map(_is_plain, outputs))))
    if outputs is None:
        return consumed == 1 and given.get("binary_data_output") is True
    return not consumed and outputs != [] and all(map(_is_binary_output, outputs))


def _is_plain(output: JsonObject) -> bool:
    """Whether an output is asked for without a word on its form."""
    if len(output) == 1:
        return True
    parameters = output.get("parameters")
    return len(output) == 2 and parameters is not None and "binary_data" not in parameters


def _is_binary_output(output: JsonObject) -> bool:
    """Whether an output is asked for in binary."""
    parameters = output.get("parameters")
    return len(output) == 2 and parameters is not None and parameters.get("binary_data") is True


def response_says_no_more(original: Original) -> bool:
    """Whether the body of a response says nothing else than its value."""
    document: JsonObject | None = original.evidence[0]
    return document is None or (
        document.keys() <= _RESPONSE
        and None not in document.values()
        and document.get("parameters") != {}  # which the gateway does not write
        and len(document.get("parameters", _NO_PARAMETERS)) == len(original.parameters)
        # without a byte of binary data the gateway writes JSON, like Triton
        and (original.form is BodyForm.JSON or any(len(each.data) for each in original.tensors))
        and _tensors_say_no_more(original, document, "outputs")
    )


def _tensors_say_no_more(original: Original, document: JsonObject, key: str) -> bool:
    header, tensors = original.evidence[1], original.tensors
    if header[0] != _OPENING or header[-1] != _CLOSING:
        return False
    if original.form is BodyForm.BINARY:
        return all(map(_is_binary, document[key], tensors))
    for entry, tensor in zip(document[key], tensors, strict=True):
        # `usual` leaves data as lists, and reads no other than those of the gateway's own form
        if type(entry.get("data")) is not list and not _is_json(entry, tensor, header):
            return False
    return True


_OPENING, _CLOSING = b"{}"


def _is_binary(entry: JsonObject, tensor: Tensor) -> bool:
    """Whether the entry of a tensor has name, datatype, shape and parameters alone, and of the latter every one is the
    tensor's but the size."""
    return len(entry) == 4 and "data" not in entry and len(entry["parameters"]) == len(tensor.parameters) + 1


def _is_json(entry: JsonObject, tensor: Tensor, header: bytes) -> bool:
    """Whether the entry of a tensor has name, datatype, shape, flat data as the datatype's is written, and perhaps
    parameters, of which every one is the tensor's."""
    array = entry.get("data")
    if not isinstance(array, Array) or len(array.shape) != 1:
        return False
    if b"\\" in header:
        return False
    if len(entry) != 4:
        parameters = entry.get("parameters")
        if len(entry) != 5 or not parameters or len(parameters) != len(tensor.parameters):
            return False
    values = array.values
    if isinstance(values, bytes) or len(values) == 0:
        return tensor.datatype not in WIDER
    kind = values.dtype.kind
    if tensor.datatype in WIDER or kind not in _KINDS[tensor.datatype]:
        return False
    # NaN and infinities are read as numbers, but are none in JSON
    return kind != "f" or (isfinite(values.min()) and isfinite(values.max()))


_KINDS = {each: "b" if each.kind is Kind.BOOL else "iuf" if each.kind is Kind.FLOAT else "iu" for each in Datatype}
"""The kinds of numpy's dtypes that each datatype's numbers are written as: 1.0 is no integer, and 1 no boolean."""
