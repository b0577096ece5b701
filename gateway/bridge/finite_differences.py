"""Computes derivatives by finite differences, for `estimates`.

The module determines the points at which to evaluate a function, and computes the derivative from the values.

A stencil is a list of offsets in steps, such as -1 and 1. For a function f of one variable with values at x + t_k, the
derivative is the sum of w_k f(x + t_k). The polynomial through these points determines the weights w_k. Points are
first rounded to the input's datatype, and the weights are computed for the rounded points. Therefore, for x of any
size, the sum is exact (except for rounding errors) for polynomials whose degree is below the number of points.

The first dimension of arrays has the size B; each of the B rows is a separate derivative. In the shapes below, n is the
length of the input, m the length of the output, and K the number of offsets. This module does no I/O.
"""

from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from gateway.core.frozen import frozen

Array: TypeAlias = np.ndarray[Any, Any]


@frozen
class Stencil:
    """The offsets of the points in steps, and the order of the error. The error decreases with this power of the
    step."""

    offsets: tuple[int, ...]
    order: int

    @property
    def has_centre(self) -> bool:
        """True if the point itself is one of the points."""
        return 0 in self.offsets


STENCILS: dict[tuple[str, int], Stencil] = {
    ("forward", 1): Stencil((0, 1), 1),
    ("forward", 2): Stencil((0, 1, 2), 2),
    ("central", 2): Stencil((-1, 1), 2),
    ("central", 4): Stencil((-2, -1, 1, 2), 4),
}
"""The stencils, by method and order."""


def relative_step(order: int, dtype: "np.dtype[Any]", *, second: bool = False) -> float:
    """Return the step, relative to an element's size, at which a stencil's error and the rounding error of values in
    `dtype` are about equal: eps^(1/(order + 1)), or eps^(1/(order + 2)) for `second` derivatives."""
    eps = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
    return float(eps ** (1 / (order + (2 if second else 1))))


def for_second(step: float, order: int) -> float:
    """Return the step for second derivatives that corresponds to a step for first derivatives."""
    return float(step ** ((order + 1) / (order + 2)))


@frozen
class Step:
    """The distance between points: `size` times the size of an element. If the element is smaller than `typical`,
    `typical` replaces the element's size. `scale` is an additional factor: 2 for the second result, which the error
    estimate requires."""

    size: float
    typical: float
    scale: float = 1.0

    def lengths(self, x: Array, dtype: "np.dtype[Any]") -> Array:
        """Return the step for each element of `x` (FP64). Each step is large enough to change the element when rounded
        to `dtype`."""
        sizes = np.maximum(np.abs(x), self.typical)
        eps = float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]
        return np.maximum(sizes * self.size, 2 * eps * sizes) * self.scale


@frozen
class Line:
    """Points along one direction: `points` [B, K, n] in FP64 (rounded to the input's dtype), `weights` [B, K]."""

    points: Array
    weights: Array

    def combine(self, values: Array) -> Array:
        """Return the derivative [B, m] along the direction, from values [B, K, m]."""
        return _combine(self.weights[..., None], values, 1)


def along_line(x: Array, direction: Array, step: Step, stencil: Stencil, dtype: "np.dtype[Any]") -> Line:
    """Return the points for the derivative at `x` [B, n] along `direction` [B, n], which can have any norm.

    The element with the largest relative change moves by its own step."""
    with np.errstate(all="ignore"):
        lengths = step.lengths(x, dtype)
        ratios = np.abs(direction) / lengths
        most = ratios.max(axis=1, initial=0.0)
        unit = np.where(most > 0, 1 / most, 1.0)
        unit = np.where(np.isfinite(most), unit, np.nan)
        offsets = np.array(stencil.offsets, np.float64)
        shifts = offsets[None, :] * unit[:, None]
        points = _rounded(x[:, None, :] + shifts[..., None] * direction[:, None, :], dtype)
        return Line(points, weights(offsets)[None, :] / unit[:, None])


