"""Endpoints, slots, and the queue in front of them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from gateway.core.errors import DEFAULT_REASONS, GatewayError, Reason, Status, TransportError
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.principal import Principal
from gateway.core.protocol import Protocol, Servers, Target, Traits
from gateway.core.queue_wait import queue_wait
from gateway.core.requests import Answer, Request, Tries
from gateway.routing.backend import local_backend
from gateway.routing.balancing import LeastInFlight, Weights, strategy
from gateway.routing.endpoint import CLIENT_SECONDS, Endpoint
from gateway.routing.health import LONGEST_SECONDS, UNREACHABLE_SECONDS, Ejection, State
from gateway.routing.load.reported import ReportedLoads
from gateway.routing.queue import QueueSettings
from gateway.routing.sequences import MOST_SEQUENCES
from tests import records
from tests.clock import Clock
from tests.limits import settle
from tests.routing.fakes import TO_THE_END, TOY, Wire
from tests.skipping_loop import skip

MAX_WAITING = QueueSettings().length
"""Calls in the queue of a backend without a `queue` of its own."""


class Lab:
    """A Backend of wires."""

    def __init__(
        self,
        wires: int = 1,
        limit: int = 1,
        protocol: Protocol = TOY,
        queue: QueueSettings | None = None,
        *,
        answering: bool = False,
    ) -> None:
        self.clock = Clock()
        self.wires = [Wire() for _ in range(wires)]
        for wire in self.wires:
            wire.answers_at_once = answering
        self.endpoints = [Endpoint(f"host:{at}", wire, self.clock) for at, wire in enumerate(self.wires)]
        self.backend = local_backend(Target("lab"), protocol, self.endpoints, limit, queue=queue, clock=self.clock)

    def ask(
        self, model: str = "m", peer: str = "", operation: Operation = Operation.INFER, **more: Any
    ) -> "asyncio.Task[Answer]":
        return asyncio.ensure_future(self.backend(Request(operation, model, peer=peer, **more)))

    async def asked(self, model: str = "m", peer: str = "", **more: Any) -> "asyncio.Task[Answer]":
        task = self.ask(model, peer, **more)
        await settle()
        return task

    async def answer(self, text: bytes = b"", status: int = 200, wire: int = 0) -> None:
        """Answer the oldest call at a wire."""
        self.wires[wire].answer(text, status)
        await settle()

    async def finish(self, *tasks: "asyncio.Task[Answer]") -> None:
        """Answer all calls, and those that waited for their slots, and wait for these."""
        while any(wire.answer_all() for wire in self.wires):
            await settle()
        await asyncio.gather(*tasks)

    def next_is(self, at: int) -> None:
        """The next call goes to the endpoint at this index, if it is as idle as the others."""
        turns = LeastInFlight()
        turns._next = at
        self.backend.choice.strategy = turns

    @property
    def in_flight(self) -> list[int]:
        return [endpoint.in_flight for endpoint in self.endpoints]

    @property
    def states(self) -> list[State]:
        return [endpoint.health.state for endpoint in self.endpoints]

    def state(self) -> State:
        """Of the first endpoint; a method, since it changes."""
        return self.states[0]

    @property
    def counts(self) -> list[int]:
        """How many messages each endpoint got."""
        return [len(wire.sent) for wire in self.wires]

    @property
    def tried(self) -> list[int]:
        """The endpoints that got messages."""
        return [at for at, count in enumerate(self.counts) if count]

    async def time_out(self, waited: float = 2.0, **more: Any) -> None:
        """One call to whichever endpoint gets it, which its policy ends after `waited` seconds."""
        started = self.clock.now
        task = await self.asked(**{"deadline": started + waited, "time_limit": waited, **more})
        self.clock.now = started + waited
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def paths(self, wire: int = 0) -> list[str]:
        return [message.path.partition("/")[2] for message in self.wires[wire].sent]


@pytest.fixture(autouse=True)
def _no_forgotten_errors() -> Iterator[None]:
    """asyncio tells of exceptions that nobody looked at in its log."""
    forgotten: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: forgotten.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("asyncio").addHandler(handler)
    yield
    logging.getLogger("asyncio").removeHandler(handler)
    assert forgotten == []


async def test_calls_go_where_the_fewest_are() -> None:
    lab = Lab(wires=3, limit=0)
    tasks = [await lab.asked() for _ in range(4)]
    assert lab.in_flight == [2, 1, 1]
    lab.wires[0].answer()
    lab.wires[0].answer()
    await settle()
    tasks.append(await lab.asked())
    assert lab.in_flight == [1, 1, 1]
    await lab.finish(*tasks)
    assert lab.in_flight == [0, 0, 0]


async def test_at_most_the_limit_runs_on_each_endpoint() -> None:
    lab = Lab(wires=2, limit=2)
    assert lab.backend.capacity == 4
    tasks = [await lab.asked() for _ in range(6)]
    assert (lab.in_flight, len(lab.backend.queue)) == ([2, 2], 2)
    await lab.answer(b"first", wire=1)
    assert (lab.in_flight, len(lab.backend.queue)) == ([2, 2], 1)
    await lab.finish(*tasks)
    assert (lab.in_flight, len(lab.backend.queue)) == ([0, 0], 0)


async def test_clients_take_turns_and_within_a_client_its_models() -> None:
    lab = Lab()
    for model, peer in [("now", ""), *[("a", "1:1")] * 3, ("b", "1:1"), ("c", "2:1"), ("d", "2:2")]:
        await lab.asked(model, peer)
    await lab.finish()
    assert lab.paths() == ["now", "a", "c", "b", "d", "a", "a"]


async def test_a_client_is_its_host_since_every_call_comes_from_another_port() -> None:
    lab = Lab()
    for peer in ("9:9", "a:1", "a:2", "b:1"):
        await lab.asked(f"m{peer}", peer)
    await lab.asked("mb:1", "b:2")
    await lab.finish()
    assert lab.paths()[1:] == ["ma:1", "mb:1", "ma:2", "mb:1"]


async def test_a_thousand_may_wait_and_no_more() -> None:
    lab = Lab()
    tasks = [lab.ask(peer=f"host{at}:1") for at in range(MAX_WAITING + 1)]
    await settle()
    assert len(lab.backend.queue) == MAX_WAITING
    with pytest.raises(GatewayError) as refused:
        await lab.ask()
    assert (refused.value.status, refused.value.reason) == (Status.RESOURCE_EXHAUSTED, Reason.OVERLOADED)
    text = "backend 'lab': 1000 of 1000 places in the queue (queue.length) taken; try again later"
    assert text in refused.value.message
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (len(lab.backend.queue), lab.in_flight) == (0, [0])


async def test_who_leaves_the_queue_is_not_served() -> None:
    lab = Lab()
    first, second, third = [await lab.asked(model) for model in ("a", "b", "c")]
    second.cancel()
    await settle()
    assert len(lab.backend.queue) == 1
    await lab.finish(first, third)
    assert lab.paths() == ["a", "c"]


async def test_who_leaves_in_the_moment_that_a_slot_comes_hands_it_on() -> None:
    lab = Lab()
    first, second, third = [await lab.asked(model) for model in ("a", "b", "c")]
    lab.endpoints[0].give_back()
    second.cancel()  # the slot is second's already, but its task has not run since
    await settle()
    assert lab.paths() == ["a", "c"]
    lab.endpoints[0].take()
    await lab.finish(first, third)
    assert lab.in_flight == [0]


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("protocol", [TOY, TO_THE_END])
async def test_a_slot_is_free_again_however_the_call_ends(protocol: Protocol, status: int) -> None:
    lab = Lab(protocol=protocol)
    tasks = [await lab.asked(), await lab.asked()]
    await lab.answer(status=status)
    assert len(lab.wires[0].sent) == 2
    lab.wires[0].break_off(sent=True)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert lab.in_flight == [0]
    with pytest.raises(GatewayError, match="no word for it"):
        await lab.ask("unspeakable")
    assert lab.in_flight == [0]


async def test_a_cancelled_call_frees_its_slot() -> None:
    lab = Lab()
    first, second = await lab.asked("a"), await lab.asked("b")
    first.cancel()
    await settle()
    assert lab.paths() == ["a", "b"]
    await lab.finish(second)


async def test_a_call_that_its_server_computes_to_the_end_keeps_its_slot() -> None:
    lab = Lab(protocol=TO_THE_END)
    first, second = await lab.asked("a"), await lab.asked("b")
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await settle()
    assert (lab.paths(), lab.in_flight) == (["a"], [1])
    await lab.answer()
    assert lab.paths() == ["a", "b"]
    second.cancel()
    await settle()
    lab.wires[0].break_off(sent=True)
    await settle()
    assert lab.in_flight == [0]


@pytest.mark.usefixtures("own_log_limit")
async def test_the_late_failure_of_a_call_that_nobody_waits_for_is_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "gateway")
    lab = Lab(protocol=TO_THE_END)
    task = await lab.asked()
    task.cancel()
    await settle()
    lab.wires[0].break_off(sent=True)
    await settle()
    (record,) = [each for each in caplog.records if each.name == "gateway.core.tasks"]
    assert record.getMessage() == "an abandoned call failed: backend 'lab' at host:0: reset"
    assert record.exc_info is None


async def test_two_backends_at_one_address_share_its_slots_in_turns() -> None:
    lab = Lab()
    other = local_backend(Target("other"), TOY, lab.endpoints, 1)
    tasks = [await lab.asked("mine") for _ in range(4)]
    tasks += [asyncio.ensure_future(other(Request(Operation.INFER, "theirs"))) for _ in range(2)]
    await settle()
    assert (lab.paths(), len(lab.backend.queue), len(other.queue)) == (["mine"], 3, 2)
    await lab.finish(*tasks)
    assert lab.paths() == ["mine", "mine", "theirs", "mine", "theirs", "mine"]
    assert lab.in_flight == [0]


async def test_metadata_takes_no_slot_and_waits_for_none() -> None:
    lab = Lab()
    call = await lab.asked("a")
    tell = await lab.asked("a", operation=Operation.METADATA)
    assert (lab.counts, lab.in_flight) == ([2], [1])
    lab.wires[0].answer()
    await call
    assert lab.in_flight == [0]
    after = await lab.asked("b")
    assert lab.paths() == ["a", "a", "b"]
    await lab.finish(tell, after)


async def test_a_server_of_one_connection_is_asked_nothing_while_it_is_busy() -> None:
    lab = Lab(protocol=replace(TOY, traits=Traits(servers=Servers(max_in_flight=1, one_connection=True))))
    call = await lab.asked("a")
    tell = await lab.asked("a", operation=Operation.METADATA)
    assert (lab.counts, lab.in_flight) == ([1], [1])
    await lab.answer()
    await call
    assert (lab.counts, lab.in_flight) == ([2], [1])
    await lab.finish(tell)
    assert lab.in_flight == [0]


# Endpoints that cannot be reached


async def test_another_endpoint_is_asked_if_nothing_was_sent() -> None:
    lab = Lab(wires=2)
    lab.wires[0].refuses = True
    task = await lab.asked()
    lab.wires[1].answer(b"here")
    await task
    assert lab.states == [State.DOWN, State.UP]
    assert lab.in_flight == [0, 0]


async def test_no_other_endpoint_is_asked_if_the_first_may_have_seen_it() -> None:
    lab = Lab(wires=2)
    task = await lab.asked()
    lab.wires[0].break_off(sent=True)
    with pytest.raises(GatewayError, match="backend 'lab' at host:0: reset"):
        await task
    assert lab.wires[1].sent == []


async def test_a_server_that_refused_a_call_is_there_and_another_endpoint_is_asked() -> None:
    lab = Lab(wires=2)
    task = await lab.asked()
    lab.wires[0].break_off(sent=False, answered=True)
    await settle()
    lab.wires[1].answer(b"here")
    await task
    assert lab.states == [State.UP, State.UP]


@pytest.mark.parametrize("operation", [Operation.INFER, Operation.METADATA])
async def test_where_none_can_be_reached_the_last_one_says_so(operation: Operation) -> None:
    lab = Lab(wires=2)
    for wire in lab.wires:
        wire.refuses = True
    with pytest.raises(GatewayError, match="backend 'lab' at host:1: connection refused"):
        await lab.ask(operation=operation)
    assert lab.in_flight == [0, 0]


async def test_an_endpoint_that_could_not_be_reached_is_ejected_for_a_second() -> None:
    lab = Lab(wires=2, limit=0)
    lab.wires[0].refuses, lab.wires[1].answers_at_once = True, True
    await lab.ask("a")
    lab.wires[0].refuses, lab.wires[0].answers_at_once = False, True
    await lab.ask("b")
    assert (lab.paths(0), lab.paths(1)) == ([], ["a", "b"])
    lab.clock.now = UNREACHABLE_SECONDS
    await lab.ask("c")
    assert (lab.paths(0), lab.states) == (["c"], [State.UP, State.UP])


async def test_a_dead_endpoint_does_not_fail_those_who_wait_for_a_busy_one() -> None:
    lab = Lab(wires=2)
    lab.wires[0].refuses = True
    tasks = [await lab.asked(model) for model in ("a", "b", "c")]
    assert (lab.paths(1), len(lab.backend.queue)) == (["a"], 2)
    await lab.finish(*tasks)
    assert lab.paths(1) == ["a", "b", "c"]


async def test_nobody_waits_for_ever_when_all_endpoints_die() -> None:
    lab = Lab(wires=2)
    lab.wires[0].refuses = True
    tasks = [await lab.asked(model) for model in ("a", "b", "c")]
    lab.clock.now = UNREACHABLE_SECONDS * 2
    lab.wires[1].refuses = True
    lab.wires[1].break_off(sent=True)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(outcome, GatewayError) for outcome in outcomes)
    assert (lab.in_flight, len(lab.backend.queue)) == ([0, 0], 0)


async def test_recovery_is_told_once_by_an_answer_of_any_kind() -> None:
    lab = Lab()
    told: list[str] = []
    lab.backend.on_recovery(lambda: told.append("back"))
    lab.wires[0].refuses = True
    for _ in range(2):
        with pytest.raises(GatewayError):
            await lab.ask()
    lab.wires[0].refuses = False
    assert told == []
    for _ in range(2):
        task = await lab.asked()
        lab.wires[0].answer(b"Traceback", status=400)
        with pytest.raises(GatewayError):
            await task
    assert told == ["back"]


async def test_a_stream_tells_as_well_whether_the_address_answers() -> None:
    lab = Lab()
    (endpoint,), (wire,) = lab.endpoints, lab.wires
    wire.refuses = True
    with pytest.raises(TransportError):
        await anext(endpoint.stream(Message()))
    assert not endpoint.health.is_up
    wire.refuses, wire.answers_at_once = False, True
    assert [reply.status async for reply in endpoint.stream(Message())] == [200]
    assert endpoint.health.is_up


@pytest.mark.parametrize(
    ("status", "state"),
    [
        (Status.UNAVAILABLE, State.DOWN),
        (Status.DEADLINE_EXCEEDED, State.UNKNOWN),
        (Status.UNIMPLEMENTED, State.UNKNOWN),
    ],
)
async def test_what_was_not_sent_tells_of_the_address_only_if_it_was_unavailable(status: Status, state: State) -> None:
    class Failing(Wire):
        async def exchange(self, message: Message) -> Message:
            raise TransportError(status, DEFAULT_REASONS[status], "no", sent=False)

    endpoint = Endpoint("lab:1", Failing())
    with pytest.raises(TransportError):
        await endpoint.exchange(Message())
    assert endpoint.health.state is state


# Strategies


@pytest.mark.parametrize("name", ["least_in_flight", "least_load", "round_robin", "power_of_two"])
async def test_whatever_the_strategy_an_ejected_endpoint_is_left_out_tried_and_starts_slowly(name: str) -> None:
    lab = Lab(wires=3, limit=0, answering=True)
    weights, loads = Weights({lab.endpoints[2]: 2.0}, 10.0, lab.clock), ReportedLoads(1e9, lab.clock)
    for endpoint in lab.endpoints:
        loads.note_time(endpoint, 0, 1, 1000, 10)
    lab.backend.choice.strategy = strategy(name, weights, loads)
    lab.wires[0].refuses = True
    for _ in range(60):
        await lab.ask()  # nothing could be sent, so another one is asked
    assert (lab.counts[0], sum(lab.counts), lab.states[0]) == (0, 60, State.DOWN)
    lab.wires[0].refuses = False
    lab.clock.now = UNREACHABLE_SECONDS
    for _ in range(200):
        await lab.ask()
    assert (lab.states[0], lab.endpoints[0].since) == (State.UP, UNREACHABLE_SECONDS)
    assert 1 <= lab.counts[0] < 20  # a twentieth of its third
    lab.clock.now += 10.0
    before = lab.counts
    for _ in range(200):
        await lab.ask()
    assert lab.counts[0] - before[0] > 20


# Waiting


async def test_a_call_that_waited_too_long_is_refused_and_its_place_is_free() -> None:
    lab = Lab(queue=QueueSettings(length=5, timeout=0.001))
    first = await lab.asked("first")
    text = r"backend 'lab': no endpoint was free within 0\.001 s \(queue\.timeout\)"
    with pytest.raises(GatewayError, match=text) as it:
        await lab.ask("late")
    assert (it.value.reason, it.value.retry_after) == (Reason.OVERLOADED, 1.0)
    assert (len(lab.backend.queue), lab.in_flight) == (0, [1])
    lab.wires[0].answer()
    await first
    assert (lab.paths(), lab.in_flight) == (["first"], [0])


async def test_a_call_that_got_its_slot_in_time_is_not_refused_later() -> None:
    lab = Lab(queue=QueueSettings(timeout=30))
    first, second = await lab.asked("first"), await lab.asked("second")
    lab.wires[0].answer()
    await first
    await skip(60)  # longer than it may wait
    lab.wires[0].answer()
    assert await second


async def test_the_queue_is_fair_to_principals_wherever_their_clients_are() -> None:
    lab = Lab()
    alice, bob = Principal("alice"), Principal("bob")
    first = await lab.asked("running")
    calls = [first]
    for at, (name, principal) in enumerate([("a1", alice), ("a2", alice), ("a3", alice), ("b1", bob)]):
        calls.append(await lab.asked(name, peer=f"host{at}:1", principal=principal))
    await lab.finish(*calls)
    assert lab.paths() == ["running", "a1", "b1", "a2", "a3"]


async def test_the_wait_is_estimated_by_the_time_of_streams_too() -> None:
    """Also by the time in which a client takes a response: its stream holds the slot."""
    lab = Lab(answering=True)
    async for _ in lab.backend.stream(Request(Operation.INFER, "m")):
        lab.clock.now += 1.0
    assert lab.backend.local.calls.seconds_until(1) == 1.0


async def test_the_wait_is_estimated_by_the_time_that_calls_held_their_slot() -> None:
    lab = Lab(wires=2, limit=2, queue=QueueSettings(length=1))
    assert lab.backend.local.calls.seconds_until(1) is None
    tasks = [await lab.asked() for _ in range(5)]
    lab.clock.now = 8.0
    await lab.answer()
    assert [lab.backend.local.calls.seconds_until(place) for place in (1, 2)] == [2.0, 4.0]
    tasks.append(await lab.asked())
    with pytest.raises(GatewayError) as refused:
        await lab.ask()
    assert refused.value.retry_after == 2.0
    await lab.finish(*tasks)


async def test_a_call_without_an_answer_tells_nothing_of_the_time_that_calls_take() -> None:
    lab = Lab()
    first, second = await lab.asked(), await lab.asked()
    lab.clock.now = 4.0
    lab.wires[0].break_off(sent=True)
    with pytest.raises(GatewayError):
        await first
    assert lab.backend.local.calls.seconds_until(1) is None
    await lab.finish(second)


async def test_a_wait_is_noted_where_the_request_is_answered() -> None:
    lab = Lab()

    async def answered(model: str) -> tuple[int, float] | None:
        await lab.backend(Request(Operation.INFER, model))
        waited = queue_wait.get()
        return None if waited is None else (waited.place, waited.seconds)

    tasks = [asyncio.ensure_future(answered(model)) for model in ("a", "b", "c")]
    await settle()
    for seconds in (2.0, 3.0, 4.0):
        lab.clock.now += seconds
        await lab.answer()
    assert await asyncio.gather(*tasks) == [None, (1, 2.0), (2, 5.0)]


# Endpoints that hang


def hanging() -> Lab:
    """The first endpoint never answers, the other one always does."""
    lab = Lab(wires=2, limit=0)
    lab.wires[1].answers_at_once = True
    return lab


async def fail(lab: Lab, times: int, **more: Any) -> None:
    """So many calls time out at the first endpoint."""
    for _ in range(times):
        lab.next_is(0)
        await lab.time_out(**more)


async def test_five_timeouts_in_a_row_eject_an_endpoint() -> None:
    lab = hanging()
    await fail(lab, 4)
    assert lab.state() is State.DEGRADED
    await fail(lab, 1)
    assert lab.state() is State.DOWN
    for _ in range(20):
        await lab.ask()
    assert lab.counts == [5, 20]


async def test_after_the_ejection_one_call_is_let_through_and_its_answer_ends_it() -> None:
    lab = hanging()
    await fail(lab, 5)
    lab.clock.now += Ejection().seconds
    tasks = [await lab.asked() for _ in range(4)]
    assert lab.counts == [6, 3]
    assert lab.state() is State.DOWN
    lab.wires[0].answer()
    await asyncio.gather(*tasks)
    assert lab.state() is State.UP
    lab.wires[0].answers_at_once = True
    for _ in range(4):
        await lab.ask()
    assert lab.counts == [8, 5]


async def test_each_ejection_takes_twice_as_long_up_to_a_limit() -> None:
    lab = hanging()
    await fail(lab, 5)
    seconds = []
    for _ in range(5):
        seconds.append(lab.endpoints[0].health.seconds_left)
        lab.clock.now += seconds[-1]
        await fail(lab, 1)
    assert seconds == [10, 20, 40, LONGEST_SECONDS, LONGEST_SECONDS]
    lab.clock.now += LONGEST_SECONDS
    lab.next_is(0)
    task = await lab.asked()
    lab.wires[0].answer()
    await task
    await fail(lab, 5)
    assert lab.endpoints[0].health.seconds_left == 10


async def test_calls_that_fail_together_eject_an_endpoint_once() -> None:
    lab = Lab(limit=0)
    tasks = [await lab.asked() for _ in range(8)]
    for _ in tasks:
        lab.wires[0].break_off(sent=True)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert lab.endpoints[0].health.seconds_left == UNREACHABLE_SECONDS


async def test_if_all_are_ejected_the_one_that_failed_least_recently_is_asked() -> None:
    lab = Lab(wires=3, limit=0)
    for at in (1, 2, 0):
        for _ in range(5):
            lab.next_is(at)
            await lab.time_out()
    assert lab.states == [State.DOWN] * 3
    lab.endpoints[1].take()  # how many calls run there does not count
    sent = lab.counts
    for _ in range(3):
        await lab.time_out()
    assert [after - before for after, before in zip(lab.counts, sent, strict=True)] == [1, 1, 1]


async def test_no_more_than_half_of_the_endpoints_are_left_out_at_once() -> None:
    lab = Lab(wires=4, limit=0)
    for at in (0, 1, 2):
        for _ in range(5):
            lab.next_is(at)
            await lab.time_out()
    lab.wires[0].answers_at_once = lab.wires[3].answers_at_once = True
    lab.clock.now -= 6.0  # within all three ejections
    sent = lab.counts
    for _ in range(6):
        await lab.ask()
    assert [after - before for after, before in zip(lab.counts, sent, strict=True)] == [3, 0, 0, 3]


LIMITS: dict[str, tuple[dict[str, Any], State]] = {
    "client of 1 ms": ({"waited": 0.001, "time_limit": None}, State.UNKNOWN),
    "impatient client": ({"waited": CLIENT_SECONDS / 2, "time_limit": None}, State.UNKNOWN),
    "patient client": ({"waited": CLIENT_SECONDS, "time_limit": None}, State.DOWN),
    "less patient than the operator": ({"waited": 2.0, "time_limit": 60.0}, State.UNKNOWN),
    "client left": ({"deadline": 100.0, "time_limit": 60.0}, State.UNKNOWN),
    "no deadline": ({"deadline": None, "time_limit": None}, State.UNKNOWN),
}


@pytest.mark.parametrize(("more", "state"), LIMITS.values(), ids=LIMITS)
async def test_clients_that_do_not_wait_long_enough_eject_nobody(more: dict[str, Any], state: State) -> None:
    lab = hanging()
    await fail(lab, 10, **more)
    assert lab.states[0] is state


async def test_the_time_in_a_queue_is_not_the_endpoints_fault() -> None:
    lab = Lab(limit=1)
    for _ in range(5):
        first = await lab.asked()
        waiting = await lab.asked(deadline=lab.clock.now + 2, time_limit=2.0)
        lab.clock.now += 1.5
        await lab.answer()
        await first
        lab.clock.now += 0.5
        waiting.cancel()
        await settle()
    assert lab.states == [State.UP]
    assert lab.endpoints[0].health.last is None


async def test_an_endpoint_that_answers_others_meanwhile_is_slow_and_not_dead() -> None:
    lab = Lab(limit=0)
    for _ in range(10):
        slow = await lab.asked(deadline=lab.clock.now + 2, time_limit=2.0)
        quick = await lab.asked()
        lab.wires[0].open[1].set_result(Message(status=200))
        await quick
        lab.clock.now += 2
        slow.cancel()
        await settle()
        lab.wires[0].open.clear()
    assert lab.endpoints[0].health.last is None


async def test_a_server_that_computes_to_the_end_is_late_until_the_policy_says_otherwise() -> None:
    lab = Lab(limit=0, protocol=TO_THE_END)
    for _ in range(5):
        await lab.time_out(waited=3600.0, time_limit=None)
    assert lab.states == [State.UNKNOWN]
    for _ in range(5):
        await lab.time_out()
    assert lab.states == [State.DOWN]
    await lab.answer()  # late, to a call that nobody waits for any more
    assert lab.states == [State.UP]
    await lab.finish()


async def test_who_waits_does_not_get_an_endpoint_that_hangs_but_one_that_works() -> None:
    lab = Lab(wires=2, limit=1)
    await fail(lab, 5)
    tasks = [await lab.asked(model) for model in ("a", "b", "c")]
    assert (lab.counts, len(lab.backend.queue)) == ([5, 1], 2)
    await lab.finish(*tasks)
    assert lab.counts == [5, 3]


async def test_who_waits_can_be_the_trial() -> None:
    lab = Lab(wires=2, limit=1)
    await fail(lab, 5)
    tasks = [await lab.asked(model) for model in ("a", "b", "c")]
    lab.clock.now += Ejection().seconds
    assert lab.endpoints[0].offer()  # what the timer of the ejection does
    await settle()
    assert (lab.counts, len(lab.backend.queue)) == ([6, 1], 1)
    await lab.answer()
    assert (lab.counts, lab.states[0]) == ([7, 1], State.UP)
    await lab.finish(*tasks)


async def test_what_is_not_the_protocol_counts_and_what_is_too_large_does_not() -> None:
    class Babbling(Wire):
        async def exchange(self, message: Message) -> Message:
            raise TransportError(Status.INTERNAL, Reason.INVALID_OUTPUT, "no", sent=True, answered=self.answers_at_once)

    for answered, state in ((False, State.DOWN), (True, State.UP)):
        wire = Babbling()
        wire.answers_at_once = answered
        endpoint = Endpoint("lab:1", wire)
        for _ in range(5):
            with pytest.raises(TransportError):
                await endpoint.exchange(Message())
        assert endpoint.health.state is state


async def test_a_stream_that_hangs_counts_as_a_call_does() -> None:
    lab = hanging()
    for _ in range(5):
        responses = lab.backend.stream(Request(Operation.INFER, "m", time_limit=2.0))
        lab.next_is(0)
        task = asyncio.ensure_future(anext(responses))
        await settle()
        lab.clock.now += 2
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert lab.state() is State.DOWN


async def test_an_endpoint_whose_probe_passes_again_gets_the_calls_that_wait() -> None:
    lab = Lab(wires=2)
    lab.endpoints[0].probe_failed("HTTP 503", 1, refused=True)
    running, waiting = [await lab.asked(model) for model in "ab"]
    assert lab.counts == [0, 1]
    lab.endpoints[0].probe_passed(1)
    await settle()
    assert lab.counts == [1, 1]
    await lab.endpoints[0].close()
    lab.endpoints[0].probe_failed("connection refused", 1, refused=False)
    assert lab.states[0] is State.UP  # it has left: nobody is told
    await lab.finish(running, waiting)


async def test_the_log_tells_of_each_change_of_state(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway")
    lab = Lab(limit=0)
    lab.endpoints = [Endpoint("told:1", lab.wires[0], lab.clock)]
    lab.backend = local_backend(Target("lab"), TOY, lab.endpoints, 0)
    for answers in (True, False, True):
        lab.wires[0].answers_at_once = answers
        if answers:
            await asyncio.gather(lab.ask(), lab.ask())
        else:
            await fail(lab, 6)
            lab.clock.now += Ejection().seconds
            await fail(lab, 1)
    name = "endpoint told:1 of backend 'lab'"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", f"{name} is up: it answered a call"),
        ("INFO", f"{name} is degraded: no answer within 2 s"),
        ("WARNING", f"{name} is down: no answer within 2 s (no calls for 10 s)"),
        ("WARNING", f"{name} is still down: no answer within 2 s (no calls for 20 s)"),
        ("INFO", f"{name} is up again: it answered a call"),
    ]


# Streams


async def test_a_stream_holds_its_slot_until_it_is_closed() -> None:
    lab = Lab(answering=True)
    responses = lab.backend.stream(Request(Operation.INFER, "m"))
    await anext(responses)
    assert lab.in_flight == [1]
    waiting = await lab.asked()
    assert not waiting.done()
    await responses.aclose()
    await waiting
    assert lab.in_flight == [0]


async def test_a_stream_goes_to_another_endpoint_if_nothing_was_sent() -> None:
    lab = Lab(wires=2)
    lab.wires[0].refuses = lab.wires[1].answers_at_once = True
    assert len([response async for response in lab.backend.stream(Request(Operation.INFER, "m"))]) == 1
    assert lab.in_flight == [0, 0]


class SlowWire(Wire):
    """Each of three replies takes a second of the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    async def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        for _ in range(3):
            self.clock.now += 1
            yield Message(status=200)


