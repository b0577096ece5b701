import asyncio
from collections.abc import AsyncGenerator

import pytest
from pydantic import ValidationError

from gateway.core.errors import GatewayError, Reason, Status
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request, Response, Tries
from gateway.policies.timeout import Settings, wrap, wrap_stream

ANSWER = Response(id="answer")


async def test_a_late_answer_is_an_error_and_its_handler_is_cancelled() -> None:
    given_up: list[str] = []

    async def never(request: Request) -> Answer:
        try:
            return await asyncio.Future[Answer]()
        except asyncio.CancelledError:
            given_up.append(request.model)
            raise

    with pytest.raises(GatewayError) as refused:
        await wrap(never, Settings(seconds=0.01))(Request(Operation.INFER, "m"))
    assert (refused.value.status, refused.value.reason) == (Status.DEADLINE_EXCEEDED, Reason.TIMEOUT)
    limit = "the limit that the policy timeout sets (timeout.seconds); raise it for slow models"
    assert refused.value.message == f"no answer within 0.01 s, {limit}"
    assert given_up == ["m"]


async def test_a_timeout_error_of_the_handler_passes_unchanged() -> None:
    async def own(request: Request) -> Answer:
        raise TimeoutError("of something else")

    with pytest.raises(TimeoutError, match="of something else"):
        await wrap(own, Settings(seconds=60))(Request(Operation.INFER))


async def test_cancellation_by_the_client_passes_unchanged() -> None:
    started = asyncio.Event()

    async def never(request: Request) -> Answer:
        started.set()
        return await asyncio.Future[Answer]()

    async def call() -> Answer:
        return await wrap(never, Settings(seconds=60))(Request(Operation.INFER))

    async with asyncio.TaskGroup() as group:
        task = group.create_task(call())
        await started.wait()
        task.cancel()
    assert task.cancelled()


@pytest.mark.parametrize(("own", "lowered"), [(None, True), (3600.0, True), (-3600.0, False)])
async def test_the_next_hop_gets_the_earlier_deadline(own: float | None, lowered: bool) -> None:
    now = asyncio.get_running_loop().time()
    given = None if own is None else now + own

    async def deadline(request: Request) -> Answer:
        assert request.deadline is not None
        return {"deadline": request.deadline}

    answer = await wrap(deadline, Settings(seconds=60))(Request(Operation.INFER, deadline=given))
    assert isinstance(answer, dict)
    assert (now + 60 <= answer["deadline"] < now + 120) if lowered else answer["deadline"] == given


@pytest.mark.parametrize("seconds", [0, -1, "1", True, float("inf"), float("nan"), None])
def test_invalid_seconds_are_refused(seconds: object) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({"seconds": seconds})


async def test_stream_responses_in_time_pass() -> None:
    async def prompt(request: Request) -> AsyncGenerator[Response, None]:
        yield ANSWER
        yield ANSWER

    responses = wrap_stream(prompt, Settings(seconds=60))(Request(Operation.STREAM))
    assert [response async for response in responses] == [ANSWER, ANSWER]


async def test_a_stream_with_a_late_response_is_cancelled() -> None:
    closed: list[bool] = []

    async def stalls(request: Request) -> AsyncGenerator[Response, None]:
        try:
            yield ANSWER
            await asyncio.Future[None]()
        finally:
            closed.append(True)

    responses = wrap_stream(stalls, Settings(seconds=0.01))(Request(Operation.STREAM))
    assert await anext(responses) is ANSWER
    with pytest.raises(GatewayError, match=r"no response within 0\.01 s") as refused:
        await anext(responses)
    assert refused.value.status is Status.DEADLINE_EXCEEDED
    assert closed


async def test_a_timeout_error_of_the_stream_passes_unchanged() -> None:
    async def own(request: Request) -> AsyncGenerator[Response, None]:
        yield ANSWER
        raise TimeoutError("of something else")

    responses = wrap_stream(own, Settings(seconds=60))(Request(Operation.STREAM))
    await anext(responses)
    with pytest.raises(TimeoutError, match="of something else"):
        await anext(responses)


@pytest.mark.parametrize(("own", "expected"), [(None, 5.0), (Tries(None), 5.0), (Tries(9.0), 5.0), (Tries(1.0), 1.0)])
async def test_each_try_gets_the_shorter_limit(own: Tries | None, expected: float) -> None:
    async def limit(request: Request) -> Answer:
        assert request.tries is not None
        return {"seconds": request.tries.seconds}

    handler = wrap(limit, Settings(seconds=60, per_try=5))
    assert await handler(Request(Operation.INFER, tries=own)) == {"seconds": expected}


async def test_a_call_that_is_repeated_has_its_own_time_again() -> None:
    """The policy sets the request's deadline, and sets it back: whoever repeats the request passes on the same one."""
    seen: list[tuple[float | None, float | None]] = []

    async def note(request: Request) -> Answer:
        seen.append((request.deadline, request.time_limit))
        await asyncio.sleep(0.002)
        return True

    handler = wrap(note, Settings(seconds=30))
    request = Request(Operation.INFER, "m")
    before = asyncio.get_running_loop().time()
    await handler(request)
    assert (request.deadline, request.time_limit) == (None, None)
    await handler(request)
    first, second = (deadline for deadline, _ in seen)
    assert first is not None
    assert second is not None
    assert before + 30 <= first < second
    assert [limit for _, limit in seen] == [30, 30]
