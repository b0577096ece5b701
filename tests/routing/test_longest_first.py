"""Which call is next if calls take turns by how long their kind takes."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import GatewayError
from gateway.core.operations import Operation
from gateway.core.types import Request
from gateway.routing.endpoint import Endpoint
from gateway.routing.longest_first import LONGEST_TEXT, MOST_KINDS, CallKind, KindTimes, LongestFirstQueue, kind_of
from gateway.routing.queue import QueueSettings
from tests.routing.fakes import Wire, settle
from tests.routing.test_backend import Lab

COARSE: dict[str, Any] = {"config": '{"level":0}'}
FINE: dict[str, Any] = {"config": '{"level":1}'}


def call(model: str = "m", version: str = "", operation: Operation = Operation.INFER, **parameters: Any) -> Request:
    return Request(operation, model, version, parameters=parameters)


def kind(model: str) -> CallKind:
    return kind_of(call(model))


def known(**seconds: float) -> KindTimes:
    """The times of models, by their names."""
    times = KindTimes()
    for model, each in seconds.items():
        times.add(each, call(model))
    return times


class Queue:
    """A LongestFirstQueue whose waiters have names: client, model and number, such as `al1`."""

    def __init__(self, times: KindTimes, passed_over: int = 100, limit: int = 1000) -> None:
        self.queue: LongestFirstQueue[None] = LongestFirstQueue("lab", limit, lambda _: None, times.of, passed_over)
        self.names: dict[asyncio.Future[None], str] = {}

    def join(self, *names: str) -> None:
        for name in names:
            self.names[self.queue.join(name[0], kind(name[1]))] = name

    def waiter(self, name: str) -> asyncio.Future[None]:
        return next(waiter for waiter, each in self.names.items() if each == name)

    def leave(self, name: str) -> None:
        self.queue.leave(name[0], kind(name[1]), self.waiter(name))

    def next(self) -> str | None:
        waiter = self.queue.next()
        return None if waiter is None else self.names[waiter]

    def rest(self) -> list[str]:
        found = []
        while (name := self.next()) is not None:
            found.append(name)
        assert len(self.queue) == 0
        assert not self.queue._numbers
        assert not self.queue._overtakers
        return found


async def test_the_calls_of_the_longest_kind_go_first_and_the_oldest_of_them() -> None:
    queue = Queue(known(s=0.02, l=1.0, m=0.5))
    queue.join("as1", "am1", "al1", "as2", "al2")
    assert queue.next() == "al1"
    queue.join("al3")
    assert queue.rest() == ["al2", "al3", "am1", "as1", "as2"]


async def test_equally_long_calls_go_in_the_order_in_which_they_came() -> None:
    queue = Queue(known(x=1.0, y=1.0))
    queue.join("ax1", "ay1", "ay2", "ax2")
    assert queue.rest() == ["ax1", "ay1", "ay2", "ax2"]


async def test_clients_take_turns_however_long_their_calls_are() -> None:
    queue = Queue(known(s=0.02, l=1.0))
    queue.join("as1", "al1", "al2", "al3", "bs1", "bs2")
    assert queue.rest() == ["al1", "bs1", "al2", "bs2", "al3", "as1"]


async def test_a_kind_of_which_no_call_has_ended_goes_first() -> None:
    times = known(s=0.02, l=1.0)
    queue = Queue(times)
    queue.join("al1", "an1", "an2")
    assert queue.next() == "an1"
    times.add(0.5, call("n"))
    assert queue.rest() == ["al1", "an2"]


async def test_a_call_is_passed_over_so_many_times_and_not_more() -> None:
    queue = Queue(known(s=0.02, l=1.0), passed_over=3)
    queue.join("al1", "as1", "as2")
    order = []
    for number in range(2, 10):  # there is always a longer call that came later
        queue.join(f"al{number}")
        order.append(queue.next())
    # al1 came before both. Both have then been passed over three times.
    assert order == ["al1", "al2", "al3", "al4", "as1", "as2", "al5", "al6"]


async def test_only_calls_that_came_later_pass_a_call_over() -> None:
    queue = Queue(known(s=0.02, m=0.5, l=1.0), passed_over=2)
    queue.join("as1", "al1", "am1")
    assert [queue.next(), queue.next()] == ["al1", "am1"]
    queue.join("am2", "as2", "al2", "al3")
    # as1 was passed over twice; am2 has come after these, and by none yet.
    assert queue.rest() == ["as1", "al2", "al3", "am2", "as2"]


async def test_a_call_that_leaves_is_not_served_and_does_not_count() -> None:
    queue = Queue(known(s=0.02, l=1.0), passed_over=2)
    queue.join("as1", "as2", "al1", "al2", "al3")
    queue.leave("al1")
    queue.leave("al1")
    queue.waiter("al2").cancel()  # and its task has not called `leave` yet
    assert queue.next() == "al3"
    queue.leave("al2")
    queue.join("al4", "al5")
    assert queue.next() == "al4"
    queue.leave("as1")
    assert queue.rest() == ["as2", "al5"]


async def test_the_place_says_when_a_call_is_served_if_no_others_come() -> None:
    queue = Queue(known(s=0.02, m=0.5, l=1.0))
    queue.join("as1", "al1", "am1", "as2", "bs1", "bl1")
    for name in ("as3", "am3", "al3", "bm3", "cs1"):
        place = queue.queue.place(name[0], kind(name[1]))
        again = Queue(known(s=0.02, m=0.5, l=1.0))
        again.join("as1", "al1", "am1", "as2", "bs1", "bl1", name)
        assert again.rest().index(name) + 1 == place


async def test_the_queue_is_limited_as_the_fair_one() -> None:
    queue = Queue(known(s=0.02, l=1.0), limit=4)
    queue.join("al1", "as1")
    with pytest.raises(GatewayError, match="2 of 4 places"):
        queue.join("al2")


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("join"), st.sampled_from("ab"), st.sampled_from("slmn")),
            st.tuples(st.sampled_from(["leave", "cancel"]), st.integers(0, 30)),
            st.tuples(st.just("next")),
            st.tuples(st.just("learn"), st.sampled_from("slmn"), st.floats(0, 100)),
        ),
        max_size=120,
    ),
    st.integers(1, 4),
)
def test_every_call_is_served_once_or_leaves_and_none_is_passed_over_too_often(
    steps: list[tuple[Any, ...]], passed_over: int
) -> None:
    async def run() -> None:
        times = KindTimes()
        queue = Queue(times, passed_over)
        joined: list[str] = []
        waiting: list[str] = []  # in the order in which they have joined
        served: list[str] = []
        passes: dict[str, int] = {}

        def took(name: str | None) -> None:
            if name is None:
                return
            assert name in waiting, "a call that has left, or was served already"
            for each in waiting[: waiting.index(name)]:
                if each[0] == name[0]:
                    passes[each] = passes.get(each, 0) + 1
                    assert passes[each] <= passed_over
            waiting.remove(name)
            served.append(name)

        gone = []
        for step in steps:
            match step:
                case ("join", client, model):
                    joined.append(f"{client}{model}{len(joined)}")
                    waiting.append(joined[-1])
                    queue.join(joined[-1])
                case ("leave" | "cancel" as how, at) if waiting:
                    name = waiting.pop(at % len(waiting))
                    gone.append(name)
                    if how == "leave":
                        queue.leave(name)
                    else:
                        queue.waiter(name).cancel()
                case ("next",):
                    took(queue.next())
                case ("learn", model, seconds):
                    times.add(seconds, call(model))
        while waiting:
            found = queue.next()
            assert found is not None, f"{waiting} wait for ever"
            took(found)
        assert queue.rest() == []
        assert sorted([*served, *gone]) == sorted(joined)

    asyncio.run(run())


# In a backend

LONGEST_FIRST = QueueSettings(order="longest_first", wait_for_endpoints=60)


async def served(lab: Lab, seconds: float) -> None:
    """Answer the call that is in flight after so many seconds."""
    lab.clock.now += seconds
    lab.wires[0].answer()
    await settle()


async def learned(lab: Lab, **seconds: float) -> None:
    for model, each in seconds.items():
        task = await lab.asked(model)
        await served(lab, each)
        await task
    lab.wires[0].sent.clear()


async def test_a_backend_learns_from_its_calls_and_serves_the_longest_first() -> None:
    lab = Lab(queue=LONGEST_FIRST)
    await learned(lab, coarse=0.02, fine=1.0)
    tasks = [await lab.asked(model) for model in ("running", "coarse", "fine", "coarse", "fine")]
    for _ in tasks:
        await served(lab, 0.5)
    await asyncio.gather(*tasks)
    assert lab.paths() == ["running", "fine", "fine", "coarse", "coarse"]


async def test_the_time_of_a_stream_counts_for_its_kind() -> None:
    lab = Lab(queue=LONGEST_FIRST)
    await learned(lab, coarse=0.02)
    lab.wires[0].answers_at_once = True
    async for _ in lab.backend.stream(call("fine")):
        lab.clock.now += 1.0
        # The time in which a client takes a response counts too: its call holds the slot.
    lab.wires[0].answers_at_once = False
    lab.wires[0].sent.clear()
    tasks = [await lab.asked(model) for model in ("running", "coarse", "fine")]
    for _ in tasks:
        await served(lab, 0.5)
    await asyncio.gather(*tasks)
    assert lab.paths() == ["running", "fine", "coarse"]


async def test_a_waiting_call_that_is_cancelled_or_waits_too_long_leaves_the_queue() -> None:
    lab = Lab(queue=QueueSettings(order="longest_first", timeout=0.001))
    await learned(lab, coarse=0.02, fine=1.0)
    running = await lab.asked("running")
    gone = await lab.asked("fine")
    gone.cancel()
    with pytest.raises(GatewayError, match="no endpoint was free"):
        await lab.ask("coarse")
    assert gone.cancelled()
    assert len(lab.backend.queue) == 0
    await served(lab, 0.5)
    await running
    assert (lab.paths(), lab.in_flight) == (["running"], [0])


async def test_calls_that_wait_for_the_first_endpoint_go_in_this_order_too() -> None:
    lab = Lab(wires=0, queue=LONGEST_FIRST)
    lab.backend.note_slot_time(0.02, call("coarse"))
    lab.backend.note_slot_time(1.0, call("fine"))
    tasks = [await lab.asked(model) for model in ("coarse", "fine", "new")]
    lab.wires.append(Wire())
    lab.backend.add(Endpoint("new:1", lab.wires[0], lab.clock))
    for _ in tasks:
        await settle()
        lab.wires[0].answer()
    await asyncio.gather(*tasks)
    assert lab.paths() == ["new", "fine", "coarse"]


async def test_a_backend_that_replaces_another_knows_what_that_has_learned() -> None:
    before, lab = Lab(queue=LONGEST_FIRST), Lab(queue=LONGEST_FIRST)
    await learned(before, coarse=0.02, fine=1.0)
    lab.backend.replace(before.backend)
    tasks = [await lab.asked(model) for model in ("running", "coarse", "fine")]
    for _ in tasks:
        await served(lab, 0.5)
    await asyncio.gather(*tasks)
    assert lab.paths() == ["running", "fine", "coarse"]
    assert lab.backend.waiting_calls.seconds_until(1) == 0.5  # the mean of all is its own


# Kinds


def test_a_kind_is_a_model_a_version_an_operation_and_the_parameters() -> None:
    calls = [
        call(), call("n"), call(version="2"), call(operation=Operation.GRADIENT), call(**COARSE), call(**FINE),
        call(**COARSE, more=1),
    ]  # fmt: skip
    assert len({kind_of(each) for each in calls}) == len(calls)
    assert kind_of(call(a=1, b="x")) == kind_of(call(b="x", a=1))


def test_of_a_long_parameter_its_length_and_its_ends_count() -> None:
    middle = "x" * LONGEST_TEXT
    kinds = [kind_of(call(config=each)) for each in (f"a{middle}b", f"c{middle}b", f"a{middle}d", f"a{middle}xb")]
    assert len({*kinds}) == 4
    assert kind_of(call(config=f"{middle}1{middle}")) == kind_of(call(config=f"{middle}2{middle}"))
    half = "x" * (LONGEST_TEXT // 2 - 1)
    assert kind_of(call(config=f"{half}1{half}")) != kind_of(call(config=f"{half}2{half}"))


def test_the_time_of_a_kind_is_a_mean_of_which_the_newest_call_has_a_quarter() -> None:
    times = known(m=1.0)
    times.add(2.0, call("m"))
    assert times.of(kind("m")) == 1.25
    assert times.of(kind("n")) == float("inf")
    assert times.mean == pytest.approx(1.1)


def test_a_kind_that_is_not_known_is_as_long_as_the_others_of_its_model() -> None:
    times = KindTimes()
    times.add(1.0, call(**FINE))
    assert times.of(kind_of(call(**COARSE))) == 1.0
    times.add(0.02, call(**COARSE))
    assert times.of(kind_of(call(**COARSE))) == 0.02
    assert times.of(kind_of(call(**FINE))) == 1.0
    assert times.of(kind_of(call(version="2", **FINE))) == float("inf")


def test_the_kinds_whose_calls_ended_long_ago_are_forgotten() -> None:
    times = KindTimes()
    times.add(7.0, call("kept", **FINE))
    times.add(5.0, call("forgotten"))
    for number in range(MOST_KINDS - 1):
        times.add(7.0, call("kept", **FINE))
        times.add(1.0, call("many", config=str(number)))
    assert len(times) == MOST_KINDS
    assert times.of(kind_of(call("kept", **FINE))) == 7.0
    assert times.of(kind("forgotten")) == 5.0  # the model is still known
    assert kind("forgotten") not in times._kinds.by_key
    for number in range(MOST_KINDS):
        times.add(1.0, call(f"model {number}"))
    assert times.of(kind("forgotten")) == float("inf")