@pytest.mark.parametrize(("taken", "seconds"), [(3, 3.0), (2, 2.0)], ids=["all responses", "two, then closed"])
async def test_a_record_has_what_the_server_took_and_not_what_the_client_took(taken: int, seconds: float) -> None:
    lab = Lab()
    lab.backend.endpoints[0].connector = SlowWire(lab.clock)
    record = records.made((), "id", "", "", "", 0, 0)
    responses = lab.backend.stream(Request(Operation.INFER, "m", record=record))
    async for _ in responses:
        lab.clock.now += 100  # the client reads the response
        taken -= 1
        if not taken:
            break
    await anext(responses, None) if seconds == 3 else await responses.aclose()
    assert record.upstream == seconds


async def test_a_stream_that_reaches_nobody_says_so() -> None:
    lab = Lab(wires=2)
    lab.wires[0].refuses = lab.wires[1].refuses = True
    record = records.made()
    record.events = []
    with pytest.raises(TransportError, match="backend 'lab' at host:1: connection refused"):
        await anext(lab.backend.stream(Request(Operation.INFER, "m", record=record)))
    assert lab.in_flight == [0, 0]
    tries = [each for each in record.events if each.name == "try"]
    assert [each.facts["endpoint"] for each in tries] == ["host:0", "host:1"]
    assert all(each.error.endswith("connection refused") and each.ended for each in tries)


