"""Requests go to servers that have the model, and what servers say of their models is believed only as long as it is
true."""

import asyncio
from typing import Any

import pytest

from gateway.core.errors import GatewayError, Reason, TransportError, invalid_output, not_found, refusal
from gateway.core.frozen import replace
from gateway.core.models import ModelEntry
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol
from gateway.core.requests import ControlRequest, Request, Tries
from gateway.core.statistics import Statistics
from gateway.routing.backend import Backend
from gateway.routing.placement.inventory import SECONDS_WAITED, SignatureComparison
from gateway.routing.placement.plan import LoadSettings
from gateway.routing.placement.table import ReplicaState
from gateway.routing.queue import QueueSettings
from gateway.routing.slots import LocalSlots
from tests.limits import settle
from tests.routing.placement.servers import SCRIPTED, Fleet, Server, with_traits
from tests.skipping_loop import skip

WITHOUT_LOADS = with_traits(extensions={})


@pytest.mark.parametrize("operation", [Operation.METADATA, Operation.MODEL_READY])
async def test_questions_about_a_model_go_to_its_servers(operation: Operation) -> None:
    a, b = Server("a", ["x"]), Server("b", ["y"])
    fleet = await Fleet(a, b).asked()
    await fleet.ask("y", operation)
    assert (f"{operation.value} y" in b.events, len(a.events)) == (True, 1)


async def test_a_model_that_nobody_has_is_not_found_without_a_call() -> None:
    a = Server("a", ["x"], listed=["unloaded"])
    fleet = await Fleet(a).asked()
    for model in ("z", "unloaded"):
        with pytest.raises(GatewayError, match=f"model '{model}' is on no server") as caught:
            await fleet.ask(model)
        assert caught.value.reason is Reason.MODEL_NOT_FOUND
    assert a.events == ["models"]


async def test_while_a_server_has_not_told_its_models_an_unknown_one_is_no_wrong_name() -> None:
    a, b = Server("a", ["x"]), Server("b", ["y"])
    b.refuses = True
    fleet = await Fleet(a, b).asked()
    assert await fleet.server_of("x") == "a"
    with pytest.raises(TransportError, match=r"b has not reported its models yet: .*refused") as caught:
        await fleet.ask("y")
    assert not caught.value.sent
    b.refuses = False
    fleet.clock.now = 1.0
    await fleet.tick(1.0)
    assert await fleet.server_of("y") == "b"


async def test_the_list_is_the_union_with_versions() -> None:
    a, b = Server("a", ["x", "both"]), Server("b", ["both"], listed=["idle"])
    b.held["both"] = ("1", "2")
    fleet = await Fleet(a, b).asked()
    before = [len(a.events), len(b.events)]
    assert await fleet.ask("", Operation.MODELS) == (
        ModelEntry("both", "1", "READY"),
        ModelEntry("both", "2", "READY"),
        ModelEntry("idle", "", "UNAVAILABLE", "not loaded"),
        ModelEntry("x", "1", "READY"),
    )
    assert [len(a.events), len(b.events)] == before


async def test_a_version_goes_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    a, b = Server("a", ["x"]), Server("b", ["x"])
    b.held["x"] = ("1", "2")
    fleet = await Fleet(a, b).asked()
    assert [await fleet.server_of("x", version="2") for _ in range(3)] == ["b"] * 3
    assert {await fleet.server_of("x", version="1") for _ in range(2)} == {"a", "b"}
    with pytest.raises(GatewayError, match="version '3' of model 'x' is on no server") as caught:
        await fleet.ask("x", version="3")
    assert caught.value.reason is Reason.MODEL_NOT_FOUND
    assert "has model 'x' in different versions: a has 1; b has 1, 2" in caplog.text


async def test_different_signatures_are_told_and_asked_for_once(caplog: pytest.LogCaptureFixture) -> None:
    a, b, c = Server("a", ["x", "alone"]), Server("b", ["x"]), Server("c", ["x"])
    b.datatype = "INT64"
    fleet = Fleet(a, b, c)
    fleet.slots.refresher.comparison = SignatureComparison(fleet.slots.inventory.signature)
    for _ in range(2):
        for each in fleet.endpoints:
            await fleet.slots.refresher.ask_soon(each)
    text = "backend 'fleet' has model 'x' with different signatures: x FP32[-1] -> (unknown) at c, x INT64[-1] -> "
    assert text in caplog.text
    asked = [each.events.count("metadata x") for each in (a, b, c)]
    assert (asked, "metadata alone" in a.events) == ([1, 1, 1], False)


