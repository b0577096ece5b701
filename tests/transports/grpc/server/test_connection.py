"""Connections of clients that no gRPC library would be: slow, greedy, gone."""

import asyncio
import gc
import gzip
import itertools
import weakref
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest

from gateway.core.errors import GatewayError, Reason, Status, refusal
from gateway.core.frozen import replace
from gateway.core.http2.connection import Stream
from gateway.core.http2.frames import ErrorCode
from gateway.core.http2.hpack import read
from gateway.core.http2.server import MAX_STREAMS, WINDOW
from gateway.core.messages import Message
from gateway.core.protocol import Limits, ListenerSettings, Protocol
from gateway.core.transport import Exchange, Exchanges
from gateway.transports.grpc import Listener
from gateway.transports.grpc.server.calls import ServerCall
from gateway.transports.listener_connections import ConnectionLimit, ListenerConnections
from gateway.transports.memory import PROCESS_MEMORY
from gateway.transports.shedding import LARGE_BYTES, Level, Shedding
from gateway.transports.timeouts import Timeouts
from tests.core.http2 import by_hand as http2
from tests.core.http2.by_hand import DATA, GOAWAY, HEADERS, RST_STREAM, WINDOW_UPDATE, Peer
from tests.core.http2.conversation import ECHO, OPENING, fields, request
from tests.limits import GENEROUS, settle, until
from tests.skipping_loop import ON_ASYNCIO, skip
from tests.transports.grpc.toy import CHAT, OTHER, SMALL, Endless, Held, echo, echo_twice, listening, refuse

MESSAGE = b"\0\0\0\0\x01x"
LONG = Timeouts(head=30, body=30, idle=30, write=30, linger=30)
SHORT = Timeouts(head=0.4, body=0.4, idle=0.4, write=0.4, linger=0.1)


@asynccontextmanager
async def connected(listener: Listener, opening: bytes = OPENING) -> AsyncIterator[Peer]:
    """A client that has said `opening`."""
    host, _, port = listener.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(opening)
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()


@asynccontextmanager
async def client(exchange: Exchange = echo, *, opening: bytes = OPENING, **settings: Any) -> AsyncIterator[Peer]:
    """The same, of a listener with these settings."""
    async with listening(exchange, **settings) as listener, connected(listener, opening) as peer:
        yield peer


async def answer(peer: Peer, stream: int = 1) -> tuple[list[bytes], dict[bytes, bytes]]:
    """The DATA and the last fields of a reply."""
    data = []
    while True:
        kind, flags, number, payload = await peer.next(DATA, HEADERS, RST_STREAM, GOAWAY)
        if number not in (0, stream):
            continue
        assert kind in (DATA, HEADERS), (kind, payload)
        if kind == DATA:
            data.append(payload)
        elif flags & http2.END_STREAM:
            return data, ends_with(payload)


def ends_with(block: bytes) -> dict[bytes, bytes]:
    return dict(read(block, 100_000))


# Times.


async def test_a_client_that_does_not_speak_is_left() -> None:
    async with client(timeouts=SHORT, opening=b"PRI * HT") as peer:
        assert (await peer.closed())[-1][0] == GOAWAY


async def test_a_client_that_asks_nothing_is_told_to_come_again() -> None:
    async with client(timeouts=SHORT) as peer:
        kind, _, _, payload = (await peer.closed())[-1]
        assert (kind, payload[4:8]) == (GOAWAY, bytes(4))


@ON_ASYNCIO
async def test_a_client_that_has_asked_may_wait_as_long_as_it_likes() -> None:
    async with client(timeouts=LONG) as peer:
        peer.send(request())
        await answer(peer)
        await skip(2 * LONG.idle)
        peer.send(request(3))
        assert (await answer(peer, 3))[0] == [b"\0\0\0\0\x01x"]


async def test_a_head_that_does_not_end_ends_the_connection() -> None:
    async with client(timeouts=Timeouts(head=0.4)) as peer:
        peer.send(http2.frame(HEADERS, 0, 1, http2.block(*fields())))
        assert (await peer.closed())[-1][3].endswith(b"a header block did not end within 0.4 s")