# Sequences


def in_sequence(number: int | str, **parameters: bool) -> Request:
    return Request(Operation.INFER, "m", parameters={"sequence_id": number, **parameters})


async def test_a_sequence_stays_with_its_endpoint_until_it_ends() -> None:
    lab = Lab(wires=2, limit=0, answering=True)
    busy = lab.endpoints[0]
    await lab.backend(in_sequence(7))
    busy.take()  # the other one would be chosen now
    await lab.backend(in_sequence(7))
    await lab.backend(in_sequence("other"))
    assert lab.counts == [2, 1]
    await lab.backend(in_sequence(7, sequence_end=True))
    await lab.backend(in_sequence(7))
    assert lab.counts == [3, 2]


async def test_a_sequence_whose_endpoint_is_busy_is_not_sent_elsewhere() -> None:
    lab = Lab(wires=2, limit=1)
    lab.wires[0].answers_at_once = True
    await lab.backend(in_sequence(7))
    lab.endpoints[0].take()
    for _ in range(2):
        with pytest.raises(GatewayError, match="the endpoint of sequence 7 is busy"):
            await lab.backend(in_sequence(7))
    assert lab.wires[1].sent == []
    lab.endpoints[0].give_back()
    await lab.backend(in_sequence(7))
    assert lab.counts == [2, 0]


