"""Converts UM-Bridge requests to canonical Requests, and Answers to UM-Bridge responses (client side)."""

from collections.abc import Callable, Iterator
from struct import pack

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, invalid_output, unsupported
from gateway.core.frozen import replace
from gateway.core.json import INT64_MAX, INT64_MIN, MAX_DEPTH, ArrayForm, Json, missing, read, write_message
from gateway.core.messages import JSON_HEADERS, Message, reply
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, INFER, Operation
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import Answer, Request, Response, Translate
from gateway.core.tensors import Parameters, Tensor
from gateway.protocols.umbridge import metadata
from gateway.protocols.umbridge.config import CONFIG, decode_config
from gateway.protocols.umbridge.errors import excerpt, required
from gateway.protocols.umbridge.schema import (
    CALL_READERS,
    CALLS,
    INFO_HEADERS,
    INPUT_SIZES,
    KEYS,
    MODEL_INFO,
    NAN,
    OUTPUT_SIZES,
    PARTS,
    SHARED_MEMORY_CALLS,
    TEST_SHARED_MEMORY,
)
from gateway.protocols.umbridge.vectors import decode_vector, encode_vector, encode_vectors, read_vector

SERVER_PATTERNS = {
    "GET /Info": (Operation.MODELS, ""),
    # The gateway responds to this request itself and never forwards it. If the gateway forwarded the request, the probe
    # of a client on the server's machine would succeed, and the numbers of all later calls would bypass the gateway.
    # After an empty response, the client sends the numbers over HTTP.
    f"POST /{TEST_SHARED_MEMORY}": (Operation.LIVE, TEST_SHARED_MEMORY),
}
MODEL_PATTERNS = {
    **{f"POST /{call}": (operation, "") for call, operation in CALLS.items()},
    **{f"POST /{part}": (Operation.METADATA, part) for part in PARTS},
}
SHARED_MEMORY_PATTERNS = tuple(f"POST /{call}" for call in SHARED_MEMORY_CALLS)
PATTERNS = (*SERVER_PATTERNS, *MODEL_PATTERNS, *SHARED_MEMORY_PATTERNS)

ARRAY_KEYS: dict[Operation, dict[str, ArrayForm]] = {Operation.METADATA: {}} | {
    operation: {
        "input": ArrayForm.VECTORS,
        **{KEYS[name]: ArrayForm.ARRAY for name in DERIVATIVES.get(operation, ()) if name not in INDEX_TENSORS},
    }
    for operation in CALLS.values()
}
"""The request keys whose values are decoded as arrays. All other values become plain Python values."""


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """Return the canonical Request of one HTTP request.

    Inputs have neither names nor a datatype. In a derivative call, the tensors in DERIVATIVES follow the inputs. The
    JSON text of `config` becomes the parameter `config`.

    The gateway ignores Content-Type (Julia and the conformity suite omit it) and unknown keys.

    An error in a request with a model name becomes the Request's `flaw`, because real servers check the model name
    first. The conformity suite depends on this order: it requests unknown models with only the name.

    Raises:
        DecodeError: the body is not JSON, or contains no model name.
        GatewayError: UNIMPLEMENTED if the call uses shared memory; RESOURCE_EXHAUSTED if `config` exceeds the limit.
    """
    asked = MODEL_PATTERNS.get(message.pattern)
    if asked is None:
        if message.pattern in SHARED_MEMORY_PATTERNS:
            raise unsupported("shared memory cannot cross the gateway; send the numbers by HTTP")
        operation, part = SERVER_PATTERNS[message.pattern]
        return Request(operation, part=part)
    operation, part = asked
    if not part:
        try:
            return _decode_call(operation, message, listener)
        except DecodeError:
            pass  # the general reader accepts the body or reports the error
    return _decode_general(operation, part, message, listener)


def _decode_call(operation: Operation, message: Message, listener: ListenerSettings) -> Request:
    """Return the Request of a call whose body the typed reader decodes. Raise DecodeError for any other body."""
    text = message.parts[0] if len(message.parts) == 1 else b""
    call = CALL_READERS[operation].read(text, listener.limits.json_values)
    if not call.name or (call.config and _may_be_deep(bytes(text))):
        raise DecodeError
    inputs = [read_vector("", text) for text in call.input]
    for name in DERIVATIVES.get(operation, ()):
        value = getattr(call, name)
        inputs.append(_decode_index(name, name, value) if name in INDEX_TENSORS else read_vector(name, value))
    return _call(operation, tuple(inputs), call.name, call.config, listener)


def _may_be_deep(text: bytes) -> bool:
    """Return whether the text might be nested deeper than the general reader allows. The general reader counts the
    levels."""
    return text.count(b"[") + text.count(b"{") > MAX_DEPTH


def _call(
    operation: Operation, inputs: tuple[Tensor, ...], model: str, config: Json, listener: ListenerSettings
) -> Request:
    parameters = decode_config(config, listener.limits, f"listener {listener.name!r}")
    return Request(operation, model, "", None, inputs, (), parameters)


