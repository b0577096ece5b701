"""Bodies of every size pass unread through sockets, whatever buffers the transports hold them in."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from gateway.core.words import has_any, has_byte, has_word
from tests.limits import GENEROUS
from tests.paused_server import http, listening, read_message
from tests.running_gateway import running_gateway

LIMIT = 2**20
CONFIG = """
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: [v2-rest], limits: {{message: {limit}}}}}]
backends: {{lab: {{protocol: v2-rest, flavor: triton, endpoints: ["{address}"]}}}}
routes: [{{match: {{}}, backend: lab}}]
"""


class Echo:
    """A server that sends each body back, and keeps it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                _, body = await read_message(reader)
                self.bodies.append(body)
                writer.write(http(b"HTTP/1.1 200 OK\r\nContent-Type: application/json", body))
                await writer.drain()
        except asyncio.IncompleteReadError:
            writer.close()


@asynccontextmanager
async def running() -> AsyncIterator[tuple[str, Echo]]:
    echo = Echo()
    async with (
        listening(echo.serve) as port,
        running_gateway(CONFIG.format(address=f"127.0.0.1:{port}", limit=LIMIT)) as gateway,
    ):
        yield f"http://{gateway.state.listeners['in'].address}/v2/models/m/infer", echo


SIZES = [1, 2**14 - 1, 2**14, 2**16, 2**18, LIMIT]


@pytest.mark.parametrize("chunked", [False, True])
async def test_bodies_of_every_size(chunked: bool) -> None:
    async with running() as (address, echo), httpx.AsyncClient(timeout=GENEROUS) as client:
        for size in SIZES:
            body = bytes(range(0x20, 0x7F)).replace(b"\\", b"/") * (size // 90 + 1)
            body = body[:size]

            async def pieces(body: bytes = body) -> AsyncIterator[bytes]:
                for at in range(0, len(body), 50_000):
                    yield body[at : at + 50_000]

            reply = await client.post(address, content=pieces() if chunked else body)
            assert (reply.status_code, reply.content == body) == (200, True), size
            assert echo.bodies.pop() == body


async def test_a_body_beyond_the_limit_and_an_empty_one_reach_no_server() -> None:
    async with running() as (address, echo), httpx.AsyncClient(timeout=GENEROUS) as client:
        assert (await client.post(address, content=b"1" * (LIMIT + 1))).status_code == 413
        assert (await client.post(address, content=b"")).status_code == 400
        assert echo.bodies == []


BUFFERS = [bytes, bytearray, memoryview, lambda body: memoryview(bytearray(body)).toreadonly()]


@pytest.mark.parametrize("buffer", BUFFERS)
@pytest.mark.parametrize("at", [0, 5, 2**20 - 4, 2**20, 2**20 + 7, 2**21])
def test_a_word_is_found_in_every_kind_of_buffer(buffer: object, at: int) -> None:
    assert callable(buffer)
    body = b"0.1,m" * (2**21 // 5 + 20)
    placed = buffer(body[:at] + b"parameters" + body[at:])
    assert has_word(placed, b"parameters", 4)
    assert has_any(placed, [(b"nothing", 0), (b"parameters", 4)])
    assert has_byte(placed, b"p")
    assert not has_word(buffer(body), b"parameters", 4)
    assert not has_any(buffer(body), [(b"nothing", 0), (b"parameters", 4)])
    assert not has_byte(buffer(body), b"p")
    assert not has_word(buffer(b""), b"parameters", 4)
