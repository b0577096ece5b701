"""A gateway whose route has a mirror, with model servers that hang, lie, flood, are down or are right: clients get the
answers of the route's own backend, at once."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from gateway.config import Config
from gateway.runtime.app import Gateway
from tests.interop.processes import free_port
from tests.limits import GENEROUS
from tests.paused_server import QUESTION, REPLY, Held, held, http, port_of
from tests.policies.states import mirrors
from tests.running_gateway import config_of, running_gateway

CONFIG = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge]}
backends:
  own: {protocol: v2-rest, flavor: plain, endpoints: ["http://127.0.0.1:OWN"]}
  next: {protocol: v2-rest, flavor: plain, endpoints: ["http://127.0.0.1:NEXT"], MORE}
routes:
  - {match: {model: m}, backend: own, policies: [{mirror: {backend: next, sample: 1, KEYS}}]}
"""
HEAD = b"HTTP/1.1 200 OK"
INFER = b"POST /v2/models/m/infer HTTP/1.1"


class Peer(Held):
    """An HTTP server that answers every request with `answer`, while `release` is set, and keeps the heads."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.release.set()
        self.answer = answer
        self.heads: list[bytes] = []
        self.came = asyncio.Condition()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.lower().split(b"\r\n")
            lengths = [int(line[15:]) for line in lines if line.startswith(b"content-length:")]
            await reader.readexactly(sum(lengths))
            async with self.came:
                self.heads.append(head)
                self.came.notify_all()
            await self.release.wait()
            writer.write(self.answer)
            await writer.drain()

    async def requests(self, count: int) -> None:
        """Return when so many requests have come."""
        async with self.came:
            await self.came.wait_for(lambda: len(self.heads) >= count)


@asynccontextmanager
async def peer(body: bytes = REPLY, whole: bytes = b"") -> AsyncIterator[Peer]:
    """A Peer that answers with `body`, or with the bytes `whole`."""
    here = Peer(whole or http(HEAD, body))
    server = await asyncio.start_server(here.handle, "127.0.0.1", 0)
    here.port = server.sockets[0].getsockname()[1]
    try:
        yield here
    finally:
        here.release.set()
        server.close()
        await asyncio.gather(*here.handling)


def config(own: int, next_: int, keys: str = "calls: 1000", more: str = "") -> Config:
    text = CONFIG.replace("OWN", str(own)).replace("NEXT", str(next_)).replace("KEYS", keys)
    return config_of(text.replace(", MORE", f", {more}" if more else ""))


def running(own: int, next_: int, keys: str = "calls: 1000", more: str = "") -> AbstractAsyncContextManager[Gateway]:
    return running_gateway(config(own, next_, keys, more))


class Client:
    """One connection to the gateway."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def infer(self) -> Any:
        """The answer to one inference."""
        self.writer.write(http(INFER, QUESTION))
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        body = await self.reader.readexactly(length)
        assert head.startswith(b"HTTP/1.1 200 "), (head, body)
        return json.loads(body)


@asynccontextmanager
async def client(gateway: Gateway) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(gateway.state.listeners["http"].address))
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        await writer.wait_closed()


def found(gateway: Gateway) -> dict[str, Any]:
    """What /status shows of the mirror."""
    [policy] = gateway.state.status().policies
    assert (policy.place, policy.policy) == ("m", "mirror")
    return policy.state


async def ended(gateway: Gateway) -> dict[str, Any]:
    """The same when no call is on its way."""
    await asyncio.gather(*(each.ended() for each in mirrors(gateway)))
    return found(gateway)


def reply(value: object, datatype: str = "INT32", name: str = "y") -> bytes:
    output = {"name": name, "datatype": datatype, "shape": [1], "data": [value]}
    return json.dumps({"model_name": "m", "outputs": [output]}).encode()


async def test_right_answers_are_equal_and_the_mirrored_request_is_marked() -> None:
    async with peer() as own, peer() as other, running(own.port, other.port) as gateway, client(gateway) as one:
        answers = [await one.infer() for _ in range(20)]
        assert all(each["outputs"][0]["data"] == [7] for each in answers)
        assert (await ended(gateway))["equal"] == 20
        assert all(b"\r\ngateway-mirror: 1\r\n" in head.lower() for head in other.heads)
        assert not any(b"gateway-mirror" in head.lower() for head in own.heads)


async def test_wrong_answers_are_found_and_clients_get_the_right_ones() -> None:
    kinds = {
        reply(8): {"values": 1},
        reply(7, "INT64"): {"datatype": 1},
        reply(7, name="z"): {"missing output": 1, "extra output": 1},
        b'{"model_name":"m","outputs":[]}': {"missing output": 1},
        b'{"model_name":"m","outputs":[{"name":"y","datatype":"INT32","shape":[9],"data":[7]}]}': {"status": 1},
        b"junk": {"status": 1},
    }
    for body, differences in kinds.items():
        async with peer() as own, peer(body) as other, running(own.port, other.port) as gateway:
            async with client(gateway) as one:
                assert (await one.infer())["outputs"][0]["data"] == [7]
            status = await ended(gateway)
            assert (status["different"], status["differences"]) == (1, differences), body


