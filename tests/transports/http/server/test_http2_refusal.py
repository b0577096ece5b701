"""Clients of HTTP/2 at a port of HTTP/1.1: they are told so in HTTP/2, request by request."""

import asyncio

import pytest

from gateway.core.http2.frames import ErrorCode
from gateway.core.http2.hpack import read
from gateway.core.protocol import ListenerSettings
from tests.core.http2 import by_hand as http2
from tests.core.http2.by_hand import END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, Peer
from tests.core.http2.conversation import OPENING, request
from tests.limits import GENEROUS
from tests.transports.http.server.toy_listener import OTHER, client, connected, exchanges, listening, say_back

GET = ((b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/hello?a=b"), (b":authority", b"toy"))
REQUIRED = int(ErrorCode.HTTP_1_1_REQUIRED).to_bytes(4)


@pytest.mark.parametrize("step", [1, 7, 1_000_000])
async def test_each_request_is_told_that_http_1_1_is_required(step: int) -> None:
    sent = OPENING + http2.head(*GET, end=True) + http2.head(*GET, stream=3)
    async with client() as (reader, writer):
        for at in range(0, len(sent), step):
            writer.write(sent[at : at + step])
            await asyncio.sleep(0)
        peer = Peer(reader, writer)
        assert (await peer.frame())[:3] == (SETTINGS, 0, 0)
        assert await peer.next(RST_STREAM) == (RST_STREAM, 0, 1, REQUIRED)
        assert await peer.next(RST_STREAM) == (RST_STREAM, 0, 3, REQUIRED)
        peer.send(http2.data(b"on the way", stream=3, end=True), http2.head(*GET, end=True, stream=5))
        assert await peer.next(RST_STREAM) == (RST_STREAM, 0, 5, REQUIRED)


async def test_a_grpc_client_is_told_in_grpc() -> None:
    async with client() as (reader, writer):
        peer = Peer(reader, writer)
        peer.send(OPENING, request())
        _, flags, stream, block = await peer.next(HEADERS)
    assert flags & END_STREAM
    assert stream == 1
    told = dict(read(block.removeprefix(b"\x20"), 1000))
    assert (told[b":status"], told[b"grpc-status"]) == (b"200", b"12")
    said, _, spoken = told[b"grpc-message"].partition(b"; this listener speaks ")
    assert said == b"this port speaks HTTP/1.1, not gRPC; use a port with a gRPC protocol"
    assert spoken.startswith(b"toy")


async def test_what_is_no_http_2_ends_the_connection() -> None:
    async with client() as (reader, writer):
        peer = Peer(reader, writer)
        peer.send(OPENING, http2.data(b"of no stream"))
        assert (await peer.next(GOAWAY))[3][4:8] == int(ErrorCode.PROTOCOL_ERROR).to_bytes(4)
        assert await reader.read() == b""


async def test_a_client_that_does_not_understand_is_sent_away() -> None:
    requests = [http2.head(*GET, end=True, stream=number) for number in range(1, 10_001, 2)]
    async with client() as (reader, writer):
        peer = Peer(reader, writer)
        peer.send(OPENING, *requests)
        frames = await peer.closed()
    assert len([kind for kind, *_ in frames if kind == RST_STREAM]) == 100
    assert frames[-1][0] == GOAWAY
    assert frames[-1][3][4:8] == REQUIRED


@pytest.mark.parametrize("seconds", [GENEROUS, 0])
async def test_it_counts_as_a_connection_and_ends_with_the_listener(seconds: float) -> None:
    async with listening() as listener, connected(listener) as streams:
        peer = Peer(*streams)
        peer.send(OPENING, http2.head(*GET, end=True))
        await peer.next(RST_STREAM)
        assert listener.open_connections == 1
        await listener.stop_accepting()
        assert await listener.drain(seconds) == 0
        assert listener.open_connections == 0


async def test_after_a_reload_a_client_is_told_what_is_spoken_now() -> None:
    async with listening() as listener, connected(listener) as streams:
        peer = Peer(*streams)
        peer.send(OPENING, request())
        await peer.next(HEADERS)
        listener.renew(ListenerSettings(), [(OTHER, "")], exchanges(say_back))
        peer.send(request(3))
        block = (await peer.next(HEADERS))[3]
    assert dict(read(block, 1000))[b"grpc-message"].endswith(b"; this listener speaks other")


@pytest.mark.real("curl")
async def test_curl_that_begins_with_http_2_is_answered_over_http_1_1() -> None:
    async with listening() as listener:
        url = f"http://{listener.address}/hello"
        command = ("curl", "--silent", "--show-error", "--http2-prior-knowledge", url)
        curl = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        said, _ = await curl.communicate()
    if curl.returncode == 2:
        pytest.skip("this curl has no HTTP/2")
    assert said == b"GET /hello []"