async def test_there_is_an_end_to_what_is_remembered_of_sequences() -> None:
    lab = Lab(wires=2, limit=0, answering=True)
    await lab.backend(in_sequence(1))
    lab.endpoints[0].take()
    for number in range(2, MOST_SEQUENCES + 2):
        await lab.backend(in_sequence(number))
    await lab.backend(in_sequence(1))
    assert lab.counts == [1, MOST_SEQUENCES + 1]
    with pytest.raises(GatewayError, match="sequence_id has 129 characters, at most 128 are allowed"):
        await lab.backend(in_sequence("s" * 129))


async def test_what_controls_a_server_is_asked_of_every_endpoint() -> None:
    """Replicas stay replicas. What is known of their models is forgotten."""
    lab = Lab(wires=2)
    forgotten: list[int] = []
    lab.backend.on_recovery(lambda: forgotten.append(1))
    task = await lab.asked(operation=Operation.LOAD)
    assert lab.counts == [1, 1]
    assert lab.in_flight == [0, 0]
    await lab.finish(task)
    assert len(forgotten) == 2


async def test_the_endpoint_that_fails_is_named() -> None:
    lab = Lab(wires=2)
    task = await lab.asked(operation=Operation.UNLOAD)
    lab.wires[0].answer(b"")
    lab.wires[1].answer(b"no such model", 400)
    with pytest.raises(GatewayError, match=r"^backend 'lab' at host:1: no such model$"):
        await task


