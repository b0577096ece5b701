"""Routes with several backends: who is asked, and when the next one is."""

import asyncio
from collections.abc import AsyncGenerator, Callable

import pytest

from gateway.core.errors import DecodeError, GatewayError, Reason, TransportError, not_found, refusal
from gateway.core.models import NotReady
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request, Response
from gateway.routing.branches import Branch, Branches, Split

INFER, METADATA, MODEL_READY = Operation.INFER, Operation.METADATA, Operation.MODEL_READY


def unsent(reason: Reason = Reason.UNREACHABLE) -> GatewayError:
    return TransportError(reason.status, reason, "down", sent=False)


def sent(reason: Reason = Reason.UNREACHABLE) -> GatewayError:
    return TransportError(reason.status, reason, "broke off", sent=True)


class Lab:
    """A backend that answers with its name, or fails."""

    def __init__(self, name: str, error: Callable[[], Exception] | None = None, *, safe: bool = False) -> None:
        self.name = name
        self.error = error
        self.ready: Answer = True
        self.responses = 0  # before the error
        self.asked: list[Operation] = []
        self.branch = Branch(name, self._answer, self._stream, safe)

    async def _answer(self, request: Request) -> Answer:
        self.asked.append(request.operation)
        if self.error is not None:
            raise self.error()
        return self.ready if request.operation is MODEL_READY else Response(model=self.name)

    async def _stream(self, request: Request) -> AsyncGenerator[Response, None]:
        for _ in range(self.responses):
            yield Response(model=self.name)
        answer = await self._answer(request)
        assert isinstance(answer, Response)
        yield answer


def branches(*own: Lab, fallback: tuple[Lab, ...] = (), weights: tuple[int, ...] = (1, 0)) -> Branches:
    split = Split([(lab.name, weight) for lab, weight in zip(own, weights, strict=False)])
    return Branches([each.branch for each in own], split, [each.branch for each in fallback])


async def answered(by: Branches, operation: Operation = INFER, **fields: object) -> str:
    answer = await by(Request(operation, "m", **fields))  # type: ignore[arg-type]
    assert isinstance(answer, Response)
    return answer.model


NOT_RUN = {
    "unsent": unsent,
    "no time to connect": lambda: unsent(Reason.TIMEOUT),
    "queue full": lambda: refusal(Reason.OVERLOADED, "full"),
    "circuit open": lambda: refusal(Reason.CIRCUIT_OPEN, "open"),
    "not ready": lambda: refusal(Reason.NOT_READY, "loading"),
    "no such model": lambda: not_found("no model"),
}
MAY_HAVE_RUN = {
    "sent": sent,
    "no answer in time": lambda: sent(Reason.TIMEOUT),
    "answered 503": lambda: refusal(Reason.UNREACHABLE, "503"),
    "timeout of the backend": lambda: refusal(Reason.TIMEOUT, "slow"),
}
FINAL = {
    "wrong input": lambda: refusal(Reason.INVALID_INPUT, "wrong"),
    "too large": lambda: TransportError(Reason.TOO_LARGE.status, Reason.TOO_LARGE, "large", sent=False),
    "model failed": lambda: refusal(Reason.MODEL_ERROR, "failed"),
    "not allowed": lambda: refusal(Reason.PERMISSION_DENIED, "no"),
    "tensors do not fit": lambda: DecodeError("no fit"),
}


@pytest.mark.parametrize("what", NOT_RUN)
async def test_a_call_that_was_not_run_goes_to_the_fallback(what: str) -> None:
    main, legacy = Lab("main", NOT_RUN[what]), Lab("legacy")
    assert await answered(branches(main, fallback=(legacy,))) == "legacy"
    stream = branches(main, fallback=(legacy,)).stream(Request(Operation.STREAM, "m"))
    assert [each.model async for each in stream] == ["legacy"]


@pytest.mark.parametrize("what", MAY_HAVE_RUN)
async def test_a_call_that_may_have_run_is_repeated_only_if_that_is_safe(what: str) -> None:
    main, legacy = Lab("main", MAY_HAVE_RUN[what]), Lab("legacy")
    with pytest.raises(GatewayError):
        await answered(branches(main, fallback=(legacy,)))
    assert legacy.asked == []
    safe = Lab("main", MAY_HAVE_RUN[what], safe=True)
    assert await answered(branches(safe, fallback=(legacy,))) == "legacy"
    # no call of the model, so there is nothing to repeat
    assert await answered(branches(main, fallback=(legacy,)), METADATA) == "legacy"


