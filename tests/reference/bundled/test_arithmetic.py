"""`double` with its derivatives, and `add_sub`."""

import numpy as np
import pytest

from gateway.core.errors import GatewayError
from gateway.core.operations import Operation
from gateway.reference import BUNDLED
from tests.reference.calls import call, doubles

DOUBLE, ADD_SUB = BUNDLED["double"], BUNDLED["add_sub"]
X, OTHER = doubles([[1, 2, 3], [4, 5, 6]]), doubles([[1, 0, -1], [2, 2, 2]])
SCALE = {"config": '{"scale": -3}'}


@pytest.mark.parametrize("rows", [0, 1, 5])
async def test_double_takes_any_number_of_rows(rows: int) -> None:
    x = np.ones((rows, 4))
    assert (await call(DOUBLE, {"x": x}))["y"].tolist() == (2 * x).tolist()


async def test_nan_and_infinities_pass() -> None:
    answer = (await call(DOUBLE, {"x": doubles([[np.nan, -np.inf]])}))["y"]
    np.testing.assert_array_equal(answer, [[np.nan, -np.inf]])


async def test_the_derivatives_of_double() -> None:
    assert (await call(DOUBLE, {"x": X, "sens": OTHER}, Operation.GRADIENT))["output"].tolist() == (2 * OTHER).tolist()
    jacobian = await call(DOUBLE, {"x": X, "vec": OTHER}, Operation.APPLY_JACOBIAN)
    assert jacobian["output"].tolist() == (2 * OTHER).tolist()
    hessian = await call(DOUBLE, {"x": X, "sens": OTHER, "vec": OTHER}, Operation.APPLY_HESSIAN)
    assert hessian["output"].tolist() == np.zeros((2, 3)).tolist()


async def test_config_gives_the_scale() -> None:
    assert (await call(DOUBLE, {"x": X}, parameters=SCALE))["y"].tolist() == (-3 * X).tolist()
    gradient = await call(DOUBLE, {"x": X, "sens": OTHER}, Operation.GRADIENT, parameters=SCALE)
    assert gradient["output"].tolist() == (-3 * OTHER).tolist()


@pytest.mark.parametrize("scale", ['"big"', "true", "null", "[1]"])
async def test_a_scale_that_is_no_number_is_refused(scale: str) -> None:
    with pytest.raises(GatewayError, match="config 'scale' of model 'double' is "):
        await call(DOUBLE, {"x": X}, parameters={"config": f'{{"scale": {scale}}}'})


async def test_a_config_key_that_it_does_not_know_is_refused() -> None:
    with pytest.raises(GatewayError, match="model 'double' takes no config 'scael'; expected 'scale'"):
        await call(DOUBLE, {"x": X}, parameters={"config": '{"scael": 3}'})


async def test_sens_must_have_the_shape_of_the_output() -> None:
    with pytest.raises(GatewayError, match=r"sens of model 'double' is \[2, 2\]; expected \[2, 3\]"):
        await call(DOUBLE, {"x": X, "sens": OTHER[:, :2]}, Operation.GRADIENT)


async def test_add_sub_wraps_around() -> None:
    first, second = np.array([5, 2**31 - 1, -(2**31)], "<i4"), np.array([7, 1, 1], "<i4")
    answer = await call(ADD_SUB, {"INPUT0": first, "INPUT1": second})
    assert {name: array.tolist() for name, array in answer.items()} == {
        "OUTPUT0": [12, -(2**31), -(2**31) + 1],
        "OUTPUT1": [-2, 2**31 - 2, 2**31 - 1],
    }


async def test_the_terms_must_have_the_same_shape() -> None:
    terms = {"INPUT0": np.zeros(2, "<i4"), "INPUT1": np.zeros(1, "<i4")}
    with pytest.raises(GatewayError, match=r"INPUT0 of model 'add_sub' is \[2\] and INPUT1 \[1\]; expected the same"):
        await call(ADD_SUB, terms)
