"""Answers that several gateways share, with a real Redis server."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import time
from typing import Any

import numpy as np
import pytest

from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.requests import Answer, NestedJson, Request, Response
from gateway.core.tensors import tensor
from gateway.policies.cache import Cache, Settings, state, wrap
from gateway.policies.cached_answers import _HEAD, VERSION, _checksum, packed, unpacked
from gateway.policies.context import PolicyContext
from tests.policies.redis_server import RedisServer

KEY = bytes(range(32))
ANSWER = Response(
    (tensor("y", np.array([1.0, -0.0, np.nan])), tensor("t", np.array([b"a", b""], object))),
    "m",
    "1",
    parameters={"a": 2**70, "b": float("nan"), "c": "\ud800", "d": True},
)


def test_an_answer_comes_back_as_it_was() -> None:
    stored = packed(KEY, ANSWER, b"3", 5.0)
    assert stored is not None
    found = unpacked(KEY, stored, b"3")
    assert found is not None
    response, made = found
    assert made == 5.0
    assert [bytes(each.data) for each in response.outputs] == [bytes(each.data) for each in ANSWER.outputs]
    assert repr(dict(response.parameters)) == repr(dict(ANSWER.parameters))
    assert [(each.name, each.datatype, each.shape) for each in response.outputs] == [
        (each.name, each.datatype, each.shape) for each in ANSWER.outputs
    ]


def test_other_bytes_are_no_answer() -> None:
    stored = packed(KEY, ANSWER, b"3", 5.0)
    assert stored is not None
    wrong = [stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :] for at in range(len(stored))]
    wrong += [stored[:at] for at in range(len(stored))] + [stored + b"x", b"gateway-cache-0\n" + stored[len(VERSION) :]]
    assert not any(unpacked(KEY, each, b"3") for each in wrong)
    assert unpacked(bytes(32), stored, b"3") is None
    assert unpacked(KEY, stored, b"4") is None


def test_notes_of_a_protocol_are_not_stored() -> None:
    assert packed(KEY, Response(origin=Message()), b"0", 0.0) is None
    assert packed(KEY, Response(parameters={"a": NestedJson("{}")}), b"0", 0.0) is None


@pytest.mark.parametrize("head", [b'{"epoch": "3"}', b"[]", b"{", b'{"epoch": 3}', b'{"epoch": "3", "outputs": [{}]}'])
def test_another_format_with_the_same_version_is_no_answer(head: bytes) -> None:
    start = _HEAD.pack(_checksum(KEY, len(head), head), len(head))
    assert unpacked(KEY, VERSION + start + head, b"3") is None


class Gateway:
    """A cache with a Redis server, around a model that counts its calls."""

    def __init__(self, server: RedisServer, name: str, **keys: Any) -> None:
        redis = {"url": server.url, "name": name, **keys}
        self.settings = Settings.model_validate({"redis": redis})
        self.calls = 0
        self.handler = wrap(self._answer, self.settings, PolicyContext("backend 'b'", safe=True))
        self.cache: Cache = state(self.settings)
        self.cache.place = "backends.b cache"

    async def _answer(self, request: Request) -> Answer:
        self.calls += 1
        return Response((tensor("y", 2 * request.inputs[0].array),), "m", "", request.id)

    async def ask(self, number: float) -> float:
        answer = await self.handler(Request(Operation.INFER, "m", inputs=(tensor("x", np.array([number])),), id="i"))
        assert isinstance(answer, Response)
        assert answer.id == "i"
        await self.settled()
        return float(answer.outputs[0].array[0])

    async def settled(self) -> None:
        """Wait for what is on its way to Redis."""
        assert self.cache._redis is not None
        for each in list(self.cache._redis._writes):
            await each


@asynccontextmanager
async def gateways(server: RedisServer, name: str, **keys: Any) -> AsyncIterator[list[Gateway]]:
    both = [Gateway(server, name, **keys) for _ in range(2)]
    try:
        yield both
    finally:
        for each in both:
            await each.cache.close(0)


@pytest.mark.real("redis-server")
async def test_what_one_gateway_asked_another_knows(server: RedisServer) -> None:
    async with gateways(server, "two") as (one, other):
        assert [await each.ask(4) for each in (one, other)] == [8, 8]
        assert (one.calls, other.calls) == (1, 0)
        shown = other.cache.status()
        assert (shown["redis"], shown["redis_hits"], shown["hits"], shown["answers"]) == ("up", 1, 1, 1)
    async with gateways(server, "another name") as (one, _):
        await one.ask(4)
        assert one.calls == 1


@pytest.mark.real("redis-server")
async def test_what_one_gateway_forgets_all_forget(server: RedisServer) -> None:
    async with gateways(server, "forget") as (one, other):
        await one.ask(4)
        one.cache.clear()
        await one.settled()
        await other.ask(4)
        assert other.calls == 1


@pytest.mark.real("redis-server")
async def test_who_asks_right_after_answers_are_forgotten_gets_a_new_one(server: RedisServer) -> None:
    async with gateways(server, "again") as (one, other):
        await one.ask(4)
        for each, calls in ((one, 2), (other, 0)):
            if each is one:
                one.cache.clear()
            await each.ask(4)
            assert each.calls == calls


@pytest.mark.real("redis-server")
async def test_answers_of_other_gateways_end_with_their_age(server: RedisServer) -> None:
    async with gateways(server, "old") as (one, other):
        await one.ask(4)
        assert other.cache._redis is not None
        other.cache._redis._now = lambda: time() + 3601
        await other.ask(4)
        assert other.calls == 1


@pytest.mark.real("redis-server")
async def test_large_answers_and_corrupt_ones(server: RedisServer) -> None:
    from redis.asyncio import Redis

    async with gateways(server, "large", max_response_bytes=7) as (one, other):
        for each in (one, other):
            await each.ask(4)
        assert other.calls == 1
    async with gateways(server, "corrupt") as (one, other), Redis.from_url(server.url) as client:
        await one.ask(4)
        [key] = [key async for key in client.scan_iter("gateway:cache:corrupt:*")]
        assert 0 < await client.pttl(key) <= 3600 * 1000
        await client.setrange(key, 60, b"!")
        assert await other.ask(4) == 8
        assert other.calls == 1


@pytest.mark.real("redis-server")
@pytest.mark.parametrize("fault", ["killed", "paused"])
async def test_without_redis_the_model_is_asked(
    running: RedisServer, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with gateways(running, fault) as (one, _):
        with running.failing(fault):
            assert [await one.ask(each) for each in range(12)] == [2 * each for each in range(12)]
        [line] = caplog.messages
        assert line.startswith("backends.b cache: Redis fails: ")
        assert one.cache.status()["redis"] == "down"
