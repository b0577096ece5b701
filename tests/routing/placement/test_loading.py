"""Models that are loaded when they are asked for, within the room that servers have."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.core.errors import GatewayError, Reason, Status, TransportError, refusal
from gateway.core.models import ModelEntry, NotReady
from gateway.core.operations import Operation
from gateway.core.requests import ControlRequest, Request, Tries
from gateway.routing.endpoint import Drain
from gateway.routing.placement.agreement import rendezvous
from gateway.routing.placement.loading import FIRST_PAUSE, UNUSED_SECONDS
from gateway.routing.placement.plan import STARVED, LoadSettings
from gateway.routing.placement.table import ReplicaState
from gateway.routing.queue import QueueSettings
from tests.limits import GENEROUS, settle
from tests.routing.placement.servers import Fleet, Server

MODELS = [f"m{at}" for at in range(10)]


def loading(*servers: Server, queue: QueueSettings | None = None, limit: int = 0, **settings: Any) -> Fleet:
    """A fleet that loads on demand, two models on a server at most."""
    return Fleet(*servers, load=LoadSettings(**{"max_models": 2, **settings}), queue=queue, limit=limit)


def repository(*names: str, models: Sequence[str] = MODELS) -> list[Server]:
    """Servers that list all models and have loaded none."""
    return [Server(name, listed=models) for name in names]


async def alone(**settings: Any) -> tuple[Fleet, Server]:
    """A fleet of one server, which has told what it has."""
    [a] = repository("a")
    return await loading(a, **settings).asked(), a


async def pair(**settings: Any) -> tuple[Fleet, Server, Server]:
    """As `alone`, with two servers."""
    a, b = repository("a", "b")
    return await loading(a, b, **settings).asked(), a, b


def loads(server: Server) -> list[str]:
    """What a server was asked to load and unload."""
    return [each for each in server.events if each.startswith(("load", "unload"))]


async def test_models_go_where_most_room_is() -> None:
    fleet, a, b = await pair(max_models=3)
    for model in MODELS[:6]:
        await fleet.ask(model)
    assert [len(a.held), len(b.held)] == [3, 3]


async def test_the_least_recently_used_makes_room_and_a_server_never_has_more_than_it_may() -> None:
    servers = repository("a", "b")
    fleet = await loading(*servers).asked()
    await fleet.ask_in_turn((*MODELS[:4], "m0", "m4"))
    held = {model for each in servers for model in each.held}
    assert held == {"m0", "m2", "m3", "m4"}
    for model in MODELS * 3:
        fleet.clock.now += 1
        assert await fleet.server_of(model)
    assert [each.most_held for each in servers] == [2, 2]


async def test_pinned_models_make_no_room_and_are_never_idle() -> None:
    fleet, a = await alone(pinned=("m0",), idle=10)
    await fleet.ask_in_turn(("m0", "m1", "m2", "m3"))
    assert list(a.held) == ["m0", "m3"]
    await fleet.tick(20)
    assert list(a.held) == ["m0"]


async def test_a_model_stays_for_a_while_before_it_makes_room() -> None:
    fleet, a = await alone(max_models=1, min_stay=60)
    await fleet.ask("m0")
    asked = asyncio.ensure_future(fleet.ask("m1"))
    for _ in range(5):
        await fleet.tick(10)
    assert list(a.held) == ["m0"]
    await fleet.tick(10)
    await asked
    assert list(a.held) == ["m1"]


async def test_beyond_its_share_a_client_takes_the_places_of_its_own_models() -> None:
    """Of four places, two; and one that asks for many models at once gets no more."""
    fleet, a = await alone(max_models=4, share=0.5)
    await fleet.ask_in_turn(MODELS[:4], peer="ours:1")
    await fleet.ask_in_turn(MODELS[4:] * 3, peer="theirs:1")
    assert sum(model in a.held for model in MODELS[:4]) == 2
    a.events.clear()
    await asyncio.gather(*(fleet.ask(model, peer="theirs:2") for model in MODELS[4:]))
    assert sum(model in a.held for model in MODELS[:4]) == 2
    assert not [each for each in loads(a) if each.removeprefix("unload ") in MODELS[:4]]
    shared = next(model for model in MODELS[4:] if model in a.held)
    await fleet.ask(shared, peer="ours:3")  # it is nobody's from now on
    await fleet.ask_in_turn(MODELS[4:] * 3, peer="theirs:1")
    assert sum(model in a.held for model in [*MODELS[:4], shared]) == 2


async def test_a_model_is_not_kept_out_for_ever_by_one_whose_calls_never_cease() -> None:
    fleet, a = await alone(max_models=1)
    await fleet.ask("m0")
    first, second = asyncio.Event(), asyncio.Event()
    a.gates["infer m0"] = first
    calls = [asyncio.ensure_future(fleet.server_of("m0"))]
    await fleet.tick(STARVED)
    calls.append(await fleet.begin("m1"))
    await fleet.tick(STARVED - 1)
    a.gates["infer m0"] = second
    calls.append(await fleet.begin("m0"))
    first.set()
    await settle()
    assert list(a.held) == ["m0"]  # it has another call already
    await fleet.tick(1)
    late = await fleet.begin("m0")
    assert (list(a.held), a.calls("m0")) == (["m0"], 3)  # no further one is sent
    second.set()
    await settle()
    assert [each.done() for each in (*calls, late)] == [True, True, True, True]
    assert await late == "a"
    assert loads(a) == ["load m0", "unload m0", "load m1", "unload m1", "load m0"]
    assert a.most_held == 1


async def test_a_model_whose_calls_do_not_end_stays_and_gets_calls_again() -> None:
    fleet, a = await alone(max_models=1, timeout=0.01)
    await fleet.ask("m0")
    a.gates["infer m0"] = asyncio.Event()
    endless = asyncio.ensure_future(fleet.server_of("m0"))
    await fleet.tick(STARVED)
    other = await fleet.begin("m1")
    await fleet.tick(STARVED + 1)
    async with asyncio.timeout(GENEROUS):
        while not fleet.loader.failed_loads:
            await settle()
    place = fleet.slots.placements.models["m0"].places[fleet.endpoints[0]]
    assert (place.state, place.is_ours, endless.done()) == (ReplicaState.HELD, False, False)
    assert loads(a) == ["load m0"]
    a.gates.pop("infer m0").set()
    assert await endless == "a"
    assert await fleet.server_of("m0") == "a"
    other.cancel()


async def test_a_call_for_a_model_that_is_being_unloaded_waits_until_it_is_loaded_again() -> None:
    fleet, a = await alone(max_models=1)
    await fleet.ask("m0")
    a.gates["unload m0"] = asyncio.Event()
    calls = [asyncio.ensure_future(fleet.server_of(model)) for model in ("m1", "m0")]
    await settle()
    a.gates["unload m0"].set()
    assert list(await asyncio.gather(*calls)) == ["a", "a"]


async def test_a_model_whose_loss_is_reported_after_its_call_failed_is_loaded_again_for_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet, a = await alone(max_models=2)
    await fleet.ask_in_turn(("m0", "m1"))

    async def has_changed(*arguments: object) -> bool:
        for _ in range(2):
            await fleet.slots.refresher.ask_soon(fleet.endpoints[0])
        assert not fleet.slots.placements.models["m0"].places
        return False

    monkeypatch.setattr(fleet.sender.targets, "has_changed", has_changed)
    del a.held["m0"]
    assert await fleet.server_of("m0") == "a"
    assert a.events.count("load m0") == 2


async def test_a_stream_in_flight_keeps_its_model() -> None:
    fleet, a = await alone(max_models=1)
    stream = fleet.backend.stream(Request(Operation.STREAM, "m0"))
    assert (await anext(stream)).id == "a"
    second = asyncio.ensure_future(fleet.ask("m1"))
    await fleet.tick(5)
    assert list(a.held) == ["m0"]
    await stream.aclose()
    await second
    assert list(a.held) == ["m1"]


async def test_several_models_are_loaded_at_once() -> None:
    fleet, a = await alone(max_models=2)
    await fleet.ask_in_turn(("m0", "m1"))
    a.gates["unload m0"] = a.gates["load m2"] = asyncio.Event()
    slow = await fleet.begin("m2")
    assert await fleet.server_of("m3") == "a"
    assert not slow.done()
    a.gates["load m2"].set()
    assert await slow == "a"
    assert a.most_held == 2


async def test_the_room_of_a_load_that_took_too_long_is_taken_as_long_as_nobody_knows() -> None:
    fleet, a = await alone(max_models=1, timeout=0.01)
    a.gates["load m0"] = a.gates["models"] = asyncio.Event()
    with pytest.raises(GatewayError, match="failed at a: no answer"):
        await fleet.ask("m0")
    other = asyncio.ensure_future(fleet.server_of("m1"))
    await fleet.tick(5)
    assert "load m1" not in a.events
    a.gates["models"].set()
    for _ in range(3):
        await fleet.tick(400)
    assert await other == "a"


async def test_memory_bounds_the_models_of_a_server() -> None:
    fleet, a = await alone(max_models=None, memory=10, sizes={"m0": 11, "m1": 6, "m2": 6, "*": 2})
    with pytest.raises(
        GatewayError, match=r"model 'm0' has 11 bytes .* more than the `memory` of a server \(10\)"
    ) as caught:
        await fleet.ask("m0")
    assert caught.value.status is Status.FAILED_PRECONDITION
    await fleet.ask_in_turn(("m1", "m3", "m4"))
    assert list(a.held) == ["m1", "m3", "m4"]
    await fleet.ask_in_turn(("m2",))
    assert sorted(a.held) == ["m2", "m3", "m4"]
    await fleet.ask_in_turn(("m1",))
    assert list(a.held) == ["m1"]  # two of them would not make room enough


async def test_a_failed_load_is_told_in_the_servers_words_and_tried_again_after_a_growing_pause() -> None:
    [a] = repository("a")
    a.load_errors["m0"] = "no GPU memory left"
    fleet = await loading(a).asked()
    waiting = [asyncio.ensure_future(fleet.ask("m0")) for _ in range(2)]
    found = await asyncio.gather(*waiting, return_exceptions=True)
    for error in found:
        assert isinstance(error, GatewayError)
        assert error.message == "backend 'fleet': loading model 'm0' failed at a: no GPU memory left"
        assert (error.status, error.retry_after) == (Status.UNAVAILABLE, FIRST_PAUSE)
    for number, pause in enumerate((1, 2, 4), start=1):
        assert len(loads(a)) == number
        with pytest.raises(GatewayError, match="no GPU memory left") as caught:
            await fleet.ask("m0")
        assert caught.value.retry_after == pause
        assert len(loads(a)) == number
        fleet.clock.now += pause
        with pytest.raises(GatewayError, match="no GPU memory left"):
            await fleet.ask("m0")
    fleet.clock.now += 8
    a.load_errors.clear()
    assert await fleet.server_of("m0") == "a"
    assert fleet.slots.placements.models["m0"].failure is None


async def test_after_the_pause_another_server_is_tried() -> None:
    a, b = repository("a", "b")
    a.load_errors["m0"] = b.load_errors["m0"] = "too large"
    fleet = await loading(a, b).asked()
    with pytest.raises(GatewayError, match="too large"):
        await fleet.ask("m0")
    fleet.clock.now += FIRST_PAUSE
    first, other = (a, b) if loads(a) else (b, a)
    del other.load_errors["m0"]
    # the first one may be tried again, too, and has as much room: the one that has not failed comes first
    assert await fleet.server_of("m0") == other.name
    assert loads(first) == ["load m0"]


async def test_a_server_that_dies_in_a_load_leaves_it_to_the_next_one() -> None:
    a, b = repository("a", "b")
    gate = asyncio.Event()
    a.gates["load m0"] = b.gates["load m0"] = gate
    fleet = await loading(a, b).asked()
    call = await fleet.begin("m0")
    first, other = (a, b) if loads(a) else (b, a)
    first.refuses = True
    gate.set()
    assert await call == other.name


async def test_when_no_server_is_left_the_calls_fail_with_the_reason() -> None:
    [a] = repository("a")
    gate = a.gates["load m0"] = asyncio.Event()
    fleet = await loading(a).asked()
    call = await fleet.begin("m0")
    a.refuses = True
    gate.set()
    with pytest.raises(GatewayError, match=r"failed at a: .*reset"):
        await call
    assert len(fleet.backend.queue) == 0


async def test_a_load_that_takes_for_ever_ends_and_its_room_stays_taken_until_the_server_has_told() -> None:
    [a] = repository("a")
    a.gates["load m0"] = asyncio.Event()
    fleet = await loading(a, max_models=1, timeout=0.01).asked()
    with pytest.raises(GatewayError, match=r"failed at a: no answer to load within 0.01 s"):
        await fleet.ask("m0")
    await settle()
    # it answers the question for its models, and has not loaded it: there is room again
    assert await fleet.server_of("m1") == "a"


async def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind() -> None:
    fleet, a = await alone(max_models=1)
    await fleet.ask("m0")
    a.gates["infer m0"] = asyncio.Event()
    running = await fleet.begin("m0")
    gone = await fleet.begin("m1")
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert (len(fleet.backend.queue), fleet.slots.placements.models["m1"].waiting) == (0, 0)
    a.gates["infer m0"].set()
    await running
    await fleet.tick(1)
    assert loads(a) == ["load m0"]


async def test_waiting_for_a_load_ends_with_the_queues_timeout() -> None:
    [a] = repository("a")
    a.gates["load m0"] = asyncio.Event()
    fleet = await loading(a, queue=QueueSettings(timeout=0.01)).asked()
    with pytest.raises(GatewayError, match=r"loading model 'm0' failed within 0.01 s") as caught:
        await fleet.ask("m0")
    assert caught.value.reason is Reason.OVERLOADED
    a.gates["load m0"].set()
    await settle()
    assert await fleet.server_of("m0") == "a"


async def test_names_that_no_repository_lists_are_not_loaded() -> None:
    fleet, a = await alone()
    with pytest.raises(GatewayError, match="model 'x' is on no server") as caught:
        await fleet.ask("x")
    assert caught.value.reason is Reason.MODEL_NOT_FOUND
    assert (loads(a), "x" in fleet.slots.placements.models) == ([], False)


async def test_questions_load_only_what_calls_need() -> None:
    fleet, a = await alone()
    assert await fleet.ask("m0", Operation.MODEL_READY) is True
    with pytest.raises(GatewayError, match="is on no server yet; call it to load it"):
        await fleet.ask("m0", Operation.MODEL_STATISTICS)
    assert loads(a) == []
    await fleet.ask("m0", Operation.METADATA)
    assert loads(a) == ["load m0"]
    assert fleet.endpoints[0].in_flight == 0
    a.load_errors["m1"] = "broken"
    with pytest.raises(GatewayError):
        await fleet.ask("m1")
    answer = await fleet.ask("m1", Operation.MODEL_READY)
    assert isinstance(answer, NotReady)
    assert "broken" in answer.text


async def test_the_list_has_models_that_a_request_would_load() -> None:
    [a] = repository("a", models=["m0", "m1"])
    fleet = await loading(a).asked()
    await fleet.ask("m0")
    await settle()
    assert await fleet.ask("", Operation.MODELS) == (
        ModelEntry("m0", "1", "READY"),
        ModelEntry("m1", "", "UNAVAILABLE", "not loaded"),
    )


async def test_a_server_that_forgets_one_model_does_not_get_it_back() -> None:
    """An operator may have unloaded it."""
    fleet, a = await alone()
    await fleet.ask("m0")
    await fleet.ask("m1")
    del a.held["m0"]
    await fleet.tick(40)
    assert list(a.held) == ["m1"]
    assert await fleet.server_of("m0") == "a"


async def test_a_server_that_was_away_gets_the_models_back_that_were_used_last() -> None:
    fleet, a = await alone()
    await fleet.ask_in_turn(("m0", "m1"))
    a.refuses = True
    with pytest.raises(GatewayError, match="a: connection refused"):
        await fleet.ask("m1")
    a.restart()
    a.held = {"m2": ("1",)}  # by an operator: there is room for one more
    fleet.clock.now += 5
    await fleet.ask("")
    await settle()
    assert sorted(a.held) == ["m1", "m2"]
    assert loads(a) == ["load m0", "load m1", "load m1"]


@pytest.mark.parametrize(
    ("held", "told"),
    [
        (["m0"], "backend 'fleet' at a: a: connection refused"),
        (
            [],
            "backend 'fleet': model 'm0' is in the repository of a, which cannot load it now; try again later",
        ),
    ],
    ids=["loaded", "not loaded"],
)
async def test_a_model_whose_only_server_is_down_is_loaded_nowhere(held: list[str], told: str) -> None:
    a, b = Server("a", held, MODELS), Server("b")
    fleet = await loading(a, b).asked()
    a.refuses = True
    fleet.endpoints[0].note_failure("reset", unreachable=True)
    with pytest.raises(TransportError) as caught:
        await fleet.ask("m0")
    assert (caught.value.message, loads(b)) == (told, [])


async def test_a_call_elsewhere_does_not_wait_for_a_load() -> None:
    fleet, a = await alone()
    with pytest.raises(GatewayError, match="backend 'fleet': no other endpoint is free; try again later"):
        await fleet.ask("m0", tries=Tries(elsewhere=True))
    assert loads(a) == []


async def test_a_model_that_its_server_loses_is_loaded_again_for_the_calls_that_wait() -> None:
    fleet, a = await alone(limit=1)
    await fleet.ask_in_turn(("m0", "m1"))
    a.gates["infer m0"] = asyncio.Event()
    calls = [await fleet.begin("m0") for _ in range(2)]
    del a.held["m0"]
    await fleet.slots.refresher.ask_soon(fleet.endpoints[0])
    await settle()
    assert loads(a) == ["load m0", "load m1", "load m0"]
    a.gates["infer m0"].set()
    assert await asyncio.gather(*calls) == ["a", "a"]


async def test_a_model_in_flight_that_no_repository_lists_any_more_is_loaded_for_nobody() -> None:
    fleet, a = await alone()
    await fleet.ask("m0")
    a.gates["infer m0"] = asyncio.Event()
    call = await fleet.begin("m0")
    a.held, a.listed = {}, ["m1"]
    await fleet.tick(40)
    with pytest.raises(GatewayError, match="model 'm0' is on no server; load it, or correct its name"):
        await fleet.ask("m0")
    a.gates["infer m0"].set()
    with pytest.raises(GatewayError, match="a has no model m0"):
        await call


async def test_the_calls_that_wait_at_a_drained_server_make_another_load_their_model() -> None:
    a, b = Server("a", ["m0"], MODELS), Server("b", [], MODELS)
    fleet = await loading(a, b, limit=1).asked()
    a.gates["infer m0"] = asyncio.Event()
    first, second = [await fleet.begin("m0") for _ in range(2)]
    fleet.endpoints[0].set_drain(Drain(0))
    assert await second == "b"
    a.gates["infer m0"].set()
    assert await first == "a"
    assert (loads(a), loads(b)) == ([], ["load m0"])


async def test_a_server_that_loads_a_model_for_others_is_asked_until_it_has_it() -> None:
    [a] = repository("a")
    a.states["m0"] = "LOADING"
    fleet = await loading(a).asked()
    call = await fleet.begin("m0")
    for _ in range(3):
        await fleet.tick(1)
    assert not call.done()
    a.held["m0"] = ("1",)
    await fleet.tick(1)
    assert await call == "a"
    assert loads(a) == []
    assert 4 <= a.events.count("models") <= 5  # once in each look


async def test_an_idle_model_that_cannot_be_unloaded_stays() -> None:
    fleet, a = await alone(idle=10)
    await fleet.ask("m0")
    a.unload_errors["m0"] = "in use by an ensemble"
    await fleet.tick(20)
    assert (loads(a), await fleet.server_of("m0")) == (["load m0", "unload m0"], "a")
    a.unload_errors.clear()
    await fleet.tick(20)
    assert a.held == {}


async def test_a_model_that_stays_after_its_unload_gets_calls_again() -> None:
    fleet, a = await alone(timeout=5)

    async def pause(seconds: float) -> None:
        fleet.clock.now += seconds

    fleet.loader.sleep = pause
    await fleet.ask("m0")
    a.keeps.add("m0")
    with pytest.raises(GatewayError) as caught:
        await fleet.backend(ControlRequest(Operation.UNLOAD, "m0"))
    text = "the server still has the model after 5 s (placement.timeout); raise this timeout, or check the server"
    assert (caught.value.status, caught.value.message) == (Status.DEADLINE_EXCEEDED, text)
    assert await fleet.server_of("m0") == "a"


async def test_a_server_that_leaves_in_a_load_leaves_it_to_another() -> None:
    a, b = repository("a", "b")
    gate = a.gates["load m0"] = b.gates["load m0"] = asyncio.Event()
    fleet = await loading(a, b).asked()
    call = await fleet.begin("m0")
    first, other = (a, b) if loads(a) else (b, a)
    fleet.backend.remove(fleet.endpoints[fleet.servers.index(first)])
    gate.set()
    assert await call == other.name
    [report] = [each for each in fleet.slots.placements.report() if each.model == "m0"]
    assert [each.endpoint.address for each in report.holdings] == [other.name]


async def test_hot_models_get_copies_and_cold_ones_are_unloaded() -> None:
    fleet, a, b = await pair(max_copies=2, calls_per_copy=2, idle=100.0)
    await fleet.ask("m0")
    for each in (a, b):
        each.gates["infer m0"] = asyncio.Event()
    calls = [asyncio.ensure_future(fleet.ask("m0")) for _ in range(4)]
    for _ in range(10):
        await fleet.tick(1)
    assert [list(each.held) for each in (a, b)] == [["m0"], ["m0"]]
    calls += [asyncio.ensure_future(fleet.ask("m0")) for _ in range(2)]
    await settle()
    assert min(a.calls(), b.calls()) >= 2  # new calls go to the copy
    for each in (a, b):
        each.gates["infer m0"].set()
    await asyncio.gather(*calls)
    await fleet.tick(99)
    assert [list(each.held) for each in (a, b)] == [["m0"], ["m0"]]
    await fleet.tick(2)
    assert [each.held for each in (a, b)] == [{}, {}]
    assert {each.name for each in await fleet.ask("", Operation.MODELS)} == set(MODELS)  # type: ignore[union-attr]


async def test_a_copy_takes_no_room_from_a_model_in_use() -> None:
    fleet, a, b = await pair(max_models=1, max_copies=2, calls_per_copy=1)
    for model in ("m0", "m1"):
        await fleet.ask(model)
    for each in (a, b):
        each.gates["infer m0"] = asyncio.Event()
    calls = [asyncio.ensure_future(fleet.ask("m0")) for _ in range(4)]
    for _ in range(10):
        await fleet.tick(1)
    assert sorted([*a.held, *b.held]) == ["m0", "m1"]
    await fleet.tick(UNUSED_SECONDS)
    assert sorted([*a.held, *b.held]) == ["m0", "m0"]
    for each in (a, b):
        each.gates["infer m0"].set()
    await asyncio.gather(*calls)


async def test_at_least_so_many_copies_are_loaded() -> None:
    servers = repository("a", "b", "c")
    fleet = await loading(*servers, min_copies=2, max_copies=2).asked()
    await fleet.ask("m0")
    await fleet.tick(1)
    assert sum("m0" in each.held for each in servers) == 2


async def test_what_others_have_loaded_too_much_is_unloaded() -> None:
    """By another gateway, or by an operator: the copy that stays is the same for all gateways."""
    a, b = Server("a", ["m0"], MODELS), Server("b", ["m0", "m1", "m2"], MODELS)
    fleet = await loading(a, b, max_models=2).asked()
    await fleet.tick(1)
    assert len(a.held) + len(b.held) == 3
    assert (len(a.held) <= 2, len(b.held) <= 2) == (True, True)
    assert sum("m0" in each.held for each in (a, b)) == 1


async def test_all_gateways_keep_the_same_copy() -> None:
    for models in (["m0"], ["m1"], ["m2"]):
        kept = set()
        for names in ("abc", "cba"):
            servers = [Server(name, models) for name in names]
            fleet = await loading(*servers).asked()
            await fleet.tick(1)
            kept.add("".join(each.name for each in servers if each.held))
        assert len(kept) == 1
        assert len(kept.pop()) == 1


async def test_equal_servers_are_chosen_by_a_hash_of_the_names() -> None:
    for model in MODELS:
        servers = repository(*"abcde")
        await (await loading(*servers).asked()).ask(model)
        assert [each.name for each in servers if each.held] == [max("abcde", key=lambda name: rendezvous(model, name))]


async def test_two_gateways_load_a_model_at_the_same_server() -> None:
    servers = repository("a", "b", "c")
    one, other = await loading(*servers).asked(), await loading(*reversed(servers)).asked()
    for model in MODELS[:6]:
        await asyncio.gather(one.ask(model), other.ask(model))
        await asyncio.gather(one.asked(), other.asked())
    assert sorted(model for each in servers for model in each.held) == MODELS[:6]


class OneAtATime:
    """A LoadCoordinator that lets another gateway load first, unless it is free."""

    is_shared = True

    def __init__(self, *, is_free: bool = False) -> None:
        self.is_free = is_free
        self.asked: list[str] = []

    async def claim(self, model: str, address: str) -> bool:
        self.asked.append(model)
        return self.is_free

    async def release(self, model: str, address: str) -> None:
        self.asked.remove(model)

    async def close(self) -> None:
        """Nothing is open."""


async def test_a_model_that_another_gateway_loads_is_waited_for() -> None:
    a, b = repository("a", "b")
    agreement = OneAtATime()
    fleet = await Fleet(a, b, load=LoadSettings(max_models=2), agreement=agreement).asked()
    calls = [asyncio.ensure_future(fleet.server_of(model)) for model in ("m0", "m1")]
    for _ in range(3):
        await fleet.tick(1)
    assert 4 <= len(agreement.asked) <= 8  # once in each look, and no more
    a.held["m0"] = ("1",)
    for _ in range(2):
        await fleet.tick(1)
    assert await calls[0] == "a"
    agreement.is_free = True
    for _ in range(2):
        await fleet.tick(1)
    assert await calls[1] in ("a", "b")
    assert sorted([*loads(a), *loads(b)]) == ["load m1"]


async def test_a_model_that_another_gateway_has_just_loaded_is_called_there_and_not_loaded_again() -> None:
    a, b = repository("a", "b")
    agreement = OneAtATime(is_free=True)
    fleet = await Fleet(a, b, load=LoadSettings(max_models=2), agreement=agreement).asked()
    b.held["m0"] = ("1",)  # since it was asked last
    assert await fleet.server_of("m0") == "b"
    assert [*loads(a), *loads(b), *agreement.asked] == []
    await fleet.ask("m1")
    assert [*loads(a), *loads(b), *agreement.asked] == ["load m1"]


async def test_a_server_that_lists_a_model_after_a_failed_load_is_not_believed() -> None:
    [a] = repository("a")
    a.load_errors["m0"] = "no memory"
    fleet = await Fleet(a, load=LoadSettings(), agreement=OneAtATime(is_free=True)).asked()
    with pytest.raises(GatewayError, match="no memory"):
        await fleet.ask("m0")
    await settle()
    a.held["m0"] = ("1",)
    a.load_errors.clear()
    fleet.clock.now += FIRST_PAUSE
    assert await fleet.server_of("m0") == "a"
    assert loads(a) == ["load m0"] * 2


async def test_a_server_that_does_not_answer_hinders_no_load_elsewhere() -> None:
    a, b = repository("a", "b")
    fleet = await Fleet(a, b, load=LoadSettings(), agreement=OneAtATime(is_free=True)).asked()
    b.errors[Operation.MODELS] = refusal(Reason.OVERLOADED, "busy")
    await fleet.loader.load_at("m0", fleet.endpoints[0])
    assert loads(a) == ["load m0"]


async def test_a_model_that_was_to_make_room_is_called_where_it_is_if_another_gateway_loads_the_new_one() -> None:
    [a] = repository("a")
    agreement = OneAtATime(is_free=True)
    fleet = await Fleet(a, load=LoadSettings(max_models=1), agreement=agreement).asked()
    await fleet.ask("m0")
    fleet.clock.now += UNUSED_SECONDS
    agreement.is_free = False
    waiting = await fleet.begin("m1")
    assert not waiting.done()
    assert await fleet.server_of("m0") == "a"
    assert loads(a) == ["load m0"]
    waiting.cancel()


async def test_a_model_that_cannot_be_unloaded_stays_and_the_other_goes_elsewhere() -> None:
    fleet, a = await alone(max_models=1)
    await fleet.ask("m0")
    a.unload_errors["m0"] = "in use by an ensemble"
    with pytest.raises(GatewayError, match="no capacity, because 'm0' could not be unloaded: in use by an ensemble"):
        await fleet.ask("m1")
    assert await fleet.server_of("m0") == "a"
    waiting = await fleet.begin("m2")
    assert loads(a) == ["load m0", "unload m0"]  # it is not tried again at once
    a.unload_errors.clear()
    await fleet.tick(10)
    assert await waiting == "a"
    assert a.most_held == 1


async def test_clients_with_control_load_and_unload() -> None:
    fleet, a, b = await pair(max_models=1)
    control = fleet.backend
    assert await control(ControlRequest(Operation.LOAD, "m0")) is True
    assert await control(ControlRequest(Operation.LOAD, "m1")) is True
    assert [len(a.held), len(b.held)] == [1, 1]
    holder = a if "m0" in a.held else b
    await control(ControlRequest(Operation.LOAD, "m0"))
    assert loads(holder).count("load m0") == 2  # where it is, it is loaded again
    await control(ControlRequest(Operation.UNLOAD, "m0"))
    assert holder.held == {}
    with pytest.raises(GatewayError, match="model 'm0' is on no server"):
        await control(ControlRequest(Operation.UNLOAD, "m0"))
    with pytest.raises(GatewayError, match="no model x in the repository"):
        await control(ControlRequest(Operation.LOAD, "x"))
    for operation in (Operation.MODEL_READY, Operation.METADATA):
        with pytest.raises(GatewayError, match="model 'x' is on no server"):
            await fleet.ask("x", operation)
    assert "x" not in {each.name for each in await fleet.ask("", Operation.MODELS)}  # type: ignore[union-attr]


async def test_clients_do_not_load_what_no_server_has_room_for() -> None:
    fleet, a = await alone(max_models=1)
    await fleet.ask("m0")
    a.gates["infer m0"] = asyncio.Event()
    call = await fleet.begin("m0")
    with pytest.raises(GatewayError) as caught:
        await fleet.backend(ControlRequest(Operation.LOAD, "m1"))
    text = "backend 'fleet': every server is too busy to load model 'm1'; try again later"
    assert (caught.value.reason, caught.value.message) == (Reason.OVERLOADED, text)
    a.gates["infer m0"].set()
    await call


async def test_loads_of_clients_also_where_nothing_is_loaded_on_demand() -> None:
    a, b = Server("a", ["m0"], MODELS), Server("b", [], MODELS)
    fleet = await Fleet(a, b).asked()
    assert await fleet.backend(ControlRequest(Operation.LOAD, "m1")) is True
    assert [list(each.held) for each in (a, b)] == [["m0"], ["m1"]]
    assert await fleet.server_of("m1") == "b"


async def test_loads_and_the_table_survive_a_reload() -> None:
    fleet, a = await alone(max_models=1)
    a.gates["load m0"] = asyncio.Event()
    old = fleet.backend
    before = await fleet.begin("m0")
    fleet.load_settings = LoadSettings(max_models=1)
    fleet.backend = fleet.new_backend(fleet.endpoints)
    fleet.backend.replace(old)
    after = await fleet.begin("m0")
    a.gates["load m0"].set()
    assert list(await asyncio.gather(before, after)) == ["a", "a"]
    assert loads(a) == ["load m0"]
    old.close()
    assert await fleet.server_of("m1") == "a"
    assert a.most_held == 1


async def test_the_models_of_one_server_are_loaded_elsewhere() -> None:
    a, b = Server("a", ["m0", "both"], [*MODELS, "both"]), Server("b", ["both"], [*MODELS, "both"])
    fleet = await loading(a, b, max_copies=2).asked()
    assert await fleet.loader.load_elsewhere(fleet.endpoints[0]) == ()
    assert sorted(b.held) == ["both", "m0"]


async def test_calls_wait_for_a_load_and_then_for_slots() -> None:
    fleet, _ = await alone(limit=1)
    answers = await asyncio.gather(*(fleet.server_of(model) for model in ("m0", "m0", "m1", "m0", "m1")))
    assert answers == ["a"] * 5
    assert fleet.endpoints[0].in_flight == 0


async def test_a_sequence_begins_with_a_load() -> None:
    fleet, *_ = await pair()
    sequence = {"sequence_id": 7}
    assert len({await fleet.server_of("m0", parameters=sequence) for _ in range(3)}) == 1


def test_states_have_the_words_of_reports() -> None:
    assert [each.value for each in ReplicaState] == ["held", "loading", "unloading", "failed", "gone"]
