"""Limits that several gateways share, with a real Redis server."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.core.errors import GatewayError, Reason
from gateway.core.messages import Headers
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request, Response
from gateway.policies import rate_limit, shared_server
from gateway.policies.rate_limit import RateLimit, Settings, wrap
from gateway.policies.shared_server import PAUSE
from tests.clock import Clock
from tests.policies.redis_server import PASSWORD, RedisServer

pytestmark = pytest.mark.real("redis-server")
ANSWER = Response(id="answer")


async def answer(request: Request) -> Answer:
    return ANSWER


def infer(key: str = "") -> Request:
    headers = Headers([(b"x-api-key", key.encode())])
    return Request(Operation.INFER, "m", peer="10.0.0.1:5", headers=headers)


def configured(server: RedisServer, unique: str, **more: object) -> Settings:
    return Settings.model_validate({"requests": 10, "seconds": 3600, "redis": server.url, "name": unique, **more})


@asynccontextmanager
async def closing(*settings: Settings) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for each in settings:
            await rate_limit.state(each).close(0)


async def passes(settings: Settings, request: Request | None = None) -> Reason | None:
    """None, or why a request is refused."""
    try:
        await wrap(answer, settings)(request or infer())
    except GatewayError as error:
        return error.reason
    return None


@pytest.mark.parametrize("change", [{"name": "other"}, {"requests": 11}, {"by": "all"}, {"burst": 9}])
async def test_other_limits_are_not_shared(server: RedisServer, change: dict[str, object]) -> None:
    first, second = configured(server, "apart"), configured(server, "apart", **change)
    async with closing(first, second):
        for _ in range(15):
            await passes(first)
        assert await passes(first) is Reason.RATE_LIMITED
        assert await passes(second) is None


async def test_a_bucket_fills_again_by_the_clock_of_the_server(server: RedisServer) -> None:
    settings = configured(server, "fills", requests=10, seconds=0.5, burst=1)
    async with closing(settings):
        handler, waits = wrap(answer, settings), []
        for _ in range(3):
            while isinstance(
                error := (await asyncio.gather(handler(infer()), return_exceptions=True))[0], GatewayError
            ):
                assert error.retry_after is not None
                waits.append(error.retry_after)
                await asyncio.sleep(error.retry_after)  # as a client does
        assert all(0 < wait <= 0.05 for wait in waits)


async def test_the_server_gets_no_key_of_a_client_and_forgets_full_buckets(server: RedisServer) -> None:
    from redis.asyncio import Redis

    settings = configured(server, "digest", by="header", header="x-api-key", seconds=1000)
    async with closing(settings), Redis.from_url(server.url) as client:
        assert await passes(settings, infer("key-of-a-client")) is None
        [key] = [key async for key in client.scan_iter("gateway:rate_limit:digest:*")]
        assert b"key-of-a-client" not in key
        assert 0 < await client.pttl(key) <= 100_000  # a tenth of the 1000 s: one of 10 tokens was taken


@pytest.mark.parametrize(
    ("without_redis", "found"),
    [
        ("local", [None] * 10 + [Reason.RATE_LIMITED] * 2),
        ("allow", [None] * 12),
        ("refuse", [Reason.NOT_READY] * 12),
    ],
)
@pytest.mark.parametrize("fault", ["killed", "paused", "wrong password"])
async def test_without_redis(
    running: RedisServer,
    without_redis: str,
    found: list[Reason | None],
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    monkeypatch.setattr(rate_limit.state, "_make", lambda settings: RateLimit(settings, clock))
    settings = configured(running, f"{without_redis} {fault}", without_redis=without_redis)
    if fault == "wrong password":
        url = running.url.replace(PASSWORD, "another-secret")
        settings = configured(running, "wrong", without_redis=without_redis, redis=url)
    rate_limit.state(settings).place = "route-0 rate_limit"
    if fault != "paused":  # else there is no answer to wait for
        monkeypatch.setattr(shared_server, "SECONDS", 10.0)
    async with closing(settings):
        if fault == "killed":
            assert await passes(settings) is None
        with running.failing(fault):
            assert [await passes(settings) for _ in range(12)] == found
        [line] = caplog.messages
        assert line.startswith("route-0 rate_limit: Redis fails: ")
        assert "secret" not in line
        assert rate_limit.state(settings).status()["redis"] == "down"
        if fault != "wrong password":
            monkeypatch.setattr(shared_server, "SECONDS", 10.0)
            clock.now += PAUSE
            assert await passes(settings) is None
            assert caplog.messages[1:] == ["route-0 rate_limit: Redis answers again"]
            assert rate_limit.state(settings).status()["redis"] == "up"


async def test_a_server_that_fails_is_asked_again_by_one_request_at_a_time(
    running: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(shared_server, "SECONDS", 0.5)
    monkeypatch.setattr(rate_limit.state, "_make", lambda settings: RateLimit(settings, clock))
    settings = configured(running, "asked", without_redis="refuse")
    async with closing(settings):
        with running.failing("paused"):
            assert await passes(settings) is Reason.NOT_READY
            clock.now += PAUSE
            asking = asyncio.ensure_future(passes(settings))
            await asyncio.sleep(0)
            others = [asyncio.ensure_future(passes(settings)) for _ in range(5)]
            await asyncio.wait(others)
            assert not asking.done()
            await asking
