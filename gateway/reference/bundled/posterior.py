"""`posterior` maps `theta` FP64 `[-1, 2]` to `logdensity` FP64 `[-1, 1]`, an unnormalized banana-shaped log density
(after Rosenbrock's function), with exact derivatives:

    log p(x, y) = -((1 - x)^2 + 100 (y - x^2)^2) / 20    for |x| <= 10 and |y| <= 10

Outside of this support, the log density is -inf and its derivatives are NaN. For NaN inputs, all results are NaN.
"""

import numpy as np
from numpy.typing import NDArray

from gateway.core.operations import Operation
from gateway.reference.declaration import specs
from gateway.reference.model import DERIVATIVE_OUTPUTS, build, on_arrays

Doubles = NDArray[np.float64]

BOUND = 10.0


def _log_density(theta: Doubles) -> Doubles:
    x, y = _supported(theta).T
    inside = -((1 - x) ** 2 + 100 * (y - x**2) ** 2) / 20
    return np.where(_is_outside(theta), -np.inf, inside)[:, None]


def _is_outside(theta: Doubles) -> NDArray[np.bool_]:
    greatest: Doubles = np.abs(theta).max(axis=1)
    return greatest > BOUND


def _supported(theta: Doubles) -> Doubles:
    """Return `theta` with NaN in the rows outside of the support, to prevent overflow in computations on these rows."""
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


def _gradient(theta: Doubles, out_wrt: int, in_wrt: int, sens: Doubles) -> Doubles:
    return sens * _slope(theta)


def _apply_jacobian(theta: Doubles, out_wrt: int, in_wrt: int, vec: Doubles) -> Doubles:
    products: Doubles = (_slope(theta) * vec).sum(axis=1, keepdims=True)
    return products


def _apply_hessian(theta: Doubles, out_wrt: int, in_wrt1: int, in_wrt2: int, sens: Doubles, vec: Doubles) -> Doubles:
    return sens * _curvature(theta, vec)


_OUTPUTS = specs([("logdensity", "FP64", [-1, 1])], "output")

posterior = build(
    "posterior",
    {
        Operation.INFER: on_arrays(_log_density, _OUTPUTS),
        Operation.GRADIENT: on_arrays(_gradient, DERIVATIVE_OUTPUTS),
        Operation.APPLY_JACOBIAN: on_arrays(_apply_jacobian, DERIVATIVE_OUTPUTS),
        Operation.APPLY_HESSIAN: on_arrays(_apply_hessian, DERIVATIVE_OUTPUTS),
    },
    specs([("theta", "FP64", [-1, 2])], "input"),
    _OUTPUTS,
)
