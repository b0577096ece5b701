"""A gateway in front of a fleet of servers that lie, forget, hang, fail and restart: no request is answered by another
model than its own, and no server gets more models than it may have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from unittest.mock import patch

import pytest
from redis.asyncio import Redis

from gateway.core.tasks import spawn
from gateway.routing.placement import agreement
from gateway.runtime.app import Gateway
from tests.limits import GENEROUS, until
from tests.peers.fleet_client import CLIENTS, CallFailed
from tests.peers.fleet_models import FleetModels
from tests.peers.fleet_server import FleetServer, serve
from tests.policies.redis_server import RedisServer
from tests.running_gateway import running_gateway
from tests.skipping_loop import skip

MODELS = [f"m{number}" for number in range(12)]
CONFIG = """
listeners:
  - {{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}}
  - {{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}}
backends:
  fleet:
    protocol: {protocol}
    endpoints: {endpoints}
    safe: true
    placement: {{{placement}}}
    policies: [{{timeout: {{seconds: {seconds}}}}}]
routes: [{{match: {{model: "*"}}, backend: fleet}}]
"""
PROTOCOLS = {"http": "v2-rest", "grpc": "v2-grpc"}
SOON = "interval: 0.2"
LOOKED_FOR = f"loading: never, {SOON}"
ON_DEMAND = f"loading: on_demand, max_models: 2, {SOON}"


@dataclass
class Fleet:
    """Scripted servers, and a gateway in front of them."""

    servers: list[FleetServer]
    gateway: Gateway
    wire: str

    @property
    def models(self) -> list[FleetModels]:
        return [each.models for each in self.servers]

    async def ask(self, model: str, number: float = 1.0) -> None:
        """A request of this model, which must be answered by this model, with this number.

        Raises CallFailed for an error.
        """
        assert await asyncio.to_thread(self._infer, model, number) == (model, [number])

    async def refused(self, model: str) -> str:
        """The status and text of the error that a request of this model gets."""
        text = await self.outcome(model)
        assert text, f"{model} was answered"
        return text

    async def outcome(self, model: str) -> str:
        """Empty if the model itself has answered, else the status and text of the error."""
        try:
            await self.ask(model)
        except CallFailed as error:
            return str(error)
        return ""

    async def index(self) -> dict[str, str]:
        """The state of each model in the gateway's own listing."""

        def listed() -> list[dict[str, str]]:
            with closing(CLIENTS[self.wire](self._address)) as client:
                return client.index()

        return {each["name"]: each.get("state", "") for each in await asyncio.to_thread(listed)}

    def loads(self, model: str) -> int:
        """On all servers."""
        return sum(each.loads[model] for each in self.models)

    def holders(self, model: str) -> list[int]:
        """The numbers of the servers that hold it."""
        return [number for number, each in enumerate(self.models) if model in each.held]

    def _infer(self, model: str, number: float) -> tuple[str, list[float]]:
        with closing(CLIENTS[self.wire](self._address)) as client:
            return client.infer(model, [number])

    @property
    def _address(self) -> str:
        return self.gateway.state.listeners[self.wire].address


