"""Gateways in front of one fleet agree through Redis who loads a model."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from gateway.core.redis import connection_pool
from gateway.routing.placement.agreement import LEASE_SECONDS, PAUSE, RedisAgreement
from tests.policies.redis_server import RedisServer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    folder: Path = tmp_path_factory.mktemp("redis")
    found = RedisServer(folder)
    yield found
    found.process.stop()


def agreement(server: RedisServer, **more: Any) -> RedisAgreement:
    return RedisAgreement(Redis.from_pool(connection_pool(server.url)), "fleet", **more)


async def never(seconds: float) -> None:
    await asyncio.Event().wait()


@pytest.mark.real("redis-server")
async def test_one_gateway_loads_a_model_and_the_other_waits_until_it_has(server: RedisServer) -> None:
    waited: list[float] = []

    async def look(seconds: float) -> None:
        waited.append(seconds)
        await first.release("m", "a:1")

    first, second = agreement(server, sleep=never), agreement(server, sleep=look)
    try:
        assert await first.claim("m", "a:1")
        assert await second.claim("other", "a:1")
        assert not await second.claim("m", "b:1")
        assert len(waited) == 1
        assert await second.claim("m", "b:1")
        await first.release("m", "a:1")  # it has no lease any more, and ends none of others
    finally:
        await first.close()
        await second.close()


@pytest.mark.real("redis-server")
async def test_a_lease_ends_by_itself_unless_it_is_renewed(server: RedisServer) -> None:
    is_due, slept = asyncio.Event(), asyncio.Event()

    async def once(seconds: float) -> None:
        if is_due.is_set():
            slept.set()
            await never(seconds)
        await is_due.wait()

    first = agreement(server, sleep=once)
    client = Redis.from_pool(connection_pool(server.url))
    try:
        assert await first.claim("leased", "a:1")
        assert 0 < await client.pttl("fleet:load:leased") <= LEASE_SECONDS * 1000
        await client.pexpire("fleet:load:leased", 5000)
        is_due.set()
        await slept.wait()
        assert await client.pttl("fleet:load:leased") > 5000
    finally:
        await first.close()
        await client.aclose()


class Away:
    """A Redis that does not answer until it is back."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_back = False

    async def set(self, name: str, value: str, *, px: int, nx: bool) -> bool:
        self.asked += 1
        if not self.is_back:
            raise ConnectionError("refused")
        return True

    async def exists(self, name: str) -> int:
        return 0

    async def eval(self, script: str, numkeys: int, *keys_and_args: str) -> int:
        return 1

    async def aclose(self) -> None:
        pass


async def test_without_redis_each_gateway_decides_which_the_log_says_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now, client = [0.0], Away()
    alone = RedisAgreement(client, "fleet", clock=lambda: now[0], sleep=never)
    for model in ("m", "n", "m"):
        assert await alone.claim(model, "a:1")
        await alone.release(model, "a:1")
    assert client.asked == 1
    now[0] += PAUSE
    assert await alone.claim("m", "a:1")
    assert client.asked == 2
    [line] = caplog.messages
    assert (
        "'fleet': Redis fails: ConnectionError: refused; until it answers, each gateway chooses by rendezvous" in line
    )
    now[0] += PAUSE
    client.is_back = True
    assert await alone.claim("m", "a:1")
    assert "Redis answers again" in caplog.messages[-1]
    await alone.close()
