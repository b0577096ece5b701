"""Which failed calls are tried again, when, and where."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from gateway.core.errors import GatewayError, Reason, Status, TransportError, refusal
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request, Response, Tries
from gateway.policies.context import PolicyContext
from gateway.policies.retry import LEAST_RETRIES, Retries, Settings, wrap, wrap_stream
from tests.limits import until

ANSWER = Response(id="answer")
INFER = Request(Operation.INFER, "m")
SAFE = PolicyContext("backend 'b'", safe=True)
UNSAFE = PolicyContext("backend 'b'")
AT_ONCE: dict[str, Any] = {"backoff": 0}
NOT_READY = refusal(Reason.NOT_READY, "not now")
RESET = TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "reset", sent=True)
REFUSED = TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "connection refused", sent=False)
LATE = TransportError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, "no answer", sent=True)
SERVER_TOO_LATE = refusal(Reason.TIMEOUT, "the server's own limit")
OVERLOADED = refusal(Reason.OVERLOADED, "busy")
WRONG = refusal(Reason.INVALID_INPUT, "wrong")
PER_TRY = Request(Operation.INFER, tries=Tries(1.0))
SEQUENCE = Request(Operation.INFER, parameters={"sequence_id": 7})


class Server:
    """A Handler that fails with these errors in turn, then answers; each call is noted in `requests`."""

    def __init__(self, *errors: GatewayError) -> None:
        self.errors = list(errors)
        self.requests: list[Request] = []

    async def __call__(self, request: Request) -> Answer:
        self.requests.append(request)
        place = f"host:{len(self.requests)}"
        if request.tries is not None:
            request.tries.began(place)
        if self.errors:
            error = self.errors.pop(0)
            error.endpoint = place
            raise error
        if request.tries is not None:
            request.tries.answered(place)
        return ANSWER

    async def stream(self, request: Request) -> AsyncGenerator[Response, None]:
        answer = await self(request)
        assert isinstance(answer, Response)
        yield answer


def settings(**keys: Any) -> Settings:
    return Settings.model_validate({**AT_ONCE, **keys})


@pytest.mark.parametrize(
    ("error", "request_", "context", "statuses", "expected"),
    [
        (REFUSED, INFER, UNSAFE, ["ABORTED"], True),
        (REFUSED, Request(Operation.LOAD), UNSAFE, ["UNAVAILABLE"], True),
        (RESET, INFER, SAFE, ["UNAVAILABLE"], True),
        (RESET, INFER, UNSAFE, ["UNAVAILABLE"], False),
        (RESET, INFER, SAFE, ["ABORTED"], False),
        (RESET, SEQUENCE, SAFE, ["UNAVAILABLE"], False),
        (RESET, Request(Operation.GRADIENT), UNSAFE, ["UNAVAILABLE"], False),
        (RESET, Request(Operation.METADATA), UNSAFE, ["UNAVAILABLE"], True),
        (RESET, Request(Operation.LOAD), SAFE, ["UNAVAILABLE"], False),
        (NOT_READY, INFER, SAFE, ["UNAVAILABLE"], True),
        (OVERLOADED, INFER, SAFE, ["UNAVAILABLE"], False),
        (OVERLOADED, INFER, SAFE, ["UNAVAILABLE", "RESOURCE_EXHAUSTED"], True),
        (WRONG, INFER, SAFE, ["UNAVAILABLE"], False),
        (LATE, INFER, SAFE, ["UNAVAILABLE"], True),
        (SERVER_TOO_LATE, INFER, SAFE, ["UNAVAILABLE"], False),
        (SERVER_TOO_LATE, PER_TRY, SAFE, ["UNAVAILABLE"], True),
        (LATE, PER_TRY, SAFE, ["UNAVAILABLE"], True),
        (LATE, PER_TRY, UNSAFE, ["UNAVAILABLE"], False),
    ],
)
async def test_what_is_tried_again(
    error: GatewayError, request_: Request, context: PolicyContext, statuses: Sequence[str], expected: bool
) -> None:
    server = Server(error)
    handler = wrap(server, settings(statuses=statuses), context)
    if expected:
        assert await handler(request_) is ANSWER
        assert len(server.requests) == 2
    else:
        with pytest.raises(GatewayError) as raised:
            await handler(request_)
        assert raised.value is error
        assert len(server.requests) == 1


async def test_the_last_error_is_told_with_the_number_of_attempts_and_else_unchanged() -> None:
    server = Server(RESET, REFUSED, LATE, RESET)
    with pytest.raises(TransportError) as raised:
        await wrap(server, settings(attempts=3), SAFE)(PER_TRY)
    error = raised.value
    assert error.message == str(error) == "no answer (after 3 attempts)"
    assert (error.status, error.reason, error.sent) == (LATE.status, LATE.reason, LATE.sent)
    assert LATE.message == "no answer"  # calls that waited for one connection share their error
    assert len(server.requests) == 3


async def test_a_try_avoids_the_endpoints_of_earlier_ones() -> None:
    server = Server(RESET, NOT_READY)
    given = Request(Operation.INFER, tries=Tries(2.0, frozenset({"host:0"})))
    await wrap(server, settings(), SAFE)(given)
    tries = [each.tries for each in server.requests if each.tries]
    assert [each.avoided for each in tries] == [{"host:0"}, {"host:0", "host:1"}, {"host:0", "host:1", "host:2"}]
    assert {each.seconds for each in tries} == {2.0}


def test_waits_double_up_to_the_longest_and_are_a_random_part_of_that() -> None:
    keys = settings(attempts=9, backoff=0.1, max_backoff=0.5)
    whole = Retries(keys.model_copy(update={"jitter": "none"}), SAFE)
    assert [whole.wait_after(RESET, INFER, attempt, 0.0) for attempt in range(1, 6)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    half = Retries(keys, SAFE, lambda: 0.5)
    assert [half.wait_after(RESET, INFER, attempt, 0.0) for attempt in range(1, 4)] == [0.05, 0.1, 0.2]
    assert Retries(keys, SAFE).wait_after(RESET, INFER, 9, 0.0) is None


@pytest.mark.parametrize(("now", "expected"), [(99.8, 0.1), (99.9, None), (101.0, None)])
def test_no_try_begins_after_the_deadline(now: float, expected: float | None) -> None:
    retries = Retries(settings(backoff=0.1, jitter="none"), SAFE)
    assert retries.wait_after(RESET, Request(Operation.INFER, deadline=100.0), 1, now) == expected


@pytest.mark.parametrize(("after", "expected"), [(0.0, 0.1), (0.7, 0.7), (1.1, None)])
def test_an_error_says_when_to_come_back(after: float, expected: float | None) -> None:
    """If that is later than `max_backoff`, the client decides."""
    error = refusal(Reason.NOT_READY, "not now")
    error.retry_after = after
    assert Retries(settings(backoff=0.1, jitter="none"), SAFE).wait_after(error, INFER, 1, 0.0) == expected


async def test_retries_cannot_multiply_the_load(caplog: pytest.LogCaptureFixture) -> None:
    calls = 100
    server = Server(*[RESET] * 1000)
    keys = settings(attempts=3, budget=0.2)
    context = PolicyContext("backend 'b'", safe=True)
    one, other = wrap(server, keys, context), wrap(server, keys, context)
    with caplog.at_level(logging.WARNING, "gateway.policies.retry"):
        for at in range(calls):
            with pytest.raises(TransportError):
                await (one, other)[at % 2](INFER)
    assert len(server.requests) == calls + LEAST_RETRIES + calls * 0.2
    assert "backend 'b': the retry budget is empty" in caplog.text
    assert len(caplog.records) <= 10


async def test_a_stream_is_tried_again_before_its_first_response() -> None:
    server = Server(RESET, RESET)
    found = [each async for each in wrap_stream(server.stream, settings(), SAFE)(INFER)]
    assert found == [ANSWER]
    assert len(server.requests) == 3


async def test_a_stream_that_is_tried_again_avoids_endpoints_too() -> None:
    server = Server(RESET, RESET)
    given = Request(Operation.INFER, tries=Tries(2.0, frozenset({"host:0"})))
    await anext(wrap_stream(server.stream, settings(), SAFE)(given))
    tries = [each.tries for each in server.requests if each.tries]
    assert [each.avoided for each in tries] == [{"host:0"}, {"host:0", "host:1"}, {"host:0", "host:1", "host:2"}]
    assert {each.seconds for each in tries} == {2.0}


async def test_a_stream_is_not_tried_again_after_its_first_response() -> None:
    server = Server()

    async def breaks(request: Request) -> AsyncGenerator[Response, None]:
        async for response in server.stream(request):
            yield response
        raise RESET

    responses = wrap_stream(breaks, settings(), SAFE)(INFER)
    assert await anext(responses) is ANSWER
    with pytest.raises(TransportError, match=r"^reset$"):
        await anext(responses)
    assert len(server.requests) == 1


async def test_a_client_that_leaves_ends_the_retries() -> None:
    server = Server(*[RESET] * 9)
    task = asyncio.ensure_future(wrap(server, settings(backoff=60, max_backoff=60), SAFE)(INFER))
    await until(lambda: server.requests, 0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(server.requests) == 1
