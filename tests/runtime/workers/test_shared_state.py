"""Sequences, the health of endpoints and offline listeners are those of all workers."""

import asyncio
import os
import signal
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import orjson
import pytest

from tests.runtime.workers.counted import message
from tests.runtime.workers.served import Served, ended, get, post, serving

pytestmark = pytest.mark.long

CONFIG = """
workers: 4
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, grps-rest], allow_offline: true}]
admin: {bind: "127.0.0.1:0"}
backends:
  lab: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:FIRST", "127.0.0.1:SECOND"] MORE}
routes: [{match: {model: "*"}, backend: lab}]
"""
X, Y = ({"name": name, "datatype": "INT32", "shape": [1]} for name in "xy")
MODEL = {"name": "m", "platform": "", "inputs": [X], "outputs": [Y]}
REPLY = {"model_name": "m", "outputs": [Y | {"data": [7]}]}
OK = b"HTTP/1.1 200 OK"


class Server:
    """A V2 server that notes the sequences of its calls."""

    def __init__(self) -> None:
        self.port = self.calls = 0
        self.sequences: defaultdict[int, int] = defaultdict(int)
        self.is_broken = False
        """It answers calls with what is not HTTP."""
        self.is_ready = True
        self._writers: set[asyncio.StreamWriter] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                writer.write(self._reply(await message(reader)))
        writer.close()

    async def close(self) -> None:
        for each in self._writers:
            each.close()
        await asyncio.gather(*(each.wait_closed() for each in self._writers), return_exceptions=True)

    def _reply(self, request: bytes) -> bytes:
        head, _, body = request.partition(b"\r\n\r\n")
        if b"/infer" in head:
            self.calls += 1
            if self.is_broken:
                return b"nonsense\r\n\r\n"
            self.sequences[orjson.loads(body).get("parameters", {}).get("sequence_id", 0)] += 1
            return _http(OK, REPLY)
        if b"/ready" in head:
            return _http(OK if self.is_ready else b"HTTP/1.1 503 No", {})
        return _http(OK, MODEL)


def _http(start: bytes, body: object) -> bytes:
    text = orjson.dumps(body)
    return b"%b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (start, len(text), text)


@asynccontextmanager
async def listening() -> AsyncIterator[Server]:
    """A Server on loopback."""
    here = Server()
    server = await asyncio.start_server(here.handle, "127.0.0.1", 0)
    here.port = server.sockets[0].getsockname()[1]
    try:
        yield here
    finally:
        server.close()
        await here.close()


@asynccontextmanager
async def serving_two(folder: Path, more: str = "") -> AsyncIterator[tuple[Served, Server, Server]]:
    """A gateway of four workers before two servers."""
    async with listening() as first, listening() as second:
        text = CONFIG.replace("FIRST", str(first.port)).replace("SECOND", str(second.port)).replace("MORE", more)
        async with serving(text, folder) as gateway:
            yield gateway, first, second


async def infer(gateway: Served, **parameters: object) -> int:
    question = orjson.dumps({"inputs": [X | {"data": [1]}], "parameters": parameters})
    return (await post(gateway.ports["listener http"], "/v2/models/m/infer", question))[0]


async def all_answer(gateway: Served) -> None:
    """Have every worker asked, by many requests at once."""
    assert await asyncio.gather(*(infer(gateway) for _ in range(40))) == [200] * 40


async def test_all_requests_of_a_sequence_reach_the_server_that_has_its_state(tmp_path: Path) -> None:
    async def sequence(number: int) -> None:
        for at in range(6):
            assert await infer(gateway, sequence_id=number, sequence_start=at == 0, sequence_end=at == 5) == 200

    async with serving_two(tmp_path) as (gateway, first, second):
        await asyncio.gather(*(sequence(number) for number in range(1, 25)))
        assert {**first.sequences, **second.sequences} == dict.fromkeys(range(1, 25), 6)
        assert first.sequences
        assert second.sequences


async def test_an_endpoint_that_failed_in_several_workers_gets_no_more_calls_of_any(tmp_path: Path) -> None:
    more = ", health: {probe: none, ejection: {failures: 4, seconds: 1000}}"
    async with serving_two(tmp_path, more) as (gateway, first, second):
        second.is_broken = True
        found = [await infer(gateway) for _ in range(60)]
        # Workers tell each other of failures in messages, which a call of another worker may overtake.
        assert 4 <= second.calls < 8
        assert first.calls == found.count(200) == 60 - second.calls


async def test_an_endpoint_whose_probes_fail_gets_no_calls_of_any_worker(tmp_path: Path) -> None:
    more = ", health: {probe: ready, interval: 0.05, unhealthy: 1}"
    async with serving_two(tmp_path, more) as (gateway, first, second):
        await all_answer(gateway)
        assert first.calls
        assert second.calls
        second.is_ready = False
        while b'"state":"down"' not in (await get(gateway.ports["admin"], "/status"))[1]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        before = second.calls
        await all_answer(gateway)
        assert second.calls == before


async def until_all_answer(port: int, status: int) -> None:
    """Wait until each of many new connections gets this answer to whether the gateway is ready."""
    while {(await get(port, "/v2/health/ready"))[0] for _ in range(40)} != {status}:
        pass


async def test_a_listener_that_a_client_takes_offline_is_offline_in_all_workers(tmp_path: Path) -> None:
    async with serving_two(tmp_path) as (gateway, _, _):
        port = gateway.ports["listener http"]
        await until_all_answer(port, 200)
        assert (await get(port, "/grps/v1/health/offline"))[0] == 200
        await until_all_answer(port, 400)
        assert (await get(port, "/grps/v1/health/online"))[0] == 200
        await until_all_answer(port, 200)


async def drain(gateway: Served, port: int, **more: object) -> None:
    body = orjson.dumps({"backend": "lab", "endpoint": f"127.0.0.1:{port}", **more})
    assert (await post(gateway.ports["admin"], "/drain", body, "application/json"))[0] == 200


async def test_a_drained_endpoint_gets_no_calls_of_any_worker_nor_of_one_that_is_started_again(tmp_path: Path) -> None:
    async with serving_two(tmp_path) as (gateway, first, second):
        await all_answer(gateway)
        assert first.calls
        assert await infer(gateway, sequence_id=9, sequence_start=True) == 200
        having, other = (first, second) if first.sequences[9] else (second, first)
        await drain(gateway, having.port)
        before = having.calls
        await all_answer(gateway)
        assert having.calls == before
        assert await infer(gateway, sequence_id=9, sequence_end=True) == 200
        assert (having.calls, having.sequences[9]) == (before + 1, 2)
        while b'"state":"drained"' not in (await get(gateway.ports["admin"], "/status"))[1]:
            pass
        killed = min(gateway.workers)
        os.kill(killed, signal.SIGKILL)
        await ended({killed})
        await gateway.until_workers(4)
        await all_answer(gateway)
        assert having.calls == before + 1
        await drain(gateway, having.port, undo=True)
        await all_answer(gateway)
        assert having.calls > before + 1
        assert other.calls
