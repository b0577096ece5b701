"""`count`."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gateway.core.errors import GatewayError, Reason
from gateway.reference import BUNDLED
from tests.reference.calls import broken_off, call, stream

COUNT = BUNDLED["count"]


def n(*numbers: int) -> dict[str, NDArray[Any]]:
    return {"n": np.array(numbers, "<i4").reshape(-1, 1)}


@pytest.mark.parametrize("responses", [0, 1, 3])
async def test_it_counts_to_n(responses: int) -> None:
    found = [each["i"] async for each in stream(COUNT, n(responses))]
    assert [each.tolist() for each in found] == [[[i]] for i in range(responses)]
    assert all(each.dtype == np.int32 for each in found)


async def test_a_negative_n_fails_after_its_responses() -> None:
    found, error = await broken_off(stream(COUNT, n(-2)))
    assert [each["i"].tolist() for each in found] == [[[0]], [[1]]]
    assert error.reason is Reason.ABORTED
    assert error.message == "model 'count' fails on request after 2 responses"


async def test_infer_is_refused() -> None:
    with pytest.raises(GatewayError, match="model 'count' streams its responses") as refused:
        await call(COUNT, n(1))
    assert refused.value.reason is Reason.UNSUPPORTED


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        (n(100_001), "input 'n' of model 'count' is 100001; expected at most 100000"),
        (n(-100_001), "expected at most 100000"),
        (n(1, 2), "has 2 rows; expected 1"),
        (n(), "has 0 rows; expected 1"),
    ],
)
async def test_the_number_of_responses_is_limited(inputs: dict[str, NDArray[Any]], text: str) -> None:
    with pytest.raises(GatewayError, match=text) as refused:
        _ = [each async for each in stream(COUNT, inputs)]
    assert refused.value.reason is Reason.INVALID_INPUT
