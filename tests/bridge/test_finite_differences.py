"""The numbers of finite differences against exact derivatives."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.bridge.finite_differences import (
    STENCILS,
    Stencil,
    Step,
    along_axes,
    along_line,
    largest_difference,
    points_along_axes,
    relative_step,
    weights,
)
from gateway.bridge.settings import DIFFERENCE_ORDERS

FP64, FP32 = np.dtype("f8"), np.dtype("f4")
EACH = pytest.mark.parametrize("stencil", STENCILS.values(), ids=map(str, STENCILS))
numbers = st.floats(-1e6, 1e6)


def test_the_orders_of_the_configuration_are_those_of_the_stencils() -> None:
    assert {(method, order) for method, orders in DIFFERENCE_ORDERS.items() for order in orders} == set(STENCILS)


def step(stencil: Stencil, dtype: "np.dtype[Any]" = FP64) -> Step:
    return Step(relative_step(stencil.order, dtype), 1.0)


@EACH
def test_weights_are_exact_for_polynomials_below_the_number_of_points(stencil: Stencil) -> None:
    nodes = np.array(stencil.offsets, float) * 0.25 + np.arange(len(stencil.offsets)) * 0.01
    found = weights(nodes)
    for degree in range(len(nodes)):
        assert found @ nodes**degree == pytest.approx(float(degree == 1), abs=1e-12)


@EACH
@given(x=st.lists(numbers, min_size=1, max_size=4), a=numbers)
def test_lines_have_their_slope_at_any_place(stencil: Stencil, x: list[float], a: float) -> None:
    at = np.array([x])
    axes = along_axes(at, step(stencil), stencil, FP64)
    assert axes.points.shape[1] == points_along_axes(len(x), stencil)
    jacobian = axes.combine((a * axes.points).sum(axis=2, keepdims=True))
    scale = abs(a) * (np.abs(at).sum() + 1)
    assert np.abs(jacobian[..., 0] - a).max() <= 1e-15 * scale * len(x) * 10 / step(stencil).size + 1e-300


@EACH
@pytest.mark.parametrize(("dtype", "bound"), [(FP64, 1e-7), (FP32, 3e-3)])
def test_smooth_functions_at_all_scales(stencil: Stencil, dtype: Any, bound: float) -> None:
    x = np.array([[0.3, -2.0, 40.0], [1e3, 1e-3, 0.0]]).astype(dtype).astype(float)

    def values(points: Any) -> Any:
        found = np.stack([(points**3).sum(-1), np.log1p(points**2).sum(-1)], -1)
        return found.astype(dtype).astype(float)

    exact = np.stack([3 * x**2, 2 * x / (1 + x**2)], -1)
    axes = along_axes(x, step(stencil, dtype), stencil, dtype)
    assert (axes.points == axes.points.astype(dtype)).all()
    scale = np.abs(values(x[:, None])).max(axis=(1, 2))[:, None, None] + np.abs(exact).max(axis=(1, 2), keepdims=True)
    assert (np.abs(axes.combine(values(axes.points)) - exact) / scale).max() < bound
    v = np.array([[1.0, -1e3, 10.0], [3.0, 1e-6, 0.0]])
    line = along_line(x, v, step(stencil, dtype), stencil, dtype)
    along = np.einsum("bnm,bn->bm", exact, v)
    norm = scale[:, :, 0] * np.abs(v).max(axis=1, keepdims=True)
    assert (np.abs(line.combine(values(line.points)) - along) / norm).max() < bound


@EACH
def test_a_direction_of_zeros_has_the_slope_0(stencil: Stencil) -> None:
    line = along_line(np.ones((1, 2)), np.zeros((1, 2)), step(stencil), stencil, FP64)
    assert line.combine(line.points).tolist() == [[0.0, 0.0]]


@EACH
def test_a_value_that_is_not_finite_makes_only_its_own_element_nan(stencil: Stencil) -> None:
    axes = along_axes(np.ones((1, 2)), step(stencil), stencil, FP64)
    values = axes.points.sum(axis=2, keepdims=True)
    values[0, -1] = -np.inf
    found = axes.combine(values)[0, :, 0]
    assert found[0] == pytest.approx(1.0)
    assert np.isnan(found[1])


def test_the_difference_of_two_results_is_in_proportion() -> None:
    assert largest_difference(np.array([[2.0, 4.0]]), np.array([[2.0, 4.4]])) == pytest.approx(0.1)
    assert largest_difference(np.zeros((1, 1)), np.full((1, 1), 0.5)) == 0.5
    assert largest_difference(np.zeros((1, 0)), np.zeros((1, 0))) == 0