async def test_endpoints_that_differ_have_no_common_settings() -> None:
    def differing(message: Message, request: Request, target: Target) -> Answer:
        return {"at": bytes(message.body).decode()}

    lab = Lab(wires=2, protocol=replace(TOY, decode_response=differing))
    task = await lab.asked(operation=Operation.LOG_SETTINGS)
    lab.wires[0].answer(b"one")
    lab.wires[1].answer(b"two")
    with pytest.raises(GatewayError) as caught:
        await task
    assert caught.value.reason is Reason.FAILED_PRECONDITION
    assert "endpoints host:0 and host:1 of backend 'lab' differ in their log-settings" in caught.value.message


@pytest.mark.parametrize("protocol", [TOY, TO_THE_END], ids=["cancelled", "to the end"])
async def test_a_try_that_takes_too_long_is_an_error_and_a_failure_of_its_endpoint(protocol: Protocol) -> None:
    lab = Lab(limit=0, protocol=protocol)
    lab.endpoints[0].clock = lambda: 0.02 * len(lab.wires[0].sent)  # the whole time passes at the endpoint
    places: list[str] = []
    with pytest.raises(TransportError) as raised:
        await lab.ask(tries=Tries(0.02, places=places))
    error = raised.value
    assert (error.status, error.sent) == (Status.DEADLINE_EXCEEDED, True)
    assert error.message == (
        "backend 'lab' at host:0: no answer within 0.02 s, the limit that the policy timeout sets for one try "
        "(timeout.per_try); raise it for slow models"
    )
    assert places == ["host:0"]
    last = lab.endpoints[0].health.last
    assert last is not None
    assert last.text == "no answer within 0.02 s"
    await settle()
    assert lab.in_flight == [1 if protocol is TO_THE_END else 0]
    await lab.finish()


