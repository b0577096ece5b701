"""A Handler and a StreamHandler that answer requests with sample models. `gateway/assembly/reference.py` serves
them."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing

import orjson

from gateway.core.errors import GatewayError, invalid_input, not_found, unsupported
from gateway.core.frozen import replace
from gateway.core.models import ModelEntry
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol
from gateway.core.requests import Answer, Request, Response
from gateway.core.transport import Handler, StreamHandler
from gateway.reference.arguments import arrange
from gateway.reference.model import VERSION, Config, Function, Model, Outputs, Stream, model_error

_NO_CONFIG: Config = {}

_ANSWERS: Mapping[Operation, Callable[[Model], Answer]] = {
    Operation.METADATA: lambda model: model.signature,
    Operation.MODEL_READY: lambda model: True,
    Operation.CONFIG: lambda model: {},
}


def check(models: Sequence[Model], protocol: Protocol) -> None:
    """Check that one server can serve `models` over `protocol`.

    Raises:
        ValueError: two models have the same name, the protocol's clients do not send a model name and there are several
            models, or a one-point protocol requires fixed sizes that a model does not declare.
    """
    names = [model.name for model in models]
    if len(names) > 1 and not protocol.names_models:
        raise ValueError(
            f"clients of {protocol.name} do not name a model, so a server has only one; got {', '.join(names)}"
        )
    for model in models:
        if names.count(model.name) > 1:
            raise ValueError(f"two models are named {model.name!r}; one server serves each name once")
        if protocol.traits.wire.points and model.points is None:
            raise ValueError(f"model {model.name!r} does not fit {protocol.name}: {_obstacle(model)}")


def _obstacle(model: Model) -> str:
    if not model.signature.inputs:
        return "its sizes are unknown; declare them with @gateway.reference.signature(inputs=[..], outputs=[..])"
    return "it needs inputs and outputs that are numbers, of a fixed size in each row"


def handler(models: Sequence[Model], *, points: bool = False, path: str = "") -> Handler:
    """Return a Handler for `infer`, the derivatives, `metadata`, `model-ready`, `config` and `models` on `models`.

    If `points` is True, the models use their signatures for one-point protocols; `check` ensures that each model has
    one. `path` is the path pattern that contains a model's name (`/graphpipe/{model}`); the error message for a request
    without a model name quotes it.

    The Handler raises:
        GatewayError: NOT_FOUND for an unknown model or version. UNIMPLEMENTED for an operation that the model does not
            support. INVALID_ARGUMENT for wrong tensors, outputs or parameters. INTERNAL (model-error) for an exception
            of the model. INTERNAL (invalid-output) for results that differ from the model's declaration."""
    served = by_name(models, points=points)
    entries = tuple(ModelEntry(name, VERSION, "READY") for name in served)

    async def handle(request: Request) -> Answer:
        if request.operation is Operation.MODELS:
            return entries
        if not request.model:
            raise _no_model_named(served, path)
        model = find(served, request)
        function = model.functions.get(request.operation)
        if function is not None:
            return await _compute(function, model, request)
        answer = _ANSWERS.get(request.operation)
        if answer is None:
            raise _unsupported(model, request.operation)
        return answer(model)

    return handle


def by_name(models: Sequence[Model], *, points: bool) -> Mapping[str, Model]:
    """Return the models by name. If `points` is True, the models use their signatures for one-point protocols."""
    return {model.name: _with_points(model) if points else model for model in models}


def _with_points(model: Model) -> Model:
    if model.points is None:
        raise ValueError(f"model {model.name!r} does not fit one-point protocols: {_obstacle(model)}")
    return replace(model, signature=model.points)


def find(served: Mapping[str, Model], request: Request) -> Model:
    """Return the model that `request` names. Raises GatewayError (NOT_FOUND) if the model or version does not exist."""
    model = served.get(request.model)
    if model is None:
        raise not_found(f"no model {request.model!r}; this server has {', '.join(served)}")
    if request.version not in ("", VERSION):
        raise not_found(f"model {model.name!r} has no version {request.version!r}; it has {VERSION}")
    return model


