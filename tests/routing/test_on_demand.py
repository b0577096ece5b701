"""StartedSlots by themselves, with a starter that starts nothing."""

import asyncio

import pytest

from gateway.core.errors import GatewayError, Reason, Status, TransportError, refusal
from gateway.core.operations import Operation
from gateway.core.protocol import Servers
from gateway.core.requests import Request
from gateway.routing.endpoint import Endpoint
from gateway.routing.on_demand import TRIES, StartedSlots
from gateway.routing.queue import QueueSettings
from gateway.routing.slots import LocalSlots
from gateway.servers.started_server import JobFailure
from tests.limits import settle
from tests.routing.fakes import Wire
from tests.skipping_loop import skip

CALL, QUESTION = Request(Operation.INFER, "m"), Request(Operation.METADATA, "m")
LOST = TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "refused", sent=False)


class Nobody:
    """A Starter that counts the calls that wait."""

    starts = failures = 0
    can_serve = True

    def __init__(self) -> None:
        self.waited = 0
        self.failure: JobFailure | None = None

    def reports(self) -> list[object]:
        return []

    def call_waits(self) -> None:
        self.waited += 1

    async def failure_at(self, address: str) -> JobFailure | None:
        return self.failure


class Lab:
    def __init__(self, limit: int = 1, length: int = 10, timeout: float = 60.0) -> None:
        self.local = LocalSlots("lab", Servers(), [], limit, queue=QueueSettings(length, timeout), clock=lambda: 0.0)
        self.slots = StartedSlots(self.local)
        self.starter = Nobody()
        self.endpoint = Endpoint("lab:1", Wire(), lambda: 0.0)

    def begin(self) -> "Lab":
        self.slots.start_by(self.starter)
        return self


async def test_without_a_starter_calls_fail_at_once() -> None:
    lab = Lab()
    assert lab.slots.free(CALL) is None
    with pytest.raises(TransportError, match="has no endpoint"):
        await lab.slots.wait(CALL)
    assert await lab.slots.is_ready() is False


async def test_calls_wait_in_the_queue_and_questions_beside_it_until_a_server_is_there() -> None:
    lab = Lab().begin()
    call, question = (asyncio.ensure_future(lab.slots.wait(each)) for each in (CALL, QUESTION))
    await settle()
    assert (lab.starter.waited, len(lab.local.queue), lab.local.waiting) == (2, 1, 2)
    assert await lab.slots.is_ready() is True
    lab.local.add(lab.endpoint)
    assert set(await asyncio.gather(call, question)) == {lab.endpoint}
    assert (lab.endpoint.in_flight, lab.local.waiting) == (1, 0)
    assert await lab.slots.is_ready() is None


async def test_a_call_that_waits_for_the_answer_to_another_one_wants_a_server_as_well() -> None:
    lab = Lab().begin()
    lab.local.count_joined(1)
    assert (lab.starter.waited, lab.local.waiting) == (1, 1)


async def test_no_more_questions_wait_than_the_queue_is_long() -> None:
    lab = Lab(length=1).begin()
    first = asyncio.ensure_future(lab.slots.wait(QUESTION))
    await settle()
    with pytest.raises(GatewayError, match="1 calls wait for a server"):
        await lab.slots.wait(QUESTION)
    lab.slots.fail_waiting("it cannot be started", "its last words")
    with pytest.raises(TransportError, match="backend 'lab': it cannot be started"):
        await first


async def test_calls_go_on_waiting_when_the_last_server_has_gone() -> None:
    lab = Lab().begin()
    lab.local.add(lab.endpoint)
    assert lab.slots.free(CALL) is lab.endpoint
    waiting = asyncio.ensure_future(lab.slots.wait(CALL))
    await settle()
    lab.local.remove(lab.endpoint)
    await settle()
    assert (waiting.done(), lab.local.waiting) == (False, 1)
    lab.slots.fail_waiting("over", "")
    with pytest.raises(TransportError, match="over"):
        await waiting


async def test_a_call_whose_server_is_gone_is_sent_to_another_a_few_times_and_then_told_why() -> None:
    lab = Lab().begin()
    lab.local.add(lab.endpoint)
    with pytest.raises(TransportError, match=r"^refused$"):
        await lab.slots.again(CALL, LOST, [lab.endpoint], 0)
    lab.starter.failure = JobFailure("it ended with status 3", "its last words")
    for rounds in range(TRIES - 1):
        assert await lab.slots.again(CALL, LOST, [lab.endpoint], rounds) is CALL
    with pytest.raises(TransportError, match="refused: it ended with status 3"):
        await lab.slots.again(CALL, LOST, [lab.endpoint], TRIES - 1)


async def test_a_call_goes_to_another_server_and_other_errors_are_its_own() -> None:
    lab = Lab().begin()
    lab.local.add(lab.endpoint)
    other = Endpoint("lab:2", Wire(), lambda: 0.0)
    lab.local.add(other)
    assert await lab.slots.again(CALL, LOST, [lab.endpoint], 0) is None
    lab.starter.failure = JobFailure("it ended with status 3", "its last words")
    with pytest.raises(GatewayError, match=r"^bad row$"):
        await lab.slots.again(CALL, refusal(Reason.INVALID_INPUT, "bad row"), [other], 0)


async def test_a_question_waits_no_longer_than_the_queue_says() -> None:
    lab = Lab(timeout=5).begin()
    question = asyncio.ensure_future(lab.slots.wait(QUESTION))
    await skip(5)
    with pytest.raises(GatewayError) as caught:
        await question
    text = "backend 'lab': no server within 5 s (queue.timeout); try again later"
    assert (caught.value.reason, caught.value.message, lab.local.waiting) == (Reason.OVERLOADED, text, 0)


async def test_a_question_waits_on_if_the_server_leaves_as_it_comes() -> None:
    lab = Lab().begin()
    question = asyncio.ensure_future(lab.slots.wait(QUESTION))
    await settle()
    lab.local.add(lab.endpoint)
    lab.local.remove(lab.endpoint)
    await settle()
    assert (question.done(), lab.local.waiting) == (False, 1)
    for each in (lab.endpoint, Endpoint("lab:2", Wire(), lambda: 0.0)):
        lab.local.add(each)
    lab.slots.fail_waiting("too late", "")
    assert await question is lab.endpoint


async def test_it_is_known_when_no_call_will_come_any_more() -> None:
    lab = Lab().begin()
    lab.slots.close()
    assert lab.slots.closed.is_set()
