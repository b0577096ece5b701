"""`double` maps `x` FP64 `[-1, -1]` to `y` of the same shape: `2 * x`, or `s * x` with config `{"scale": s}`.

`add_sub` maps INPUT0 and INPUT1, INT32 `[-1]`, to OUTPUT0, their sum, and OUTPUT1, their difference.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.core.errors import invalid_input
from gateway.core.operations import Operation
from gateway.reference.declaration import specs
from gateway.reference.model import DERIVATIVE_OUTPUTS, Config, build, on_arrays

Doubles = NDArray[np.float64]


def _scale(config: Config) -> float:
    for key in config.keys() - {"scale"}:
        raise invalid_input(f"model 'double' takes no config {key!r}; expected 'scale'")
    scale = config.get("scale", 2.0)
    if isinstance(scale, bool) or not isinstance(scale, int | float):
        raise invalid_input(f"config 'scale' of model 'double' is {scale!r}; expected a number")
    return float(scale)


def _double(x: Doubles, config: Config) -> Doubles:
    return _scale(config) * x


def _gradient(x: Doubles, out_wrt: int, in_wrt: int, sens: Doubles, config: Config) -> Doubles:
    _check_sens(x, sens)
    return _scale(config) * sens


def _apply_jacobian(x: Doubles, out_wrt: int, in_wrt: int, vec: Doubles, config: Config) -> Doubles:
    return _scale(config) * vec


def _apply_hessian(
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
        Operation.GRADIENT: on_arrays(_gradient, DERIVATIVE_OUTPUTS, configurable=True),
        Operation.APPLY_JACOBIAN: on_arrays(_apply_jacobian, DERIVATIVE_OUTPUTS, configurable=True),
        Operation.APPLY_HESSIAN: on_arrays(_apply_hessian, DERIVATIVE_OUTPUTS, configurable=True),
    },
    _X,
    _Y,
    points=(specs([("x", "FP64", [-1, 3])], "input"), specs([("y", "FP64", [-1, 3])], "output")),
    configurable=True,
)


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
