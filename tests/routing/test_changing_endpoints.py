"""Endpoints that are added to a backend and removed from it while calls run."""

import asyncio

import pytest

from gateway.core.errors import GatewayError, Status, TransportError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Servers, ServerTypes, Target, Traits
from gateway.core.requests import Request
from gateway.routing.backend import local_backend
from gateway.routing.endpoint import Endpoint
from tests.limits import settle
from tests.routing.fakes import TOY, Wire
from tests.routing.test_backend import Lab


def new_endpoint() -> tuple[Endpoint, Wire]:
    wire = Wire()
    return Endpoint("new:1", wire), wire


async def test_an_added_endpoint_gets_the_calls_that_wait() -> None:
    lab = Lab(wires=1, limit=1)
    tasks = [await lab.asked(name) for name in "abc"]
    endpoint, wire = new_endpoint()
    lab.backend.add(endpoint)
    await settle()
    assert [message.path for message in wire.sent] == ["new:1/b"]
    assert (lab.backend.capacity, len(lab.backend.queue)) == (2, 1)
    wire.answer()
    await settle()
    assert [message.path for message in wire.sent] == ["new:1/b", "new:1/c"]
    wire.answer()
    await lab.finish(*tasks)


async def test_a_removed_endpoint_gets_no_more_calls_and_keeps_those_that_it_has() -> None:
    lab = Lab(wires=2, limit=0)
    first, second = await lab.asked(), await lab.asked()
    lab.backend.remove(lab.endpoints[0])
    others = [await lab.asked() for _ in range(3)]
    assert lab.counts == [1, 4]
    lab.wires[0].answer(b"whole")
    await lab.finish(second, *others)
    assert "whole" in repr(await first)


async def test_slots_of_a_removed_endpoint_go_to_nobody() -> None:
    lab = Lab(wires=2, limit=1)
    tasks = [await lab.asked(name) for name in "abc"]
    lab.backend.remove(lab.endpoints[0])
    await lab.answer()
    assert (lab.counts, len(lab.backend.queue)) == ([1, 1], 1)
    await lab.finish(*tasks)


async def test_calls_fail_at_once_while_there_is_no_endpoint() -> None:
    lab = Lab(wires=1, limit=1)
    running, waiting = [await lab.asked(), await lab.asked()]
    lab.backend.remove(lab.endpoints[0])
    for operation in (Operation.INFER, Operation.METADATA, Operation.LOAD):
        with pytest.raises(TransportError, match="backend 'lab' has no endpoint at the moment") as failed:
            await lab.ask(operation=operation)
        assert (failed.value.status, failed.value.sent) == (Status.UNAVAILABLE, False)
    with pytest.raises(GatewayError, match="has no endpoint"):
        await lab.ask(parameters={"sequence_id": 7})
    with pytest.raises(GatewayError, match="has no endpoint"):
        await waiting
    assert not await lab.backend.is_ready()
    await lab.finish(running)


async def test_a_waiting_call_that_is_cancelled_as_the_last_endpoint_goes_leaves_nothing_behind() -> None:
    lab = Lab(wires=1, limit=1)
    running, waiting = [await lab.asked(), await lab.asked()]
    lab.backend.remove(lab.endpoints[0])
    waiting.cancel()
    await asyncio.wait([waiting])
    assert waiting.cancelled()
    await lab.finish(running)
    assert lab.in_flight == [0]


async def test_changes_that_were_made_already_do_nothing() -> None:
    lab = Lab(wires=1, limit=1)
    lab.backend.add(lab.endpoints[0])
    assert lab.backend.capacity == 1
    stranger, _ = new_endpoint()
    lab.backend.remove(stranger)
    lab.backend.remove(lab.endpoints[0])
    lab.backend.remove(lab.endpoints[0])
    assert lab.backend.endpoints == ()
    lab.backend.add(lab.endpoints[0])
    await lab.finish(await lab.asked())


@pytest.mark.parametrize("operation", [Operation.INFER, Operation.METADATA])
async def test_an_endpoint_is_idle_when_its_last_request_has_ended(operation: Operation) -> None:
    """Requests for metadata take no slot, and are waited for all the same."""
    lab = Lab(wires=2, limit=1)
    request = await lab.asked(operation=operation)
    (at,) = lab.tried
    lab.backend.remove(lab.endpoints[at])
    idle = asyncio.ensure_future(lab.endpoints[at].idle())
    await settle()
    assert not idle.done()
    await lab.finish(request)
    await idle


async def test_a_call_that_could_not_be_sent_goes_to_an_endpoint_that_came_meanwhile() -> None:
    lab = Lab(wires=1, limit=0)
    task = await lab.asked()
    endpoint, wire = new_endpoint()
    lab.backend.add(endpoint)
    lab.backend.remove(lab.endpoints[0])
    lab.wires[0].break_off(sent=False)
    await settle()
    wire.answer()
    await task


async def test_the_sequences_of_a_removed_endpoint_begin_anew_elsewhere() -> None:
    lab = Lab(wires=2, limit=1, answering=True)
    await lab.ask(parameters={"sequence_id": 7})
    [home] = lab.tried
    lab.backend.remove(lab.endpoints[home])
    await lab.ask(parameters={"sequence_id": 7})
    assert lab.counts == [1, 1]


async def test_the_first_endpoint_of_an_empty_backend_may_have_other_models() -> None:
    lab = Lab(wires=1)
    told: list[str] = []
    lab.backend.on_recovery(lambda: told.append("changed"))
    endpoint, _ = new_endpoint()
    lab.backend.add(endpoint)
    assert told == []
    lab.backend.remove(endpoint)
    lab.backend.remove(lab.endpoints[0])
    lab.backend.add(endpoint)
    assert told == ["changed"]


async def test_the_share_of_endpoints_left_out_follows_their_number() -> None:
    """Half of four endpoints may be left out, but only one of two."""
    lab = Lab(wires=4, limit=0)
    for endpoint in lab.endpoints[:2]:
        endpoint.note_failure("gone", unreachable=True)
    for endpoint in lab.endpoints[2:]:
        lab.backend.remove(endpoint)
    task = await lab.asked()
    assert sum(lab.counts) == 1
    await lab.finish(task)


async def test_a_server_whose_flavor_is_being_asked_may_be_removed() -> None:
    protocol = replace(TOY, traits=Traits(servers=Servers(flavors=ServerTypes(("plain",), lambda info: "plain"))))
    endpoint, wire = new_endpoint()
    backend = local_backend(Target("lab"), protocol, [endpoint], 1)
    task = asyncio.ensure_future(backend(Request(Operation.INFER, "m")))
    await settle()
    backend.remove(endpoint)
    wire.answer(status=400)  # has no metadata
    await settle()
    assert not task.done()
    wire.answer()
    await task
    await endpoint.idle()
