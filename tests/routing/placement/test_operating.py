"""What operators ask of a fleet: a model on one server, and a server that is drained for maintenance."""

import asyncio

import httpx
import pytest
from fastapi import FastAPI

from gateway.admin.operator_actions import add_placing
from gateway.core.errors import GatewayError, Reason
from gateway.core.operations import Operation
from gateway.core.requests import ControlRequest
from gateway.routing.endpoint import Drain, DrainState
from gateway.routing.placement.plan import LoadSettings
from gateway.runtime.app.draining import INTERVAL, Draining
from tests.assembled import assembled
from tests.limits import settle
from tests.routing.placement.servers import Fleet, Server
from tests.routing.placement.test_loading import MODELS, alone, loading, pair, repository
from tests.running_gateway import config_of
from tests.skipping_loop import skip


async def test_a_model_is_loaded_where_the_operator_says_and_the_least_recently_used_makes_room() -> None:
    fleet, a, b = await pair()
    for model in ("m0", "m1", "m2"):
        await fleet.loader.load_at(model, fleet.endpoints[0])
        fleet.clock.now += 1
    assert (sorted(a.held), sorted(b.held), a.most_held) == (["m1", "m2"], [], 2)
    before = len(a.events)
    await fleet.loader.load_at("m2", fleet.endpoints[0])
    assert len(a.events) == before
    assert await fleet.server_of("m2") == "a"


async def test_nothing_with_calls_makes_room_for_it() -> None:
    fleet, a = await alone(max_models=1)
    await fleet.ask("m0")
    a.gates["infer m0"] = asyncio.Event()
    call = await fleet.begin("m0")
    with pytest.raises(GatewayError, match="cannot unload a model at a for 'm1'") as caught:
        await fleet.loader.load_at("m1", fleet.endpoints[0])
    assert caught.value.reason is Reason.OVERLOADED
    a.gates["infer m0"].set()
    assert await call == "a"
    await fleet.loader.load_at("m1", fleet.endpoints[0])
    assert list(a.held) == ["m1"]


class Late:
    """A LoadCoordinator in which another gateway is always first."""

    is_shared = True

    async def claim(self, model: str, address: str) -> bool:
        return False

    async def release(self, model: str, address: str) -> None:
        raise AssertionError("nothing is claimed")

    async def close(self) -> None:
        """Nothing is open."""


async def test_a_load_that_another_gateway_has_made_elsewhere_is_no_success() -> None:
    a, b = repository("a", "b")
    fleet = await Fleet(a, b, load=LoadSettings(max_models=2), agreement=Late()).asked()
    b.held["m0"] = ("1",)
    with pytest.raises(GatewayError, match="another gateway loads model 'm0' elsewhere, or has just done so") as caught:
        await fleet.loader.load_at("m0", fleet.endpoints[0])
    assert caught.value.reason is Reason.FAILED_PRECONDITION
    a.held["m1"] = ("1",)
    await fleet.loader.load_at("m1", fleet.endpoints[0])
    b.held["m2"] = ("1",)
    await fleet.loader.load(ControlRequest(Operation.LOAD, "m2"))  # where it is, with the client's settings
    assert [each for server in (a, b) for each in server.events if each.startswith("load")] == ["load m2"]
    assert "load m2" in b.events


async def test_it_is_unloaded_there_alone() -> None:
    a, b = Server("a", ["m0"]), Server("b", ["m0"])
    fleet = await loading(a, b, max_copies=2).asked()
    await fleet.loader.unload_at("m0", fleet.endpoints[0])
    assert (list(a.held), list(b.held)) == ([], ["m0"])
    assert [await fleet.server_of("m0") for _ in range(2)] == ["b"] * 2
    with pytest.raises(GatewayError, match="endpoint a does not have model 'm0'"):
        await fleet.loader.unload_at("m0", fleet.endpoints[0])


async def test_the_models_of_a_drained_server_are_loaded_elsewhere_before_it_gets_no_calls() -> None:
    a, b = Server("a", ["m0"], MODELS), Server("b", ["m1"], MODELS)
    fleet = await loading(a, b).asked()
    draining = Draining(lambda: {"fleet": fleet.backend})
    b.gates["load m0"] = asyncio.Event()
    status = await draining.begin("fleet", "a", 60)
    assert status.drain is not None
    assert status.drain.is_moving
    await settle()
    assert await fleet.server_of("m0") == "a"
    b.gates["load m0"].set()
    await settle()
    endpoint = fleet.endpoints[0]
    assert (endpoint.takes_calls, sorted(b.held)) == (False, ["m0", "m1"])
    assert [await fleet.server_of("m0") for _ in range(3)] == ["b"] * 3
    await draining.undo("fleet", "a")
    assert {await fleet.server_of("m0") for _ in range(2)} == {"a", "b"}
    draining.stop()


async def test_a_model_that_cannot_be_moved_is_named_and_one_used_longer_ago_takes_no_room() -> None:
    a, b = Server("a", ["m0", "m1"], MODELS), Server("b", ["m2"], MODELS)
    b.load_errors["m1"] = "out of memory"
    fleet = await loading(a, b).asked()
    await fleet.ask_in_turn(("m0", "m2", "m1"))
    endpoint = fleet.endpoints[0]
    endpoint.set_drain(Drain(60, is_moving=True))
    assert await fleet.loader.load_elsewhere(endpoint) == ("m1: out of memory",)
    assert sorted(b.held) == ["m2"]  # m0 was used before it, and is loaded when it is asked for