async def test_a_signature_that_could_not_be_asked_for_is_compared_later(caplog: pytest.LogCaptureFixture) -> None:
    a, b = Server("a", ["x"]), Server("b", ["x"])
    a.datatype, a.errors[Operation.METADATA] = "INT64", refusal(Reason.OVERLOADED, "busy")
    fleet = Fleet(a, b)
    fleet.slots.placements.backend = "compared"  # the log tells a difference of each backend once a minute
    fleet.slots.refresher.comparison = SignatureComparison(fleet.slots.inventory.signature)
    for _ in range(2):
        for each in fleet.endpoints:
            await fleet.slots.refresher.ask_soon(each)
        assert "with different signatures" not in caplog.text
    a.errors.clear()
    await fleet.slots.refresher.ask_soon(fleet.endpoints[0])
    assert "backend 'compared' has model 'x' with different signatures: x INT64[-1] -> (unknown) at a" in caplog.text


async def test_a_wrong_version_costs_no_server_its_model() -> None:
    a = Server("a", ["x"])
    fleet = await Fleet(a).asked()
    with pytest.raises(GatewayError, match="a has no version 7 of x"):
        await fleet.ask("x", version="7")
    assert await fleet.server_of("x") == "a"


async def test_a_server_that_lies_loses_the_model_and_the_next_holder_answers() -> None:
    a, b = Server("a", ["x"]), Server("b", ["x"])
    a.lies_about.add("x")
    fleet = await Fleet(a, b).asked()
    assert await fleet.server_of("x") == "b"
    await settle()
    assert (a.events.count("infer x"), a.events.count("models")) == (1, 2)  # it is asked at once, and lies again
    assert [await fleet.server_of("x") for _ in range(3)] == ["b"] * 3
    assert a.calls() == 1
    await fleet.tick(31.0)
    assert {await fleet.server_of("x") for _ in range(2)} == {"b"}
    assert a.calls() == 2  # believed again after a time, and caught again
    a.lies_about.clear()
    await fleet.tick(61.0)
    assert {await fleet.server_of("x") for _ in range(2)} == {"a", "b"}
    a.lies_about.add("x")  # a call has succeeded: the time begins short again
    assert [await fleet.server_of("x") for _ in range(3)] == ["b"] * 3
    a.lies_about.clear()
    await fleet.tick(34.0)
    assert {await fleet.server_of("x") for _ in range(2)} == {"a", "b"}


async def test_a_list_that_is_too_long_is_told_once_and_the_models_of_the_last_one_are_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = [f"model-{at}" for at in range(10_000)]
    a = Server("a", names)
    fleet = await Fleet(a).asked()
    assert [await fleet.server_of(names[at]) for at in (0, 5_000, -1)] == ["a"] * 3
    too_long = "more than 400000 JSON values outside tensor data; limits.json_values is the limit"
    a.errors[Operation.MODELS] = invalid_output(too_long)
    for _ in range(5):
        await fleet.tick(40.0)
    told = [each.getMessage() for each in caplog.records if "did not report its models" in each.getMessage()]
    assert len(told) == 1
    assert "limits.json_values is the limit" in told[0]
    assert a.events.count("models") > 5
    assert [await fleet.server_of(names[at]) for at in (0, 5_000, -1)] == ["a"] * 3


async def test_an_answer_from_before_the_model_was_loaded_again_costs_no_server_its_model() -> None:
    a = Server("a", ["x"])
    fleet = await Fleet(a).asked()
    gate = a.gates["infer x"] = asyncio.Event()
    call = await fleet.begin("x")
    for held in ((), ("x",)):
        a.held = dict.fromkeys(held, ("1",))
        await fleet.slots.refresher.ask_soon(fleet.endpoints[0])
    answers = a._answer

    def once(operation: Operation, model: str, version: str) -> object:
        a._answer = answers  # type: ignore[method-assign]
        raise not_found("a has no model x")

    a._answer = once  # type: ignore[method-assign,assignment]
    gate.set()
    assert await call == "a"
    assert fleet.slots.placements.models["x"].places[fleet.endpoints[0]].state is ReplicaState.HELD


async def test_if_all_holders_lie_the_second_one_is_the_last_that_is_asked() -> None:
    servers = [Server(name, ["x"]) for name in "abc"]
    for each in servers:
        each.lies_about.add("x")
    fleet = await Fleet(*servers).asked()
    with pytest.raises(GatewayError, match="has no model x"):
        await fleet.ask("x")
    assert sum(each.calls() for each in servers) == 2


