"""What the backends serve: vectors that come back as they are, on the event loop, so that the proxy is what costs."""

from collections.abc import Awaitable, Callable

import numpy as np
from numpy.typing import NDArray

from gateway.reference import signature

Doubles = NDArray[np.float64]


def identity(size: int) -> Callable[[Doubles], Awaitable[Doubles]]:
    """`input0` FP64 `[-1, size]` to `output0` of the same shape: the names that UM-Bridge's tensors get."""

    @signature(inputs=[("input0", "FP64", [-1, size])], outputs=[("output0", "FP64", [-1, size])])
    async def vector(x: Doubles) -> Doubles:
        return x

    return vector


vector_10 = identity(10)
vector_1000 = identity(1_000)
vector_10000 = identity(10_000)
vector_100000 = identity(100_000)

NAMES = ("vector_10", "vector_1000", "vector_10000", "vector_100000")
