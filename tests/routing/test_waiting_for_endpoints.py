"""Backends whose servers are started on demand: calls wait in the queue for the first endpoint."""

import asyncio

import pytest

from gateway.core.errors import GatewayError, Status
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.routing.activity import Activity
from gateway.routing.backend import Backend, local_backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.queue import QueueSettings
from tests.limits import settle
from tests.routing.fakes import TOY, Wire
from tests.routing.test_backend import Lab

WAITS = QueueSettings(wait_for_endpoints=60)


def added(lab: Lab, backend: Backend | None = None) -> Wire:
    """A server that comes now."""
    wire = Wire()
    (backend or lab.backend).add(Endpoint("new:1", wire, lab.clock))
    return wire


@pytest.mark.parametrize("limit", [0, 1])
async def test_calls_wait_for_the_first_endpoint_in_the_fair_order(limit: int) -> None:
    lab = Lab(wires=0, limit=limit, queue=WAITS)
    calls = [await lab.asked(model, peer) for model, peer in (("a1", "a:1"), ("a2", "a:1"), ("b1", "b:1"))]
    assert lab.backend.waiting == 3
    wire = added(lab)
    for _ in calls:
        await settle()
        wire.answer()
    await asyncio.gather(*calls)
    assert [each.path.partition("/")[2] for each in wire.sent] == ["a1", "b1", "a2"]
    assert [each.in_flight for each in lab.backend.endpoints] == [0]


async def test_metadata_wait_too_and_hold_no_slot_but_questions_about_readiness_do_not_wait() -> None:
    lab = Lab(wires=0, limit=1, queue=WAITS)
    metadata = lab.ask(operation=Operation.METADATA)
    await settle()
    with pytest.raises(GatewayError, match=r"no endpoint at the moment$"):
        await lab.ask(operation=Operation.MODEL_READY)
    wire = added(lab)
    await settle()
    assert (len(wire.sent), [each.in_flight for each in lab.backend.endpoints]) == (1, [0])
    wire.answer()
    await metadata


async def test_a_wait_ends_without_a_trace_when_its_time_is_over_or_its_client_leaves() -> None:
    lab = Lab(wires=0, limit=1, queue=QueueSettings(wait_for_endpoints=0.001))
    call = await lab.asked()
    lab.clock.now = 1
    with pytest.raises(GatewayError, match=r"waited 0\.001 s for one \(queue\.wait_for_endpoints\)") as caught:
        await call
    assert caught.value.status is Status.UNAVAILABLE
    lab.backend.local.calls.patience = 60
    call = await lab.asked()
    call.cancel()
    await settle()
    assert lab.backend.waiting == 0


async def test_the_last_endpoint_goes_and_those_that_wait_get_the_next_one() -> None:
    lab = Lab(wires=1, limit=1, queue=WAITS)
    first, second = await lab.asked("a"), await lab.asked("b")
    lab.backend.remove(lab.endpoints[0])
    await settle()
    assert (second.done(), lab.backend.waiting) == (False, 1)
    wire = added(lab)
    await settle()
    wire.answer()
    lab.wires[0].answer()
    await asyncio.gather(first, second)


async def test_those_that_wait_at_a_reload_get_the_endpoints_of_the_backend_that_follows() -> None:
    lab = Lab(wires=0, limit=1, queue=WAITS)
    call = await lab.asked()
    latest = lab.backend
    for _ in range(2):
        following = local_backend(Target("lab"), TOY, [], 1, queue=WAITS, clock=lab.clock)
        following.replace(latest)
        latest = following
    assert latest.waiting == 1
    wire = added(lab, latest)
    await settle()
    wire.answer()
    await call
    assert (latest.waiting, [each.in_flight for each in latest.endpoints]) == (0, [0])


async def test_activity_counts_calls_from_their_arrival_to_their_end_however_they_end() -> None:
    lab = Lab(wires=0, limit=1, queue=WAITS)
    activity = Activity(lab.clock)
    handler = activity.counted(lab.backend)
    begun = activity.next_call()
    assert activity.seconds_active(10) < 0
    calls = [asyncio.ensure_future(handler(Request(Operation.INFER, "m"))) for _ in range(3)]
    await settle()
    assert (begun.done(), activity.calls, activity.seconds_active(10)) == (True, 3, 10)
    calls[0].cancel()
    wire = added(lab)
    await settle()
    wire.answer()
    await settle()
    wire.break_off(sent=True)
    with pytest.raises(GatewayError):
        await calls[2]
    lab.clock.now = 4
    assert (activity.calls, activity.seconds_active(10)) == (0, 6)
    with pytest.raises(GatewayError):
        await activity.counted(Lab(wires=0).backend)(Request(Operation.MODEL_READY, "m"))
    assert activity.seconds_active(10) == 6, "a question about readiness is no activity"


@pytest.mark.parametrize("end", ["last response", "closed by the client", "error"])
async def test_activity_counts_streams_to_their_end(end: str) -> None:
    lab = Lab(wires=1)
    activity = Activity(lab.clock)
    stream = activity.counted_stream(lab.backend.stream)(Request(Operation.INFER, "m"))
    first = asyncio.ensure_future(anext(stream))
    await settle()
    lab.clock.now = 4
    assert activity.calls == 1
    if end == "error":
        lab.wires[0].break_off(sent=True)
        with pytest.raises(GatewayError):
            await first
    else:
        lab.wires[0].answer()
        await first
        assert activity.calls == 1
        await (stream.aclose() if end == "closed by the client" else anext(stream, None))
    assert (activity.calls, activity.seconds_active(10)) == (0, 10)


async def test_those_that_wait_at_a_reload_get_the_endpoints_that_are_there_and_lose_those_that_leave() -> None:
    lab = Lab(wires=0, limit=1, queue=WAITS)
    calls = [await lab.asked() for _ in range(2)]
    wire = Wire()
    endpoint = Endpoint("new:1", wire, lab.clock)
    following = local_backend(Target("lab"), TOY, [endpoint], 1, queue=WAITS, clock=lab.clock)
    following.replace(lab.backend)
    await settle()
    assert (len(wire.sent), following.waiting) == (1, 1)
    following.remove(endpoint)
    wire.answer()
    await calls[0]
    await settle()
    assert (len(wire.sent), following.waiting) == (1, 1)
    other = added(lab, following)
    await settle()
    other.answer()
    await calls[1]


async def test_a_sequence_waits_for_the_first_endpoint_too() -> None:
    lab = Lab(wires=0, limit=1, queue=WAITS)
    call = await lab.asked(parameters={"sequence_id": 7, "sequence_start": True})
    wire = added(lab)
    await settle()
    wire.answer()
    await call
    assert lab.backend.local.sequences.count(lab.backend.endpoints[0]) == 1