@frozen
class Axes:
    """Points along each axis: `points` [B, P, n] in FP64 (rounded to the input's dtype), `weights` [B, n, K].

    If `has_centre` is True, the first point is the center. The other points follow, axis by axis."""

    points: Array
    weights: Array
    has_centre: bool

    def combine(self, values: Array) -> Array:
        """Return the Jacobian [B, n, m] from values [B, P, m].

        Each row is the derivative with respect to one element of the input."""
        rows, count, many = self.weights.shape
        if not self.has_centre:
            return _combine(self.weights[..., None], values.reshape(rows, count, many, -1), 2)
        moved = values[:, 1:].reshape(rows, count, many - 1, values.shape[2])
        centre = np.broadcast_to(values[:, None, :1], (rows, count, 1, values.shape[2]))
        return _combine(self.weights[..., None], np.concatenate([centre, moved], axis=2), 2)


def points_along_axes(length: int, stencil: Stencil) -> int:
    """Return the number of points P of `along_axes` for an input of this length."""
    return length * (len(stencil.offsets) - stencil.has_centre) + stencil.has_centre


def along_axes(x: Array, step: Step, stencil: Stencil, dtype: "np.dtype[Any]") -> Axes:
    """Return the points for all derivatives at `x` [B, n] of a function of n variables."""
    rows, count = x.shape
    with np.errstate(all="ignore"):
        shifts = step.lengths(x, dtype)[..., None] * np.array(stencil.offsets, np.float64)
        moved = _rounded(x[..., None] + shifts, dtype)
        made = weights(moved - x[..., None])
    offsets = [at for at, offset in enumerate(stencil.offsets) if offset]
    points = np.empty((rows, points_along_axes(count, stencil), count))
    points[:] = x[:, None, :]
    grid = points[:, int(stencil.has_centre) :].reshape(rows, count, len(offsets), count)
    axis = np.arange(count)
    # Indexing with two separate arrays moves the varying axis to the front: [n, B, K', ...].
    grid[:, axis, :, axis] = moved[:, :, offsets].transpose(1, 0, 2)
    points[:, int(stencil.has_centre) :] = grid.reshape(rows, -1, count)
    return Axes(points, made, stencil.has_centre)


def weights(nodes: Array) -> Array:
    """Return the weights of the first derivative at 0 for values at `nodes` [..., K]. The nodes must all differ."""
    many = nodes.shape[-1]
    unit = np.abs(nodes).max(axis=-1, keepdims=True)  # otherwise products of tiny nodes would underflow
    t = nodes / unit
    found = np.zeros_like(t)
    for j in range(many):
        for other in range(many):
            if other == j:
                continue
            term = 1 / (t[..., j] - t[..., other])
            for rest in range(many):
                if rest not in (j, other):
                    term = term * -t[..., rest] / (t[..., j] - t[..., rest])
            found[..., j] += term
    scaled: Array = found / unit
    return scaled


def largest_difference(result: Array, coarser: Array) -> float:
    """Return the largest difference between the elements of two results for the same derivative, relative to the
    largest element (absolute if all elements are 0). The result is NaN if an element is not finite."""
    if not result.size:
        return 0.0
    with np.errstate(all="ignore"):
        difference, largest = float(np.abs(result - coarser).max()), float(np.abs(result).max())
    return difference / largest if largest else difference


def _combine(factors: Array, values: Array, axis: int) -> Array:
    """Return the sum of `values` times `factors` on an axis.

    The result is NaN if a value is not finite, because the derivative is then undetermined."""
    with np.errstate(all="ignore"):
        # The weights add up to 0, so subtracting a constant does not change the sum, but preserves more digits.
        first = np.take(values, [0], axis)
        total: Array = ((values - first) * factors).sum(axis=axis)
        return np.where(np.isfinite(values).all(axis=axis), total, np.nan)


def _rounded(points: Array, dtype: "np.dtype[Any]") -> Array:
    return points if dtype == np.float64 else points.astype(dtype).astype(np.float64)
