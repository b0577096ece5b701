import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.core.errors import GatewayError, Reason, Status, refusal
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request, Response
from gateway.policies import circuit_breaker
from gateway.policies.circuit_breaker import FAIR_SECONDS, CircuitBreaker, Settings, wrap, wrap_stream
from tests.clock import Clock

ANSWER = Response(id="answer")
INFER = Request(Operation.INFER, "m")


class Model:
    """A Handler that fails with `reason`, if it has one."""

    def __init__(self, reason: Reason | None = None) -> None:
        self.reason = reason
        self.calls = 0

    async def __call__(self, request: Request) -> Answer:
        self.calls += 1
        if self.reason:
            raise refusal(self.reason, "broken")
        return ANSWER


async def reason_of(answer: Any) -> Reason | None:
    """Why a call failed."""
    try:
        await answer
    except GatewayError as error:
        return error.reason
    return None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the breakers that the test makes."""
    found = Clock()
    monkeypatch.setattr(circuit_breaker.state, "_make", lambda settings: CircuitBreaker(settings, found))
    return found


async def test_a_model_that_keeps_failing_gets_no_calls_until_a_trial_succeeds(clock: Clock) -> None:
    model = Model(Reason.MODEL_ERROR)
    handler = wrap(model, Settings(failures=3, seconds=10))
    assert [await reason_of(handler(INFER)) for _ in range(5)] == [Reason.MODEL_ERROR] * 3 + [Reason.CIRCUIT_OPEN] * 2
    assert model.calls == 3
    clock.now = 4
    with pytest.raises(GatewayError) as refused:
        await handler(INFER)
    assert (refused.value.status, refused.value.retry_after) == (Status.UNAVAILABLE, 6)
    assert refused.value.message == "model 'm' failed too often, so it gets no calls now; try again in 6 s"
    model.reason = None
    clock.now = 10
    assert [await reason_of(handler(INFER)) for _ in range(3)] == [None] * 3


async def test_models_and_versions_are_judged_apart(clock: Clock) -> None:
    async def answer(request: Request) -> Answer:
        if request.version == "2":
            raise refusal(Reason.UNREACHABLE, "broken")
        return ANSWER

    handler = wrap(answer, Settings(failures=1))
    requests = [Request(Operation.INFER, "m", "2"), Request(Operation.INFER, "m", "1"), Request(Operation.INFER, "n")]
    found = [[await reason_of(handler(request)) for request in requests] for _ in range(2)]
    assert found == [[Reason.UNREACHABLE, None, None], [Reason.CIRCUIT_OPEN, None, None]]


@pytest.mark.parametrize(
    ("reason", "counts"),
    [
        (Reason.UNREACHABLE, True),
        (Reason.TIMEOUT, True),
        (Reason.MODEL_ERROR, True),
        (Reason.INVALID_OUTPUT, True),
        (Reason.UNKNOWN, True),
        (Reason.INVALID_INPUT, False),
        (Reason.MODEL_NOT_FOUND, False),
        (Reason.OVERLOADED, False),
        (Reason.RATE_LIMITED, False),
        (Reason.CANCELLED, False),
        (Reason.UNSUPPORTED, False),
    ],
)
async def test_only_faults_of_the_server_count(reason: Reason, counts: bool, clock: Clock) -> None:
    handler = wrap(Model(reason), Settings(failures=2))
    found = [await reason_of(handler(INFER)) for _ in range(3)]
    assert found == [reason, reason, Reason.CIRCUIT_OPEN if counts else reason]


async def test_the_statuses_can_be_chosen(clock: Clock) -> None:
    settings = Settings.model_validate({"failures": 1, "statuses": ["UNAVAILABLE"]})
    model = Model(Reason.MODEL_ERROR)
    handler = wrap(model, settings)
    assert [await reason_of(handler(INFER)) for _ in range(3)] == [Reason.MODEL_ERROR] * 3
    model.reason = Reason.UNREACHABLE
    assert [await reason_of(handler(INFER)) for _ in range(2)] == [Reason.UNREACHABLE, Reason.CIRCUIT_OPEN]


async def test_other_operations_pass_and_do_not_count(clock: Clock) -> None:
    model = Model(Reason.UNREACHABLE)
    handler = wrap(model, Settings(failures=1))
    await reason_of(handler(INFER))
    assert [await reason_of(handler(Request(Operation.METADATA, "m"))) for _ in range(3)] == [Reason.UNREACHABLE] * 3
    assert await reason_of(handler(INFER)) is Reason.CIRCUIT_OPEN


@pytest.mark.parametrize(
    ("deadline", "time_limit", "taken", "counts"),
    [
        (FAIR_SECONDS / 4, None, FAIR_SECONDS / 4, False),  # a client's own, too short to say anything
        (FAIR_SECONDS * 2, None, FAIR_SECONDS * 2, True),
        (FAIR_SECONDS * 2, None, FAIR_SECONDS / 4, True),  # it was another limit that ended the call
        (0.2, 0.2, 0.2, True),  # that of a policy `timeout` around it
        (5, 60, 5, False),
        (None, None, 0.1, True),  # that of a policy `timeout` within
    ],
)
@pytest.mark.parametrize("ended_by", ["error", "cancelled"])
async def test_short_deadlines_of_clients_do_not_count(
    deadline: float | None, time_limit: float | None, taken: float, counts: bool, ended_by: str, clock: Clock
) -> None:
    async def late(request: Request) -> Answer:
        clock.now += taken
        if ended_by == "cancelled":
            raise asyncio.CancelledError
        raise refusal(Reason.TIMEOUT, "late")

    if ended_by == "cancelled":
        counts = counts and deadline == taken  # one that was cancelled earlier lost its client
    handler = wrap(late, Settings(failures=1))
    with suppress(GatewayError, asyncio.CancelledError):
        await handler(Request(Operation.INFER, "m", deadline=deadline, time_limit=time_limit))
    found = wrap(Model(), Settings(failures=1))
    assert await reason_of(found(INFER)) is None  # another entry of `policies`
    late_or_refused = None
    try:
        await handler(INFER)
    except asyncio.CancelledError:
        pass
    except GatewayError as error:
        late_or_refused = error.reason
    assert (late_or_refused is Reason.CIRCUIT_OPEN) is counts


async def test_a_trial_that_its_client_gives_up_is_followed_by_another(clock: Clock) -> None:
    model = Model(Reason.UNREACHABLE)
    settings = Settings(failures=1, seconds=1)
    await reason_of(wrap(model, settings)(INFER))
    clock.now = 1

    async def never(request: Request) -> Answer:
        return await asyncio.Future[Answer]()

    trial = asyncio.ensure_future(wrap(never, settings)(INFER))
    await asyncio.sleep(0)
    assert await reason_of(wrap(model, settings)(INFER)) is Reason.CIRCUIT_OPEN
    trial.cancel()
    await asyncio.gather(trial, return_exceptions=True)
    model.reason = None
    assert await reason_of(wrap(model, settings)(INFER)) is None


async def test_streams_count_too(clock: Clock) -> None:
    responses = 0

    async def breaks(request: Request) -> AsyncGenerator[Response, None]:
        for _ in range(responses):
            yield ANSWER
        raise refusal(Reason.UNREACHABLE, "broken")

    settings = Settings(failures=2, seconds=10)
    stream, call = wrap_stream(breaks, settings), wrap(Model(), settings)

    async def read() -> Reason | None:
        with suppress(StopAsyncIteration):
            return await reason_of(drained(stream(INFER)))
        return None

    responses = 3
    assert [await read() for _ in range(3)] == [Reason.UNREACHABLE] * 2 + [Reason.CIRCUIT_OPEN]
    assert await reason_of(call(INFER)) is Reason.CIRCUIT_OPEN  # calls and streams have one circuit
    clock.now = 10
    trial = stream(INFER)
    assert await anext(trial) is ANSWER
    assert await reason_of(call(INFER)) is None  # the first response ended the trial
    await trial.aclose()
    clock.now = 20
    assert await read() is Reason.UNREACHABLE

    async def whole(request: Request) -> AsyncGenerator[Response, None]:
        yield ANSWER

    await drained(wrap_stream(whole, settings)(INFER))  # failures count only if they follow each other
    assert [await read() for _ in range(3)] == [Reason.UNREACHABLE] * 2 + [Reason.CIRCUIT_OPEN]


async def test_an_error_of_the_gateway_itself_does_not_count(clock: Clock) -> None:
    async def broken(request: Request) -> Answer:
        raise ZeroDivisionError

    handler = wrap(broken, Settings(failures=1))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            await handler(INFER)


async def drained(responses: AsyncGenerator[Response, None]) -> None:
    async for _ in responses:
        pass


async def test_the_log_and_the_status_tell_of_it(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    model = Model(Reason.UNREACHABLE)
    settings = Settings(failures=1, seconds=10)
    circuit_breaker.state(settings).place = "backends.b circuit_breaker"
    handler = wrap(model, settings)
    long = Request(Operation.INFER, "x" * 10_000, "7")
    await reason_of(handler(INFER))
    await reason_of(handler(long))
    shown = f"'{'x' * 100}...' version '7'"
    models = [{"model": each, "state": "open", "seconds": 10} for each in ("'m'", shown)]
    assert circuit_breaker.state(settings).status() == {"models": models}
    clock.now, model.reason = 10, None
    await handler(INFER)
    assert caplog.messages == [
        "backends.b circuit_breaker: model 'm' failed too often; no calls for 10 s",
        f"backends.b circuit_breaker: model {shown} failed too often; no calls for 10 s",
        "backends.b circuit_breaker: model 'm' works again",
    ]


@pytest.mark.parametrize(
    "settings",
    [{"failures": 0}, {"seconds": 0}, {"share": 1}, {"share": 0}, {"statuses": []}, {"statuses": ["NOT_FOUND"]}],
)
def test_invalid_settings_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate(settings)


def test_two_entries_with_equal_settings_have_two_states() -> None:
    first, second = Settings(), Settings()
    make: Callable[[Settings], CircuitBreaker] = circuit_breaker.state
    assert make(first) is make(first)
    assert make(first) is not make(second)


async def test_the_time_of_a_stream_is_that_of_one_response(clock: Clock) -> None:
    async def late(request: Request) -> AsyncGenerator[Response, None]:
        clock.now += 10 * FAIR_SECONDS - 0.1
        yield ANSWER
        clock.now += 0.1
        raise asyncio.CancelledError

    settings = Settings(failures=1)
    stream = wrap_stream(late, settings)(Request(Operation.STREAM, "m", deadline=10 * FAIR_SECONDS))
    assert await anext(stream) is ANSWER
    with pytest.raises(asyncio.CancelledError):
        await anext(stream)
    assert await reason_of(wrap(Model(), settings)(INFER)) is None
