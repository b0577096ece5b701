"""The bundled models, each described with its input and output tensors, and BUNDLED, which maps names to them. `slow`
and `fail` are for tests."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import Reason, invalid_input, refusal
from gateway.core.operations import Operation
from gateway.core.tensors import Tensor, tensor
from gateway.reference.declaration import specs
from gateway.reference.model import DERIVATIVE_OUTPUTS, Arguments, Config, Outputs, build, on_arrays

Doubles = NDArray[np.float64]


def _echo(arguments: Arguments, config: Config) -> Outputs:
    # drop the input's parameters, which concern only the request
    return tuple(
        Tensor(item.name, item.datatype, item.shape, item.data, item.content_type)
        for item in arguments
        if isinstance(item, Tensor)
    )


_POINT = specs([("x", "FP64", [-1, 2])], "tensor")

identity = build("identity", {Operation.INFER: _echo}, points=(_POINT, _POINT))
"""Returns every input as the output of the same name, with any datatype and shape. The Signature is empty, so the model
accepts any tensors. For one-point protocols, the Signature is `x` FP64 `[-1, 2]`."""


def _scale(config: Config) -> float:
    for key in config.keys() - {"scale"}:
        raise invalid_input(f"model 'double' takes no config {key!r}; expected 'scale'")
    scale = config.get("scale", 2.0)
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise invalid_input(f"config 'scale' of model 'double' is {scale!r}; expected a number")
    return float(scale)


def _double(x: Doubles, config: Config) -> Doubles:
    return _scale(config) * x


def _double_gradient(x: Doubles, out_wrt: int, in_wrt: int, sens: Doubles, config: Config) -> Doubles:
    _check_sens(x, sens)
    return _scale(config) * sens


def _double_jacobian(x: Doubles, out_wrt: int, in_wrt: int, vec: Doubles, config: Config) -> Doubles:
    return _scale(config) * vec


def _double_hessian(
    x: Doubles, out_wrt: int, in_wrt1: int, in_wrt2: int, sens: Doubles, vec: Doubles, config: Config
) -> Doubles:
    _check_sens(x, sens)
    return np.zeros_like(x)


def _check_sens(x: Doubles, sens: Doubles) -> None:
    if sens.shape != x.shape:
        raise invalid_input(f"sens of model 'double' is {list(sens.shape)}; expected {list(x.shape)}, as its output")


_X = specs([("x", "FP64", [-1, -1])], "input")
_Y = specs([("y", "FP64", [-1, -1])], "output")

double = build(
    "double",
    {
        Operation.INFER: on_arrays(_double, _Y, configurable=True),
        Operation.GRADIENT: on_arrays(_double_gradient, DERIVATIVE_OUTPUTS, configurable=True),
        Operation.APPLY_JACOBIAN: on_arrays(_double_jacobian, DERIVATIVE_OUTPUTS, configurable=True),
        Operation.APPLY_HESSIAN: on_arrays(_double_hessian, DERIVATIVE_OUTPUTS, configurable=True),
    },
    _X,
    _Y,
    points=(specs([("x", "FP64", [-1, 3])], "input"), specs([("y", "FP64", [-1, 3])], "output")),
    configurable=True,
)
"""Maps `x` FP64 `[-1, -1]` to `y` of the same shape: `2 * x`, or `s * x` with config `{"scale": s}`."""


def _add_sub(first: NDArray[Any], second: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the sum and the difference. Results outside the INT32 range wrap around, as in numpy."""
    if first.shape != second.shape:
        raise invalid_input(
            f"INPUT0 of model 'add_sub' is {list(first.shape)} and INPUT1 {list(second.shape)}; expected the same shape"
        )
    return first + second, first - second


_TERMS = specs([("INPUT0", "INT32", [-1]), ("INPUT1", "INT32", [-1])], "input")
_RESULTS = specs([("OUTPUT0", "INT32", [-1]), ("OUTPUT1", "INT32", [-1])], "output")

add_sub = build("add_sub", {Operation.INFER: on_arrays(_add_sub, _RESULTS)}, _TERMS, _RESULTS)
"""Maps INPUT0 and INPUT1, INT32 `[-1]`, to OUTPUT0, their sum, and OUTPUT1, their difference."""


def _upper(texts: NDArray[Any]) -> NDArray[Any]:
    upper_case = np.empty(texts.shape, object)
    upper_case[:] = [_decode(text, at).upper() for at, text in enumerate(texts)]
    return upper_case


def _decode(text: bytes, at: int) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise invalid_input(
            f"input 'text' of model 'upper': element {at} is not UTF-8: {error.reason}; send UTF-8 text"
        ) from error


_UPPER = specs([("upper", "BYTES", [-1])], "output")

upper = build("upper", {Operation.INFER: on_arrays(_upper, _UPPER)}, specs([("text", "BYTES", [-1])], "input"), _UPPER)
"""Maps `text` BYTES `[-1]`, which must be UTF-8, to `upper` BYTES `[-1]`, the text in uppercase (Unicode)."""


BOUND = 10.0


def _log_density(theta: Doubles) -> Doubles:
    x, y = _supported(theta).T
    inside = -((1 - x) ** 2 + 100 * (y - x**2) ** 2) / 20
    return np.where(_is_outside(theta), -np.inf, inside)[:, None]


