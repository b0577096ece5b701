"""`posterior`: values, derivatives against finite differences, and the edge of its support."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.operations import Operation
from gateway.reference import BUNDLED
from tests.reference.calls import Doubles, call, doubles

POSTERIOR = BUNDLED["posterior"]
STEP = 1e-5

coordinates = st.floats(-2, 2)
points = st.tuples(coordinates, coordinates)


async def log_density(theta: Doubles) -> Doubles:
    return (await call(POSTERIOR, {"theta": theta}))["logdensity"]


async def slope(theta: Doubles) -> Doubles:
    inputs = {"theta": theta, "sens": np.ones((len(theta), 1))}
    return (await call(POSTERIOR, inputs, Operation.GRADIENT))["output"]


async def test_values() -> None:
    theta = doubles([[1, 1], [0, 0], [2, 1], [-1, 1]])
    assert (await log_density(theta)).tolist() == [[0], [-0.05], [-45.05], [-0.2]]


async def test_no_rows() -> None:
    assert (await log_density(np.zeros((0, 2)))).shape == (0, 1)


OUTSIDE = [
    ([10.5, 0], -np.inf),
    ([0, -11], -np.inf),
    ([np.inf, 0], -np.inf),
    ([1e300, 1], -np.inf),
    ([np.nan, 0], np.nan),
]


@pytest.mark.parametrize(("theta", "expected"), OUTSIDE)
async def test_beyond_its_support_it_is_minus_infinity(theta: list[float], expected: float) -> None:
    beside = [1.0, 1.0]
    np.testing.assert_array_equal(await log_density(doubles([theta, beside])), [[expected], [0]])
    gradient = await slope(doubles([theta, beside]))
    assert np.isnan(gradient[0]).all()
    assert gradient[1].tolist() == [0, 0]


@given(point=points, sens=st.floats(-3, 3))
async def test_the_gradient_is_the_slope(point: tuple[float, float], sens: float) -> None:
    nearby = doubles([point]) + STEP * doubles([[1, 0], [-1, 0], [0, 1], [0, -1]])
    values = (await log_density(nearby))[:, 0]
    expected = sens * np.array([values[0] - values[1], values[2] - values[3]]) / (2 * STEP)
    inputs = {"theta": doubles([point]), "sens": doubles([[sens]])}
    gradient = (await call(POSTERIOR, inputs, Operation.GRADIENT))["output"]
    np.testing.assert_allclose(gradient[0], expected, atol=1e-5, rtol=1e-6)


@given(point=points, vec=points)
async def test_the_jacobian_is_the_slope_along_a_vector(point: tuple[float, float], vec: tuple[float, float]) -> None:
    inputs = {"theta": doubles([point]), "vec": doubles([vec])}
    product = (await call(POSTERIOR, inputs, Operation.APPLY_JACOBIAN))["output"]
    expected = (await slope(doubles([point])))[0] @ doubles(vec)
    np.testing.assert_allclose(product, [[expected]], atol=1e-9)


@given(point=points, vec=points, sens=st.floats(-3, 3))
async def test_the_hessian_is_the_change_of_the_slope(
    point: tuple[float, float], vec: tuple[float, float], sens: float
) -> None:
    nearby = doubles([point]) + STEP * np.outer([1, -1], vec)
    slopes = await slope(nearby)
    expected = sens * (slopes[0] - slopes[1]) / (2 * STEP)
    inputs = {"theta": doubles([point]), "vec": doubles([vec]), "sens": doubles([[sens]])}
    product = (await call(POSTERIOR, inputs, Operation.APPLY_HESSIAN))["output"]
    np.testing.assert_allclose(product[0], expected, atol=1e-5, rtol=1e-6)
