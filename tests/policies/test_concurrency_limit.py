import asyncio
import logging
from collections.abc import AsyncGenerator

import pytest
from pydantic import ValidationError

from gateway.core.errors import GatewayError, Reason, Status, refusal
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request, Response
from gateway.policies import concurrency_limit
from gateway.policies.concurrency_limit import Concurrency, Settings, wrap, wrap_stream
from tests.clock import Clock
from tests.limits import settle

ANSWER = Response(id="answer")
INFER = Request(Operation.INFER, "m")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the limits that the test makes."""
    found = Clock()
    monkeypatch.setattr(concurrency_limit.state, "_make", lambda settings: Concurrency(settings, found))
    return found


class Held:
    """A Handler whose calls wait until they are let go."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[Answer]] = []

    async def __call__(self, request: Request) -> Answer:
        self.waiting.append(asyncio.get_running_loop().create_future())
        return await self.waiting[-1]

    async def stream(self, request: Request) -> AsyncGenerator[Response, None]:
        yield ANSWER
        await self(request)


async def test_calls_beyond_the_limit_are_refused_at_once_until_one_ends() -> None:
    held = Held()
    handler = wrap(held, Settings(calls=2))
    calls = [asyncio.ensure_future(handler(INFER)) for _ in range(2)]
    await settle()
    with pytest.raises(GatewayError) as refused:
        await handler(INFER)
    assert (refused.value.status, refused.value.reason) == (Status.RESOURCE_EXHAUSTED, Reason.OVERLOADED)
    assert refused.value.message == "2 calls are running, which is the limit (concurrency_limit); try again later"
    assert refused.value.retry_after == 1
    held.waiting[0].set_result(ANSWER)
    held.waiting[1].set_exception(refusal(Reason.MODEL_ERROR, "broken"))
    await asyncio.gather(*calls, return_exceptions=True)
    more = [asyncio.ensure_future(handler(INFER)) for _ in range(2)]
    await settle()
    assert len(held.waiting) == 4
    for call in more:
        call.cancel()
    await asyncio.gather(*more, return_exceptions=True)
    last = asyncio.ensure_future(handler(INFER))  # a cancelled call has given its place back
    await settle()
    held.waiting[-1].set_result(ANSWER)
    assert await last is ANSWER


async def test_refused_calls_are_told_the_usual_duration(clock: Clock) -> None:
    async def slow(request: Request) -> Answer:
        clock.now += 7
        return ANSWER

    settings, held = Settings(calls=1), Held()
    await wrap(slow, settings)(INFER)
    call = asyncio.ensure_future(wrap(held, settings)(INFER))
    await settle()
    with pytest.raises(GatewayError) as refused:
        await wrap(held, settings)(INFER)
    assert refused.value.retry_after == 7
    call.cancel()


async def test_streams_count_while_they_run_together_with_calls() -> None:
    held, settings = Held(), Settings(calls=1)
    call, stream = wrap(held, settings), wrap_stream(held.stream, settings)
    responses = stream(INFER)
    assert await anext(responses) is ANSWER
    for refused in (call(INFER), anext(stream(INFER))):
        with pytest.raises(GatewayError, match="1 calls are running, which is the limit"):
            await refused
    await responses.aclose()
    responses = stream(INFER)
    assert await anext(responses) is ANSWER
    await responses.aclose()

    async def two(request: Request) -> AsyncGenerator[Response, None]:
        yield ANSWER
        yield ANSWER

    for _ in range(2):  # the first one has given its place back
        assert [each async for each in wrap_stream(two, settings)(INFER)] == [ANSWER, ANSWER]


async def test_other_operations_are_not_counted() -> None:
    held = Held()
    handler = wrap(held, Settings(calls=1))
    questions = [asyncio.ensure_future(handler(Request(Operation.METADATA, "m"))) for _ in range(3)]
    await settle()
    assert len(held.waiting) == 3
    for each in questions:
        each.cancel()


async def test_an_adaptive_limit_grows_with_calls_that_stay_fast(clock: Clock) -> None:
    held, settings = Held(), Settings(adaptive="gradient", max_calls=50)
    handler, status = wrap(held, settings), concurrency_limit.state(settings).status
    assert status() == {"in_flight": 0, "limit": 20, "refused": 0}
    calls: set[asyncio.Task[Answer]] = set()
    for _ in range(40):
        while len(calls) < int(str(status()["limit"])):
            calls.add(asyncio.ensure_future(handler(INFER)))
        await settle()
        clock.now += 1
        for waiting in held.waiting:
            waiting.set_result(ANSWER)
        held.waiting.clear()
        await asyncio.gather(*calls)
        calls.clear()
    assert status() == {"in_flight": 0, "limit": 50, "refused": 0}


async def test_refusals_are_logged_at_a_limited_rate(caplog: pytest.LogCaptureFixture) -> None:
    held, settings = Held(), Settings(calls=1)
    concurrency_limit.state(settings).place = "route-0 concurrency_limit"
    handler = wrap(held, settings)
    call = asyncio.ensure_future(handler(INFER))
    await settle()
    for _ in range(100):
        with pytest.raises(GatewayError):
            await handler(INFER)
    call.cancel()
    text = "route-0 concurrency_limit: 1 calls are running, which is the limit (concurrency_limit); refusing calls"
    assert caplog.record_tuples == [(concurrency_limit.__name__, logging.WARNING, text)] * 10
    assert concurrency_limit.state(settings).status()["refused"] == 100


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"calls": 1, "adaptive": "gradient"}, "expected either calls: NUMBER or adaptive: gradient"),
        ({"calls": 1, "max_calls": 3}, "min_calls and max_calls need adaptive: gradient"),
        ({"adaptive": "gradient", "min_calls": 5, "max_calls": 3}, "min_calls must be at most"),
        ({"adaptive": "vegas"}, "gradient"),
        ({"calls": 0}, "greater than or equal to 1"),
    ],
)
def test_invalid_settings_are_refused(settings: dict[str, object], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        Settings.model_validate(settings)


@pytest.mark.parametrize(
    ("ended_by", "after", "expected"),
    [("timeout", 60.0, 4), ("client", 60.0, 4), ("error", 60.0, 20), ("client", 0.9, 20)],
)
@pytest.mark.parametrize("streams", [False, True])
async def test_an_adaptive_limit_shrinks_if_calls_are_given_up(
    ended_by: str, after: float, expected: int, streams: bool, clock: Clock
) -> None:
    """After more than their usual duration."""
    settings = Settings(adaptive="gradient")
    seconds, error = 1.0, None

    async def call(request: Request) -> Answer:
        clock.now += seconds
        if error is not None:
            raise error
        return ANSWER

    async def stream(request: Request) -> AsyncGenerator[Response, None]:
        await call(request)
        yield ANSWER

    whole = wrap(call, settings)
    handler = (lambda request: anext(wrap_stream(stream, settings)(request))) if streams else whole
    for _ in range(10):
        await whole(INFER)
    seconds = after
    reasons = {"timeout": refusal(Reason.TIMEOUT, "late"), "error": refusal(Reason.MODEL_ERROR, "broken")}
    error = reasons.get(ended_by, asyncio.CancelledError())
    for _ in range(800):
        with pytest.raises(type(error)):
            await handler(INFER)
    limit = concurrency_limit.state(settings).status()["limit"]
    assert limit == expected