def _is_outside(theta: Doubles) -> NDArray[np.bool_]:
    greatest: Doubles = np.abs(theta).max(axis=1)
    return greatest > BOUND


def _supported(theta: Doubles) -> Doubles:
    """Return `theta` with NaN in the rows outside the support, to prevent overflow in computations on these rows."""
    return np.where(_is_outside(theta)[:, None], np.nan, theta)


def _slope(theta: Doubles) -> Doubles:
    """Return the gradient of the log density, `[B, 2]`."""
    x, y = _supported(theta).T
    return np.stack([(1 - x) / 10 + 20 * x * (y - x**2), -10 * (y - x**2)], axis=1)


def _curvature(theta: Doubles, vec: Doubles) -> Doubles:
    """Return the Hessian of the log density times `vec`, `[B, 2]`."""
    x, y = _supported(theta).T
    xx, xy, yy = 20 * y - 60 * x**2 - 0.1, 20 * x, -10.0
    return np.stack([xx * vec[:, 0] + xy * vec[:, 1], xy * vec[:, 0] + yy * vec[:, 1]], axis=1)


def _posterior_gradient(theta: Doubles, out_wrt: int, in_wrt: int, sens: Doubles) -> Doubles:
    return sens * _slope(theta)


def _posterior_jacobian(theta: Doubles, out_wrt: int, in_wrt: int, vec: Doubles) -> Doubles:
    products: Doubles = (_slope(theta) * vec).sum(axis=1, keepdims=True)
    return products


def _posterior_hessian(
    theta: Doubles, out_wrt: int, in_wrt1: int, in_wrt2: int, sens: Doubles, vec: Doubles
) -> Doubles:
    return sens * _curvature(theta, vec)


_LOG_DENSITY = specs([("logdensity", "FP64", [-1, 1])], "output")

posterior = build(
    "posterior",
    {
        Operation.INFER: on_arrays(_log_density, _LOG_DENSITY),
        Operation.GRADIENT: on_arrays(_posterior_gradient, DERIVATIVE_OUTPUTS),
        Operation.APPLY_JACOBIAN: on_arrays(_posterior_jacobian, DERIVATIVE_OUTPUTS),
        Operation.APPLY_HESSIAN: on_arrays(_posterior_hessian, DERIVATIVE_OUTPUTS),
    },
    specs([("theta", "FP64", [-1, 2])], "input"),
    _LOG_DENSITY,
)
"""Maps `theta` FP64 `[-1, 2]` to `logdensity` FP64 `[-1, 1]`, an unnormalized banana-shaped log density (after
Rosenbrock's function), with exact derivatives:

    log p(x, y) = -((1 - x)^2 + 100 (y - x^2)^2) / 20    for |x| <= 10 and |y| <= 10

Outside this support, the log density is -inf, and its derivatives are NaN. For NaN inputs, all results are NaN."""


def _classify(scores: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    if scores.shape[1] == 0:
        raise invalid_input("input 'scores' of model 'classify' has no classes; expected at least one column")
    if not np.isfinite(scores).all():
        raise invalid_input("input 'scores' of model 'classify' holds NaN or an infinity; expected finite scores")
    best = scores.argmax(axis=1)
    labels = np.array([f"class_{position}" for position in best.tolist()], object)
    return labels.reshape(-1, 1), _greatest_probability(scores)


def _greatest_probability(scores: NDArray[Any]) -> NDArray[Any]:
    """Return the softmax of each row's highest score. The computation uses FP64, in which the difference of two FP32
    numbers is always finite."""
    differences = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
    total: NDArray[Any] = np.exp(differences).sum(axis=1, keepdims=True)
    return (1.0 / total).astype(np.float32)


_CLASSES = specs([("label", "BYTES", [-1, 1]), ("score", "FP32", [-1, 1])], "output")

classify = build(
    "classify",
    {Operation.INFER: on_arrays(_classify, _CLASSES)},
    specs([("scores", "FP32", [-1, -1])], "input"),
    _CLASSES,
)
"""Maps `scores` FP32 `[-1, -1]`, one row of class scores (logits) per item, to `label` BYTES `[-1, 1]` and `score` FP32
`[-1, 1]`. `label` is `class_<index of the highest score>`, and `score` is the softmax probability of that class."""


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
"""Maps one row of `n` INT32 `[-1, 1]` to n responses with `i` INT32 `[-1, 1]`, which counts from 0 to n - 1. A negative
n produces -n responses and then an error (aborted). The model streams, so it rejects `infer`."""


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
"""The values of `kind`, and the error that each value selects."""


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
"""Waits for `seconds` FP64 `[-1, 1]` (the maximum of all rows), and then returns the input as `slept`."""

fail = build(
    "fail",
    {Operation.INFER: _fail},
    specs([("kind", "INT32", [-1, 1])], "input"),
    specs([("y", "INT32", [-1, 1])], "output"),
)
"""Raises the error selected by `kind` INT32 `[-1, 1]`, a key of KINDS. If `kind` is 0, the model succeeds and returns
`y`."""


BUNDLED = {model.name: model for model in (identity, double, add_sub, upper, posterior, classify, count, slow, fail)}
