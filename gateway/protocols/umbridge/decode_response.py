"""What a UM-Bridge server answers. Its Content-Type is not looked at: the Python server sends numbers as text/plain."""

from collections.abc import Callable, Mapping

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.operations import COMPANION_OUTPUT, DERIVATIVES, Operation
from gateway.core.protocol import Target
from gateway.core.types import Answer, Message, ModelEntry, Request, Response, ServerInfo, Signature, TensorSpec
from gateway.json import ArrayForm, Json, read
from gateway.protocols.umbridge import errors
from gateway.protocols.umbridge.excerpts import excerpt
from gateway.protocols.umbridge.vectors import to_tensor
from gateway.protocols.umbridge.words import CALLS, INPUT_SIZES, MODEL_INFO, NAME, OUTPUT_SIZES, SIZES

Document = dict[str, Json]

Forms = Mapping[str, ArrayForm]

VECTORS: Forms = {"output": ArrayForm.VECTORS}
VECTOR: Forms = {"output": ArrayForm.ARRAY}
PLAIN: Forms = {}
MAX_SIZE = 2**53
"""The largest size that a JSON number surely tells."""


def decode_response(message: Message, request: Request, target: Target) -> Answer:
    """The answer in one HTTP reply. Outputs of Evaluate have no names and no datatype; a derivative is one tensor.

    Only 2xx is a success. The Python and the C++ client never look at the status, but no server is known to send an
    `output` with another one; an `error` under 200 is one to both.

    Raises:
        DecodeError: the body is not what was asked for.
        GatewayError: the error that the server told.
    """
    if not 200 <= message.status < 300:
        raise errors.from_text(message, target)
    forms, answer = _ANSWERS[request.operation, request.part]
    body = read(message.body, forms, values=target.limits.json_values, literals=True, level=1)
    if "error" in body:
        raise errors.from_object(body["error"], message)
    return answer(body, request)


def _evaluated(body: Document, request: Request) -> Response:
    vectors = enumerate(_required(body, "output"))
    return Response(tuple(to_tensor("", vector, f"output {at}") for at, vector in vectors))


def _derived(body: Document, request: Request) -> Response:
    return Response((to_tensor(COMPANION_OUTPUT, _required(body, "output"), "output"),))


def _input_sizes(body: Document, request: Request) -> Signature:
    return Signature(inputs=_specs(body, SIZES[INPUT_SIZES]), operations=frozenset())


def _output_sizes(body: Document, request: Request) -> Signature:
    return Signature(outputs=_specs(body, SIZES[OUTPUT_SIZES]), operations=frozenset())


def _specs(body: Document, key: str) -> tuple[TensorSpec, ...]:
    sizes = _list(body, key)
    return tuple(TensorSpec("", Datatype.FP64, (_size(size, f'"{key}" {at}'),)) for at, size in enumerate(sizes))


def _size(size: Json, what: str) -> int:
    number = int(size) if isinstance(size, float) and size.is_integer() else size
    if type(number) is not int or not 0 <= number <= MAX_SIZE:
        raise DecodeError(f"{what} is {excerpt(size)}, expected the length of a vector")
    return number


def _model_info(body: Document, request: Request) -> Signature:
    support = _required(body, "support")
    if not isinstance(support, dict):
        raise DecodeError(f'"support" is {excerpt(support)}, expected an object of booleans')
    return Signature(operations=frozenset(operation for word, operation in CALLS.items() if support.get(word)))


def _models(body: Document, request: Request) -> tuple[ModelEntry, ...]:
    return tuple(ModelEntry(_name(model)) for model in _list(body, "models"))


def _name(model: Json) -> str:
    if not isinstance(model, str):
        raise DecodeError(f'"models" holds {excerpt(model)}, expected names')
    return model


def _server(body: Document, request: Request) -> ServerInfo:
    return ServerInfo(NAME, str(_required(body, "protocolVersion")))


def _live(body: Document, request: Request) -> bool:
    _list(body, "models")
    return True


def _model_ready(body: Document, request: Request) -> bool:
    return request.model in _list(body, "models")


def _required(body: Document, key: str) -> Json:
    if key not in body:
        raise DecodeError(f'no "{key}" in the reply; it has {", ".join(map(excerpt, body)) or "no keys"}')
    return body[key]


def _list(body: Document, key: str) -> list[Json]:
    values = _required(body, key)
    if not isinstance(values, list):
        raise DecodeError(f'"{key}" is {excerpt(values)}, expected a list')
    return values


_ANSWERS: dict[tuple[Operation, str], tuple[Forms, Callable[[Document, Request], Answer]]] = {
    (Operation.INFER, ""): (VECTORS, _evaluated),
    **{(operation, ""): (VECTOR, _derived) for operation in DERIVATIVES},
    (Operation.METADATA, INPUT_SIZES): (PLAIN, _input_sizes),
    (Operation.METADATA, OUTPUT_SIZES): (PLAIN, _output_sizes),
    (Operation.METADATA, MODEL_INFO): (PLAIN, _model_info),
    (Operation.MODELS, ""): (PLAIN, _models),
    (Operation.SERVER_METADATA, ""): (PLAIN, _server),
    (Operation.LIVE, ""): (PLAIN, _live),
    (Operation.READY, ""): (PLAIN, _live),
    (Operation.MODEL_READY, ""): (PLAIN, _model_ready),
}
