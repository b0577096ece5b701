"""HTTP/1.1 against independent software: `httpx` asks the listener, and the connector asks a server made of `h11`."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import h11
import httpx
import pytest

from gateway.core.protocol import Limits
from tests.limits import GENEROUS
from tests.transports.http.client.endpoint import connector_to, post
from tests.transports.http.server.toy_listener import listening

LARGE = Limits(message=2**20)


def said(reply: httpx.Response) -> tuple[int, str]:
    return reply.status_code, reply.text


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=GENEROUS, trust_env=False) as made:
        yield made


@pytest.mark.parametrize("size", [0, 1, 100_000])
async def test_httpx_posts_bodies(client: httpx.AsyncClient, size: int) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, size, 7_000):
            yield b"x" * min(7_000, size - at)

    async with listening(limits=LARGE) as listener:
        url = f"http://{listener.address}/echo"
        whole = await client.post(url, content=b"x" * size)
        chunked = await client.post(url, content=pieces())
        compressed = await client.post(
            url, content=gzip.compress(b"x" * size), headers={"content-encoding": "gzip", "expect": "100-continue"}
        )
    assert said(whole)[0] == 200
    assert "x" * size in whole.text
    assert said(chunked)[0] == said(compressed)[0] == 200
    assert "x" * size in chunked.text
    assert "x" * size in compressed.text


async def test_httpx_keeps_its_connection_through_errors_and_head(client: httpx.AsyncClient) -> None:
    async with listening() as listener:
        url = f"http://{listener.address}"
        streams = set()
        for method, path, status in (("GET", "/hello", 200), ("GET", "/no", 404), ("POST", "/hello", 405)) * 2:
            reply = await client.request(method, url + path)
            assert reply.status_code == status
            streams.add(reply.extensions["network_stream"])
    assert len(streams) == 1


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say back every request's body: chunked, after a 100, or with a length, as its length decides."""
    connection = h11.Connection(h11.SERVER)
    body = b""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(65_536)
            connection.receive_data(data)
            if not data:
                return
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            head = [] if len(body) % 2 else [("content-length", str(len(body)))]
            writer.write(connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
            writer.write(connection.send(h11.Response(status_code=200, headers=head)) or b"")
            for at in range(0, len(body), 10_000):
                writer.write(connection.send(h11.Data(data=body[at : at + 10_000])) or b"")
            writer.write(connection.send(h11.EndOfMessage()) or b"")
            connection.start_next_cycle()
            body = b""


@pytest.mark.parametrize("size", [1, 2, 100_000, 100_001])
async def test_h11_reads_requests_and_its_replies_are_read(size: int) -> None:
    message = bytes(range(256)) * (size // 256) + bytes(size % 256)
    async with connector_to(answer, LARGE) as connector:
        for parts in ((message,), (message[:1], memoryview(message)[1:])):
            reply = await connector.exchange(post(*parts))
            assert (reply.status, bytes(reply.body)) == (200, message)