async def test_an_answer_that_a_server_is_unavailable_is_looked_into() -> None:
    """Triton says UNAVAILABLE about a model that was unloaded."""
    a, b = Server("a", ["x"]), Server("b", ["x"])
    fleet = await Fleet(a, b).asked()
    del a.held["x"]
    a.errors[Operation.INFER] = refusal(Reason.NOT_READY, "no available versions")
    assert await fleet.server_of("x") == "b"
    assert fleet.slots.placements.models["x"].places[fleet.endpoints[0]].state is ReplicaState.FAILED


async def test_a_stream_goes_on_at_the_next_holder_before_its_first_response() -> None:
    a, b = Server("a", ["x"]), Server("b", ["x"])
    a.lies_about.add("x")
    fleet = await Fleet(a, b).asked()
    found = [each.id async for each in fleet.backend.stream(Request(Operation.STREAM, "x"))]
    assert found == ["b", "b"]
    assert fleet.slots.placements.models["x"].in_flight == 0


async def test_a_holder_that_is_down_is_passed_over_and_the_only_one_is_unreachable() -> None:
    a, b = Server("a", ["x", "only"]), Server("b", ["x"])
    fleet = await Fleet(a, b).asked()
    a.refuses = True
    assert {await fleet.server_of("x") for _ in range(4)} == {"b"}
    with pytest.raises(TransportError, match="a: connection refused"):
        await fleet.ask("only")


async def test_slots_go_to_the_next_waiter_whose_model_the_endpoint_holds() -> None:
    a, b = Server("a", ["x"]), Server("b", ["y"])
    a.gates["infer x"], b.gates["infer y"] = asyncio.Event(), asyncio.Event()
    fleet = await Fleet(a, b, limit=1).asked()
    first = [asyncio.ensure_future(fleet.server_of(model)) for model in ("x", "y")]
    await settle()
    waiting = [asyncio.ensure_future(fleet.server_of(model, peer="one:1")) for model in ("x", "y", "x")]
    await settle()
    b.gates["infer y"].set()
    await settle()
    assert [each.done() for each in (*first, *waiting)] == [False, True, False, True, False]
    a.gates["infer x"].set()
    assert await asyncio.gather(*first, *waiting) == ["a", "b", "a", "b", "a"]
    assert [each.in_flight for each in fleet.endpoints] == [0, 0]


async def test_a_call_that_waits_in_vain_names_its_model() -> None:
    a, b = Server("a", ["x"]), Server("b", ["y"])
    a.gates["infer x"] = asyncio.Event()
    fleet = await Fleet(a, b, limit=1, queue=QueueSettings(timeout=0.01)).asked()
    first = await fleet.begin("x")
    with pytest.raises(GatewayError, match=r"no endpoint that has model 'x' was free within 0.01 s"):
        await fleet.ask("x")
    assert (len(fleet.backend.queue), fleet.slots.placements.models["x"].waiting) == (0, 0)
    a.gates["infer x"].set()
    await first


async def test_calls_that_wait_for_a_model_fail_when_its_last_holder_loses_it() -> None:
    a, b = Server("a", ["x"]), Server("b", ["y"])
    a.gates["infer x"] = asyncio.Event()
    fleet = await Fleet(a, b, limit=1).asked()
    first = await fleet.begin("x")
    second = await fleet.begin("x")
    del a.held["x"]
    await fleet.tick(40.0)
    with pytest.raises(GatewayError, match="model 'x' is on no server"):
        await second
    a.gates["infer x"].set()
    with pytest.raises(GatewayError, match="a has no model x"):
        await first


async def test_a_sequence_stays_where_its_state_is_while_the_model_is_there() -> None:
    a, b = Server("a", ["x"]), Server("b", ["x"])
    fleet = await Fleet(a, b).asked()
    sequence = {"sequence_id": 7}
    servers = {await fleet.server_of("x", parameters=sequence) for _ in range(4)}
    assert len(servers) == 1
    [name] = servers
    at, other = (a, b) if name == "a" else (b, a)
    del at.held["x"]
    await fleet.tick(40.0)
    assert await fleet.server_of("x", parameters=sequence) == other.name


