"""Bodies of inferences that are passed on byte for byte, so that a client's digits survive.

V2 REST has two forms, and a body goes on only to a receiver that the gateway would write the same one for: all tensors
in JSON, or all in the binary tensor data extension. It must say what the gateway would write, and nothing else. Every
other body is written anew: one with members that the specification does not have, with parameters that are addressed to
the gateway, with null, nested data, NaN, numbers of another kind than the datatype's, base64, escapes, a byte order
mark, or blanks around the document.
"""

from types import MappingProxyType

from msgspec import UNSET, UnsetType

from gateway.core.datatypes import Datatype
from gateway.core.original import Original
from gateway.core.types import Headers, Message, Parameters, Request, RequestedOutput, Response, Tensor, Translate
from gateway.protocols.v2.rest.binary import binary_headers
from gateway.protocols.v2.rest.json_bodies import JSON_HEADERS
from gateway.protocols.v2.rest.messages import BodyForm, InferenceRequest, InferenceResponse, RequestOutput

# Python 3.11 takes ten times as long to find a member in its class.
_JSON, _BINARY = BodyForm.JSON, BodyForm.BINARY

_NO_PARAMETERS: Parameters = MappingProxyType({})


# --- noting where a value came from ---


def of_request(
    infer: InferenceRequest, header: bytes, form: BodyForm | None, message: Message, inputs: tuple[Tensor, ...],
    outputs: tuple[RequestedOutput, ...], parameters: Parameters,
) -> Original | None:  # fmt: skip
    """The Original of a request that was read from `infer`, all members of the JSON `header`; None if that says more.

    `form` is that of all tensors, as `read_tensors` finds it. `parameters` are those of the request, without those that
    are not forwarded.
    """
    id, given, asked = infer.id, infer.parameters, infer.outputs
    if form is None or id is None or given is None or asked is None or not _is_plain(header, form):
        return None
    consumed = len(given) - len(parameters) if given else 0  # parameters that are not forwarded
    if asked is UNSET:
        says_no_more = (
            not consumed
            if form is _JSON
            else consumed == 1 and (given or _NO_PARAMETERS).get("binary_data_output") is True
        )
    else:
        is_in_form = _is_asked_in_json if form is _JSON else _is_asked_in_binary
        says_no_more = not consumed and asked != [] and all(map(is_in_form, asked))
    return Original(form, message.parts, inputs, outputs, parameters, _text(id)) if says_no_more else None


def of_response(
    infer: InferenceResponse, header: bytes, form: BodyForm | None, reply: Message, outputs: tuple[Tensor, ...],
    parameters: Parameters,
) -> Original | None:  # fmt: skip
    """The Original of a backend's response, as `of_request`."""
    id, model, version, given = infer.id, infer.model_name, infer.model_version, infer.parameters
    if form is None or id is None or model is None or version is None or not _is_plain(header, form):
        return None
    if given is not UNSET and (not given or len(given) != len(parameters)):  # the gateway writes no empty object
        return None
    # without a byte of binary data the gateway writes JSON, like Triton
    if form is _BINARY and not any(len(each.data) for each in outputs):
        return None
    return Original(form, reply.parts, outputs, (), parameters, _text(id), _text(model), _text(version))


def _text(given: str | UnsetType) -> str | None:
    return None if given is UNSET else given


def _is_plain(header: bytes, form: BodyForm) -> bool:
    """Whether there is nothing around the document, and no escape in one that holds data."""
    return header[0] == _OPENING and header[-1] == _CLOSING and (form is _BINARY or _BACKSLASH not in header)


_OPENING, _CLOSING, _BACKSLASH = b"{}\\"


def _is_asked_in_json(output: RequestOutput) -> bool:
    """Whether an output is asked for without a word on its form."""
    return output.parameters is UNSET or (output.parameters is not None and "binary_data" not in output.parameters)


def _is_asked_in_binary(output: RequestOutput) -> bool:
    return (output.parameters or _NO_PARAMETERS).get("binary_data") is True


# --- passing it on ---


def for_server(request: Request, form: BodyForm, lacking: frozenset[Datatype]) -> Original | None:
    """The Original of `request`, if it says what the gateway would write in `form` to a server without the datatypes in
    `lacking`."""
    original = request.original
    if original is None or original.form is not form or not original.is_of_request(request):
        return None
    if form is _BINARY and lacking and any(each.datatype in lacking for each in request.inputs):
        return None
    if request.translate.bytes == "base64" and _writes_base64(form, request.inputs):
        return None
    return original


def for_client(response: Response, request: Request, form: BodyForm | None, translate: Translate) -> Original | None:
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
    return original


def headers_of(original: Original) -> Headers:
    """The headers that describe the body."""
    if original.form is _JSON:
        return JSON_HEADERS
    tensors = sum(len(each.data) for each in original.tensors)
    return binary_headers(sum(map(len, original.parts)) - tensors)


def _writes_base64(form: BodyForm | None, tensors: tuple[Tensor, ...]) -> bool:
    return form is BodyForm.JSON and any(each.datatype is Datatype.BYTES for each in tensors)
