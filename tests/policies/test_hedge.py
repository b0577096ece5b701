"""When a second try begins, and which answer is used."""

import asyncio
from typing import Any

import pytest

from gateway.core.errors import GatewayError, Reason, Status, refusal
from gateway.core.operations import Operation
from gateway.core.queue_wait import note_wait, queue_wait
from gateway.core.requests import Answer, Request, Response, Tries
from gateway.policies.context import PolicyContext
from gateway.policies.hedge import LEAST_KNOWN, MOST_KNOWN, MOST_MODELS, Durations, Hedges, Settings, wrap
from tests.limits import settle, until

INFER = Request(Operation.INFER, "m")
FAILED = refusal(Reason.NOT_READY, "not now")


class Servers:
    """A Handler whose tries the test answers. It answers at once until `is_slow`."""

    def __init__(self, endpoints: int = 2, **keys: Any) -> None:
        self.clock = 0.0
        self.took = 0.0
        self.is_slow = False
        self.waits: list[tuple[int, float]] = []
        """The places and seconds of the waits of the next calls in queues."""
        self.tries: list[tuple[Request, asyncio.Future[Answer]]] = []
        context = PolicyContext("backend 'b'", safe=True, endpoints=lambda: endpoints, clock=lambda: self.clock)
        self.handler = wrap(self._answer, Settings.model_validate({"min_delay": 0, **keys}), context)

    async def _answer(self, request: Request) -> Answer:
        self.clock += self.took
        if self.waits:
            note_wait(*self.waits.pop(0))
        if not self.is_slow:
            return Response(id="prompt")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.tries.append((request, answer))
        place = f"host:{len(self.tries)}"
        assert request.tries is not None
        request.tries.began(place)
        found = await answer
        request.tries.answered(place)
        return found

    async def learn(self, calls: int = LEAST_KNOWN) -> None:
        """So many prompt calls, then slow ones."""
        for _ in range(calls):
            await self.handler(INFER)
        self.is_slow = True

    async def begin(self, tries: int, request: Request = INFER) -> "asyncio.Task[Answer]":
        """A call that has been sent so many times."""
        task = asyncio.ensure_future(self.handler(request))
        await until(lambda: len(self.tries) >= tries, 0)
        return task


@pytest.mark.parametrize("winner", [0, 1])
async def test_the_first_answer_wins_and_the_other_try_is_cancelled(winner: int) -> None:
    servers = Servers()
    await servers.learn()
    task = await servers.begin(2)
    (_, first), (request, second) = servers.tries
    assert request.tries is not None
    assert request.tries.avoided == {"host:1"}
    assert request.tries.elsewhere
    (first, second)[winner].set_result(Response(id=str(winner)))
    assert await task == Response(id=str(winner))
    await asyncio.sleep(0)
    assert (first, second)[1 - winner].cancelled()


async def test_the_longer_wait_of_both_tries_is_told() -> None:
    servers = Servers()
    await servers.learn()
    servers.waits = [(3, 0.5), (1, 0.25)]

    async def waited() -> tuple[int, float] | None:
        await servers.handler(INFER)
        wait = queue_wait.get()
        return None if wait is None else (wait.place, wait.seconds)

    task = asyncio.ensure_future(waited())
    await until(lambda: len(servers.tries) >= 2, 0)
    servers.tries[1][1].set_result(Response())
    assert await task == (3, 0.5)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
async def test_an_error_waits_for_the_other_try(order: tuple[int, int]) -> None:
    servers = Servers()
    await servers.learn()
    task = await servers.begin(2)
    servers.tries[order[0]][1].set_exception(FAILED)
    await asyncio.sleep(0)
    assert not task.done()
    servers.tries[order[1]][1].set_result(Response(id="late"))
    assert await task == Response(id="late")


