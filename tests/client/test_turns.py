"""How many calls are in flight, and how the others wait."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal

import numpy as np
import pytest

from gateway.client import AsyncClient, CallLimits, ModelEntry, Refused, Timeout, model_server, translate
from tests.client.servers import asynchronous_client
from tests.limits import GENEROUS
from tests.paused_server import held

QUESTION = np.array([1], np.int32)
REPLIES = {
    "/Info": {"protocolVersion": 1.0, "models": ["m"]},
    "/ModelInfo": {"support": {"Evaluate": True}},
    "/InputSizes": {"inputSizes": [1]},
    "/OutputSizes": {"outputSizes": [1]},
    "/Evaluate": {"output": [[7.0]]},
}


class Gathering:
    """A server that answers calls when `expected` of them are there. `most` is the most that were there at once."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._there = self.most = 0
        self._are_there = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await self._answer_all(reader, writer)
        writer.close()

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    async def _all_are_there(self) -> None:
        self._there += 1
        self.most = max(self.most, self._there)
        if self._there == self._expected:
            self._are_there.set()
        await self._are_there.wait()
        self._there -= 1


class UmbridgeServer(Gathering):
    def __init__(self, expected: int, headers: str = "") -> None:
        super().__init__(expected)
        self._headers = headers
        self.refusals = 0
        """Further requests that are refused."""

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            size = re.search(r"content-length: (\d+)", head)
            await reader.readexactly(int(size[1]) if size else 0)
            await self._answer(head.split()[1], writer)

    async def _answer(self, path: str, writer: asyncio.StreamWriter) -> None:
        if self.refusals:
            self.refusals -= 1
            head = "HTTP/1.1 429 Later\r\nRetry-After: 3\r\nGateway-Reason: overloaded\r\nContent-Length: 17"
            writer.write(f'{head}\r\n\r\n{{"error":"later"}}'.encode())
            return
        [body] = [json.dumps(each).encode() for name, each in REPLIES.items() if name.lower() == path]
        if path == "/evaluate":
            await self._all_are_there()
        headers = self._headers if path == "/info" else ""
        writer.write(f"HTTP/1.1 200 OK\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body)


@asynccontextmanager
async def client_of(server: Gathering, **arguments: Any) -> AsyncIterator[AsyncClient]:
    protocol = "umbridge" if isinstance(server, UmbridgeServer) else "mip"
    async with await asyncio.start_server(server.handle, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        async with AsyncClient(f"{protocol}://{host}:{port}", timeout=GENEROUS, **arguments) as client:
            yield client


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["umbridge", "v2-rest", "v2-grpc"])
async def test_any_number_of_calls_waits(protocol: str) -> None:
    """More than a process may have connections."""
    async with asynchronous_client(protocol, "double", timeout=GENEROUS) as client:
        found = await asyncio.gather(*(client.infer("double", [1.0, 2.0, float(at)]) for at in range(2000)))
    assert [next(iter(each.values())).ravel()[2] for each in found] == [2.0 * at for at in range(2000)]


async def test_a_gateway_is_asked_with_many_at_once_over_um_bridge() -> None:
    """It says so; a server that does not gets one call at a time, since real ones compute one."""
    gateway, server = UmbridgeServer(20, "Gateway-Calls: many\r\n"), UmbridgeServer(1)
    async with client_of(gateway) as client, client_of(server) as single:
        found = await asyncio.gather(*(client.infer("m", [1.0]) for _ in range(20)))
        assert [each["output0"].tolist() for each in found] == [[7.0]] * 20
        await asyncio.gather(*(single.infer("m", [1.0]) for _ in range(5)))
        assert (gateway.most, server.most) == (20, 1)
    limited = UmbridgeServer(3, "Gateway-Calls: many\r\n")
    async with client_of(limited, limits=CallLimits(max_in_flight=3)) as client:
        await asyncio.gather(*(client.infer("m", [1.0]) for _ in range(9)))
        assert limited.most == 3
    unlimited = UmbridgeServer(5)
    async with client_of(unlimited, limits=CallLimits(max_in_flight=0)) as client:
        await asyncio.gather(*(client.infer("m", [1.0]) for _ in range(5)))
        assert unlimited.most == 5


class MipServer(Gathering):
    """Answers inferences with their own bytes, and a ping with this reserved byte. `connections` is the number of those
    that carried inferences."""

    def __init__(self, expected: int, reserved: int) -> None:
        super().__init__(expected)
        self._reserved = reserved
        self.on_ping: Literal["answer", "close", "ignore"] = "answer"
        self.connections = 0

    async def _answer_all(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        is_new = True
        while True:
            header = await reader.readexactly(8)
            payload = await reader.readexactly(int.from_bytes(header[4:], "big"))
            if header[1] == 1 and self.on_ping == "close":
                break
            if header[1] == 1:
                writer.write(bytes((0, 1, 1, self._reserved, 0, 0, 0, 0)) if self.on_ping == "answer" else b"")
                continue
            self.connections += is_new
            is_new = False
            await self._all_are_there()
            writer.write(bytes((0, 2, 1, 0)) + header[4:] + payload[:1] + payload[:1] + payload[2:])


@pytest.mark.parametrize(("reserved", "at_once", "connections"), [(0x21, 4, 4), (0, 1, 8), (0x3F, 1, 8)])
async def test_a_gateway_is_asked_with_many_at_once_over_mip(reserved: int, at_once: int, connections: int) -> None:
    """A gateway keeps connections, of which each carries one call at a time. Another server gets one call at a time,
    each on a connection of its own, also if it sends the reserved byte back."""
    server = MipServer(at_once, reserved)
    async with client_of(server) as client:
        for _ in range(2):
            found = await asyncio.gather(*(client.infer("m", [1.0, float(at)]) for at in range(4)))
            assert [each["output0"].tolist() for each in found] == [[1.0, float(at)] for at in range(4)]
    assert (server.most, server.connections) == (at_once, connections)


@pytest.mark.parametrize("closes", [True, False])
async def test_a_server_of_mip_that_knows_no_pings_gets_one_call_at_a_time(
    closes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It closes the connection, or never answers."""
    monkeypatch.setattr(model_server, "QUESTION_SECONDS", 0.05)
    server = MipServer(1, 0)
    server.on_ping = "close" if closes else "ignore"
    async with client_of(server) as client:
        found = await asyncio.gather(*(client.infer("m", [1.0, float(at)]) for at in range(3)))
    assert [each["output0"].tolist() for each in found] == [[1.0, float(at)] for at in range(3)]
    assert server.most == 1


async def test_a_gateway_that_is_busy_says_so_later() -> None:
    """Its refusal is not taken for the silence of a server that takes one call."""
    server = UmbridgeServer(2, "Gateway-Calls: many\r\n")
    server.refusals = 1
    async with client_of(server) as client:
        with pytest.raises(Refused, match="later") as caught:
            await client.infer("m", [1.0])
        assert caught.value.retry_after == 3
        await asyncio.gather(client.infer("m", [1.0]), client.infer("m", [1.0]))
        assert server.most == 2


def test_the_gateway_says_that_it_takes_many_calls() -> None:
    request = translate.decode_request("umbridge", path="/Info", method="GET")
    message = translate.encode_response("umbridge", (ModelEntry("m"),), request)
    assert message.headers.get("gateway-calls") == "many"
    assert bytes(message.body) == b'{"protocolVersion":1.0,"models":["m"]}'


async def test_the_bounds_are_arguments() -> None:
    async with held() as server:
        limits = CallLimits(max_in_flight=2, max_waiting=3)
        async with AsyncClient(f"v2-rest://127.0.0.1:{server.port}", limits=limits) as client:
            with pytest.raises(Timeout):  # the client's connector is there: its first call waits for it
                await client.infer("m", x=QUESTION, timeout=0.01)
            calls = [asyncio.ensure_future(client.infer("m", x=QUESTION)) for _ in range(5)]
            await asyncio.sleep(0)
            with pytest.raises(Refused, match=r"3 calls of this client wait .*`max_waiting`.*2 are in flight"):
                await client.infer("m", x=QUESTION)
            for call in calls:
                call.cancel()
            await asyncio.gather(*calls, return_exceptions=True)


async def test_the_time_limit_begins_with_the_turn() -> None:
    """Else the last of many calls to a server that takes one at a time would fail for waiting for the others."""
    async with held() as server:
        limits, clock = CallLimits(max_in_flight=1), asyncio.get_running_loop().time
        async with AsyncClient(f"v2-rest://127.0.0.1:{server.port}", limits=limits, timeout=0.05) as client:
            began = clock()
            calls = (client.infer("m", x=QUESTION) for _ in range(3))
            ended = await asyncio.gather(*calls, return_exceptions=True)
            assert clock() - began >= 0.15
            assert [type(each) for each in ended] == [Timeout] * 3


@pytest.mark.parametrize("limits", [CallLimits(max_in_flight=-1), CallLimits(max_waiting=-1)])
def test_wrong_bounds(limits: CallLimits) -> None:
    with pytest.raises(ValueError, match="is -1, expected 0 or more"):
        AsyncClient("v2-rest://127.0.0.1:1", limits=limits)