@pytest.mark.parametrize("path", ["/toy.Toy/Echo", CHAT])
async def test_a_message_that_does_not_go_on_ends_its_call_alone(path: str) -> None:
    held = Held()
    async with client(held, timeouts=SHORT) as peer:
        peer.send(request(), http2.head(*fields(path.encode()), stream=3), http2.data(b"half", size=1000, stream=3))
        _, told = await answer(peer, 3)
        assert told[b"grpc-status"] == b"%d" % Status.DEADLINE_EXCEEDED
        assert told[b"grpc-message"] == b"nothing of the message came for 0.4 s"
        held.go.set()
        assert (await answer(peer))[0] == [b"\0\0\0\0\x01x"]


@ON_ASYNCIO
async def test_a_stream_between_its_messages_may_wait_as_long_as_it_likes() -> None:
    async with client(timeouts=LONG) as peer:
        peer.send(http2.head(*fields(CHAT.encode())))
        await skip(2 * LONG.body)
        peer.send(http2.data(b"a", end=True))
        assert (await answer(peer))[0] == [b"\0\0\0\0\x021a", b"\0\0\0\0\x022a"]


async def test_a_reply_whose_window_does_not_open_is_given_up() -> None:
    opening = http2.PREFACE + http2.settings(INITIAL_WINDOW_SIZE=3)
    async with client(timeouts=SHORT, opening=opening) as peer:
        peer.send(request())
        assert (await peer.next(RST_STREAM))[2] == 1


@ON_ASYNCIO
async def test_a_stream_whose_reply_is_not_read_is_given_up_and_closed() -> None:
    endless = Endless(100)
    opening = http2.PREFACE + http2.settings(INITIAL_WINDOW_SIZE=3)
    async with client(stream=endless, timeouts=LONG, opening=opening) as peer:
        peer.send(http2.head(*fields(CHAT.encode())))
        await peer.next(DATA)
        for _ in range(8):
            await skip(LONG.write / 4)
        assert await peer.next(RST_STREAM) == (RST_STREAM, 0, 1, int(ErrorCode.CANCEL).to_bytes(4))
        await endless.closed.wait()


@ON_ASYNCIO
async def test_a_message_has_a_total_time() -> None:
    async with client(timeouts=Timeouts(head=30, body=100, message=60)) as peer:
        peer.send(http2.head(*fields()), http2.data(b"half", size=1000))
        for _ in range(9):
            await skip(7.5)
            peer.send(http2.frame(DATA, 0, 1, b"more of it"))
        _, told = await answer(peer)
    assert told[b"grpc-status"] == b"%d" % Status.DEADLINE_EXCEEDED
    assert told[b"grpc-message"] == b"the message did not arrive within 60 s"


async def test_a_reply_that_is_read_a_byte_at_a_time_is_given_up() -> None:
    """The client is never silent, but it would take minutes."""

    def long(message: Message, protocol: Protocol) -> Message:
        return Message(parts=(bytes(10**6),))

    opening, slow = http2.PREFACE + http2.settings(INITIAL_WINDOW_SIZE=1), Timeouts(head=0.4, write=0.4, rate=1e9)
    async with client(long, timeouts=slow, opening=opening) as peer:
        peer.send(request())
        while (frame := await peer.next(DATA, RST_STREAM))[0] == DATA:
            peer.send(http2.window_update(1, 1))
        assert frame[2] == 1


async def test_a_stream_that_says_nothing_ends_but_not_one_whose_answer_is_owed() -> None:
    held = Held()
    limits = Limits(message=100_000, headers=10_000, stream_first_message=0.1, stream_idle=0.2)
    async with client(stream=held.stream, limits=limits, timeouts=SHORT) as peer:
        peer.send(http2.head(*fields(CHAT.encode())), http2.data(b"a"))
        await held.asked.get()
        peer.send(http2.head(*fields(CHAT.encode()), stream=3))
        _, told = await answer(peer, 3)
        assert told[b"grpc-status"] == b"%d" % Status.DEADLINE_EXCEEDED
        advice = b"; send one sooner, or raise the limit"
        assert told[b"grpc-message"] == b"no message came for 0.1 s (limits.stream_first_message)" + advice
        peer.send(http2.head(*fields(CHAT.encode()), stream=5))
        await answer(peer, 5)  # another look, and the first stream is still there
        held.go.set()
        replies, told = await answer(peer)
        assert replies == [b"\0\0\0\0\x01a"]
        assert told[b"grpc-message"] == b"no message came from either side for 0.2 s (limits.stream_idle)" + advice


