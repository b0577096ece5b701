"""Draining an endpoint of a backend that knows which of its servers has which model."""

import asyncio

import pytest

from gateway.core.errors import GatewayError, Status
from gateway.core.operations import Operation
from gateway.routing.endpoint import Drain
from gateway.routing.queue import QueueSettings
from tests.limits import settle
from tests.routing.placement.servers import Fleet, Server


async def test_a_drained_endpoint_gets_no_calls_for_its_models_until_it_serves_again() -> None:
    fleet = await Fleet(Server("a", ["x", "both"]), Server("b", ["both"])).asked()
    endpoint = fleet.backend.endpoints[0]
    assert {await fleet.server_of("both") for _ in range(2)} == {"a", "b"}
    endpoint.set_drain(Drain(0))
    assert {await fleet.server_of("both") for _ in range(4)} == {"b"}
    with pytest.raises(GatewayError, match=r"model 'x' is only at endpoints that are drained \(a\)") as caught:
        await fleet.ask("x")
    assert caught.value.status is Status.UNAVAILABLE
    with pytest.raises(GatewayError, match="model 'z' is on no server"):
        await fleet.ask("z")
    endpoint.set_drain(None)
    assert await fleet.server_of("x") == "a"
    assert {await fleet.server_of("both") for _ in range(2)} == {"a", "b"}


async def test_metadata_that_waited_for_an_endpoint_leaves_its_slot_once() -> None:
    fleet = await Fleet(Server("a", ["x"]), limit=1, queue=QueueSettings(wait_for_endpoints=60)).asked()
    endpoint = fleet.backend.endpoints[0]
    endpoint.set_drain(Drain(0))
    waiting = [asyncio.ensure_future(fleet.ask("x", Operation.METADATA)) for _ in range(5)]
    await settle()
    assert fleet.backend.waiting == 5
    endpoint.set_drain(None)
    await asyncio.gather(*waiting)
    assert endpoint.in_flight == 0


async def test_calls_of_a_sequence_go_on_where_its_state_is_and_begin_anew_at_another_holder() -> None:
    fleet = await Fleet(Server("a", ["x"]), Server("b", ["x"])).asked()
    endpoint = fleet.backend.endpoints[0]
    first = await fleet.server_of("x", parameters={"sequence_id": 7, "sequence_start": True})
    assert first == "a"
    endpoint.set_drain(Drain(60))
    assert await fleet.server_of("x", parameters={"sequence_id": 7}) == "a"
    endpoint.set_drain(Drain(0))
    with pytest.raises(GatewayError, match="the state of sequence 7 was at endpoint a, which is drained"):
        await fleet.ask("x", parameters={"sequence_id": 7})
    assert await fleet.server_of("x", parameters={"sequence_id": 7, "sequence_start": True}) == "b"
