"""Tensors in short, and the questions for derivatives at a point."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from gateway.core.datatypes import Datatype
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.requests import Request
from gateway.core.tensors import Tensor, tensor

FP64, FP32, INT32, INT64 = Datatype.FP64, Datatype.FP32, Datatype.INT32, Datatype.INT64


def point(*numbers: float, name: str = "") -> Tensor:
    """A vector as the points' wire has it: without a name, and INT64 if every literal was an integer."""
    whole = all(isinstance(number, int) for number in numbers)
    values = tensor(name, np.array(numbers, np.int64 if whole else np.float64))
    return Tensor(name, values.datatype, values.shape, values.data, untyped=True)


THETA = (0.5, 2.0)


def vector(name: str, *values: float) -> Tensor:
    return tensor(name, np.array(values))


def derivative(operation: Operation, *extras: Tensor, theta: Iterable[float] = THETA) -> Request:
    """A question for a derivative at `theta`, as UM-Bridge's codec makes it: the model's inputs have no names."""
    given = {each.name for each in extras}
    indices = [name for name in DERIVATIVES[operation] if name in INDEX_TENSORS and name not in given]
    zeros = [tensor(name, np.array([0])) for name in indices]
    return Request(operation, "m", inputs=(*zeros, *extras, point(*map(float, theta))))


def shown(tensors: tuple[Tensor, ...]) -> list[tuple[str, str, Any]]:
    """Name, datatype and nested values of each."""
    return [(each.name, each.datatype.value, each.array.tolist()) for each in tensors]
