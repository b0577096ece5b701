"""What a UM-Bridge client asks."""

from collections.abc import Iterator
from struct import pack

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, unsupported
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.protocol import ListenerSettings
from gateway.core.types import Message, Parameters, Request, Tensor
from gateway.json import INT64_MAX, INT64_MIN, ArrayForm, Json, read
from gateway.protocols.umbridge import configs
from gateway.protocols.umbridge.excerpts import excerpt
from gateway.protocols.umbridge.vectors import to_tensor
from gateway.protocols.umbridge.words import (
    CALLS,
    KEYS,
    MODEL_INFO,
    PARTS,
    SHARED_MEMORY_CALLS,
    TEST_SHARED_MEMORY,
)

ABOUT_SERVER = {
    "GET /Info": (Operation.MODELS, ""),
    # A forwarded probe succeeds where the server is on the client's machine, and from then on the numbers of every
    # call bypass the gateway. An empty answer makes the client send them by HTTP.
    f"POST /{TEST_SHARED_MEMORY}": (Operation.LIVE, TEST_SHARED_MEMORY),
}
ABOUT_MODEL = {
    **{f"POST /{word}": (operation, "") for word, operation in CALLS.items()},
    **{f"POST /{part}": (Operation.METADATA, part) for part in PARTS},
}
REFUSED = tuple(f"POST /{word}" for word in SHARED_MEMORY_CALLS)
PATTERNS = (*ABOUT_SERVER, *ABOUT_MODEL, *REFUSED)

FORMS: dict[Operation, dict[str, ArrayForm]] = {Operation.METADATA: {}} | {
    operation: {
        "input": ArrayForm.VECTORS,
        **{KEYS[name]: ArrayForm.ARRAY for name in DERIVATIVES.get(operation, ()) if name not in INDEX_TENSORS},
    }
    for operation in CALLS.values()
}


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    """The question of one HTTP request. Its inputs have no names and no datatype; those of derivatives are followed by
    the tensors of DERIVATIVES. A `config` becomes the parameter of that name, holding its JSON text.

    Content-Type is not looked at (Julia and the conformity suite send none), nor are keys that are not known.

    What is wrong with a call that names a model is the Request's `flaw`: real servers look at the name first, and the
    conformity suite asks for unknown models with nothing but their names.

    Raises:
        DecodeError: the body is not JSON, or names no model.
        GatewayError: a call through shared memory; a `config` beyond the limit.
    """
    if message.pattern in REFUSED:
        raise unsupported("shared memory cannot cross the gateway; send the numbers by HTTP")
    if message.pattern in ABOUT_SERVER:
        operation, part = ABOUT_SERVER[message.pattern]
        return Request(operation, part=part)
    operation, part = ABOUT_MODEL[message.pattern]
    try:
        body = read(message.body, FORMS[operation], values=listener.limits.json_values, literals=True, level=1)
    except DecodeError as error:
        return Request(operation, _model_alone(message, listener, error), part=part, flaw=str(error))
    model = _model(body)
    try:
        inputs = () if part else (*_inputs(operation, body), *_extras(operation, body))
        return Request(operation, model, inputs=inputs, parameters=_parameters(part, body, listener), part=part)
    except DecodeError as error:
        return Request(operation, model, part=part, flaw=str(error))


def _model_alone(message: Message, listener: ListenerSettings, error: DecodeError) -> str:
    """The name in a body whose numbers are none. Raises `error` where it cannot be found."""
    try:
        return _model(read(message.body, {}, values=listener.limits.json_values, literals=True))
    except DecodeError:
        raise error from None


def _model(body: dict[str, Json]) -> str:
    name = _required(body, "name")
    if not isinstance(name, str) or not name:
        raise DecodeError(f'"name" is {excerpt(name)}, expected the name of a model')
    return name


def _inputs(operation: Operation, body: dict[str, Json]) -> Iterator[Tensor]:
    # The C++ client leaves the key out of the derivatives of a model without inputs; its Evaluate has `[]`.
    vectors = _required(body, "input") if operation is Operation.INFER else body.get("input", ())
    return (to_tensor("", vector, f"input {at}") for at, vector in enumerate(vectors))


def _extras(operation: Operation, body: dict[str, Json]) -> Iterator[Tensor]:
    for name in DERIVATIVES.get(operation, ()):
        key = KEYS[name]
        given = _required(body, key)
        yield _index(name, key, given) if name in INDEX_TENSORS else to_tensor(name, given, f'"{key}"')


def _index(name: str, key: str, given: Json) -> Tensor:
    """A position of any sign: the model's server says what is out of range. The C++ server takes `0.0` as well."""
    number = int(given) if isinstance(given, float) and given.is_integer() else given
    if type(number) is not int or not INT64_MIN <= number <= INT64_MAX:
        raise DecodeError(f'"{key}" is {excerpt(given)}, expected the position of a vector, counted from 0')
    return Tensor(name, Datatype.INT64, (1,), pack("<q", number))


def _parameters(part: str, body: dict[str, Json], listener: ListenerSettings) -> Parameters:
    if part == MODEL_INFO:
        return configs.NO_PARAMETERS
    return configs.to_parameters(body.get("config"), listener.limits, f"listener {listener.name!r}")


def _required(body: dict[str, Json], key: str) -> Json:
    if key not in body:
        raise DecodeError(f'no "{key}" in the request; it has {", ".join(map(excerpt, body)) or "no keys"}')
    return body[key]
