"""Calls of reference models, as the tests of this folder write them."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gateway.core.operations import Operation
from gateway.core.types import Request, RequestedOutput, Response, Tensor, tensor
from gateway.reference import Model, handler

Doubles = NDArray[np.float64]


def request(
    model: str,
    inputs: dict[str, NDArray[Any]] | tuple[Tensor, ...],
    operation: Operation = Operation.INFER,
    **fields: Any,
) -> Request:
    """A Request of arrays by name."""
    if isinstance(inputs, dict):
        inputs = tuple(tensor(name, array) for name, array in inputs.items())
    return Request(operation, model, inputs=inputs, **fields)


async def call(
    model: Model,
    inputs: dict[str, NDArray[Any]] | tuple[Tensor, ...],
    operation: Operation = Operation.INFER,
    outputs: tuple[str, ...] = (),
    **fields: Any,
) -> dict[str, NDArray[Any]]:
    """The outputs of one call by name."""
    wanted = tuple(RequestedOutput(name) for name in outputs)
    response = await handler([model])(request(model.name, inputs, operation, outputs=wanted, **fields))
    assert isinstance(response, Response)
    return {output.name: output.array for output in response.outputs}


def doubles(values: ArrayLike) -> Doubles:
    return np.asarray(values, np.float64)


def objects(values: list[Any]) -> NDArray[Any]:
    return np.array(values, object)
