"""A worker's SupervisedSlots and the supervisor's HeldSlots, at the two ends of one channel in this process."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.assembly.assembly import RequestsInFlight
from gateway.core.errors import GatewayError, TransportError
from gateway.core.models import ModelEntry
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
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
    async def worker(self) -> AsyncIterator[Worker]:
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
        try:
            yield Worker(SupervisedSlots(local, here, 1, lambda address: False, is_limited=True, is_placed=True), here)
        finally:
            here.close()
            await ended.wait()
            there.close()
            await settle()


@pytest.fixture(autouse=True)
async def bounded() -> AsyncIterator[None]:
    async with asyncio.timeout(GENEROUS):
        yield


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


async def test_without_a_supervisor_calls_fail_and_say_that_they_can_be_tried_again() -> None:
    fleet = await Fleet(Server("a", ["x"])).asked()
    async with Pair(fleet).worker() as worker:
        worker.channel.close()
        await settle()
        with pytest.raises(TransportError, match="try again later"):
            await worker.slot(infer("x"))
        with pytest.raises(TransportError, match="try again later"):
            await worker.slots.answers[Operation.MODELS](Request(Operation.MODELS))