async def test_a_mirror_that_hangs_delays_nobody_and_holds_a_bounded_number_of_calls() -> None:
    async with peer() as own, peer() as other, running(own.port, other.port, "calls: 8") as gateway:
        other.release.clear()
        async with client(gateway) as one, client(gateway) as two:
            for _ in range(500):
                await asyncio.gather(one.infer(), two.infer())
        await other.requests(8)
        status = found(gateway)
        assert (status["in_flight"], status["dropped"]) == (8, 992)
        assert len(other.heads) == 8
        other.release.set()
        status = await ended(gateway)
        assert (status["equal"], status["in_flight"], status["bytes"]) == (8, 0, 0)


async def test_a_burst_at_a_mirror_with_one_slot_waits_in_the_queue_of_that_backend() -> None:
    more = "max_in_flight: 1, queue: {length: 3}"
    async with peer() as own, peer() as other, running(own.port, other.port, "calls: 1000", more) as gateway:
        other.release.clear()
        async with client(gateway) as one:
            for _ in range(50):
                await one.infer()
        await other.requests(1)
        other.release.set()
        status = await ended(gateway)
        assert status["equal"] + status["failures"]["overloaded"] == 50
        assert 1 <= status["equal"] <= 4


async def test_a_mirror_that_is_down_is_counted() -> None:
    async with peer() as own, running(own.port, free_port()) as gateway, client(gateway) as one:
        for _ in range(20):
            assert (await one.infer())["outputs"][0]["data"] == [7]
        status = await ended(gateway)
        assert (status["failed"], status["failures"]) == (20, {"unreachable": 20})


async def test_an_answer_of_100_mib_is_refused_by_its_size() -> None:
    whole = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 104857600\r\n\r\n{"
    async with peer() as own, peer(whole=whole) as other, running(own.port, other.port) as gateway:
        async with client(gateway) as one:
            assert (await one.infer())["outputs"][0]["data"] == [7]
        status = await ended(gateway)
        assert status["differences"] == {"status": 1}
        assert "104857600" in status["last_differences"][0]["text"]


@pytest.mark.parametrize("whole", [b"HTTP/1.1 200 OK\r\n" * 10_000, b"\0" * 10_000, b"HTTP/1.1 200 OK\r\nContent-Le"])
async def test_a_mirror_that_sends_no_http_is_counted(whole: bytes) -> None:
    async with peer() as own, peer(whole=whole) as other, running(own.port, other.port, "seconds: 0.2") as gateway:
        async with client(gateway) as one:
            assert (await one.infer())["outputs"][0]["data"] == [7]
        status = await ended(gateway)
        assert status["failed"] + status["different"] == 1


async def test_mirrored_calls_end_within_the_time_to_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    async with peer() as own, peer() as other, running(own.port, other.port) as gateway:
        other.release.clear()
        async with client(gateway) as one:
            await one.infer()
        await other.requests(1)
        [mirror] = mirrors(gateway)
        closing = asyncio.Event()
        close = mirror.close

        async def noted(seconds: float) -> None:
            closing.set()
            await close(seconds)

        monkeypatch.setattr(mirror, "close", noted)
        draining = asyncio.ensure_future(gateway.drain(GENEROUS))
        await closing.wait()
        other.release.set()
        await draining
        assert mirror.status()["equal"] == 1


async def test_a_mirror_that_hangs_does_not_stop_the_gateway_from_ending() -> None:
    async with peer() as own, held() as other:
        async with running(own.port, other.port) as gateway:
            async with client(gateway) as one:
                await one.infer()
            await other.arrived.wait()
            [mirror] = mirrors(gateway)
            await gateway.drain(0)
        assert (mirror.status()["drops"], mirror.status()["in_flight"]) == ({"stopping": 1}, 0)


async def test_a_reload_keeps_the_counts_of_a_mirror_that_stays_and_begins_anew_for_one_that_changes() -> None:
    async with peer() as own, peer() as other, running(own.port, other.port) as gateway, client(gateway) as one:
        await one.infer()
        assert (await ended(gateway))["equal"] == 1
        same = config(own.port, other.port).model_copy(update={"ready": "none"})
        await gateway.reload(same)
        await one.infer()
        assert (await ended(gateway))["equal"] == 2
        await gateway.reload(config(own.port, other.port, "calls: 7"))
        assert found(gateway)["equal"] == 0
        await one.infer()
        assert (await ended(gateway))["equal"] == 1


async def test_a_reload_adds_and_removes_a_mirror() -> None:
    async with peer() as own, peer() as other, running(own.port, other.port) as gateway, client(gateway) as one:
        mirrored = config(own.port, other.port)
        route = mirrored.routes[0].model_copy(update={"policies": ()})
        await gateway.reload(mirrored.model_copy(update={"routes": (route,)}))
        await one.infer()
        assert mirrors(gateway) == []
        await gateway.reload(mirrored)
        await one.infer()
        assert (await ended(gateway))["equal"] == 1
        assert len(other.heads) == 1