def _no_model_named(served: Mapping[str, Model], path: str) -> GatewayError:
    choices = [path.replace("{model}", name) if path else name for name in served]
    return not_found(f"the request names no model; this server has {', '.join(choices)}")


async def _compute(function: Function, model: Model, request: Request) -> Response:
    arguments = arrange(request, model.signature)
    config = config_of(request, model)
    try:
        outputs = function(arguments, config)
        if not isinstance(outputs, tuple):
            outputs = await outputs
    except GatewayError:
        raise
    except (Exception, SystemExit) as error:
        raise model_error(model.name, error) from error
    return response(outputs, request, model)


def response(outputs: Outputs, request: Request, model: Model) -> Response:
    """Return the Response with `outputs`, or with only the requested outputs."""
    chosen = _select(outputs, request, model) if request.outputs else outputs
    return Response(chosen, model.name, VERSION, request.id)


def config_of(request: Request, model: Model) -> Config:
    """Return the request parameter `config`, which is the text of a JSON object.

    Raises:
        GatewayError: INVALID_ARGUMENT if `config` has any other value, or if the request has other parameters.
    """
    if not request.parameters:
        return _NO_CONFIG
    for name in request.parameters:
        if name != "config":
            raise invalid_input(f"model {model.name!r} takes no parameter {name!r}; remove it")
    text = request.parameters["config"]
    try:
        config = orjson.loads(text) if isinstance(text, str) else None
    except orjson.JSONDecodeError as error:
        raise invalid_input(f"parameter 'config' of model {model.name!r} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise invalid_input(f"parameter 'config' of model {model.name!r} must be the text of a JSON object")
    if config and not model.configurable:
        raise invalid_input(f"model {model.name!r} takes no config; got {', '.join(map(repr, config))}")
    return config


def _select(outputs: Outputs, request: Request, model: Model) -> Outputs:
    """Return the requested outputs, in the order of the request."""
    by_name = {tensor.name: tensor for tensor in outputs}
    for wanted in request.outputs:
        if wanted.name not in by_name:
            expected = f"its outputs are {', '.join(by_name)}"
            raise invalid_input(f"model {model.name!r} has no output {wanted.name!r}; {expected}")
        for name in wanted.parameters:
            text = f"output {wanted.name!r} of model {model.name!r} takes no parameter {name!r}"
            raise invalid_input(f"{text}; remove it")
    return tuple(by_name[wanted.name] for wanted in request.outputs)


def _unsupported(model: Model, operation: Operation) -> GatewayError:
    offered = ", ".join(sorted(operation.value for operation in model.functions))
    return unsupported(f"model {model.name!r} offers no {operation.value}; it offers {offered}")


def stream_handler(models: Sequence[Model], *, points: bool = False) -> StreamHandler:
    """Return a StreamHandler that answers `stream` for `models`.

    A streaming model yields each of its responses; any other model yields its single response.

    The StreamHandler raises the same errors as the Handler, possibly after some responses."""
    served = by_name(models, points=points)
    unary = handler(models, points=points)

    async def stream(request: Request) -> AsyncGenerator[Response, None]:
        model = find(served, request)
        if model.stream is not None:
            async with aclosing(_responses(model.stream, model, request)) as responses:
                async for item in responses:
                    yield item
            return
        answer = await unary(replace(request, operation=Operation.INFER))
        assert isinstance(answer, Response)
        yield answer

    return stream


async def _responses(stream: Stream, model: Model, request: Request) -> AsyncGenerator[Response, None]:
    arguments = arrange(request, model.signature)
    config = config_of(request, model)
    try:
        async with aclosing(stream(arguments, config)) as results:
            async for outputs in results:
                yield response(outputs, request, model)
    except GatewayError:
        raise
    except (Exception, SystemExit) as error:
        raise model_error(model.name, error) from error