def _decode_general(operation: Operation, part: str, message: Message, listener: ListenerSettings) -> Request:
    try:
        body = read(message.body, ARRAY_KEYS[operation], values=listener.limits.json_values, literals=True, level=1)
    except DecodeError as error:
        found = None if part else _with_missing(operation, message, listener, error)
        return found or Request(operation, _model_despite(error, message, listener), part=part, flaw=str(error))
    model = _model(body)
    try:
        if part:
            return Request(operation, model, parameters=_metadata_parameters(part, body, listener), part=part)
        return _call(operation, _inputs(operation, body), model, body.get(CONFIG), listener)
    except DecodeError as error:
        return Request(operation, model, part=part, flaw=str(error))


def _with_missing(
    operation: Operation, message: Message, listener: ListenerSettings, error: DecodeError
) -> Request | None:
    """Return the call in a body that caused `error`, with NaN for each null in the numbers of its vectors.

    The returned Request has a `flaw`. Return None if the body cannot be read in this way either, for example because a
    list in its config contains null, which must stay null."""
    text, values = missing.as_nan(message.body, members=False), listener.limits.json_values
    if text is None:
        return None
    try:
        body = read(text, ARRAY_KEYS[operation], values=values, literals=True, level=1)
        request = _call(operation, _inputs(operation, body), _model(body), body.get(CONFIG), listener)
    except (DecodeError, GatewayError):
        return None
    return replace(request, flaw=missing.flaw(error))


def _model_despite(error: DecodeError, message: Message, listener: ListenerSettings) -> str:
    """Return the model name in a body whose arrays are malformed. Raise `error` if the body contains no model name."""
    try:
        return _model(read(message.body, {}, values=listener.limits.json_values, literals=True))
    except DecodeError:
        raise error from None


def _model(body: dict[str, Json]) -> str:
    name = required(body, "name", "request")
    if not isinstance(name, str) or not name:
        raise DecodeError(f'"name" is {excerpt(name)}, expected a model name')
    return name


def _inputs(operation: Operation, body: dict[str, Json]) -> tuple[Tensor, ...]:
    # For a model without inputs, the C++ client writes `[]` in Evaluate, and omits the key in derivative calls.
    vectors = required(body, "input", "request") if operation is INFER else body.get("input", ())
    inputs = [decode_vector("", vector, f"input {at}") for at, vector in enumerate(vectors)]
    return (*inputs, *_derivative_tensors(operation, body))


def _derivative_tensors(operation: Operation, body: dict[str, Json]) -> Iterator[Tensor]:
    for name in DERIVATIVES.get(operation, ()):
        key = KEYS[name]
        value = required(body, key, "request")
        yield _decode_index(name, key, value) if name in INDEX_TENSORS else decode_vector(name, value, f'"{key}"')


def _decode_index(name: str, key: str, value: Json) -> Tensor:
    """Return the position of a vector, which can be negative, because the model server reports positions that are out
    of range. As in the C++ server, `0.0` is valid."""
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    if type(number) is not int or not INT64_MIN <= number <= INT64_MAX:
        raise DecodeError(f'"{key}" is {excerpt(value)}, expected the position of a vector, counted from 0')
    return Tensor(name, Datatype.INT64, (1,), pack("<q", number))


def _metadata_parameters(part: str, body: dict[str, Json], listener: ListenerSettings) -> Parameters:
    config = None if part == MODEL_INFO else body.get(CONFIG)
    return decode_config(config, listener.limits, f"listener {listener.name!r}")


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    """Return the HTTP response to a Request that `decode_request` returned.

    The response contains only the members that the interface defines, because the conformity suite forbids all others.

    Raises:
        GatewayError: UNIMPLEMENTED if a tensor is BYTES; FAILED_PRECONDITION if the client requests sizes and a tensor
            has a dimension of any size; INTERNAL if a derivative is not exactly one tensor.
    """
    encode_body = _BODY_ENCODERS[request.operation, request.part]
    headers = INFO_HEADERS if request.operation is Operation.MODELS else JSON_HEADERS
    return reply(headers, encode_body(answer, translate.nan or NAN), 200)


def _encode_outputs(answer: Answer, nan: str) -> tuple[bytes, ...]:
    assert isinstance(answer, Response)
    return write_message({"output": encode_vectors(answer.outputs, nan, "output")})


def _encode_derivative(answer: Answer, nan: str) -> tuple[bytes, ...]:
    assert isinstance(answer, Response)
    if len(answer.outputs) != 1:
        names = ", ".join(repr(output.name) for output in answer.outputs) or "none"
        raise invalid_output(f"the derivative has {len(answer.outputs)} outputs ({names}), expected one")
    return write_message({"output": encode_vector(answer.outputs[0], nan, "output")})


def _encode_no_shared_memory(answer: Answer, nan: str) -> tuple[bytes, ...]:
    return (b"{}",)


_BODY_ENCODERS: dict[tuple[Operation, str], Callable[[Answer, str], tuple[bytes, ...]]] = {
    (INFER, ""): _encode_outputs,
    **{(operation, ""): _encode_derivative for operation in DERIVATIVES},
    (Operation.METADATA, INPUT_SIZES): metadata.encode_input_sizes,
    (Operation.METADATA, OUTPUT_SIZES): metadata.encode_output_sizes,
    (Operation.METADATA, MODEL_INFO): metadata.encode_model_info,
    (Operation.MODELS, ""): metadata.encode_info,
    (Operation.LIVE, TEST_SHARED_MEMORY): _encode_no_shared_memory,
}