async def test_a_model_for_which_no_other_server_has_room_is_named() -> None:
    a, b = Server("a", ["m0"], MODELS), Server("b", ["m1"], MODELS)
    fleet = await loading(a, b, max_models=1).asked()
    b.gates["infer m1"] = asyncio.Event()
    call = await fleet.begin("m1")
    assert await fleet.loader.load_elsewhere(fleet.endpoints[0]) == (
        "m0: no other server has room for it and can load it",
    )
    b.gates["infer m1"].set()
    await call


async def test_a_model_is_not_loaded_twice_at_once() -> None:
    fleet, a = await alone()
    a.gates["load m0"] = asyncio.Event()
    call = await fleet.begin("m0")
    with pytest.raises(GatewayError, match="model 'm0' is loading at a; try again when that is done") as caught:
        await fleet.loader.load_at("m0", fleet.endpoints[0])
    assert caught.value.reason is Reason.FAILED_PRECONDITION
    a.gates["load m0"].set()
    assert await call == "a"


async def test_nothing_is_loaded_at_a_drained_server_and_nothing_unloaded() -> None:
    fleet, a, b = await pair(idle=1)
    await fleet.loader.load_at("m0", fleet.endpoints[0])
    fleet.endpoints[0].set_drain(Drain(0))
    with pytest.raises(GatewayError, match="endpoint a is drained"):
        await fleet.loader.load_at("m1", fleet.endpoints[0])
    for model in ("m0", "m1"):
        assert await fleet.server_of(model) == "b"
    fleet.clock.now += 10
    fleet.loader.tick()
    await settle()
    assert (list(a.held), list(b.held)) == (["m0"], [])


OTHERS = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
backends:
  plain: {protocol: v2-rest, endpoints: ["d:1"]}
  fixed: {protocol: umbridge, endpoints: ["http://e:1", "http://f:1"], placement: {}}
"""


async def test_the_admin_port_loads_and_unloads_and_tells_the_servers_words() -> None:
    a, b = repository("a", "b")
    a.load_errors["m1"] = "out of memory"
    fleet = await loading(a, b).asked()
    app = FastAPI()
    others = assembled(config_of(OTHERS), lambda *_: None).backends  # type: ignore[arg-type]
    add_placing(app, lambda: {**others, "fleet": fleet.backend})
    wrong: list[tuple[dict[str, str], int, str]] = [
        ({"backend": "other"}, 404, "unknown backend 'other'"),
        ({"endpoint": "c"}, 404, "backend 'fleet' has no endpoint 'c'"),
        ({"do": "unload"}, 404, "endpoint a does not have model 'm0'"),
        ({"model": "m1"}, 502, "out of memory"),
        ({"backend": "plain"}, 409, "backend 'plain' has no `placement`; add this key to the backend"),
        (
            {"backend": "fixed"},
            409,
            "backend 'fixed' has a protocol that cannot load models; load them at their servers",
        ),
        ({"do": "reload"}, 422, "load"),
    ]
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as admin:
        asked = {"do": "load", "backend": "fleet", "model": "m0", "endpoint": "a"}
        for changed, status, told in wrong:
            reply = await admin.post("/placement", json={**asked, **changed})
            assert (reply.status_code, told in str(reply.json()["detail"])) == (status, True)
        reply = await admin.post("/placement", json=asked)
        assert (reply.json(), list(a.held)) == ({"state": "held"}, ["m0"])
        reply = await admin.post("/placement", json={**asked, "do": "unload"})
        assert (reply.json(), list(a.held)) == ({"state": "gone"}, [])
        assert (await admin.get("/placement")).status_code == 405


@pytest.mark.parametrize(
    ("load_errors", "told"), [({"m0": "no memory"}, "m0: no memory"), ({}, "others: still loading")]
)
async def test_models_that_are_not_loaded_elsewhere_are_told(
    load_errors: dict[str, str], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = Server("a", ["m0"], MODELS), Server("b", [], MODELS)
    fleet = await loading(a, b).asked()
    b.load_errors = load_errors
    if not load_errors:
        b.gates["load m0"] = asyncio.Event()
    draining = Draining(lambda: {"fleet": fleet.backend})
    assert (await draining.undo("fleet", "a")).drain is None
    await draining.begin("fleet", "a", 60)
    await skip(60)
    drain = fleet.endpoints[0].drain
    assert drain is not None
    assert (drain.failed_moves, drain.is_moving) == ((told,), False)
    assert not fleet.endpoints[0].takes_calls
    assert f"endpoint a of backend 'fleet' is draining: not loaded elsewhere: {told}" in caplog.text
    for gate in b.gates.values():
        gate.set()
    draining.stop()


async def test_nobody_waits_for_the_calls_of_a_drained_server_that_leaves() -> None:
    fleet = await Fleet(Server("a", ["m0"]), Server("b", ["m0"])).asked()
    draining = Draining(lambda: {"fleet": fleet.backend})
    await draining.begin("fleet", "a", 0)
    (task,) = draining._tasks.values()
    fleet.backend.remove(fleet.endpoints[0])
    await skip(INTERVAL)
    await task
    drain = fleet.endpoints[0].drain
    assert drain is not None
    assert (drain.state, draining._tasks) == (DrainState.DRAINING, {})
