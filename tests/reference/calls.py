"""Calls of reference models, as the tests of this folder write them."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gateway.core.errors import GatewayError
from gateway.core.operations import Operation
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import Tensor, tensor
from gateway.reference import Model, handler, stream_handler

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


async def stream(
    model: Model, inputs: dict[str, NDArray[Any]] | tuple[Tensor, ...], outputs: tuple[str, ...] = (), **fields: Any
) -> AsyncGenerator[dict[str, NDArray[Any]], None]:
    """The outputs of each response of one call by name."""
    asked = request(model.name, inputs, Operation.STREAM, outputs=tuple(map(RequestedOutput, outputs)), **fields)
    async with aclosing(stream_handler([model])(asked)) as responses:
        async for response in responses:
            yield {output.name: output.array for output in response.outputs}


async def broken_off(
    responses: AsyncGenerator[dict[str, NDArray[Any]], None],
) -> tuple[list[dict[str, NDArray[Any]]], GatewayError]:
    """The responses of a stream that fails, and its error."""
    found: list[dict[str, NDArray[Any]]] = []
    try:
        async for each in responses:
            found.append(each)
    except GatewayError as error:
        return found, error
    raise AssertionError(f"no error after {len(found)} responses")