@pytest.mark.parametrize("what", FINAL)
async def test_the_requests_own_error_ends_the_chain(what: str) -> None:
    main, legacy = Lab("main", FINAL[what], safe=True), Lab("legacy")
    with pytest.raises((GatewayError, DecodeError)):
        await answered(branches(main, fallback=(legacy,)))
    assert legacy.asked == []


async def test_the_chain_is_asked_in_order_and_its_last_error_is_told(caplog: pytest.LogCaptureFixture) -> None:
    one, two, three = Lab("one", unsent), Lab("two", unsent), Lab("three", lambda: refusal(Reason.OVERLOADED, "full"))
    with pytest.raises(GatewayError, match="full"):
        await answered(branches(one, fallback=(two, three)))
    assert [record.getMessage() for record in caplog.records] == [
        "backend 'one' cannot answer, so the gateway tries backend 'two': down",
        "backend 'two' cannot answer, so the gateway tries backend 'three': down",
        "no backend of a route can answer ('one', 'two', 'three'): full",
    ]


async def test_a_model_is_not_called_missing_while_a_backend_that_may_have_it_is_down() -> None:
    def missing() -> GatewayError:
        return not_found("no model")

    main, legacy = Lab("main", unsent), Lab("legacy", missing)
    with pytest.raises(GatewayError, match="down"):
        await answered(branches(main, fallback=(legacy,)))
    with pytest.raises(GatewayError, match="down"):
        await anext(branches(main, fallback=(legacy,)).stream(Request(Operation.STREAM, "m")))
    main.error = missing
    with pytest.raises(GatewayError, match="no model"):
        await answered(branches(main, fallback=(legacy,)))


async def test_a_missing_model_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    main = Lab("main", lambda: not_found("no model"))
    assert await answered(branches(main, fallback=(Lab("legacy"),))) == "legacy"
    assert caplog.records == []


async def test_nothing_more_is_tried_after_the_deadline() -> None:
    main, legacy = Lab("main", unsent), Lab("legacy")
    now = asyncio.get_running_loop().time()
    assert await answered(branches(main, fallback=(legacy,)), deadline=now + 60) == "legacy"
    with pytest.raises(GatewayError):
        await answered(branches(main, fallback=(legacy,)), deadline=now)


async def test_a_stream_that_has_begun_has_no_fallback() -> None:
    main, legacy = Lab("main", unsent, safe=True), Lab("legacy")
    main.responses = 1
    stream = branches(main, fallback=(legacy,)).stream(Request(Operation.STREAM, "m"))
    assert (await anext(stream)).model == "main"
    with pytest.raises(GatewayError):
        await anext(stream)


async def test_a_sequence_has_no_fallback() -> None:
    main, legacy = Lab("main", unsent, safe=True), Lab("legacy")
    with pytest.raises(GatewayError):
        await answered(branches(main, fallback=(legacy,)), parameters={"sequence_id": 7})
    stream = branches(main, fallback=(legacy,)).stream(Request(Operation.STREAM, "m", parameters={"sequence_id": 7}))
    with pytest.raises(GatewayError):
        await anext(stream)
    assert legacy.asked == []


async def test_a_call_goes_to_the_chosen_backend_and_a_question_to_the_first_with_a_weight() -> None:
    off, main, canary = Lab("off"), Lab("main"), Lab("canary")
    by = branches(off, main, canary, weights=(0, 1, 1))
    assert {await answered(by) for _ in range(100)} == {"main", "canary"}
    assert {await answered(by, METADATA) for _ in range(100)} == {"main"}
    assert off.asked == []


async def test_the_model_is_ready_if_it_is_in_one_backend_that_gets_calls() -> None:
    off, main, canary, legacy = Lab("off"), Lab("main"), Lab("canary", unsent), Lab("legacy")
    by = branches(off, main, canary, fallback=(legacy,), weights=(0, 1, 1))
    ready = Request(MODEL_READY, "m")
    main.ready = False
    assert await by(ready) is True
    legacy.ready = NotReady("loading")
    assert await by(ready) is False
    for lab in (main, legacy):
        lab.error = lambda: not_found("no model")
    canary.error = lambda: refusal(Reason.UNREACHABLE, "down")
    with pytest.raises(GatewayError, match="no model"):
        await by(ready)
    assert off.asked == []


async def test_a_setting_is_for_the_first_backend_alone() -> None:
    main, canary, legacy = Lab("main", unsent), Lab("canary"), Lab("legacy")
    with pytest.raises(GatewayError):
        await answered(branches(main, canary, fallback=(legacy,), weights=(1, 9)), Operation.LOAD)
    assert canary.asked == legacy.asked == []
