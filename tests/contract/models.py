"""Models that show what reached them, over every protocol."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.reference import signature

Array = NDArray[Any]


@signature(
    inputs=[("a", "FP64", [-1, 2]), ("b", "FP64", [-1, 2])],
    outputs=[("sum", "FP64", [-1, 2]), ("difference", "FP64", [-1, 2])],
)
async def sums(a: Array, b: Array) -> tuple[Array, Array]:
    """Two inputs that are told apart, and two outputs."""
    return a + b, a - b


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("rows", "FP64", [-1, 1])])
async def rows(x: Array) -> Array:
    """In each row how many there are in this call."""
    return np.full((len(x), 1), float(len(x)))
