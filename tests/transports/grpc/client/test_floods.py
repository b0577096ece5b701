"""Servers that send many frames which carry nothing."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from gateway.core.address import Address
from gateway.core.errors import Reason, Status, TransportError
from gateway.core.http2 import bounds
from gateway.core.http2.bounds import Credit, FloodError
from gateway.core.protocol import DEFAULT_LIMITS, Limits
from gateway.transports.grpc.client import connection
from gateway.transports.grpc.client.call import ClientCall
from gateway.transports.grpc.client.connection import GrpcClientConnection
from gateway.transports.memory import PROCESS_MEMORY
from gateway.transports.timeouts import GRPC_TIMEOUTS
from tests.core.http2 import by_hand as http2
from tests.core.http2.by_hand import ACK, DATA, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, Peer, frame
from tests.limits import GENEROUS
from tests.transports.grpc.toy import HEAD, TRAILERS, ask, refused, scripted

PRIORITY, CALM = 2, 11

FLOODS = {
    "PING": frame(PING, 0, 0, b"12345678"),
    "PING that answers none": frame(PING, ACK, 0, b"12345678"),
    "SETTINGS": frame(SETTINGS, 0, 0, b""),
    "SETTINGS of the same": http2.settings(MAX_CONCURRENT_STREAMS=5) * 2,
    "SETTINGS that acknowledge": frame(SETTINGS, ACK, 0, b""),
    "WINDOW_UPDATE of the connection": http2.window_update(0, 1),
    "WINDOW_UPDATE of the call": http2.window_update(1, 1),
    "PRIORITY": frame(PRIORITY, 0, 1, bytes(5)),
    "unknown": frame(0xFE, 0, 1, b"what"),
    "empty DATA": frame(DATA, 0, 1, b""),
    "DATA that is all padding": frame(DATA, 8, 1, b"\x03\0\0\0"),
    "early hints": http2.head((b":status", b"103")),
}
CLOSED = {
    "heads of a closed stream": HEAD,
    "resets of a closed stream": http2.reset(0),
    "window updates of a closed stream": http2.window_update(1, 1),
    "empty DATA of a closed stream": frame(DATA, 0, 1, b""),
    "DATA of a closed stream": frame(DATA, 0, 1, bytes(1000)),
}


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_paused = self.is_closed = False

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def writelines(self, pieces: list[bytes]) -> None:
        self.written += map(bytes, pieces)

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.written))

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str) -> None:
        return None


class Owner:
    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


def begun(
    monkeypatch: pytest.MonkeyPatch, limits: Limits = DEFAULT_LIMITS, turn: float = GENEROUS
) -> tuple[GrpcClientConnection, Wire, ClientCall]:
    """A connection with a call whose replies are pulled. Each turn has `turn` seconds."""
    monkeypatch.setattr(connection, "TURN", turn)
    monkeypatch.setattr(connection, "keep_probing", lambda _: None)
    wire: Any = Wire()
    made = GrpcClientConnection(Address("toy"), limits, GRPC_TIMEOUTS, Owner())
    made.connection_made(wire)
    feed(made, http2.settings())
    call = ClientCall(limits, streamed=True)
    made.begin(call, b"head", (b"question",), None)
    feed(made, HEAD)
    return made, wire, call


def feed(made: GrpcClientConnection, octets: bytes) -> None:
    made.get_buffer(-1)[: len(octets)] = octets
    made.buffer_updated(len(octets))


async def test_what_comes_together_is_taken_in_turns_and_nothing_more_is_read_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, wire, call = begun(monkeypatch, turn=0.0)
    await asyncio.sleep(0)
    feed(made, http2.data(b"x") * 1000 + TRAILERS)
    seen = [len(call.replies)]
    while wire.is_paused:
        await asyncio.sleep(0)
        seen.append(len(call.replies))
    assert seen[0] == bounds.FRAMES
    assert max(after - before for before, after in pairwise(seen)) <= bounds.FRAMES
    assert (len(call.replies), call.is_over, call.error) == (1000, True, None)


async def test_what_had_no_turn_yet_counts_when_the_server_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _, call = begun(monkeypatch, turn=0.0)
    feed(made, http2.data(b"x") * 1000 + TRAILERS)
    made.connection_lost(None)
    assert (len(call.replies), call.error) == (1000, None)


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
async def test_a_flood_ends_the_connection_and_is_told_why(flood: bytes) -> None:
    ends: list[http2.Frame] = []

    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(b"" if flood == FLOODS["early hints"] else HEAD, flood * 100_000)
        ends.extend(await peer.closed())

    async with scripted(play) as connector:
        error = await refused(connector.exchange(ask()))
    assert (error.status, error.reason) == (Status.UNAVAILABLE, Reason.UNREACHABLE)
    assert error.message.startswith("the gateway closed the connection: too many")
    # a reset takes what had been sent
    assert {payload for kind, _, _, payload in ends if kind == GOAWAY} <= {bytes(7) + bytes([CALM])}


@pytest.mark.parametrize("flood", CLOSED.values(), ids=CLOSED)
async def test_frames_of_closed_streams_are_a_flood_too(flood: bytes) -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(http2.reply())
        await peer.request()
        peer.send(flood * 100_000)

    async with scripted(play) as connector:
        assert bytes((await connector.exchange(ask())).body) == b"reply"
        with pytest.raises(TransportError, match=r"too many (frames of closed streams|WINDOW_UPDATE)"):
            await connector.exchange(ask())


async def test_what_was_on_its_way_when_calls_were_given_up_is_no_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    made, wire, call = begun(monkeypatch)
    made.give_up(call)
    for _ in range(1000):
        feed(made, frame(DATA, 0, 1, b"x" * 40) * 100)
    assert not wire.is_closed
    assert not any(each.startswith(frame(GOAWAY, 0, 0, bytes(8))[:5]) for each in wire.written)


async def test_small_messages_and_windows_of_large_requests_are_no_flood() -> None:
    """A stream of 20,000 messages of a byte each; a server that widens its windows by 4 KiB."""

    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(HEAD, *[http2.data(b"x")] * 20_000, TRAILERS)
        await peer.next(HEADERS)
        for _ in range(2**22 // 4096):
            peer.send(http2.window_update(0, 4096), http2.window_update(3, 4096))
        await peer.request()
        peer.send(http2.reply(stream=3))

    async with scripted(play) as connector:
        assert [bytes(each.body) async for each in connector.stream(ask())] == [b"x"] * 20_000
        assert bytes((await connector.exchange(ask(bytes(2**22)))).body) == b"reply"


async def test_a_server_that_reads_no_answer_to_its_pings_is_left() -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        for _ in range(100):
            if not peer.writer.is_closing():
                peer.send(FLOODS["PING"] * 1000)
            await asyncio.sleep(0)

    async with scripted(play) as connector:
        with pytest.raises(TransportError, match="too many PING frames"):
            await connector.exchange(ask())


def test_credit_grows_with_time_and_work() -> None:
    credit = Credit(10, 5, now=100)
    for _ in range(10):
        credit.spend(1, 100, "frames")
    credit.spend(1, 101, "frames")
    credit.earn(2)
    credit.spend(6, 101, "frames")
    with pytest.raises(FloodError, match="too many frames"):
        credit.spend(1, 101, "frames")


async def test_what_a_prefix_announces_costs_nothing_and_what_came_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    before = PROCESS_MEMORY.used
    made, _, call = begun(monkeypatch)
    feed(made, http2.data(b"x", size=60 * 2**20))
    assert PROCESS_MEMORY.used - before <= 2**17
    for _ in range(20):
        feed(made, frame(DATA, 0, 1, bytes(10_000)))
    assert 200_000 <= PROCESS_MEMORY.used - before <= 2**20
    made.give_up(call)
    del call
    assert PROCESS_MEMORY.used == before


async def test_a_reply_for_which_there_is_no_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PROCESS_MEMORY, "limit", PROCESS_MEMORY.used + 2**20)
    made, wire, call = begun(monkeypatch)
    feed(made, http2.data(b"x", size=2**21))
    assert call.error is not None
    assert (call.error.reason, call.error.sent) == (Reason.OVERLOADED, True)
    assert "limits.memory" in call.error.message
    assert wire.written[-1] == frame(RST_STREAM, 0, 1, b"\0\0\0\x08")


async def test_heads_pile_up_to_a_bound_before_a_server_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    made, wire, call = begun(monkeypatch)
    made.pause_writing()
    while made.has_room:
        made.begin(ClientCall(DEFAULT_LIMITS, streamed=False), bytes(1000), (bytes(10_000),), None)
        assert wire.get_write_buffer_size() < 1_200_000
    assert wire.get_write_buffer_size() > 1_000_000
    wire.written.clear()
    made.resume_writing()
    made.give_up(call)
    assert made.has_room