async def test_avoided_endpoints_are_those_of_holders() -> None:
    """A hedge or a retry goes to the next holder, and to nobody else."""
    fleet = await Fleet(Server("a", ["x", "only"]), Server("b", ["x"]), Server("c", ["y"])).asked()
    avoided = Tries(avoided=frozenset({"a"}))
    assert [await fleet.server_of("x", tries=avoided) for _ in range(3)] == ["b"] * 3
    assert await fleet.server_of("only", tries=avoided) == "a"
    with pytest.raises(GatewayError, match="no other endpoint is free; try again later"):
        await fleet.ask("only", tries=Tries(avoided=frozenset({"a"}), elsewhere=True))


async def test_endpoints_join_and_leave() -> None:
    a, b = Server("a", ["x"]), Server("b", ["y"])
    fleet = await Fleet(a).asked()
    there = fleet.endpoint(b)
    fleet.backend.add(there)
    await settle()
    assert await fleet.server_of("y") == "b"
    fleet.backend.remove(there)
    with pytest.raises(GatewayError, match="model 'y' is on no server"):
        await fleet.ask("y")
    assert list(fleet.slots.placements.models) == ["x"]


async def test_a_server_that_comes_back_is_asked_at_once() -> None:
    a = Server("a", ["x"])
    fleet = await Fleet(a).asked()
    a.refuses = True
    with pytest.raises(TransportError):
        await fleet.ask("x")
    a.restart()
    a.held = {"new": ("1",)}
    fleet.clock.now = 5.0
    with pytest.raises(GatewayError):
        await fleet.ask("x")  # the trial finds it up again
    await settle()
    assert await fleet.server_of("new") == "a"


@pytest.mark.parametrize("is_asked", [True, False])
@pytest.mark.parametrize("protocol", [SCRIPTED, WITHOUT_LOADS], ids=["loads", "loads nothing"])
async def test_a_reload_keeps_the_table(protocol: Protocol, *, is_asked: bool) -> None:
    a, b, c = Server("a", ["x"]), Server("b", ["y"]), Server("c", ["z"])
    fleet = await Fleet(a, b, protocol=protocol).asked()
    old = fleet.backend
    fleet.backend = fleet.new_backend([fleet.endpoints[0], fleet.endpoint(c)], protocol=protocol)
    if is_asked:
        await fleet.slots.refresher.ask_soon(fleet.backend.endpoints[1])
    fleet.backend.replace(old)
    if not is_asked:
        await fleet.slots.refresher.ask_soon(fleet.backend.endpoints[1])
    assert [await fleet.server_of(model) for model in ("x", "z")] == ["a", "c"]
    with pytest.raises(GatewayError, match="model 'y' is on no server"):
        await fleet.ask("y")
    assert a.events.count("models") == 1


async def test_a_question_on_its_way_at_a_reload_is_asked_again() -> None:
    a, b = Server("a", ["x"]), Server("b", ["y"])
    fleet = await Fleet(a, b).asked()
    old = fleet.backend
    a.gates["models"] = asyncio.Event()
    fleet.backend = fleet.new_backend(fleet.endpoints)
    asking = fleet.slots.refresher.ask_soon(fleet.endpoints[0])
    await settle()
    fleet.backend.replace(old)
    a.held = {"z": ("1",)}
    a.gates["models"].set()
    await asking
    await settle()
    assert await fleet.server_of("z") == "a"
    assert a.events.count("models") == 3


async def test_a_reload_that_places_a_backend_for_the_first_time_has_a_table_of_its_own() -> None:
    fleet = await Fleet(Server("a", ["x"]), Server("b", ["y"])).asked()
    local = LocalSlots("fleet", SCRIPTED.traits.servers, fleet.endpoints, 0, clock=fleet.clock)
    fleet.backend.replace(Backend(fleet.sender, local))
    assert [await fleet.server_of(model) for model in "xy"] == ["a", "b"]


@pytest.mark.parametrize("outcome", ["answers", "refuses", "asked again"])
async def test_what_a_server_tells_after_a_reload_removed_it_changes_nothing(outcome: str) -> None:
    a, b = Server("a", ["x"]), Server("b", ["y"])
    fleet = await Fleet(a, b).asked()
    old = fleet.slots.refresher
    gate = b.gates["models"] = asyncio.Event()
    asking = old.ask_soon(fleet.endpoints[1])
    await settle()
    if outcome == "asked again":
        old.ask_soon(fleet.endpoints[1])
    before, fleet.backend = fleet.backend, fleet.new_backend(fleet.endpoints[:1])
    fleet.backend.replace(before)
    b.refuses = outcome == "refuses"
    gate.set()
    await asking
    await settle()
    assert (fleet.slots.placements.unknown(), old.errors, b.events) == ((), {}, ["models", "models"])
    with pytest.raises(GatewayError, match="model 'y' is on no server"):
        await fleet.ask("y")


