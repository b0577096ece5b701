"""`count` maps `n` INT32 `[-1, 1]`, one row, to n responses with `i` INT32 `[-1, 1]`, which counts from 0 to n - 1. A
negative n gives -n responses and then an error (aborted). The model streams, so it refuses `infer`.
"""

import asyncio
from collections.abc import AsyncGenerator

import numpy as np

from gateway.core.errors import Reason, invalid_input, refusal
from gateway.core.tensors import Tensor, tensor
from gateway.reference.declaration import specs
from gateway.reference.model import Arguments, Config, Outputs, build

MAX_RESPONSES = 100_000
"""Maximum number of responses to one request."""


async def _count(arguments: Arguments, config: Config) -> AsyncGenerator[Outputs, None]:
    n = _number(arguments)
    for i in range(abs(n)):
        yield (tensor("i", np.array([[i]], np.int32)),)
        await asyncio.sleep(0)  # lets other tasks run even if the reader is always ready
    if n < 0:
        raise refusal(Reason.ABORTED, f"model 'count' fails on request after {-n} responses")


def _number(arguments: Arguments) -> int:
    [count_to] = arguments
    assert isinstance(count_to, Tensor)
    if count_to.shape[0] != 1:
        raise invalid_input(f"input 'n' of model 'count' has {count_to.shape[0]} rows; expected 1")
    n = int(count_to.array[0, 0])
    if abs(n) > MAX_RESPONSES:
        raise invalid_input(f"input 'n' of model 'count' is {n}; expected at most {MAX_RESPONSES}")
    return n


count = build(
    "count",
    {},  # no operations besides the stream
    specs([("n", "INT32", [-1, 1])], "input"),
    specs([("i", "INT32", [-1, 1])], "output"),
    stream=_count,
)
