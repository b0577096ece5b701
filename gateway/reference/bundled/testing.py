"""Models for tests.

`slow` waits for `seconds` FP64 `[-1, 1]` (the maximum of all rows), and then returns its input as `slept`. `fail`
raises the error that `kind` INT32 `[-1, 1]`, a key of KINDS, selects. If `kind` is 0, it succeeds and returns `y`.
"""

import asyncio
from collections.abc import Awaitable

import numpy as np

from gateway.core.errors import Reason, invalid_input, refusal
from gateway.core.operations import Operation
from gateway.core.tensors import Tensor, tensor
from gateway.reference.declaration import specs
from gateway.reference.model import Arguments, Config, Outputs, build

MAX_SECONDS = 3600.0

KINDS = {
    # gRPC status codes, each with the first of its reasons
    1: Reason.CANCELLED,
    2: Reason.UNKNOWN,
    3: Reason.INVALID_INPUT,
    4: Reason.TIMEOUT,
    5: Reason.MODEL_NOT_FOUND,
    6: Reason.ALREADY_EXISTS,
    7: Reason.PERMISSION_DENIED,
    8: Reason.TOO_LARGE,
    9: Reason.FAILED_PRECONDITION,
    10: Reason.ABORTED,
    11: Reason.OUT_OF_RANGE,
    12: Reason.UNSUPPORTED,
    13: Reason.MODEL_ERROR,
    14: Reason.UNREACHABLE,
    15: Reason.DATA_LOSS,
    16: Reason.UNAUTHENTICATED,
    # additional reasons of a status: its code plus 100, 200, ...
    108: Reason.OVERLOADED,
    113: Reason.INVALID_OUTPUT,
    114: Reason.NOT_READY,
    213: Reason.INTERNAL,
}
"""The values of `kind`, and the errors that they select."""


def _slow(arguments: Arguments, config: Config) -> Awaitable[Outputs]:
    [seconds] = arguments
    assert isinstance(seconds, Tensor)
    longest = float(seconds.array.max(initial=0.0))
    if not (seconds.array >= 0).all() or longest > MAX_SECONDS:
        raise invalid_input(f"input 'seconds' of model 'slow' must lie between 0 and {MAX_SECONDS:g}")
    return _sleep(longest, tensor("slept", seconds.array))


async def _sleep(seconds: float, slept: Tensor) -> Outputs:
    await asyncio.sleep(seconds)
    return (slept,)


def _fail(arguments: Arguments, config: Config) -> Outputs:
    [kind] = arguments
    assert isinstance(kind, Tensor)
    number = next((number for number in kind.array.flat if number), 0)
    if number == 0:
        return (tensor("y", np.zeros_like(kind.array)),)
    if number not in KINDS:
        raise invalid_input(f"input 'kind' of model 'fail' is {number}; expected 0, {', '.join(map(str, KINDS))}")
    raise refusal(KINDS[number], f"model 'fail' fails on request with {KINDS[number].value}")


slow = build(
    "slow",
    {Operation.INFER: _slow},
    specs([("seconds", "FP64", [-1, 1])], "input"),
    specs([("slept", "FP64", [-1, 1])], "output"),
)

fail = build(
    "fail",
    {Operation.INFER: _fail},
    specs([("kind", "INT32", [-1, 1])], "input"),
    specs([("y", "INT32", [-1, 1])], "output"),
)
