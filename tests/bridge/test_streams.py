"""Several responses to one request, for clients that take them and for clients that want one."""

from collections.abc import AsyncGenerator
from typing import Any

import numpy as np
import pytest

from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import RouteSettings
from gateway.core.errors import DecodeError, GatewayError, Status, unsupported
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, Protocol
from gateway.core.requests import MissingNumbers, Request, Response
from tests.bridge.fakes import POINTS, TENSORS, Backend, bridge, call, infer, named, signature, spec
from tests.bridge.values import FP32, point, shown

X = named("x", [[1.0, 2.0]])
SIGNATURE = signature(spec("x", -1, 2), gives=(spec("y", -1, 1),))


def streaming(
    *responses: Response | Exception,
    client: Protocol = TENSORS,
    limit: int = 2**20,
    unary: Exception | None = None,
    **settings: Any,
) -> tuple[Bridge, list[Request]]:
    """A Bridge to a backend that streams `responses`, and what that was asked. To a plain call it gives its inputs
    back, or `unary`."""
    asked: list[Request] = []

    async def stream(request: Request) -> AsyncGenerator[Response, None]:
        asked.append(request)
        for response in responses:
            if isinstance(response, Exception):
                raise response
            yield response

    def compute(request: Request) -> Response:
        if unary is not None:
            raise unary
        return Response(request.inputs)

    backend, limits = Backend({"m": SIGNATURE}, compute), Limits(message=limit)
    return bridge(client, TENSORS, backend, RouteSettings(**settings), stream=stream, limits=limits), asked


async def all_of(through: Bridge, request: Request) -> list[Response]:
    return [response async for response in through.stream(replace(request, operation=Operation.STREAM))]


def y(*rows: float) -> Response:
    return Response((named("y", np.reshape(rows, (-1, 1))),), "backend's", "7")


async def test_each_response_passes_under_the_clients_names() -> None:
    through, asked = streaming(y(1.0), y(2.0), model="theirs")
    found = await all_of(through, infer(X, id="a"))
    assert [(each.model, each.id, each.version) for each in found] == [("m", "a", "7")] * 2
    assert [shown(each.outputs)[0][2] for each in found] == [[[1.0]], [[2.0]]]
    assert [(each.operation, each.model) for each in asked] == [(Operation.STREAM, "theirs")]


async def test_each_response_is_fitted_for_a_client_of_points() -> None:
    through, asked = streaming(y(1.0), y(2.0), client=POINTS)
    found = await all_of(through, infer(point(3, 4)))
    assert [shown(each.outputs) for each in found] == [[("y", "FP64", [1.0])], [("y", "FP64", [2.0])]]
    assert shown(asked[0].inputs) == [("x", "FP64", [[3.0, 4.0]])]


async def test_a_backend_without_streams_gives_its_one_response() -> None:
    backend = Backend({}, lambda request: y(5.0))
    found = await all_of(bridge(TENSORS, TENSORS, backend), infer(X))
    assert [shown(each.outputs)[0][2] for each in found] == [[[5.0]]]
    assert backend.calls[0].operation is Operation.INFER


async def test_a_one_point_backend_is_asked_row_by_row() -> None:
    sizes = signature(spec("", 2), gives=(spec("", 2),))
    backend = Backend({"m": sizes}, lambda request: Response((replace(request.inputs[0], name=""),)))
    found = await all_of(bridge(TENSORS, POINTS, backend), infer(named("input0", [[1.0, 2.0], [3.0, 4.0]])))
    assert [shown(each.outputs)[0][2] for each in found] == [[[1.0, 2.0], [3.0, 4.0]]]
    assert [each.operation for each in backend.calls] == [Operation.INFER] * 2


async def test_a_server_without_the_method_is_asked_for_its_one_response() -> None:
    through, _ = streaming(unsupported("no streams here"))
    assert len(await all_of(through, infer(X))) == 1


