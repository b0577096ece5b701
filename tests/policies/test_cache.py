"""One call for equal requests, and what becomes of it when those who wait leave."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from gateway.core.errors import GatewayError, Reason, Status, refusal
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.principal import Principal
from gateway.core.queue_wait import LATER, begin_wait, queue_wait
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import tensor
from gateway.policies.cache import LARGE, Settings, state, wrap, wrap_stream
from gateway.policies.context import MessageReach, PolicyContext
from gateway.protocols.tensorflow_serving.inference import ExampleMessage
from tests.clock import Clock
from tests.limits import settle


def infer(*numbers: float, **more: Any) -> Request:
    return Request(Operation.INFER, "m", inputs=(tensor("x", np.array(numbers)),), **more)


def doubled(request: Request) -> Response:
    return Response((tensor("y", 2 * request.inputs[0].array),), "m", "", request.id)


class Model:
    """A Handler within a cache. It answers at once, or if `holds` when the test says so."""

    def __init__(self, *, holds: bool = False, safe: bool = True, reach: MessageReach | None = None, **keys: Any):
        self.settings = Settings.model_validate(keys)
        self.calls: list[tuple[Request, asyncio.Future[Answer]]] = []
        self.cancelled = 0
        self.holds = holds
        self.waits = False
        """Whether calls wait for a slot all the time."""
        self._watchers: list[Any] = []
        context = PolicyContext("backend 'b'", safe=safe, reach=reach, on_new_models=self._watchers.append)
        self.handler = wrap(self._answer, self.settings, context)
        self.cache = state(self.settings)

    async def _answer(self, request: Request) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.calls.append((request, answer))
        if self.waits:
            begin_wait(2)
        if not self.holds:
            return doubled(request)
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def models_changed(self) -> None:
        for each in self._watchers:
            each()

    async def begin(self, request: Request) -> "asyncio.Task[Answer]":
        """A call that waits for the model."""
        task = asyncio.ensure_future(self.handler(request))
        await settle()
        return task

    def answer(self, at: int = 0) -> None:
        """Answer one of the calls."""
        request, answer = self.calls[at]
        answer.set_result(doubled(request))


async def test_all_equal_requests_are_told_how_long_their_call_waits_for_a_slot() -> None:
    model = Model(holds=True)
    model.waits = True

    async def waited() -> tuple[int, float | None] | None:
        with suppress(asyncio.CancelledError):
            await model.handler(infer(1))
        wait = queue_wait.get()
        return None if wait is None else (wait.place, wait.retry_after)

    tasks = [asyncio.ensure_future(waited()) for _ in range(3)]
    await settle()
    tasks[0].cancel()
    assert await tasks[0] == (2, None)  # the call goes on for the others
    assert len(model.calls) == 1
    model.answer()
    assert [await each for each in tasks[1:]] == [(2, LATER)] * 2  # it waits still, as far as is noted


@pytest.mark.parametrize("count", [1, LARGE // 8 + 1])
async def test_large_tensors_are_cached_too(count: int) -> None:
    model = Model()
    for _ in range(2):
        answer = await model.handler(infer(*range(count)))
        assert isinstance(answer, Response)
        assert answer.outputs[0].array[-1] == 2 * (count - 1)
    assert len(model.calls) == 1


@pytest.mark.parametrize(
    "request_",
    [
        infer(1, parameters={"sequence_id": 7}),
        infer(1, flaw="wrong"),
        infer(1, headers=Headers([(b"cache-control", b"No-Store")])),
        Request(Operation.METADATA, "m"),
    ],
)
async def test_what_is_passed_by(request_: Request) -> None:
    model = Model(holds=True)
    tasks = [await model.begin(request_) for _ in range(2)]
    assert len(model.calls) == 2
    for at in range(2):
        model.calls[at][1].set_result(True)
    await asyncio.gather(*tasks)


async def test_calls_that_must_not_be_repeated_are_passed_by() -> None:
    model = Model(safe=False)
    for _ in range(2):
        await model.handler(infer(1))
    assert len(model.calls) == 2


def test_streams_are_passed_on() -> None:
    async def stream(request: Request) -> AsyncIterator[Response]:
        yield Response()

    assert wrap_stream(stream, Settings(), PolicyContext("b", safe=True)) is stream  # type: ignore[arg-type]


async def test_no_cache_asks_the_model_and_keeps_the_answer() -> None:
    model = Model()
    await model.handler(infer(1))
    await model.handler(infer(1, headers=Headers([(b"cache-control", b"no-cache")])))
    assert len(model.calls) == 2
    await model.handler(infer(1))
    assert len(model.calls) == 2


async def test_a_thousand_equal_requests_are_one_call() -> None:
    model = Model(holds=True)
    tasks = [asyncio.ensure_future(model.handler(infer(1, id=str(each)))) for each in range(1000)]
    await settle()
    assert len(model.calls) == 1
    model.answer()
    answers = await asyncio.gather(*tasks)
    assert [each.id for each in answers if isinstance(each, Response)] == list(map(str, range(1000)))
    shown = model.cache.status()
    assert (shown["misses"], shown["shared"], shown["answers"]) == (1, 999, 1)


@pytest.mark.parametrize("leaves", [0, 1, 2])
async def test_the_call_goes_on_for_those_who_stay(leaves: int) -> None:
    model = Model(holds=True)
    tasks = [await model.begin(infer(1)) for _ in range(3)]
    tasks[leaves].cancel()
    await settle()
    assert (len(model.calls), model.cancelled) == (1, 0)
    model.answer()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [isinstance(each, Response) for each in found] == [at != leaves for at in range(3)]


async def test_the_call_ends_when_nobody_waits_and_who_comes_then_begins_another() -> None:
    model = Model(holds=True)
    tasks = [await model.begin(infer(1)) for _ in range(2)]
    for each in tasks:
        each.cancel()
    third = asyncio.ensure_future(model.handler(infer(1)))
    await settle()
    assert (len(model.calls), model.cancelled) == (2, 1)
    model.answer(1)
    assert isinstance(await third, Response)


@pytest.mark.parametrize("steps", range(8))
async def test_a_cancel_at_any_await_leaves_nothing_behind(steps: int) -> None:
    before = asyncio.all_tasks()
    model = Model(holds=True)
    task = asyncio.ensure_future(model.handler(infer(*range(LARGE // 8 + 1))))
    for _ in range(steps):
        await asyncio.sleep(0.001)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    await settle()
    assert not model.cache._flights
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("reason", [Reason.NOT_READY, Reason.TIMEOUT], ids=["not ready", "a deadline of no client"])
async def test_an_error_goes_to_all_and_is_not_kept(reason: Reason) -> None:
    model = Model(holds=True)
    tasks = [await model.begin(infer(1)) for _ in range(3)]
    model.calls[0][1].set_exception(refusal(reason, "not now"))
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(each) for each in found] == ["not now"] * 3
    assert len({id(each) for each in found}) == 3
    assert len(model.calls) == 1
    await model.begin(infer(1))
    assert len(model.calls) == 2


async def test_a_call_that_is_cancelled_from_outside_ends_all_that_wait() -> None:
    """As at the end of the gateway."""
    model = Model(holds=True)
    tasks = [await model.begin(infer(1)) for _ in range(2)]
    [flight] = model.cache._flights.values()
    flight.task.cancel()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in found] == [asyncio.CancelledError] * 2


async def test_an_answer_without_tensors_is_shared_and_not_kept() -> None:
    model = Model(holds=True)
    tasks = [await model.begin(infer(1)) for _ in range(2)]
    model.calls[0][1].set_result(True)
    assert await asyncio.gather(*tasks) == [True, True]
    assert (len(model.calls), model.cache.status()["answers"]) == (1, 0)


async def test_when_the_deadline_of_the_first_is_over_the_next_one_leads() -> None:
    model = Model(holds=True)
    now = asyncio.get_running_loop().time()
    first = await model.begin(infer(1, deadline=now))
    others = [await model.begin(infer(1, deadline=now + each)) for each in (60, 70)]
    model.calls[0][1].set_exception(GatewayError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, "too late"))
    with pytest.raises(GatewayError, match="too late"):
        await first
    await settle()
    assert [each.deadline for each, _ in model.calls] == [now, now + 60]
    model.answer(1)
    assert all(isinstance(each, Response) for each in await asyncio.gather(*others))


@pytest.mark.parametrize("reason", [Reason.RATE_LIMITED, Reason.PERMISSION_DENIED, Reason.UNAUTHENTICATED])
async def test_what_is_refused_to_one_client_is_not_refused_to_those_who_wait_with_it(reason: Reason) -> None:
    model = Model(holds=True)
    first = await model.begin(infer(1, principal=Principal("a")))
    same = await model.begin(infer(1, principal=Principal("a")))
    other = await model.begin(infer(1, principal=Principal("b")))
    model.calls[0][1].set_exception(refusal(reason, "'a' may not"))
    refused = await asyncio.gather(first, same, return_exceptions=True)
    assert [str(each) for each in refused] == ["'a' may not"] * 2
    await settle()
    model.answer(1)
    assert isinstance(await other, Response)


async def test_nothing_of_the_old_models_is_kept() -> None:
    model = Model()
    await model.handler(infer(1))
    model.holds = True
    early = await model.begin(infer(2))
    model.models_changed()
    late = await model.begin(infer(2))
    assert len(model.calls) == 3  # the new request does not wait for the old model's answer
    model.answer(1)
    await early
    assert not len(model.cache.store)
    model.answer(2)
    await late
    assert len(model.cache.store) == 1


async def test_answers_end_with_their_age() -> None:
    clock = Clock()
    model = Model(seconds=10)
    model.cache.store._clock = clock
    for seconds, calls in ((0, 1), (9, 1), (1, 2), (0, 2)):
        clock.now += seconds
        await model.handler(infer(1))
        assert len(model.calls) == calls


async def test_headers_that_servers_get_tell_requests_apart() -> None:
    model = Model(reach=MessageReach(headers=("x-tenant",)))
    for tenant in (b"a", b"b", b"a"):
        await model.handler(infer(1, headers=Headers([(b"x-tenant", tenant), (b"x-other", b"%d" % len(model.calls))])))
    assert len(model.calls) == 2


@pytest.mark.parametrize(("protocol", "calls"), [("tfs-grpc", 3), ("v2-rest", 1)])
async def test_what_a_message_tells_servers_beside_its_tensors_tells_requests_apart(protocol: str, calls: int) -> None:
    model = Model(reach=MessageReach(forms=frozenset({"tfs-grpc"})))
    for origin in (None, Message(), ExampleMessage(called="classify"), ExampleMessage(called="regress"), Message()):
        await model.handler(infer(1, protocol=protocol, origin=origin))
    assert len(model.calls) == calls


@pytest.mark.parametrize(("unfitted", "calls"), [(False, 1), (True, 2)])
async def test_protocols_share_answers_to_fitted_requests(unfitted: bool, calls: int) -> None:
    model = Model(reach=MessageReach(is_unfitted=unfitted))
    for protocol in ("v2-rest", "umbridge"):
        await model.handler(infer(1, protocol=protocol, peer=protocol, listener=protocol, deadline=1e9))
    assert len(model.calls) == calls