async def test_the_server_is_told_the_limit_of_the_try_and_the_next_endpoint_gets_a_new_one() -> None:
    lab = Lab(wires=2, limit=0)
    lab.wires[0].refuses = True
    now = asyncio.get_running_loop().time()
    places: list[str] = []
    task = await lab.asked(tries=Tries(60.0, places=places), deadline=now + 3600)
    [message] = lab.wires[1].sent
    assert message.deadline is not None
    assert now + 60 <= message.deadline < now + 120
    await lab.finish(task)
    assert places == ["host:0"]  # the other one answered


async def test_a_call_that_ends_before_the_try_would_keeps_its_deadline() -> None:
    lab = Lab(limit=0)
    task = await lab.asked(tries=Tries(60.0), deadline=(end := asyncio.get_running_loop().time() + 30))
    assert lab.wires[0].sent[0].deadline == end
    await lab.finish(task)


@pytest.mark.parametrize(
    ("avoided", "expected"),
    [({"host:0"}, [1, 2]), ({"host:0", "host:1"}, [2]), ({"host:0", "host:1", "host:2"}, [0, 1, 2])],
)
async def test_endpoints_are_avoided_while_others_are_there(avoided: set[str], expected: list[int]) -> None:
    lab = Lab(wires=3, limit=0, answering=True)
    for _ in range(6):
        await lab.ask(tries=Tries(avoided=frozenset(avoided)))
    assert lab.tried == expected