async def test_if_both_fail_the_error_is_the_first_trys() -> None:
    servers = Servers()
    await servers.learn()
    task = await servers.begin(2)
    servers.tries[1][1].set_exception(refusal(Reason.OVERLOADED, "no other endpoint is free; try again later"))
    servers.tries[0][1].set_exception(FAILED)
    with pytest.raises(GatewayError) as raised:
        await task
    assert (raised.value.status, raised.value.message) == (Status.UNAVAILABLE, "not now")


async def test_an_error_before_the_second_try_is_told_at_once_and_the_failed_place_is_known_outside() -> None:
    servers = Servers(min_delay=60)
    await servers.learn()
    places: list[str] = []
    task = await servers.begin(1, Request(Operation.INFER, "m", tries=Tries(places=places)))
    servers.tries[0][1].set_exception(FAILED)
    with pytest.raises(GatewayError):
        await task
    assert places == ["host:1"]


async def test_a_client_that_leaves_cancels_both() -> None:
    servers = Servers()
    await servers.learn()
    task = await servers.begin(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    assert all(answer.cancelled() for _, answer in servers.tries)


@pytest.mark.parametrize(
    ("endpoints", "calls", "request_"),
    [
        (1, LEAST_KNOWN, INFER),
        (2, LEAST_KNOWN - 1, INFER),
        (2, LEAST_KNOWN, Request(Operation.INFER, "other")),
        (2, LEAST_KNOWN, Request(Operation.GRADIENT, "m")),
        (2, LEAST_KNOWN, Request(Operation.METADATA, "m")),
        (2, LEAST_KNOWN, Request(Operation.INFER, "m", parameters={"sequence_id": 7})),
    ],
)
async def test_calls_that_get_no_second_try(endpoints: int, calls: int, request_: Request) -> None:
    servers = Servers(endpoints)
    await servers.learn(calls)
    servers.is_slow = False
    assert await servers.handler(request_) == Response(id="prompt")
    hedges = Hedges(Settings(), PolicyContext("", safe=True, endpoints=lambda: endpoints))
    for _ in range(calls):
        hedges.note(INFER, 1.0)
    assert not hedges.is_possible(request_) or hedges.wait(request_) is None


async def test_second_tries_are_at_most_a_tenth_of_the_calls() -> None:
    servers = Servers()
    await servers.learn(95)
    for _ in range(20):
        task = asyncio.ensure_future(servers.handler(INFER))
        count = len(servers.tries)
        while len(servers.tries) == count:  # noqa: ASYNC110
            await asyncio.sleep(0)
        await settle()
        for _, answer in servers.tries:
            if not answer.done():
                answer.set_result(Response())
        await task
    assert len(servers.tries) == 20 + 11  # a tenth of 115 calls


@pytest.mark.parametrize(("percentile", "least", "expected"), [(95, 0.01, 0.95), (50, 0.01, 0.5), (50, 0.7, 0.7)])
def test_the_wait_is_a_percentile_of_the_models_last_calls(percentile: float, least: float, expected: float) -> None:
    hedges = Hedges(Settings(percentile=percentile, min_delay=least), PolicyContext("", safe=True))
    for hundredths in range(100):
        hedges.note(INFER, hundredths / 100)
    assert hedges.wait(INFER) == expected


def test_old_durations_and_models_are_forgotten() -> None:
    known = Durations()
    for _ in range(MOST_KNOWN):
        known.add(9.0)
    for _ in range(MOST_KNOWN):
        known.add(1.0)
    assert known.percentile(99) == 1.0
    hedges = Hedges(Settings(), PolicyContext("", safe=True))
    for at in range(MOST_MODELS):
        hedges.note(Request(Operation.INFER, f"m{at}"), 1.0)
    for _ in range(LEAST_KNOWN):
        hedges.note(Request(Operation.INFER, "m0"), 1.0)
        hedges.note(Request(Operation.INFER, "new"), 1.0)
    assert hedges.wait(Request(Operation.INFER, "m0")) == 1.0
    assert len(hedges._models) == MOST_MODELS