async def test_the_servers_are_asked_in_one_loop_however_often_it_is_started() -> None:
    a = Server("a", ["x"])
    fleet = Fleet(a, load=LoadSettings())
    for _ in range(2):
        fleet.slots.start()
    await settle()
    assert (await fleet.server_of("x"), a.events) == ("a", ["models", "infer x"])
    for _ in range(2):
        fleet.slots.stop()


async def test_an_endpoint_that_leaves_and_comes_again_while_it_is_asked_is_asked_again() -> None:
    a, b = Server("a", ["x"]), Server("b", ["y"])
    fleet = await Fleet(a, b).asked()
    a.gates["models"] = asyncio.Event()
    fleet.slots.refresher.ask_soon(fleet.endpoints[0])
    await settle()
    fleet.backend.remove(fleet.endpoints[0])
    fleet.backend.add(fleet.endpoints[0])
    a.gates.pop("models").set()
    await settle()
    assert await fleet.server_of("x") == "a"


async def test_servers_without_a_list_are_asked_for_the_models_that_routes_name() -> None:
    a, b = Server("a", ["x"]), Server("b", ["y"])
    a.lists = b.lists = False
    fleet = await Fleet(a, b, names=["x", "y", "z"]).asked()
    assert [await fleet.server_of(model) for model in ("x", "y")] == ["a", "b"]
    assert "model-ready z" in a.events


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (not_found("x is not deployed"), "model 'x' is on no server; load it, or correct its name"),
        (refusal(Reason.NOT_READY, "x is not ready"), "model 'x' is on no server; load it, or correct its name"),
        (refusal(Reason.OVERLOADED, "too many requests"), "a has not reported its models yet: too many requests"),
    ],
    ids=["not found", "not ready", "busy"],
)
async def test_a_server_without_a_list_that_does_not_say_yes(error: GatewayError, told: str) -> None:
    a = Server("a", ["x"])
    a.lists, a.errors[Operation.MODEL_READY] = False, error
    fleet = await Fleet(a, names=["x"]).asked()
    with pytest.raises(GatewayError, match=told):
        await fleet.ask("x")


async def test_servers_that_have_one_model_are_asked_for_its_name() -> None:
    a, b, nameless = Server("a", ["x"]), Server("b", ["y"]), Server("c")
    traits = replace(SCRIPTED.traits, models=replace(SCRIPTED.traits.models, one_at=lambda address: True))
    fleet = await Fleet(a, b, nameless, protocol=replace(SCRIPTED, traits=traits)).asked()
    assert [await fleet.server_of(model) for model in "xy"] == ["a", "b"]
    assert (a.events, nameless.events) == (["metadata", "infer x"], ["metadata"])


async def test_a_server_that_does_not_tell_its_models_in_time() -> None:
    a = Server("a", ["x"])
    a.gates["models"] = asyncio.Event()
    fleet = Fleet(a)
    asking = fleet.slots.refresher.ask_soon(fleet.endpoints[0])
    await skip(SECONDS_WAITED)
    await asking
    with pytest.raises(TransportError, match="yet: the server at a did not report its models within 10 s"):
        await fleet.ask("x")


async def test_without_servers_there_is_no_list() -> None:
    fleet = Fleet()
    for operation in (Operation.MODELS, Operation.ALL_STATISTICS):
        with pytest.raises(TransportError, match="backend 'fleet' has no endpoint"):
            await fleet.ask("", operation)


async def test_statistics_that_no_server_tells() -> None:
    a, b = Server("a", ["x"]), Server("b", ["y"])
    fleet = await Fleet(a, b).asked()
    a.refuses = b.refuses = True
    with pytest.raises(TransportError, match="a: connection refused"):
        await fleet.ask("", Operation.ALL_STATISTICS)


async def test_where_the_gateway_loads_nothing_loads_go_to_all_holders() -> None:
    servers = [Server("a", ["x"]), Server("b", ["x"]), Server("c", ["y"])]
    fleet = await Fleet(*servers, protocol=WITHOUT_LOADS).asked()
    assert await fleet.backend(ControlRequest(Operation.UNLOAD, "x")) is True
    assert [list(each.held) for each in servers] == [[], [], ["y"]]
    with pytest.raises(GatewayError, match="model 'z' is on no server"):
        await fleet.backend(ControlRequest(Operation.LOAD, "z"))


