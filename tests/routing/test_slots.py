"""LocalSlots by themselves: slots that are given, waited for and given back, on a clock that stands still."""

import asyncio

import pytest

from gateway.core.errors import GatewayError, Reason, Status, TransportError
from gateway.core.operations import Operation
from gateway.core.protocol import Servers
from gateway.core.requests import Request, Tries
from gateway.routing.endpoint import Endpoint
from gateway.routing.queue import QueueSettings
from gateway.routing.slots import LocalSlots
from tests.clock import Clock
from tests.limits import settle
from tests.routing.fakes import Wire

CALL, QUESTION = Request(Operation.INFER, "m"), Request(Operation.METADATA, "m")


class Lab:
    """Slots of some endpoints, whose calls nobody sends."""

    def __init__(self, number: int = 2, limit: int = 1, queue: QueueSettings | None = None) -> None:
        self.clock = Clock()
        self.endpoints = [Endpoint(f"lab:{at}", Wire(), self.clock) for at in range(number)]
        self.slots = LocalSlots("lab", Servers(), self.endpoints, limit, queue=queue, clock=self.clock)

    @property
    def in_flight(self) -> list[int]:
        return [each.in_flight for each in self.endpoints]


async def test_a_slot_is_taken_until_its_call_has_ended() -> None:
    lab = Lab()
    first, second = lab.slots.free(CALL), lab.slots.free(CALL)
    assert {first, second} == set(lab.endpoints)
    assert lab.slots.free(CALL) is None
    assert first is not None
    lab.slots.began(CALL, first)(True)
    assert lab.slots.free(CALL) is first


async def test_a_waiting_call_gets_the_slot_that_is_given_back_and_the_time_of_answered_calls_is_known() -> None:
    lab = Lab(1)
    taken = lab.slots.free(CALL)
    assert taken is not None
    ended = lab.slots.began(CALL, taken)
    waiting = asyncio.ensure_future(lab.slots.wait(CALL))
    await settle()
    assert (lab.slots.waiting, waiting.done()) == (1, False)
    lab.clock.now = 4.0
    ended(True)
    assert await waiting is taken
    assert (lab.in_flight, lab.slots.waiting, lab.slots.calls.times.mean) == ([1], 0, 4.0)
    lab.slots.began(CALL, taken)(False)
    assert (lab.in_flight, lab.slots.calls.times.mean) == ([0], 4.0)


async def test_questions_take_no_slot_and_are_in_flight_all_the_same() -> None:
    lab = Lab(1)
    assert lab.slots.free(CALL) is lab.endpoints[0]
    asked = lab.slots.free(QUESTION)
    assert asked is lab.endpoints[0]
    ended = lab.slots.began(QUESTION, asked)
    lab.slots.began(CALL, asked)(True)
    assert (lab.in_flight, asked.is_idle) == ([0], False)
    ended(True)
    assert asked.is_idle


async def test_an_endpoint_that_is_to_be_avoided_is_the_last_choice_or_none() -> None:
    lab = Lab(limit=0)
    avoided = Request(Operation.INFER, "m", tries=Tries(avoided=frozenset({"lab:0"})))
    assert {lab.slots.free(avoided) for _ in range(3)} == {lab.endpoints[1]}
    everywhere = frozenset({"lab:0", "lab:1"})
    assert lab.slots.free(Request(Operation.INFER, "m", tries=Tries(avoided=everywhere))) in lab.endpoints
    with pytest.raises(GatewayError, match="no other endpoint is free; try again later"):
        lab.slots.free(Request(Operation.INFER, "m", tries=Tries(avoided=everywhere, elsewhere=True)))


@pytest.mark.parametrize(("sent", "tried", "again"), [(False, 1, True), (True, 1, False), (False, 2, False)])
async def test_another_endpoint_is_tried_if_nothing_was_sent(sent: bool, tried: int, again: bool) -> None:
    lab = Lab()
    error = TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "refused", sent=sent)
    asked = lab.slots.again(CALL, error, lab.endpoints[:tried], 0)
    if again:
        assert await asked is None
    else:
        with pytest.raises(TransportError, match="refused"):
            await asked


async def test_a_sequence_stays_where_its_state_is() -> None:
    lab = Lab()
    of_sequence = Request(Operation.INFER, "m", parameters={"sequence_id": 7})
    home = lab.slots.free(of_sequence)
    assert home is not None
    with pytest.raises(GatewayError, match="sequence 7 is busy"):
        lab.slots.free(of_sequence)
    lab.slots.began(of_sequence, home)(True)
    assert [lab.slots.free(of_sequence), lab.slots.sequences.count(home)] == [home, 1]


async def test_calls_wait_for_the_first_endpoint_where_somebody_adds_some() -> None:
    lab = Lab(0, queue=QueueSettings(wait_for_endpoints=60))
    assert [lab.slots.free(each) for each in (QUESTION,)] == [None]
    waiting = asyncio.ensure_future(lab.slots.wait(CALL))
    await settle()
    joined: list[Endpoint] = []
    lab.slots.on_join.append(joined.append)
    endpoint = Endpoint("lab:0", Wire(), lab.clock)
    lab.slots.add(endpoint)
    assert await waiting is endpoint
    assert (joined, endpoint.in_flight) == ([endpoint], 1)


async def test_calls_that_wait_fail_with_the_last_endpoint() -> None:
    lab = Lab(1)
    assert lab.slots.free(CALL) is lab.endpoints[0]
    waiting = asyncio.ensure_future(lab.slots.wait(CALL))
    await settle()
    lab.slots.remove(lab.endpoints[0])
    with pytest.raises(TransportError, match="has no endpoint at the moment"):
        await waiting