@pytest.fixture(autouse=True)
async def threads() -> None:
    """Requests wait in threads, more of them than the loop has by itself."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(64))


def started(
    servers: Sequence[FleetServer], placement: str, wire: str, seconds: float
) -> AbstractAsyncContextManager[Gateway]:
    endpoints = [getattr(each, wire) for each in servers]
    return running_gateway(
        CONFIG.format(protocol=PROTOCOLS[wire], endpoints=endpoints, placement=placement, seconds=seconds)
    )


@asynccontextmanager
async def fleet(placement: str, *models: FleetModels, wire: str = "grpc", seconds: float = 60) -> AsyncIterator[Fleet]:
    """A server for each of `models`, and a gateway with these keys of `placement`."""
    with ExitStack() as stack:
        servers = [stack.enter_context(serve(each)) for each in models]
        async with started(servers, placement, wire, seconds) as gateway:
            yield Fleet(servers, gateway, wire)


def preloaded(*names: str, claimed: str = "") -> FleetModels:
    """A server with these models, which claims to have another one."""
    models = FleetModels(MODELS)
    models.preload(*names)
    models.claimed.update(filter(None, [claimed]))
    return models


# --- models that are only looked for ---


@pytest.mark.parametrize("wire", PROTOCOLS)
async def test_requests_go_to_holders_only(wire: str) -> None:
    async with fleet(LOOKED_FOR, preloaded("m0", "m1"), preloaded("m1", "m2"), wire=wire) as here:
        for model in ("m0", "m1", "m2") * 4:
            await here.ask(model)
        assert [dict(each.missed) for each in here.models] == [{}, {}]
        assert (here.models[0].calls["m0"], here.models[1].calls["m2"]) == (4, 4)
        assert here.models[0].calls["m1"]
        assert here.models[1].calls["m1"]
        states = await here.index()
        assert [name for name, state in states.items() if state == "READY"] == ["m0", "m1", "m2"]
        assert "m3" in await here.refused("m3")
        assert here.loads("m3") == 0


async def test_a_model_that_a_server_forgets_is_asked_for_elsewhere() -> None:
    async with fleet("loading: never", preloaded("m0"), preloaded("m0")) as here:
        here.models[0].forget("m0")
        for _ in range(6):
            await here.ask("m0")
        # Once it believed what the server had told; never again after that.
        assert here.models[0].missed["m0"] <= 1
        assert here.models[1].calls["m0"] == 6


async def test_a_server_that_lies_about_a_model_is_not_believed_for_long() -> None:
    liar = preloaded(claimed="m0")
    async with fleet(LOOKED_FOR, liar, preloaded("m0")) as here:
        asked = liar.indexed
        for _ in range(4):
            await here.ask("m0")
        await until(lambda: liar.indexed > asked + 1)  # and it says so again and again
        for _ in range(4):
            await here.ask("m0")
        assert liar.missed["m0"] <= 2


async def test_a_model_that_nobody_has_is_not_found_although_a_server_lists_it() -> None:
    liar = preloaded(claimed="m0")
    async with fleet(LOOKED_FOR, liar) as here:
        for _ in range(3):
            assert "m0" in await here.refused("m0")


# --- models that are loaded on demand ---


@pytest.mark.parametrize("wire", PROTOCOLS)
async def test_the_first_requests_of_a_model_load_it_once(wire: str) -> None:
    async with fleet(ON_DEMAND, FleetModels(MODELS), FleetModels(MODELS), wire=wire) as here:
        await asyncio.gather(*(here.ask("m0", number) for number in range(12)))
        assert here.loads("m0") == 1
        await here.ask("m1")
        assert here.holders("m1") != here.holders("m0")  # the server with the most room


async def test_no_server_gets_more_models_than_it_may_have() -> None:
    async with fleet(ON_DEMAND, FleetModels(MODELS), FleetModels(MODELS)) as here:
        for turn in range(3):
            await asyncio.gather(*(here.ask(model, turn) for model in MODELS))
        assert [each.highest for each in here.models] == [2, 2]
        assert sum((each.calls for each in here.models), start=type(here.models[0].calls)()).total() == 36


async def test_the_least_recently_used_model_makes_room() -> None:
    async with fleet(ON_DEMAND, FleetModels(MODELS)) as here:
        for model in ("m0", "m1", "m0", "m2", "m0"):
            await here.ask(model)
        assert here.models[0].unloads == {"m1": 1}
        assert here.models[0].held == {"m0", "m2"}


async def test_a_model_with_calls_in_flight_is_not_unloaded() -> None:
    async with fleet(f"loading: on_demand, max_models: 1, {SOON}", FleetModels(MODELS)) as here:
        (models,) = here.models
        await here.ask("m0")
        models.stuck.add("m0")
        first = spawn(here.ask("m0"))
        await until(lambda: models.arrived["m0"] == 2)
        second = spawn(here.ask("m1"))
        await until(lambda: here.gateway.state.status().backends["fleet"].waiting == 1)
        assert (dict(models.unloads), dict(models.loads)) == ({}, {"m0": 1})
        models.release()
        await asyncio.gather(first, second)
        assert models.highest == 1


async def test_a_place_that_is_slow_to_become_free_is_waited_for() -> None:
    """Triton answers an unload before the model is gone; the next load would be one too many."""
    async with fleet(f"loading: on_demand, max_models: 1, {SOON}", FleetModels(MODELS, most=1)) as here:
        (models,) = here.models
        models.lingering.add("m0")
        await here.ask("m0")
        second = spawn(here.ask("m1"))
        await until(lambda: models.unloads["m0"] == 1)
        models.release()
        await second
        assert models.highest == 1


async def test_a_load_that_fails_is_told_in_the_server_s_words_and_not_repeated_at_once() -> None:
    broken = FleetModels(MODELS)
    broken.failing["m0"] = "CUDA out of memory"
    async with fleet(ON_DEMAND, broken) as here:
        assert "CUDA out of memory" in await here.refused("m0")
        for _ in range(5):
            assert "CUDA out of memory" in await here.refused("m0")
        assert broken.loads["m0"] == 1
        await here.ask("m1")


async def test_a_load_that_fails_in_the_middle_fails_those_who_wait_for_it_and_nobody_else() -> None:
    models = FleetModels(MODELS)
    models.failing["m0"] = "out of memory"
    models.hanging.add("m0")
    async with fleet(ON_DEMAND, models) as here:
        waiting = [spawn(here.refused("m0")) for _ in range(3)]
        assert await asyncio.to_thread(models.wait_until_loading, "m0", GENEROUS)
        await here.ask("m1")
        models.release()
        assert all("out of memory" in text for text in await asyncio.gather(*waiting))


async def test_a_full_server_s_model_is_loaded_on_another() -> None:
    """The first says that it may have two, and has memory for one."""
    small = FleetModels(MODELS, most=1)
    async with fleet(ON_DEMAND, small, FleetModels(MODELS)) as here:
        for model in MODELS[:2]:
            await here.ask(model)
        while text := await here.outcome(MODELS[2]):
            assert "out of memory" in text
            await asyncio.sleep(0.05)  # it is not tried again at once
        assert small.highest == 1


async def test_a_load_that_never_ends_holds_up_only_its_own_model() -> None:
    models = FleetModels(MODELS)
    models.hanging.add("m0")
    async with fleet(ON_DEMAND, models, seconds=60) as here:
        refused = spawn(here.refused("m0"))
        assert await asyncio.to_thread(models.wait_until_loading, "m0", GENEROUS)
        await skip(60)
        assert "no answer within 60 s" in await refused
        await here.ask("m1")
        models.release()
        await until(lambda: models.held == {"m0", "m1"})
        await here.ask("m0")
        assert models.loads["m0"] == 1


async def test_a_model_that_a_server_forgets_is_loaded_again() -> None:
    async with fleet("loading: on_demand, max_models: 2", FleetModels(MODELS)) as here:
        await here.ask("m0")
        here.models[0].forget("m0")
        await here.ask("m0")
        assert here.loads("m0") == 2


async def test_a_model_that_is_forgotten_under_a_call_is_loaded_again_for_it() -> None:
    """The gateway has heard of it before the call is answered."""
    async with fleet(ON_DEMAND, FleetModels(MODELS)) as here:
        (models,) = here.models
        await here.ask("m0")
        await here.ask("m1")  # a server without any model has restarted, and gets back what it had
        models.stuck.add("m0")
        call = spawn(here.ask("m0"))
        await until(lambda: models.arrived["m0"] == 2)
        models.forget("m0")
        told = models.indexed
        await until(lambda: models.indexed > told + 2)
        models.release()
        await call
        assert here.loads("m0") == 2


async def test_a_server_that_restarts_is_filled_again_with_what_it_had() -> None:
    async with fleet(ON_DEMAND, FleetModels(MODELS), FleetModels(MODELS)) as here:
        for model in MODELS[:4]:
            await here.ask(model)
        before = here.models[0].held
        assert len(before) == 2
        await asyncio.to_thread(here.servers[0].restart)
        await until(lambda: here.models[0].held == before)
        for model in MODELS[:4]:
            await here.ask(model)
        assert [each.highest for each in here.models] == [2, 2]


async def test_while_a_server_is_away_its_models_are_loaded_elsewhere() -> None:
    async with fleet(f"loading: on_demand, max_models: 4, {SOON}", FleetModels(MODELS), FleetModels(MODELS)) as here:
        await here.ask("m0")
        (holder,) = here.holders("m0")
        await asyncio.to_thread(here.servers[holder].stop)
        await here.ask("m0")
        assert here.holders("m0") == [1 - holder]
        await asyncio.to_thread(here.servers[holder].start)


async def test_a_model_that_is_not_called_is_unloaded() -> None:
    async with fleet(f"loading: on_demand, max_models: 4, idle: 0.2, {SOON}", FleetModels(MODELS)) as here:
        await here.ask("m0")
        await until(lambda: here.models[0].unloads["m0"] == 1)
        await here.ask("m0")
        assert here.loads("m0") == 2


@pytest.mark.long
async def test_a_model_that_many_call_gets_copies_up_to_the_limit() -> None:
    servers = [FleetModels(MODELS) for _ in range(3)]
    for each in servers:
        each.seconds = 0.05
    async with fleet(f"{ON_DEMAND}, copies: 1..2", *servers) as here:
        await here.ask("m0")
        assert len(here.holders("m0")) == 1

        async def calls() -> None:
            while len(here.holders("m0")) < 2:
                await here.ask("m0")

        async with asyncio.timeout(GENEROUS):
            await asyncio.gather(*(calls() for _ in range(24)))
        assert here.loads("m0") == 2


async def test_a_gateway_that_restarts_finds_what_is_loaded() -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(serve(FleetModels(MODELS))) for _ in range(2)]
        for _ in range(2):
            async with started(servers, ON_DEMAND, "grpc", 60) as gateway:
                here = Fleet(servers, gateway, "grpc")
                for model in MODELS[:4]:
                    await here.ask(model)
        assert [here.loads(model) for model in MODELS[:4]] == [1, 1, 1, 1]
        assert [each.highest for each in here.models] == [2, 2]


async def test_a_gateway_that_ends_during_a_load_loses_no_place() -> None:
    with serve(FleetModels(MODELS)) as server:
        server.models.hanging.add("m0")
        async with started([server], ON_DEMAND, "grpc", 60) as gateway:
            asking = spawn(Fleet([server], gateway, "grpc").refused("m0"))
            assert await asyncio.to_thread(server.models.wait_until_loading, "m0", GENEROUS)
        assert await asking
        async with started([server], ON_DEMAND, "grpc", 60) as gateway:
            here = Fleet([server], gateway, "grpc")
            later = spawn(here.ask("m0"))
            await here.ask("m1")
            server.models.release()
            await later
        assert server.models.highest == 2


# --- two gateways in front of the same servers ---


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis"))
    yield server
    server.process.stop()


@asynccontextmanager
async def pair(redis: RedisServer, *models: FleetModels) -> AsyncIterator[tuple[Fleet, Fleet]]:
    """A server for each of `models`, and two gateways that agree by `redis` who loads a model. They ask the servers
    what these have at their start, and later only if they have a reason to. Every server has room for all models: two
    gateways that load different models at once can fill a server beyond its limit (docs/fleet.md)."""
    shared = f'interval: 3600, redis: {{url: "{redis.url}", name: fleet}}'
    placement = f"loading: on_demand, max_models: {len(MODELS)}, {shared}"
    with ExitStack() as stack:
        stack.enter_context(patch.object(agreement, "SECONDS", GENEROUS))  # on a busy machine, Redis takes its time
        servers = [stack.enter_context(serve(each)) for each in models]
        one, other = (started(servers, placement, "grpc", 60) for _ in range(2))
        async with one as first, other as second:
            yield Fleet(servers, first, "grpc"), Fleet(servers, second, "grpc")


async def looks(redis: RedisServer) -> int:
    """How often a gateway has looked whether the lease of another one is over."""
    async with Redis.from_url(redis.url) as client:
        return int((await client.info("commandstats")).get("cmdstat_exists", {}).get("calls", 0))


@pytest.mark.real("redis-server")
async def test_two_gateways_load_no_model_twice(redis: RedisServer) -> None:
    async with pair(redis, FleetModels(MODELS), FleetModels(MODELS)) as (first, second):
        await first.ask("m0")
        await second.ask("m0")  # which does not know yet that it is loaded
        await asyncio.gather(*(each.ask(model) for model in MODELS for each in (first, second)))
        assert [first.loads(model) for model in MODELS] == [1] * len(MODELS)
        assert sum(each.unloads.total() for each in first.models) == 0


@pytest.mark.real("redis-server")
async def test_a_gateway_waits_for_the_load_of_another_one_and_calls_the_model_where_that_has_put_it(
    redis: RedisServer,
) -> None:
    async with pair(redis, FleetModels(MODELS), FleetModels(MODELS)) as (first, second):
        for each in first.models:
            each.hanging.add("m0")
        before = await looks(redis)
        calls = [spawn(first.ask("m0"))]
        await until(lambda: first.loads("m0") == 1)
        calls.append(spawn(second.ask("m0")))
        async with asyncio.timeout(GENEROUS):
            while await looks(redis) == before:
                pass
        for each in first.models:
            each.release()
        await asyncio.gather(*calls)
        assert first.loads("m0") == 1


@pytest.mark.real("redis-server")
async def test_without_redis_each_of_two_gateways_loads_what_its_clients_ask_for(redis: RedisServer) -> None:
    async with pair(redis, FleetModels(MODELS), FleetModels(MODELS)) as gateways:
        redis.process.stop()
        try:
            await asyncio.gather(*(each.ask("m0") for each in gateways))
        finally:
            redis.start()
