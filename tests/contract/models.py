"""Models whose outputs show which inputs reached them, for tests of every protocol."""

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
    """Return the sum and the difference, which show the order of the inputs."""
    return a + b, a - b


@signature(inputs=[("x", "FP64", [-1, 2])], outputs=[("rows", "FP64", [-1, 1])])
async def rows(x: Array) -> Array:
    """Return the number of rows in this call, in each row."""
    return np.full((len(x), 1), float(len(x)))
