"""Streams from a client through listener, core and connector to an endpoint and back, without a codec."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.core.address import Address
from gateway.core.frozen import replace
from gateway.core.messages import Buffer, Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import DEFAULT_LIMITS, HttpBinding, ListenerSettings, Protocol, StreamFraming, Target
from gateway.core.requests import Answer, Request, Response, Translate
from gateway.core.streaming import answer_stream, ask_stream
from gateway.core.transport import Destination, Exchanges
from gateway.routing.endpoint import Endpoint as RoutedEndpoint
from gateway.transports.http.client.connector import HttpConnector
from gateway.transports.http.server.listener import HttpListener
from tests.limits import GENEROUS, settle
from tests.transports.http.client.endpoint import Endpoint, read_request, serving
from tests.transports.http.server.toy_listener import connected, refuse, send_byte_by_byte, send_whole, toy, unused
from tests.transports.raw_server import Handle


class PieceCutter:
    """Each piece of the body is a message."""

    def __init__(self, limit: int) -> None:
        """There is no limit."""

    def feed(self, data: Buffer) -> list[Buffer]:
        return [data]

    def boundary(self) -> list[Buffer]:
        return []

    def end(self) -> list[Buffer]:
        return []


def decode_request(message: Message, listener: ListenerSettings) -> Request:
    return Request(Operation.STREAM, deadline=message.deadline, origin=message)


def encode_request(request: Request, target: Target) -> Message:
    assert request.origin is not None
    return replace(request.origin, headers=Headers([(b"accept", b"text/plain")]))


def encode_response(answer: Answer, request: Request, translate: Translate) -> Message:
    assert isinstance(answer, Response)
    assert answer.origin is not None
    return answer.origin


def decode_response(message: Message, request: Request, target: Target) -> Response:
    return Response(origin=message)


THROUGH: Protocol = replace(
    toy("through", "GET /any", "POST /any"),
    decode_request=decode_request,
    encode_request=encode_request,
    encode_response=encode_response,
    decode_response=decode_response,
    binding=HttpBinding(
        wants_stream=lambda message: True, stream_framing=StreamFraming(lambda parts: parts, PieceCutter)
    ),
)

POST = b"POST /any?a=b HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n%b\r\nhi"
LAST = POST % b"Connection: close\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nTransfer-Encoding: chunked\r\n"


@asynccontextmanager
async def between(handle: Handle) -> AsyncIterator[HttpListener]:
    """A listener whose requests go to `handle`."""
    async with serving(handle) as port:
        framing = THROUGH.http.stream_framing
        connector = HttpConnector(
            f"127.0.0.1:{port}", connection_per_call=False, limits=DEFAULT_LIMITS, stream_framing=framing
        )
        endpoint, target, settings = RoutedEndpoint("lab", connector), Target("lab", "lab:1"), ListenerSettings()
        destination = Destination(stream=lambda request: ask_stream(request, THROUGH, endpoint, target))
        exchanges = Exchanges(
            unused, lambda messages, way: answer_stream(messages, way, settings, lambda _: destination), refuse
        )
        listener = HttpListener(settings, [(THROUGH, "")], exchanges)
        await listener.start(Address("127.0.0.1"))
        try:
            async with asyncio.timeout(GENEROUS):
                yield listener
        finally:
            await listener.drain(0)
            await connector.close()


PASSED = [
    (CHUNKED + b"\r\n3\r\na\nb\r\n1\r\nc\r\n0\r\n\r\n", CHUNKED + b"%b\r\n3\r\na\nb\r\n1\r\nc\r\n0\r\n\r\n"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na\nb", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n%b\r\na\nb"),
    (
        b"HTTP/1.1 404 Not Found\r\nX-A: b\r\nContent-Length: 3\r\n\r\na\nb",
        b"HTTP/1.1 404 Not Found\r\nx-a: b\r\nContent-Length: 3\r\n%b\r\na\nb",
    ),
    (b"HTTP/1.1 204 No Content\r\n\r\n", b"HTTP/1.1 204 No Content\r\n%b\r\n"),
]


@pytest.mark.parametrize("send", [send_whole, send_byte_by_byte])
@pytest.mark.parametrize(("given", "expected"), PASSED)
async def test_a_reply_passes_through(given: bytes, expected: bytes, send: object) -> None:
    endpoint = Endpoint([given])
    async with between(endpoint.handle) as listener, connected(listener) as (reader, writer):
        await send(writer, POST % b"" + LAST)  # type: ignore[operator]
        assert await reader.read() == expected % b"" + expected % b"Connection: close\r\n"
    assert [head.split(b"\r\n")[0] for head, _ in endpoint.requests] == [b"POST /any?a=b HTTP/1.1"] * 2
    assert [body for _, body in endpoint.requests] == [b"hi"] * 2
    assert endpoint.connections == 1


async def test_a_client_that_leaves_closes_the_connection_to_the_endpoint() -> None:
    left = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(CHUNKED + b"\r\n1\r\na\r\n")
        await reader.read()
        left.set()

    async with between(handle) as listener, connected(listener) as (reader, writer):
        await send_whole(writer, LAST)
        await reader.readuntil(b"1\r\na\r\n")
        writer.close()
        await left.wait()


async def test_an_endpoint_that_is_slower_than_the_deadline_is_left() -> None:
    left = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await reader.read()
        left.set()

    async with between(handle) as listener, connected(listener) as (reader, writer):
        await send_whole(writer, POST % b"Request-Timeout: 0.1\r\nConnection: close\r\n")
        said = await reader.read()
        await left.wait()
    assert said.startswith(b"HTTP/1.1 504 Gateway Timeout\r\n")
    assert said.endswith(b"through: the deadline that the client set has passed")


async def test_much_goes_through_a_client_that_reads_slowly() -> None:
    """The rest waits at the endpoint meanwhile."""
    piece, count, written = b"x" * 2**16, 1000, 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        await read_request(reader)
        writer.write(CHUNKED + b"\r\n")
        for _ in range(count):
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
            written += 1
        writer.write(b"0\r\n\r\n")

    async with between(handle) as listener, connected(listener) as (reader, writer):
        await send_whole(writer, LAST)
        await settle(2000)
        assert written < count // 2
        said = await reader.read()
    assert said.count(b"x") == count * len(piece) + CHUNKED.count(b"x")
    assert said.endswith(b"\r\n0\r\n\r\n")