async def test_an_avoided_endpoint_is_better_than_ejected_and_full_ones() -> None:
    lab = Lab(wires=3, limit=1)
    first = [await lab.asked() for _ in range(2)]  # 0 and 1 are full
    lab.endpoints[1].health.failed("refused", unreachable=True)
    again = await lab.asked(tries=Tries(avoided=frozenset({"host:2"})))
    assert lab.in_flight == [1, 1, 1]
    await lab.finish(*first, again)


async def test_a_second_try_goes_elsewhere_at_once_or_nowhere() -> None:
    lab = Lab(wires=2, limit=1)
    elsewhere = Tries(avoided=frozenset({"host:0"}), elsewhere=True)
    first = await lab.asked()
    second = await lab.asked(tries=elsewhere)
    assert lab.in_flight == [1, 1]
    for tries in (elsewhere, Tries(elsewhere=True), Tries(avoided=frozenset({"host:0", "host:1"}), elsewhere=True)):
        with pytest.raises(GatewayError, match="no other endpoint is free; try again later") as raised:
            await lab.ask(tries=tries)
        assert raised.value.status is Status.RESOURCE_EXHAUSTED
    await lab.finish(first, second)
    assert lab.in_flight == [0, 0]


async def test_a_sequence_stays_where_its_state_is() -> None:
    lab = Lab(wires=2, limit=0, answering=True)
    sequence = {"sequence_id": 7}
    await lab.ask(parameters=sequence)
    [place] = lab.tried
    await lab.ask(parameters=sequence, tries=Tries(avoided=frozenset({f"host:{place}"})))
    assert lab.tried == [place]


async def test_the_wait_for_a_streams_first_response_is_a_try() -> None:
    lab = Lab(limit=0)
    lab.endpoints[0].clock = asyncio.get_running_loop().time
    responses = lab.backend.stream(Request(Operation.INFER, "m", tries=Tries(0.02)))
    with pytest.raises(TransportError, match=r"no answer within 0\.02 s"):
        await anext(responses)
    assert lab.in_flight == [0]
    assert lab.endpoints[0].health.last is not None
    lab.wires[0].answers_at_once = True
    assert len([each async for each in lab.backend.stream(Request(Operation.INFER, "m", tries=Tries(0.02)))]) == 1