async def test_requests_without_a_model_go_to_any_server_and_wait_for_any() -> None:
    a, b = Server("a", ["x"]), Server("b", ["y"])
    fleet = await Fleet(a, b, limit=1).asked()
    a.gates["infer"] = b.gates["infer"] = asyncio.Event()
    calls = [await fleet.begin("") for _ in range(3)]
    assert len(fleet.backend.queue) == 1
    a.gates["infer"].set()
    assert {*await asyncio.gather(*calls)} == {"a", "b"}
    a.errors[Operation.INFER] = b.errors[Operation.INFER] = refusal(Reason.MODEL_ERROR, "which model?")
    with pytest.raises(GatewayError, match="which model"):
        await fleet.ask("")


@pytest.mark.parametrize(
    ("error", "ready"),
    [
        (refusal(Reason.MODEL_ERROR, "bad row"), None),
        (refusal(Reason.NOT_READY, "warming up"), None),
        (refusal(Reason.NOT_READY, "warming up"), refusal(Reason.OVERLOADED, "busy")),
    ],
    ids=["other error", "ready", "not answered"],
)
async def test_errors_that_cost_no_server_its_model(error: GatewayError, ready: GatewayError | None) -> None:
    a, b = Server("a", ["x"]), Server("b", ["x"])
    for each in (a, b):
        each.errors[Operation.INFER] = error
        if ready is not None:
            each.errors[Operation.MODEL_READY] = ready
    fleet = await Fleet(a, b).asked()
    with pytest.raises(GatewayError, match=error.message):
        await fleet.ask("x")
    assert [each.state for each in fleet.slots.placements.models["x"].places.values()] == [ReplicaState.HELD] * 2
    assert a.calls() + b.calls() == 1


@pytest.mark.parametrize(("more", "calls"), [({}, 2), ({"tries": Tries()}, 1)], ids=["", "of a policy"])
async def test_a_version_that_is_not_listed_is_asked_of_one_more_server(more: dict[str, Any], calls: int) -> None:
    """Not if a policy counts the tries."""
    servers = [Server(name) for name in "abc"]
    for each in servers:
        each.held = {"x": ()}
    fleet = await Fleet(*servers).asked()
    with pytest.raises(GatewayError, match="has no version 2 of x"):
        await fleet.ask("x", version="2", **more)
    assert sum(each.calls() for each in servers) == calls


async def test_it_is_ready_if_a_server_is() -> None:
    a, b = Server("a", ["x"]), Server("b", ["y"])
    fleet = await Fleet(a, b).asked()
    a.refuses = True
    assert await fleet.backend.is_ready() is True
    b.refuses = True
    assert await fleet.backend.is_ready() is False


async def test_statistics_of_all_models_come_from_all_servers() -> None:
    fleet = await Fleet(Server("a", ["x", "both"]), Server("b", ["y", "both"])).asked()
    answer = await fleet.ask("", Operation.ALL_STATISTICS)
    assert isinstance(answer, Statistics)
    assert sorted(each.name for each in answer.models) == ["both", "x", "y"]


@pytest.mark.parametrize("to_the_end", [False, True])
async def test_the_report_counts_calls(*, to_the_end: bool) -> None:
    a = Server("a", ["x"])
    fleet = await Fleet(a, protocol=with_traits(runs_to_the_end=to_the_end)).asked()
    await fleet.ask("x")
    a.gates["infer x"] = asyncio.Event()
    second = await fleet.begin("x")
    [report] = fleet.slots.placements.report()
    assert (report.model, report.calls, report.in_flight, report.copies) == ("x", 2, 1, 1)
    assert [(each.endpoint, each.state) for each in report.holdings] == [(fleet.endpoints[0], ReplicaState.HELD)]
    a.gates["infer x"].set()
    assert await second == "a"
    assert fleet.slots.placements.report()[0].in_flight == 0


async def test_a_busy_server_is_not_asked() -> None:
    a = Server("a", ["x"])
    a.gates["infer x"] = asyncio.Event()
    fleet = await Fleet(a, limit=1, protocol=with_traits(runs_to_the_end=True)).asked()
    fleet.slots.refresher._is_busy = fleet.backend.local.is_busy
    call = await fleet.begin("x")
    await fleet.tick(40.0)
    assert a.events.count("models") == 1
    a.gates["infer x"].set()
    await call
