"""A model of the backend gets other tensors while the old ones are remembered, and nobody met an outage."""

import pytest

from gateway.bridge.settings import RouteSettings
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, Status, unsupported
from gateway.core.frozen import replace
from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor
from tests.bridge.fakes import POINTS, TENSORS, Backend, bridge, call, infer, named, signature, spec
from tests.bridge.values import FP32, shown
from tests.clock import Clock

NOT_LIKE_THIS = GatewayError(Status.INVALID_ARGUMENT, Reason.INVALID_INPUT, "not like this")


async def test_the_signature_is_asked_again_after_the_backend_refused_an_input() -> None:
    def refuse(request: Request) -> Response:
        raise unsupported("no") if request.id else NOT_LIKE_THIS

    backend, clock = Backend({"m": signature(spec("x", 1), gives=())}, refuse), Clock()
    made = bridge(POINTS, TENSORS, backend, clock=clock)
    # The last refusal comes less than a second after the question.
    for seconds, number, questions in [(0, "1", 1), (1, "1", 1), (0, None, 2), (0.9, None, 2), (0, "1", 2)]:
        clock.now += seconds
        with pytest.raises(GatewayError):
            await made(infer(named("x", [1.0]), id=number))
        assert len(backend.questions) == questions


def narrow(request: Request) -> Response:
    """It takes FP32 alone."""
    [x] = request.inputs
    if x.datatype is not FP32:
        raise NOT_LIKE_THIS
    return Response((named("y", x.array, FP32),))


OLD = signature(spec("x", -1, 2), gives=(spec("y", -1, 2),))
NEW = signature(spec("x", -1, 2, datatype=FP32), gives=(spec("y", -1, 2, datatype=FP32),))
OTHER = replace(NEW, inputs=(spec("z", -1, 2, datatype=FP32),))


@pytest.mark.parametrize(
    ("now", "sent"),
    [
        pytest.param(NEW, named("x", [[1.0, 2.0]]), id="the server refuses it"),
        pytest.param(OTHER, named("z", [[1.0, 2.0]]), id="it does not fit"),
    ],
)
async def test_a_model_with_other_tensors_than_a_second_ago_gets_the_request_in_its_way(
    now: Signature, sent: Tensor
) -> None:
    backend, clock = Backend({"m": OLD}, lambda request: Response((named("y", request.inputs[0].array),))), Clock()
    made = bridge(TENSORS, TENSORS, backend, RouteSettings(cast="round"), clock=clock)
    await call(made, infer(named("x", [[1.0, 2.0]])))
    backend.signatures["m"], backend.compute = now, narrow
    clock.now += 1
    response = await call(made, infer(sent))
    assert shown(response.outputs) == [("y", "FP32", [[1.0, 2.0]])]
    assert len(backend.questions) == 2


async def test_requests_that_do_not_fit_ask_once_a_second_and_only_while_they_come() -> None:
    backend, clock = Backend({"m": OLD}), Clock()
    made = bridge(TENSORS, TENSORS, backend, RouteSettings(cast="round"), clock=clock)
    for seconds, questions in [(0, 1), (0.5, 1), (0.6, 2), (0.9, 2), (0.2, 3)]:
        clock.now += seconds
        with pytest.raises(DecodeError, match="unknown input 'z'"):
            await made(infer(named("z", [[1.0, 2.0]])))
        assert len(backend.questions) == questions
    assert backend.calls == []


async def test_rows_of_unequal_length_reach_a_model_that_takes_texts_now() -> None:
    backend, clock = Backend({"m": OLD}, lambda request: Response((named("y", request.inputs[0].array),))), Clock()
    made = bridge(TENSORS, TENSORS, backend, RouteSettings(cast="round"), clock=clock)
    await call(made, infer(named("x", [[1.0, 2.0]])))
    texts = replace(named("x", [b"[1,2]", b"[3]"], Datatype.BYTES), content_type="json", untyped=True)
    backend.compute = lambda request: Response((named("y", [[7.0, 8.0]]),))
    with pytest.raises(DecodeError, match="rows of unequal length; send one request for each row"):
        await call(made, infer(texts))
    backend.signatures["m"] = replace(OLD, inputs=(spec("x", -1, datatype=Datatype.BYTES),))
    clock.now += 1
    response = await call(made, infer(texts))
    assert response.outputs[0].array.tolist() == [[7.0, 8.0]]


async def test_a_response_that_does_not_fit_is_no_reason_to_run_the_model_again() -> None:
    backend, clock = Backend({"m": OLD}, lambda request: Response((named("other", request.inputs[0].array),))), Clock()
    made = bridge(TENSORS, TENSORS, backend, RouteSettings(cast="round"), clock=clock)
    x = named("x", [[1.0, 2.0]])
    clock.now = 0.5
    with pytest.raises(GatewayError, match="other") as wrong:
        await made(infer(x))
    assert wrong.value.reason is Reason.INVALID_OUTPUT
    clock.now = 2
    backend.signatures["m"] = replace(OLD, outputs=(spec("other", -1, 2),))
    with pytest.raises(GatewayError, match="other"):
        await made(infer(x))
    assert len(backend.calls) == 2
    assert shown((await call(made, infer(x))).outputs) == [("other", "FP64", [[1.0, 2.0]])]


async def test_metadata_that_a_client_is_told_is_known_for_its_next_request() -> None:
    backend, clock = Backend({"m": OLD}, narrow), Clock()
    made = bridge(TENSORS, TENSORS, backend, RouteSettings(cast="round"), clock=clock)
    unchanged = bridge(TENSORS, TENSORS, backend)
    side = replace(unchanged._backend, signatures=made._backend.signatures)
    await side.signatures.get(("m", "", ""))
    backend.signatures["m"] = NEW
    await side.metadata(Request(Operation.METADATA, "m"))
    assert side.signatures.kept(("m", "", "")) is None
    response = await call(made, infer(named("x", [[1.0, 2.0]])))
    assert shown(response.outputs) == [("y", "FP32", [[1.0, 2.0]])]


async def test_what_passes_unchanged_and_is_refused_has_the_signature_asked_again_for_others() -> None:
    backend, clock = Backend({"m": OLD}, narrow), Clock()
    unchanged = bridge(TENSORS, TENSORS, backend, clock=clock)
    signatures = unchanged._backend.signatures
    await signatures.get(("m", "", ""))
    for seconds, kept in [(0.9, OLD), (0.1, None)]:
        clock.now += seconds
        with pytest.raises(GatewayError, match="not like this"):
            await unchanged(infer(named("x", [[1.0, 2.0]])))
        assert signatures.kept(("m", "", "")) is kept


async def test_a_stream_is_fitted_to_what_the_backend_tells_now() -> None:
    backend, clock = Backend({"m": OLD}, lambda request: Response((named("y", request.inputs[0].array),))), Clock()
    made = bridge(TENSORS, TENSORS, backend, RouteSettings(cast="round"), stream=backend.stream, clock=clock)
    [first] = [each async for each in made.stream(infer(named("x", [[1.0, 2.0]])))]
    assert shown(first.outputs) == [("y", "FP64", [[1.0, 2.0]])]
    backend.signatures["m"], backend.compute = OTHER, narrow
    clock.now = 1.0
    [second] = [each async for each in made.stream(infer(named("z", [[1.0, 2.0]])))]
    assert shown(second.outputs) == [("y", "FP32", [[1.0, 2.0]])]
