"""The canonical requests that the client's methods send."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

import numpy as np

from gateway.bridge import datatypes
from gateway.client.errors import ClientError
from gateway.client.outputs import as_parameters, as_tensor, as_tensors
from gateway.core.datatypes import Kind
from gateway.core.errors import DecodeError, GatewayError, invalid_input
from gateway.core.frozen import replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.requests import Answer, Request, RequestedOutput
from gateway.core.tensors import Tensor
from gateway.core.tensors import tensor as make_tensor

Wanted: TypeAlias = Iterable[str] | Mapping[str, Mapping[str, object]] | None
"""The requested outputs: their names, or parameters by name. None means all outputs."""


def check_model(model: object) -> None:
    """Raise ValueError if `model` is not a valid model name, because the caller might have swapped arguments."""
    if not isinstance(model, str):
        raise ValueError(f"the model is {type(model).__name__}, expected its name")


def inference(
    operation: Operation,
    model: str,
    arrays: Iterable[object],
    named: Mapping[str, object],
    inputs: Mapping[str, object] | None,
    outputs: Wanted = None,
    parameters: Mapping[str, object] | None = None,
    version: str = "",
    id: str | None = None,
) -> Request:
    """Return a request for `infer` or `stream`. `arrays` contains inputs by position; `named` and `inputs` contain
    inputs by name.

    Raises:
        GatewayError: INVALID_ARGUMENT if a value cannot become a tensor or a parameter, or if an input occurs twice.
    """
    return Request(
        operation,
        model,
        version,
        id,
        inputs=as_tensors(arrays, _together(named, inputs)),
        outputs=_requested(outputs),
        parameters=as_parameters(parameters),
    )


def several(
    model: str, inputs: tuple[Tensor, ...], outputs: Wanted, parameters: Mapping[str, object] | None, version: str
) -> Request:
    """Return an inference request for several points; its `inputs` have a batch dimension. Raises the same errors as
    `inference`."""
    request = inference(Operation.INFER, model, (), {}, None, outputs, parameters, version)
    return replace(request, inputs=inputs)


def derivative(
    operation: Operation,
    model: str,
    arrays: Iterable[object],
    named: Mapping[str, object],
    inputs: Mapping[str, object] | None,
    tensors: Mapping[str, object],
    parameters: Mapping[str, object] | None = None,
    version: str = "",
) -> Request:
    """Return a request for a derivative, with the model's inputs followed by the derivative's own `tensors`. Raises the
    same errors as `inference`."""
    own = tuple(_tensor_of_derivative(name, tensors[name]) for name in DERIVATIVES[operation])
    given = as_tensors(arrays, _together(named, inputs))
    return Request(operation, model, version, inputs=given + own, parameters=as_parameters(parameters))


def _tensor_of_derivative(name: str, value: object) -> Tensor:
    if name in INDEX_TENSORS:
        return as_tensor(name, [value])
    made = as_tensor(name, value)
    if not made.untyped or made.datatype.kind is Kind.FLOAT:
        return made
    # Weights and directions are real numbers, even without metadata.
    return replace(make_tensor(name, made.array.astype(np.float64)), untyped=True)


def _together(named: Mapping[str, object], inputs: Mapping[str, object] | None) -> Mapping[str, object]:
    if not inputs:
        return named
    for name in inputs:
        if name in named:
            raise invalid_input(f"input {name!r} occurs twice: by keyword and in `inputs`")
    return {**inputs, **named}


def _requested(outputs: Wanted) -> tuple[RequestedOutput, ...]:
    if outputs is None:
        return ()
    if isinstance(outputs, str):
        return (RequestedOutput(outputs),)
    if isinstance(outputs, Mapping):
        return tuple(RequestedOutput(name, as_parameters(each)) for name, each in outputs.items())
    return tuple(RequestedOutput(name) for name in outputs)


async def typed(request: Request, ask: Callable[[], Awaitable[Answer]]) -> Request:
    """Return the request with datatypes from the model's inputs: a number without a datatype gets the datatype of the
    input with the same name or position. `ask` returns the model's metadata. The commands call this function, because
    their numbers are text. It also works for protocols whose servers can report wrong metadata. A number stays
    unchanged if the datatype cannot represent it or if it matches no input, and the server then reports the error."""
    if not any(each.untyped for each in request.inputs):
        return request
    try:
        signature = await ask()
    except (ClientError, DecodeError, GatewayError):
        return request  # either the server has no metadata, or the call will report the error
    assert isinstance(signature, Signature)
    by_name = {each.name: each for each in signature.inputs}
    inputs = []
    for at, each in enumerate(request.inputs):
        at_position = signature.inputs[at] if at < len(signature.inputs) else None
        spec = by_name.get(each.name) if each.name else at_position
        inputs.append(each if spec is None or not each.untyped else _typed(each, spec))
    return replace(request, inputs=tuple(inputs))


def _typed(tensor: Tensor, spec: TensorSpec) -> Tensor:
    try:
        data = datatypes.fit(tensor, spec.datatype, f"input {tensor.name!r}", "refuse")
    except DecodeError:
        return tensor
    return replace(tensor, datatype=spec.datatype, data=data, untyped=False)
