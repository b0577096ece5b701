"""`slow` and `fail`."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.core.errors import GatewayError, Reason, Status
from gateway.reference import BUNDLED
from gateway.reference.bundled import KINDS
from tests.reference.calls import call, doubles

SLOW, FAIL = BUNDLED["slow"], BUNDLED["fail"]


def kinds(*numbers: int) -> dict[str, NDArray[Any]]:
    return {"kind": np.array(numbers, "<i4").reshape(-1, 1)}


async def test_slow_returns_how_long_it_slept() -> None:
    assert (await call(SLOW, {"seconds": doubles([[0.0], [0.001]])}))["slept"].tolist() == [[0], [0.001]]


async def test_slow_without_rows_does_not_sleep() -> None:
    assert (await call(SLOW, {"seconds": np.zeros((0, 1))}))["slept"].shape == (0, 1)


@pytest.mark.parametrize("seconds", [-1, np.nan, np.inf, 3601])
async def test_slow_sleeps_an_hour_at_most(seconds: float) -> None:
    with pytest.raises(GatewayError, match="input 'seconds' of model 'slow' must lie between 0 and 3600"):
        await call(SLOW, {"seconds": doubles([[0.0], [seconds]])})


@pytest.mark.parametrize("status", [status for status in Status if status is not Status.OK])
async def test_fail_knows_every_status_by_its_number(status: Status) -> None:
    with pytest.raises(GatewayError) as caught:
        await call(FAIL, kinds(status))
    assert caught.value.status is status


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (8, Reason.TOO_LARGE),
        (108, Reason.OVERLOADED),
        (13, Reason.MODEL_ERROR),
        (113, Reason.INVALID_OUTPUT),
        (213, Reason.INTERNAL),
        (14, Reason.UNREACHABLE),
        (114, Reason.NOT_READY),
    ],
)
async def test_fail_tells_reasons_of_one_status_apart(number: int, reason: Reason) -> None:
    with pytest.raises(GatewayError, match=f"model 'fail' fails on request with {reason.value}") as caught:
        await call(FAIL, kinds(number))
    assert caught.value.reason is reason


async def test_fail_succeeds_with_zero() -> None:
    assert (await call(FAIL, kinds(0, 0)))["y"].tolist() == [[0], [0]]


async def test_the_first_row_that_is_not_zero_fails() -> None:
    with pytest.raises(GatewayError) as caught:
        await call(FAIL, kinds(0, 12, 3))
    assert caught.value.reason is KINDS[12] is Reason.UNSUPPORTED


async def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(GatewayError, match="input 'kind' of model 'fail' is 17; expected 0, 1, 2, 3"):
        await call(FAIL, kinds(17))
