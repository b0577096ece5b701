"""HTTP/2 against the `h2` package, which is strict: it is the listener's client, and the connector's server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest

from gateway.core.protocol import Limits
from tests.core.http2 import by_hand as http2
from tests.transports.grpc.toy import ECHO, ask, connected, listening

LARGE = 300_000
"""Bytes: more than the windows that both sides begin with."""
LIMITS = Limits(message=2**20)


def framed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


class Peer:
    """One connection that h2 looks after; it raises for whatever RFC 9113 does not allow."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, client: bool) -> None:
        self._reader, self._writer = reader, writer
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=client, header_encoding=None))
        self.h2.initiate_connection()
        self.flush()

    def flush(self) -> None:
        self._writer.write(self.h2.data_to_send())

    async def events(self) -> AsyncIterator[h2.events.Event]:
        """What comes, with windows given back at once."""
        while data := await self._reader.read(65_536):
            for event in self.h2.receive_data(data):
                if isinstance(event, h2.events.DataReceived):
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                yield event
            self.flush()

    async def send(self, stream: int, data: bytes, events: AsyncIterator[h2.events.Event], *, end: bool) -> None:
        """Send `data` as the windows let it."""
        while data:
            size = min(self.h2.local_flow_control_window(stream), self.h2.max_outbound_frame_size, len(data))
            if size:
                self.h2.send_data(stream, data[:size])
                data = data[size:]
                self.flush()
            else:
                await anext(events)
        if end:
            self.h2.end_stream(stream)
        self.flush()


@asynccontextmanager
async def client(address: str) -> AsyncIterator[Peer]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Peer(reader, writer, client=True)
    finally:
        writer.close()


def head(path: str) -> list[tuple[bytes, bytes]]:
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()), (b":authority", b"toy")]
    return [*fields, (b"te", b"trailers"), http2.CONTENT_TYPE]


@pytest.mark.parametrize("size", [0, 1, LARGE])
async def test_h2_asks_the_listener(size: int) -> None:
    async with listening(limits=LIMITS) as listener, client(listener.address) as peer:
        message, events = bytes(range(256)) * (size // 256) + bytes(size % 256), peer.events()
        for stream in (1, 3):  # the second one's head refers to what h2 remembers of the first
            peer.h2.send_headers(stream, head(ECHO))
            await peer.send(stream, framed(message), events, end=True)
            found, trailers = b"", []
            async for event in events:
                if isinstance(event, h2.events.DataReceived):
                    found += event.data
                elif isinstance(event, h2.events.TrailersReceived):
                    trailers = event.headers
                elif isinstance(event, h2.events.StreamEnded):
                    break
            assert found == framed(message)
            assert (b"grpc-status", b"0") in [(bytes(name), bytes(text)) for name, text in trailers or []]


async def test_h2_cancels_a_call_and_goes_on() -> None:
    async with listening(limits=LIMITS) as listener, client(listener.address) as peer:
        events = peer.events()
        peer.h2.send_headers(1, head(ECHO))
        peer.h2.reset_stream(1, 8)
        peer.h2.send_headers(3, head(ECHO))
        await peer.send(3, framed(b"x"), events, end=True)
        async for event in events:
            assert not isinstance(event, h2.events.ConnectionTerminated)
            if isinstance(event, h2.events.StreamEnded):
                assert event.stream_id == 3
                break


@asynccontextmanager
async def echoing() -> AsyncIterator[str]:
    """The address of a server of h2's that says back what it is sent."""
    failures: list[BaseException] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            peer = Peer(reader, writer, client=False)
            peer.h2.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 2})
            events, bodies = peer.events(), dict[int, bytes]()
            async for event in events:
                if isinstance(event, h2.events.DataReceived):
                    bodies[event.stream_id] = bodies.get(event.stream_id, b"") + event.data
                elif isinstance(event, h2.events.StreamEnded):
                    stream = event.stream_id
                    peer.h2.send_headers(stream, [http2.OK, http2.CONTENT_TYPE])
                    await peer.send(stream, bodies[stream], events, end=False)
                    peer.h2.send_headers(stream, [(b"grpc-status", b"0")], end_stream=True)
                    peer.flush()
        except ConnectionError:
            pass
        except Exception as error:
            failures.append(error)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        server.close()
    assert not failures


@pytest.mark.parametrize("size", [0, 1, LARGE])
async def test_the_connector_asks_h2(size: int) -> None:
    async with echoing() as address, connected(address, LIMITS) as connector:
        message = bytes(range(256)) * (size // 256) + bytes(size % 256)
        for _ in range(2):
            assert bytes((await connector.exchange(ask(message))).body) == message


async def test_no_more_calls_at_once_than_h2_allows() -> None:
    async with echoing() as address, connected(address, LIMITS) as connector:
        assert bytes((await connector.exchange(ask(b"first"))).body) == b"first"
        replies = await asyncio.gather(*(connector.exchange(ask(bytes([at]))) for at in range(10)))
        assert [bytes(each.body) for each in replies] == [bytes([at]) for at in range(10)]