@ON_ASYNCIO
async def test_a_reply_that_took_long_has_its_own_time_to_be_read() -> None:
    """The client had nothing to send for longer than the time to read a reply, and is not late by that."""
    timeouts, held = Timeouts(head=10, body=10, write=40), Held()
    opening = http2.PREFACE + http2.settings(INITIAL_WINDOW_SIZE=3)
    async with client(held, timeouts=timeouts, opening=opening) as peer:
        peer.send(request())
        await held.asked.get()
        await skip(timeouts.write + 10)
        held.go.set()
        assert (await peer.next(DATA))[3] == bytes(3)
        await skip(timeouts.body)  # the connection looks for late clients meanwhile
        peer.send(http2.window_update(1, 3))
        assert (await answer(peer))[0] == [b"\0\1x"]


async def test_a_client_that_reads_nothing_is_left() -> None:
    endless = Endless(1_000_000)
    opening = http2.PREFACE + http2.settings(INITIAL_WINDOW_SIZE=2**31 - 1) + http2.window_update(0, 2**30)
    async with client(stream=endless, timeouts=SHORT, opening=opening) as peer:
        peer.send(http2.head(*fields(CHAT.encode())))
        await endless.closed.wait()


async def test_what_is_reset_in_the_read_that_it_came_in_is_never_begun() -> None:
    """Whole requests and resets in one read: the others are answered, and each with its own message."""
    asked = list[bytes]()

    def note(message: Message, protocol: Protocol) -> Message:
        asked.append(bytes(message.body))
        return echo(message, protocol)

    async with client(note) as peer:
        peer.send(request(1, b"a"), http2.reset(8, 1), request(3, b"b"), request(5, b"c"), http2.reset(8, 5))
        assert (await answer(peer, 3))[0] == [b"\0\0\0\0\1b"]
        peer.send(request(7, b"d"))
        assert (await answer(peer, 7))[0] == [b"\0\0\0\0\1d"]
    assert asked == [b"b", b"d"]


# Memory.


async def test_large_messages_of_one_connection_arrive_two_at_a_time() -> None:
    limits = Limits(message=4 * WINDOW)
    async with client(limits=limits) as peer:
        for stream, size in ((1, 4), (3, 4), (5, 2), (7, 2), (9, 2)):
            peer.send(http2.head(*fields(), stream=stream), http2.data(b"begins", size=size * WINDOW, stream=stream))
        assert [(await peer.next(WINDOW_UPDATE))[2] for _ in range(3)] == [0, 1, 3]
        peer.send(http2.reset(8, 1))
        assert [(await peer.next(WINDOW_UPDATE))[2] for _ in range(2)] == [5, 7]
        peer.send(http2.reset(8, 5))
        assert (await peer.next(WINDOW_UPDATE))[2] == 9


