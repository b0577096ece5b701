"""What the StreamHandler of reference models answers and refuses."""

import numpy as np
import pytest

from gateway.core.errors import GatewayError, Reason
from gateway.core.operations import Operation
from gateway.core.requests import RequestedOutput
from gateway.reference import BUNDLED, stream_handler
from tests.reference.calls import doubles, request

serve = stream_handler([BUNDLED["count"], BUNDLED["double"]])

TWO = {"n": np.array([[2]], "<i4")}


async def test_each_response_carries_model_version_and_id() -> None:
    found = [each async for each in serve(request("count", TWO, Operation.STREAM, version="1", id="7"))]
    assert [(each.model, each.version, each.id) for each in found] == [("count", "1", "7")] * 2


async def test_a_model_that_does_not_stream_gives_its_one_response() -> None:
    [found] = [each async for each in serve(request("double", {"x": doubles([[1, 2]])}, Operation.STREAM))]
    assert found.outputs[0].array.tolist() == [[2, 4]]


@pytest.mark.parametrize(
    ("model", "fields", "text", "reason"),
    [
        ("nosuch", {}, "no model 'nosuch'; this server has count, double", Reason.MODEL_NOT_FOUND),
        ("count", {"version": "9"}, "has no version '9'", Reason.MODEL_NOT_FOUND),
        ("count", {"parameters": {"beam": 2}}, "takes no parameter 'beam'", Reason.INVALID_INPUT),
        ("count", {"outputs": (RequestedOutput("j"),)}, "has no output 'j'", Reason.INVALID_INPUT),
    ],
)
async def test_what_does_not_fit_is_refused(model: str, fields: dict[str, object], text: str, reason: Reason) -> None:
    with pytest.raises(GatewayError, match=text) as refused:
        _ = [each async for each in serve(request(model, TWO, Operation.STREAM, **fields))]
    assert refused.value.reason is reason
