"""A worker's SupervisedSlots and the supervisor's HeldSlots, at the two ends of one channel in this process."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.assembly.assembly import RequestsInFlight
from gateway.core.errors import GatewayError, Reason, Status, TransportError, not_found
from gateway.core.frozen import replace
from gateway.core.models import ModelEntry
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Drain, Endpoint
from gateway.routing.queue import QueueSettings
from gateway.routing.slots import LocalSlots
from gateway.runtime.workers.channel import Channel, Handlers
from gateway.runtime.workers.owner import Generation, HeldSlots
from gateway.runtime.workers.slots import SupervisedSlots
from tests.limits import GENEROUS, settle, until
from tests.routing.placement.servers import SCRIPTED, Fleet, Server


class Worker:
    """One worker's side: its slots, and how to end it."""

    def __init__(self, slots: SupervisedSlots, channel: Channel) -> None:
        self.slots = slots
        self.channel = channel

    async def slot(self, request: Request) -> Endpoint:
        """The endpoint for a request."""
        return self.slots.free(request) or await self.slots.wait(request)


class Pair:
    """A fleet at the supervisor, and workers before it."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._generation = Generation(1, {"fleet": fleet.backend}, RequestsInFlight())

    @asynccontextmanager
    async def worker(self, *, is_limited: bool = True, is_placed: bool = True) -> AsyncIterator[Worker]:
        held = HeldSlots()
        held.join(self._generation)
        handlers: Handlers = {
            "take": held.take,
            "give_back": held.give_back,
            "again": held.again,
            "answer": held.answer,
            "leave": held.leave,
        }
        ended = asyncio.Event()

        def lost() -> None:
            held.end()
            ended.set()

        here, there = Channel({}, lambda: None), Channel(handlers, lost)
        loop = asyncio.get_running_loop()
        for channel, end in zip((here, there), socket.socketpair(), strict=True):
            end.setblocking(False)
            await loop.create_unix_connection(lambda channel=channel: channel, sock=end)  # type: ignore[misc]
        endpoints = [self.fleet.endpoint(each) for each in self.fleet.servers]
        servers, limit = SCRIPTED.traits.servers, self.fleet.backend.max_in_flight
        local = LocalSlots("fleet", servers, endpoints, limit, clock=self.fleet.clock)
        slots = SupervisedSlots(local, here, 1, lambda address: False, is_limited=is_limited, is_placed=is_placed)
        try:
            yield Worker(slots, here)
        finally:
            here.close()
            await ended.wait()
            there.close()
            await settle()


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(GENEROUS):
        yield


UNREACHED = TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "refused", sent=False)


def infer(model: str) -> Request:
    return Request(Operation.INFER, model, peer="1.2.3.4:5")


def places(fleet: Fleet, model: str) -> list[int]:
    """The calls in flight at each place of a model, as the supervisor counts them."""
    return [each.in_flight for each in fleet.slots.placements.models[model].places.values()]


async def test_a_worker_is_told_the_holder_of_a_model_and_the_call_is_counted_there() -> None:
    fleet = await Fleet(Server("a", ["x"]), Server("b", ["y"])).asked()
    async with Pair(fleet).worker() as worker:
        assert worker.slots.free(infer("y")) is None  # the supervisor is asked
        endpoint = await worker.slot(infer("y"))
        ended = worker.slots.began(infer("y"), endpoint)
        assert (endpoint.address, places(fleet, "y"), endpoint.in_flight) == ("b", [1], 1)
        ended(True)
        await settle()
        assert (places(fleet, "y"), endpoint.in_flight) == ([0], 0)
        asked = await worker.slot(Request(Operation.METADATA, "x"))
        assert (asked.address, asked.in_flight, fleet.endpoints[0].in_flight) == ("a", 0, 0)
        with pytest.raises(GatewayError, match="model 'z' is on no server"):
            await worker.slot(infer("z"))


async def test_the_slot_of_one_worker_is_waited_for_by_another_and_comes_back_when_the_first_has_ended() -> None:
    fleet = await Fleet(Server("a", ["x"]), limit=1).asked()
    pair = Pair(fleet)
    async with pair.worker() as other:
        async with pair.worker() as first:
            endpoint = await first.slot(infer("x"))
            first.slots.began(infer("x"), endpoint)
            waiting = asyncio.ensure_future(other.slot(infer("x")))
            await until(lambda: len(fleet.backend.queue) == 1, 0)
            assert not waiting.done()
        assert (await waiting).address == "a"
        assert places(fleet, "x") == [1]


async def test_a_call_that_leaves_while_it_waits_leaves_the_supervisors_queue() -> None:
    fleet = await Fleet(Server("a", ["x"]), limit=1).asked()
    async with Pair(fleet).worker() as worker:
        endpoint = await worker.slot(infer("x"))
        ended = worker.slots.began(infer("x"), endpoint)
        waiting = asyncio.ensure_future(worker.slot(infer("x")))
        await until(lambda: len(fleet.backend.queue) == 1, 0)
        waiting.cancel()
        await until(lambda: len(fleet.backend.queue) == 0, 0)
        ended(True)
        await until(lambda: not fleet.endpoints[0].in_flight, 0)


async def test_a_holder_that_does_not_have_the_model_is_told_to_the_supervisor_and_the_next_is_asked() -> None:
    one, other = Server("a", ["x"]), Server("b", ["x"])
    one.lies_about.add("x")
    fleet = await Fleet(one, other).asked()
    async with Pair(fleet).worker() as worker:
        backend = Backend(fleet.sender, worker.slots)
        for _ in range(4):
            answer = await backend(infer("x"))
            assert getattr(answer, "id", None) == "b"
    assert one.calls() <= 1


async def test_lists_and_loads_are_the_supervisors() -> None:
    fleet = await Fleet(Server("a", listed=["x"])).asked()
    async with Pair(fleet).worker() as worker:
        backend = Backend(fleet.sender, worker.slots)
        assert await backend(Request(Operation.MODELS)) == (ModelEntry("x", "", "UNAVAILABLE", "not loaded"),)
        with pytest.raises(GatewayError, match="model 'x' is on no server"):
            await backend(infer("x"))


async def test_a_slot_that_arrives_as_its_call_leaves_is_given_back() -> None:
    fleet = await Fleet(Server("a", ["x"]), limit=1).asked()
    async with Pair(fleet).worker() as worker:
        ended = worker.slots.began(infer("x"), await worker.slot(infer("x")))
        waiting = asyncio.ensure_future(worker.slot(infer("x")))
        await until(lambda: len(fleet.backend.queue) == 1, 0)
        ended(True)
        await until(lambda: not worker.channel.unanswered, 0)
        assert not waiting.done()
        waiting.cancel()
        await until(lambda: not fleet.endpoints[0].in_flight, 0)
        assert waiting.cancelled()


async def test_a_slot_at_an_endpoint_that_the_worker_does_not_know_is_given_back() -> None:
    fleet = await Fleet(Server("a", ["x"])).asked()
    async with Pair(fleet).worker() as worker:
        worker.slots.local.remove(worker.slots.local.endpoints[0])
        with pytest.raises(TransportError, match="this worker does not know its endpoint a yet; try again later"):
            await worker.slot(infer("x"))
        await until(lambda: not fleet.endpoints[0].in_flight, 0)


async def test_slots_of_one_endpoint_are_given_back_one_by_one() -> None:
    fleet = await Fleet(Server("a", ["x"]), limit=2).asked()
    async with Pair(fleet).worker() as worker:
        endpoints = [await worker.slot(infer("x")) for _ in range(2)]
        ended = [worker.slots.began(infer("x"), each) for each in endpoints]
        for left in (1, 0):
            ended.pop()(True)
            await until(lambda: fleet.endpoints[0].in_flight == left, 0)  # noqa: B023


async def test_a_worker_chooses_by_itself_where_no_limit_is_shared() -> None:
    fleet = await Fleet(Server("a", ["x"]), limit=1).asked()
    async with Pair(fleet).worker(is_limited=False, is_placed=False) as worker:
        endpoint = await worker.slot(infer("x"))
        waiting = asyncio.ensure_future(worker.slots.wait(infer("x")))
        await settle()
        assert (waiting.done(), worker.slots.local.waiting, fleet.endpoints[0].in_flight) == (False, 1, 0)
        worker.slots.began(infer("x"), endpoint)(True)
        assert await waiting is endpoint
        assert await worker.slots.again(infer("x"), UNREACHED, [], 0) is None
        with pytest.raises(TransportError, match="refused"):
            await worker.slots.again(infer("x"), UNREACHED, [endpoint], 0)


async def test_metadata_that_waits_at_the_supervisor_takes_no_slot() -> None:
    fleet = await Fleet(Server("a", ["x"]), limit=1, queue=QueueSettings(wait_for_endpoints=60)).asked()
    async with Pair(fleet).worker() as worker:
        fleet.endpoints[0].set_drain(Drain(0))
        waiting = asyncio.ensure_future(worker.slot(Request(Operation.METADATA, "x")))
        await until(lambda: fleet.backend.waiting == 1, 0)
        fleet.endpoints[0].set_drain(None)
        endpoint = await waiting
        assert (endpoint.address, endpoint.in_flight, fleet.endpoints[0].in_flight) == ("a", 0, 0)


async def test_a_version_that_one_holder_lacks_is_asked_of_the_next_which_both_might_have() -> None:
    one, other = Server("a"), Server("b")
    one.held, other.held = {"x": ()}, {"x": ("1", "2")}
    fleet = await Fleet(one, other).asked()
    async with Pair(fleet).worker() as worker:
        request, told = replace(infer("x"), version="2"), not_found("a has no version 2 of x")
        told.endpoint = "a"
        again = await worker.slots.again(request, told, [worker.slots.local.endpoints[0]], 0)
        assert again is not None
        assert again.tries is not None
        assert (again.version, again.tries.avoided) == ("2", frozenset({"a"}))
        with pytest.raises(GatewayError, match="a has no version 2 of x"):
            await worker.slots.again(request, told, [worker.slots.local.endpoints[0]], 1)


async def test_without_a_supervisor_calls_fail_and_say_that_they_can_be_tried_again() -> None:
    fleet = await Fleet(Server("a", ["x"])).asked()
    async with Pair(fleet).worker() as worker:
        worker.channel.close()
        await settle()
        with pytest.raises(TransportError, match="try again later"):
            await worker.slot(infer("x"))
        with pytest.raises(TransportError, match="try again later"):
            await worker.slots.answers[Operation.MODELS](Request(Operation.MODELS))
        with pytest.raises(TransportError, match="refused"):
            await worker.slots.again(infer("x"), UNREACHED, [], 0)
        assert await worker.slots.is_ready() is False