async def test_a_client_that_sends_to_a_stream_that_is_not_read_is_stopped_by_its_window() -> None:
    asked = asyncio.Event()

    async def stream(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        asked.set()
        await asyncio.Event().wait()
        yield Message()

    async with client(stream=stream) as peer:
        peer.send(http2.head(*fields(CHAT.encode())))
        peer.send(*(http2.data(bytes(16_000)) for _ in range(WINDOW // 16_005)))
        peer.send(request(3))
        await answer(peer, 3)
        assert asked.is_set()
        peer.send(http2.data(bytes(16_000)))  # one more than there is room for
        assert (await peer.next(RST_STREAM, WINDOW_UPDATE))[0] == RST_STREAM


async def count(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
    """One reply, at the end: how many messages there were."""
    total = 0
    async for _ in messages:
        total += 1
    yield Message(parts=(str(total).encode(),))


async def test_many_small_messages_of_a_stream_without_replies_are_no_flood() -> None:
    async with client(stream=count) as peer:
        peer.send(http2.head(*fields(CHAT.encode())), http2.data(b"x") * 20_000, http2.data(b"x", end=True))
        assert (await answer(peer))[0] == [b"\0\0\0\0\x0520001"]


@pytest.mark.parametrize(
    "flood",
    [
        pytest.param(http2.frame(DATA, 0, 1, b""), id="empty"),
        pytest.param(http2.frame(DATA, 0x8, 1, b"\xf0" + bytes(0xF0)), id="nothing but padding"),
        pytest.param(http2.frame(DATA, 0, 1, b"\0\0\0\0") + http2.frame(DATA, 0, 1, b"\1x"), id="messages in pieces"),
    ],
)
async def test_small_frames_that_complete_no_message_are_a_flood_on_a_stream_that_is_served(flood: bytes) -> None:
    async with client(stream=count) as peer:
        peer.send(http2.head(*fields(CHAT.encode())), http2.data(b"x"), flood * 20_000)
        _, _, _, payload = await peer.next(GOAWAY)
        assert payload.endswith(b"too many DATA frames with next to nothing in them")


class Tracked:
    """Bodies whose end can be seen: arrays, which replies refer to and which can be referred to weakly."""

    def __init__(self) -> None:
        self.alive: list[weakref.ref[object]] = []

    def body(self) -> memoryview:
        array = np.zeros(1000, np.uint8)
        self.alive.append(weakref.ref(array))
        return array.data

    def left(self) -> int:
        return sum(each() is not None for each in self.alive)


def calls_and_streams() -> list[object]:
    """Those that live."""
    return [each for each in gc.get_objects() if isinstance(each, ServerCall | Stream)]


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # `calls_and_streams` looks at what is new
    gc.disable()
    yield
    gc.enable()


def outcomes(tracked: Tracked) -> dict[bytes, Callable[[Message], Message | Awaitable[Message]]]:
    async def later(message: Message) -> Message:
        held = tracked.body()
        await asyncio.sleep(0)
        return Message(parts=(held,))

    async def fails(message: Message) -> Message:
        held = tracked.body()
        await asyncio.sleep(0)
        raise refusal(Reason.MODEL_NOT_FOUND, f"{len(held)} bytes for nobody")

    async def waits(message: Message) -> Message:
        held = tracked.body()
        await asyncio.Event().wait()
        return Message(parts=(held,))

    def told(message: Message) -> Message:
        tracked.body()
        error: GatewayError = refusal(Reason.INVALID_INPUT, "no")
        raise error

    def at_once(message: Message) -> Message:
        return Message(parts=(tracked.body(),))

    return {b"at once": at_once, b"later": later, b"fails": fails, b"waits": waits, b"told": told}


@pytest.mark.parametrize("how", [b"at once", b"later", b"fails", b"told", b"waits"])
@pytest.mark.usefixtures("no_collector")
async def test_nothing_of_a_request_outlives_its_answer(how: bytes) -> None:
    tracked = Tracked()
    outcome = outcomes(tracked)[how]

    def exchange(message: Message, protocol: Protocol) -> Message | Awaitable[Message]:
        return outcome(message)

    async with client(exchange) as peer:
        for number in range(1, 20, 2):
            timeout = [(b"grpc-timeout", b"10m")] if how == b"waits" else []
            peer.send(http2.head(*fields(ECHO, *timeout), stream=number))
            peer.send(http2.data(how, end=True, stream=number))
            await answer(peer, number)
        await asyncio.sleep(0)
        assert len(tracked.alive) == 10
        assert tracked.left() == 0
        assert not calls_and_streams()


@pytest.mark.parametrize("how", ["ends", "fails", "is cancelled", "waits for more"])
@pytest.mark.usefixtures("no_collector")
async def test_nothing_of_a_stream_outlives_its_answer(how: str) -> None:
    tracked = Tracked()
    ended = asyncio.Event()

    async def stream(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        try:
            async for _ in messages:
                yield Message(parts=(tracked.body(),))
                if how == "fails":
                    raise refusal(Reason.MODEL_ERROR, "no")
                if how == "is cancelled":
                    await asyncio.Event().wait()
        finally:
            ended.set()

    async with client(stream=stream) as peer:
        peer.send(http2.head(*fields(CHAT.encode())), http2.data(b"x", end=how == "ends"))
        await peer.next(DATA)
        if how == "is cancelled":
            peer.send(http2.reset(8))
        if how != "waits for more":
            await ended.wait()
        peer.send(request(3))
        await answer(peer, 3)
        await asyncio.sleep(0)
        assert len(tracked.alive) == 1
        assert tracked.left() == 0
        assert len(calls_and_streams()) == (2 if how == "waits for more" else 0)


# Compressed requests.


def compressed(encoding: bytes, data: bytes) -> bytes:
    head = http2.head(*fields(ECHO, (b"grpc-encoding", encoding)))
    return head + http2.frame(DATA, 1, 1, b"\1" + len(data).to_bytes(4) + data)


COMPRESSED = {
    "gzip": (compressed(b"gzip", gzip.compress(b"body")), b"0", None),
    "deflate": (compressed(b"deflate", zlib.compress(b"body")), b"0", None),
    "without an encoding": (compressed(b"identity", b"body"), b"13", b"compressed, but grpc-encoding is missing"),
    "not what it says": (compressed(b"gzip", b"body"), b"13", b"the message is not gzip"),
    "a bomb": (
        compressed(b"gzip", gzip.compress(bytes(10_000_000))),
        b"8",
        b"inflates to more than 100000 bytes, the most that is allowed: limits.message, 100000",
    ),
    "another": (compressed(b"zstd", b"body"), b"12", b"grpc-encoding 'zstd' is not supported"),
}


@pytest.mark.parametrize(("octets", "status", "text"), COMPRESSED.values(), ids=COMPRESSED)
async def test_compressed_requests(octets: bytes, status: bytes, text: bytes | None) -> None:
    async with client() as peer:
        peer.send(octets)
        data, told = await answer(peer)
        assert told[b"grpc-status"] == status
        if text is None:
            assert data == [b"\0\0\0\0\x04body"]
        else:
            assert text in told[b"grpc-message"]
        if status == b"12":
            assert told[b"grpc-accept-encoding"] == b"identity, deflate, gzip"


# Messages.


async def test_a_message_over_the_limit_is_refused_before_it_comes() -> None:
    async with client() as peer:
        peer.send(http2.head(*fields()), http2.frame(DATA, 0, 1, b"\0" + (SMALL.message + 1).to_bytes(4)))
        _, told = await answer(peer)
        assert told[b"grpc-status"] == b"%d" % Status.RESOURCE_EXHAUSTED
        assert b"limits.message, 100000 bytes" in told[b"grpc-message"]
        assert told[b"gateway-reason"] == b"too-large"
        assert (await peer.next(RST_STREAM))[3] == bytes(4)


@pytest.mark.parametrize(
    ("octets", "text"),
    [
        (http2.data(b"a") + http2.data(b"b", end=True), b"the method takes one message, the request has more"),
        (http2.frame(DATA, 1, 1, b""), b"the method takes one message, the request has no message"),
        (http2.data(b"half", size=10, end=True), b"the request ends within a message"),
        (http2.frame(DATA, 1, 1, b"<html"), b"a message's Compressed-Flag is 60, it is 0 or 1"),
    ],
)
async def test_what_is_not_one_message_is_refused(octets: bytes, text: bytes) -> None:
    async with client() as peer:
        peer.send(http2.head(*fields()), octets)
        _, told = await answer(peer)
        assert (told[b"grpc-status"], told[b"grpc-message"]) == (b"%d" % Status.INTERNAL, text)


async def test_a_deadline_that_passes_before_the_message_has_come_ends_the_call() -> None:
    async with client() as peer:
        peer.send(http2.head(*fields(ECHO, (b"grpc-timeout", b"10m"))))
        assert (await answer(peer))[1][b"grpc-status"] == b"%d" % Status.DEADLINE_EXCEEDED


@ON_ASYNCIO
async def test_calls_of_one_connection_end_in_the_order_of_their_deadlines() -> None:
    async with client(held := Held()) as peer:
        for number, timeout in ((1, b"9S"), (3, b"6S"), (5, b"3S")):
            peer.send(http2.head(*fields(ECHO, (b"grpc-timeout", timeout)), stream=number))
        peer.send(http2.data(b"whole", end=True, stream=1))
        await held.asked.get()
        for expected in (5, 3, 1):
            await skip(3)
            _, _, number, block = await peer.next(HEADERS)
            assert (number, ends_with(block)[b"grpc-status"]) == (expected, b"%d" % Status.DEADLINE_EXCEEDED)


async def test_rapid_resets_do_not_hold_up_others() -> None:
    held = Held()

    def exchange(message: Message, protocol: Protocol) -> Message | Awaitable[Message]:
        return held(message, protocol) if message.body == b"x" else message

    async with listening(exchange) as listener, connected(listener) as rapid, connected(listener) as other:
        for number in range(1, 4001, 2):
            rapid.send(request(number), http2.reset(8, number))
        other.send(http2.head(*fields()), http2.data(b"other", end=True))
        assert (await answer(other))[0] == [b"\0\0\0\0\x05other"]
        assert (await rapid.closed())[-1][3].endswith(b"too many streams were reset")
    assert held.asked.qsize() < 600


async def test_what_was_cancelled_takes_no_room_once_it_has_ended() -> None:
    held = Held()
    async with client(held) as peer:
        for number in range(1, 4 * MAX_STREAMS, 2):
            peer.send(request(number))
            await held.asked.get()
            peer.send(http2.reset(8, number))
        held.go.set()
        peer.send(request(4 * MAX_STREAMS + 1))
        assert (await answer(peer, 4 * MAX_STREAMS + 1))[0] == [b"\0\0\0\0\x01x"]


async def test_a_client_that_cancels_as_many_as_it_may_and_asks_again_at_once_is_not_refused() -> None:
    held, numbers = Held(), itertools.count(1, 2)

    async def exchange(message: Message, protocol: Protocol) -> Message:
        if message.body == b"last":
            return message
        try:
            return await held(message, protocol)
        finally:  # as calls do whose cancellation goes through several tasks
            await settle(4)

    async with client(exchange) as peer:
        for _ in range(4):
            taken = list(itertools.islice(numbers, MAX_STREAMS))
            peer.send(*map(request, taken), *(http2.reset(8, number) for number in taken))
        peer.send(request(last := next(numbers), b"last"))
        assert (await answer(peer, last))[0] == [b"\0\0\0\0\x04last"]
        peer.send(http2.frame(http2.PING, 0, 0, b"all read"))
        assert await peer.next(RST_STREAM, GOAWAY, http2.PING) == (http2.PING, http2.ACK, 0, b"all read")


async def test_draining_tells_how_many_requests_it_gave_up() -> None:
    held = Held()
    async with listening(held, timeouts=SHORT) as listener, connected(listener) as peer:
        peer.send(request(), request(3))
        await held.asked.get()
        await held.asked.get()
        assert await listener.drain(0.01) == 2
        assert held.cancelled.is_set()
        ends = [frame for frame in await peer.closed() if frame[0] == HEADERS]
        assert [ends_with(payload)[b"grpc-message"] for _, _, _, payload in ends] == [b"the gateway is stopping"] * 2


async def test_messages_of_a_stream_for_which_there_is_no_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()
    async with client(stream=held.stream, limits=Limits()) as peer:
        peer.send(http2.head(*fields(CHAT.encode())), http2.data(b"first"))
        await held.asked.get()
        monkeypatch.setattr(PROCESS_MEMORY, "limit", 0)
        peer.send(*[http2.data(bytes(1000))] * 100)
        _, told = await answer(peer)
    assert told[b"grpc-status"] == b"%d" % Status.RESOURCE_EXHAUSTED
    assert b"limits.memory" in told[b"grpc-message"]


async def test_a_stream_that_ends_within_a_reply_is_reset() -> None:
    opening = http2.PREFACE + http2.settings(INITIAL_WINDOW_SIZE=3)
    async with client(opening=opening) as peer:
        peer.send(http2.head(*fields(CHAT.encode())), http2.data(b"a"))
        await peer.next(DATA)
        peer.send(http2.data(b"x", size=10**9))  # beyond the limit
        assert await peer.next(RST_STREAM) == (RST_STREAM, 0, 1, int(ErrorCode.CANCEL).to_bytes(4))
        peer.send(request(3, b""), http2.window_update(3, 100))
        assert (await answer(peer, 3))[1][b"grpc-status"] == b"0"


async def test_a_reload_ends_calls_of_methods_that_are_gone_unless_they_are_answered() -> None:
    held = Held()
    async with listening(held) as listener, connected(listener) as peer:
        peer.send(http2.head(*fields()), http2.data(b"half", size=1000), request(3))
        await held.asked.get()
        renewed = Exchanges(echo, echo_twice, refuse)
        running = listener.renew(ListenerSettings(limits=SMALL), [(OTHER, "")], renewed)
        _, told = await answer(peer)
        assert told[b"grpc-status"] == b"%d" % Status.UNIMPLEMENTED
        assert b"/toy.Toy/Echo" in told[b"grpc-message"]
        held.go.set()
        assert (await answer(peer, 3))[0] == [MESSAGE]
        assert [task.done() for task in running] == [True]


async def test_a_client_that_opens_its_connection_during_a_drain_is_told_to_ask_nothing() -> None:
    async with listening() as listener, connected(listener, OPENING[:10]) as peer:
        await until(lambda: listener.open_connections == 1, 0)
        draining = asyncio.ensure_future(listener.drain(GENEROUS))
        await settle()
        peer.send(OPENING[10:])
        assert await peer.next(GOAWAY) == (GOAWAY, 0, 0, (2**31 - 1).to_bytes(4) + bytes(4))
        ping = await peer.next(http2.PING)
        peer.send(http2.frame(http2.PING, http2.ACK, 0, ping[3]))
        assert await peer.next(GOAWAY) == (GOAWAY, 0, 0, bytes(8))
        assert await draining == 0


def shedding_connections() -> ListenerConnections:
    """Connections of a process that sheds large requests."""
    limit = ConnectionLimit(100)
    limit.shedding = Shedding(1, 1)
    limit.shedding.level = Level.LARGE
    return ListenerConnections(shared_limit=limit)


@pytest.mark.parametrize(("size", "is_refused"), [(LARGE_BYTES, True), (5, False)])
async def test_load_is_shed_as_soon_as_the_size_of_a_message_is_known(size: int, is_refused: bool) -> None:
    limits = Limits(message=2 * LARGE_BYTES)
    async with listening(limits=limits, connections=(connections := shedding_connections())) as listener:
        assert connections.shedding is not None
        connections.shedding.level = Level.NOTHING  # new connections are refused first
        async with connected(listener) as peer:
            peer.send(http2.head(*fields()))
            await peer.next(http2.SETTINGS)
            connections.shedding.level = Level.LARGE
            peer.send(http2.data(bytes(5), size=size, end=size == 5), request(3))
            _, told = await answer(peer)
            assert told[b"grpc-status"] == b"%d" % (Status.UNAVAILABLE if is_refused else 0)
            assert (await answer(peer, 3))[0] == [MESSAGE]


@pytest.mark.parametrize("leave", [True, False], ids=["it leaves", "it reads after all"])
async def test_replies_that_a_client_does_not_read_are_counted(leave: bool) -> None:
    large, before = 8 * 2**20, PROCESS_MEMORY.used

    def much(message: Message, protocol: Protocol) -> Message:
        return Message(parts=(bytes(large),))

    async with listening(much, limits=Limits(message=2 * large)) as listener:
        async with connected(listener) as peer:
            for stream in (1, 3):
                peer.send(request(stream))
            await until(lambda: PROCESS_MEMORY.used >= before + large)
            assert PROCESS_MEMORY.used <= before + 2 * large + 10
            if not leave:
                peer.send(http2.window_update(0, 2**30), http2.window_update(1, 2**30), http2.window_update(3, 2**30))
                await answer(peer, 1)
                while PROCESS_MEMORY.used != before:
                    await peer.frame()
        await until(lambda: PROCESS_MEMORY.used == before)


@pytest.mark.parametrize(("ping_interval", "is_open"), [(0.0, True), (9.0, False)])
async def test_the_listener_says_how_often_a_client_without_calls_may_ping(ping_interval: float, is_open: bool) -> None:
    ping = http2.frame(http2.PING, 0, 0, bytes(8))
    async with (
        listening(limits=replace(SMALL, ping_interval=ping_interval)) as listener,
        connected(listener, OPENING + ping * 5) as peer,
    ):
        if is_open:
            for _ in range(5):
                await peer.next(http2.PING)
        else:
            assert (await peer.next(GOAWAY))[3][8:] == b"too_many_pings"