async def test_where_neither_can_be_both_reasons_are_told() -> None:
    through, _ = streaming(unsupported("no streams here"), unary=unsupported("it streams"))
    with pytest.raises(GatewayError, match="it streams; and no stream: no streams here") as refused:
        await all_of(through, infer(X))
    assert refused.value.status is Status.UNIMPLEMENTED


async def test_a_client_of_one_response_is_told_how_a_stream_becomes_one() -> None:
    through, _ = streaming(unary=unsupported("it streams"))
    with pytest.raises(GatewayError, match=r"it streams; .* `translate: \{stream: last\}` or `\{stream: collect\}`"):
        await call(through, infer(X))


@pytest.mark.parametrize("nan", ["refuse", "null"])
async def test_null_among_the_numbers_of_a_request_for_a_stream(nan: Any) -> None:
    through, asked = streaming(y(1.0), **({} if nan == "refuse" else {"nan": nan}))
    request = infer(named("x", [[1.0, np.nan]]), flaw=MissingNumbers("input 'x': null is no number"))
    if nan == "null":
        assert len(await all_of(through, request)) == 1
        assert [(each.flaw, np.isnan(each.inputs[0].array).tolist()) for each in asked] == [("", [[False, True]])]
    else:
        with pytest.raises(DecodeError, match=r"^input 'x': null is no number$"):
            await all_of(through, request)
        assert asked == []


async def test_what_is_unsupported_for_another_reason_is_told_as_it_is() -> None:
    through, _ = streaming(unary=unsupported("Method not found!"))
    with pytest.raises(GatewayError, match=r"^Method not found!$"):
        await call(through, infer(X))


async def test_gateways_in_a_row_tell_it_once() -> None:
    behind, _ = streaming(unary=unsupported("it streams"))
    with pytest.raises(GatewayError) as told:
        await call(behind, infer(X))
    through, _ = streaming(unary=told.value)
    with pytest.raises(GatewayError) as refused:
        await call(through, infer(X))
    assert refused.value.message == told.value.message


async def test_a_client_of_one_response_is_answered_by_a_plain_call() -> None:
    through, asked = streaming(y(1.0), y(2.0))
    await call(through, infer(X))
    assert not asked


async def test_all_responses_end_to_end_on_request() -> None:
    through, _ = streaming(y(1.0), y(2.0, 3.0), y(), stream="collect")
    response = await call(through, infer(X, id="a"))
    assert shown(response.outputs) == [("y", "FP64", [[1.0], [2.0], [3.0]])]
    assert (response.model, response.id) == ("m", "a")


@pytest.mark.parametrize("stream", ["last", "collect"])
async def test_a_stream_without_responses_is_the_backends_fault(stream: str) -> None:
    through, _ = streaming(stream=stream)
    with pytest.raises(GatewayError, match="the stream ended without a response") as failed:
        await call(through, infer(X))
    assert failed.value.status is Status.INTERNAL


@pytest.mark.parametrize(
    "other",
    [
        Response((named("z", [[2.0]]),)),
        Response((named("y", [[2.0]], FP32),)),
        Response((named("y", [[2.0, 3.0]]),)),
        Response((named("y", 2.0),)),
        Response(),
    ],
    ids=["name", "datatype", "dimension", "scalar", "fewer"],
)
async def test_responses_that_differ_are_not_concatenated(other: Response) -> None:
    through, _ = streaming(y(1.0), other, stream="collect")
    with pytest.raises(GatewayError, match="cannot concatenate the stream's responses") as failed:
        await call(through, infer(X))
    assert failed.value.status is Status.INTERNAL


async def test_what_is_collected_has_the_backends_limit() -> None:
    through, _ = streaming(y(1.0), y(2.0), stream="collect", limit=15)
    with pytest.raises(GatewayError, match=r"exceed 15 bytes; raise limits.message of the backend") as failed:
        await call(through, infer(X))
    assert failed.value.status is Status.RESOURCE_EXHAUSTED
