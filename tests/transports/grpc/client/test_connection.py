"""The client's side of HTTP/2, frame by frame."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from gateway.core.errors import Reason, Status, TransportError
from gateway.core.http2.client import WINDOW
from gateway.core.messages import Message
from gateway.core.protocol import Limits
from gateway.routing.endpoint import Endpoint
from gateway.routing.health import State
from gateway.transports.grpc import Connector
from gateway.transports.grpc.client.call import ClientCall
from gateway.transports.timeouts import GrpcEndpointTimeouts
from tests.core.http2 import by_hand as http2
from tests.core.http2.by_hand import (
    ACK,
    CONTENT_TYPE,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    OK,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Peer,
    frame,
    serving,
)
from tests.limits import GENEROUS, examples
from tests.transports.grpc.toy import HEAD, SMALL, TRAILERS, ask, connected, refused, scripted

CANCEL, NO_ERROR, PROTOCOL_ERROR = 8, 0, 1


async def exhausted(replies: AsyncIterator[Message]) -> None:
    async for _ in replies:
        pass


async def reply_of(connector: Connector, message: Message) -> bytes:
    return bytes((await connector.exchange(message)).body)


async def test_a_call_is_these_octets() -> None:
    received: list[bytes] = []

    async def play(peer: Peer) -> None:
        await peer.opening()
        for _ in range(5):
            kind, flags, stream, payload = await peer.frame()
            received.append(bytes([kind, flags, stream]) + payload)
        peer.send(http2.reply())
        await peer.closed()

    async with serving(play) as address, connected(address) as connector:
        assert await reply_of(connector, ask(b"question", path="/a/b")) == b"reply"
    authority = b"\x10\x0a:authority" + bytes([len(address)]) + address.encode()
    head = (
        b"\x20"  # our table has size 0, too
        b"\x83\x86\x10\x05:path\x04/a/b" + authority + b"\x10\x02te\x08trailers"
        b"\x10\x0ccontent-type\x10application/grpc\x10\x0auser-agent\x15grpc-python-modelglot"
        b"\x10\x14grpc-accept-encoding\x08identity"
    )
    assert received == [
        b"\x04\x00\x00" + bytes.fromhex("000100000000000200000000000400400000"),
        b"\x08\x00\x00" + bytes.fromhex("7fff0000"),
        # the server's settings are there before the first call
        b"\x04\x01\x00",
        b"\x01\x04\x01" + head,
        b"\x00\x01\x01" + b"\0\0\0\0\x08question",
    ]


async def test_settings_and_pings_are_answered() -> None:
    async def play(peer: Peer) -> None:
        assert await peer.next(SETTINGS) == (SETTINGS, 0, 0, bytes.fromhex("000100000000000200000000000400400000"))
        assert await peer.next(SETTINGS) == (SETTINGS, ACK, 0, b"")
        stream = await peer.request()
        peer.send(frame(PING, 0, 0, b"12345678"), frame(PING, ACK, 0, b"unasked."), http2.settings())
        assert await peer.next(PING, SETTINGS) == (PING, ACK, 0, b"12345678")
        assert await peer.next(PING, SETTINGS) == (SETTINGS, ACK, 0, b"")
        peer.send(http2.reply(stream=stream))

    async with scripted(play) as connector:
        assert await reply_of(connector, ask()) == b"reply"


# What a server may send, although few do: each stands for the reply to one call.
BLOCK, STATUS_0 = http2.block(OK, CONTENT_TYPE), http2.block((b"grpc-status", b"0"))
REST = http2.data(b"reply") + TRAILERS
UNUSUAL = {
    "a head in pieces": frame(HEADERS, 0, 1, BLOCK[:3])
    + frame(CONTINUATION, 0, 1, b"")
    + frame(CONTINUATION, END_HEADERS, 1, BLOCK[3:])
    + REST,
    "trailers in pieces": HEAD
    + http2.data(b"reply")
    + frame(HEADERS, END_STREAM, 1, STATUS_0[:5])
    + frame(CONTINUATION, END_HEADERS, 1, STATUS_0[5:]),
    "padding and priority": frame(HEADERS, END_HEADERS | 0x28, 1, b"\x02\0\0\0\0\xff" + BLOCK + b"\0\0")
    + frame(DATA, 0x8, 1, b"\x03\0\0\0\0\x05reply\0\0\0")
    + frame(HEADERS, END_HEADERS | END_STREAM | 0x20, 1, b"\0\0\0\0\xff" + STATUS_0),
    "a message in pieces": HEAD
    + frame(DATA, 0, 1, b"\0\0\0")
    + frame(DATA, 0, 1, b"")
    + frame(DATA, 0, 1, b"\0\x05re")
    + frame(DATA, 0, 1, b"ply")
    + TRAILERS,
    "an early hint": http2.head((b":status", b"103"), (b"link", b"</x>")) + http2.reply(),
    "frames of unknown types": frame(0xFE, 0xFF, 1, b"what") + frame(0xFE, 0xFF, 0, b"") + http2.reply(),
    "priorities": frame(2, 0, 1, bytes(5)) + http2.reply(),
    "settings that are not known": frame(SETTINGS, 0, 0, b"\xff\xff\0\0\0\1") + http2.reply(),
    "windows": http2.window_update(0, 1) + http2.window_update(1, 2**31 - 1 - 65535) + http2.reply(),
    "more behind the end": http2.reply() + http2.data(b"late") + http2.reset(0) + http2.window_update(1, 1),
    "content-type with a suffix": http2.head(OK, (b"content-type", b"application/grpc+proto")) + REST,
    # RFC 7541 appendix C: Huffman coding, and literals to be indexed in a table of no size
    "Huffman coding": frame(HEADERS, END_HEADERS, 1, bytes.fromhex("20885f8b1d75d0620d263d4c4d6564")) + REST,
    "a status without a text": HEAD + REST,
}


def playing(reply: bytes) -> Callable[[Peer], Awaitable[None]]:
    """Answers the first call with these octets, and all others well."""

    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(reply)
        with suppress(asyncio.IncompleteReadError):
            while True:
                peer.send(http2.reply(b"next", stream=await peer.request()))

    return play


@pytest.mark.parametrize("size", [100_000, 1], ids=["at once", "octet by octet"])
@pytest.mark.parametrize("reply", UNUSUAL.values(), ids=UNUSUAL)
async def test_what_servers_may_send_is_understood(reply: bytes, size: int) -> None:
    async def play(peer: Peer) -> None:
        await peer.request()
        for at in range(0, len(reply), size):
            peer.send(reply[at : at + size])
            await peer.writer.drain()
            await asyncio.sleep(0)
        peer.send(http2.reply(b"next", stream=await peer.request()))

    async with scripted(play) as connector:
        assert await reply_of(connector, ask()) == b"reply"
        assert await reply_of(connector, ask()) == b"next"


# What concerns one call leaves the others be.
BAD_REPLIES = {
    "two messages": HEAD + http2.data(b"1") + http2.data(b"2"),
    "no head": http2.data(b"reply"),
    "two heads": HEAD * 2,
    "a message beyond the limit": HEAD + http2.data(b"", size=2**32 - 1),
    "a flag that is none": HEAD + frame(DATA, 0, 1, b"\2\0\0\0\0"),
    "a compressed message": http2.head(OK, CONTENT_TYPE, (b"grpc-encoding", b"snappy"))
    + frame(DATA, 0, 1, b"\1\0\0\0\1x")
    + TRAILERS,
    "no gzip": http2.head(OK, CONTENT_TYPE, (b"grpc-encoding", b"gzip")) + frame(DATA, 0, 1, b"\1\0\0\0\1x") + TRAILERS,
    "no header block": frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff"),
    "a head of a dynamic table": frame(HEADERS, END_HEADERS, 1, b"\xbe"),
    "metadata that are no base64": http2.head(OK, CONTENT_TYPE, (b"a-bin", b"!")),
    "a large header block": http2.head(OK, *[(b"x", b"y" * 100)] * 100),
    "a larger one": frame(HEADERS, 0, 1, bytes(16384)) + frame(CONTINUATION, END_HEADERS, 1, bytes(16384)),
    "half a message": HEAD + http2.data(b"re", size=5) + TRAILERS,
    "an end without trailers": HEAD + http2.data(b"reply", end=True),
    "no HTTP status": http2.head(CONTENT_TYPE),
}


@pytest.mark.parametrize("reply", BAD_REPLIES.values(), ids=BAD_REPLIES)
async def test_a_bad_reply_ends_its_call_alone(reply: bytes) -> None:
    async with scripted(playing(reply)) as connector:
        error = await refused(connector.exchange(ask()))
        assert (error.status, error.reason, error.sent) == (Status.INTERNAL, Reason.INVALID_OUTPUT, True)
        assert await reply_of(connector, ask()) == b"next"


HOSTILE = {
    "no settings": frame(PING, 0, 0, bytes(8)),
    "an acknowledgement for settings": frame(SETTINGS, ACK, 0, b""),
    "HTTP/1.1": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "a large frame": frame(SETTINGS, 0, 0, bytes(6 * 3000)),
    "settings of 5 octets": frame(SETTINGS, 0, 0, bytes(5)),
    "settings of a stream": frame(SETTINGS, 0, 1, b""),
    "a window that is too large": http2.settings(INITIAL_WINDOW_SIZE=2**31),
    "frames that are too small": http2.settings(MAX_FRAME_SIZE=2**14 - 1),
    "frames that are too large": http2.settings(MAX_FRAME_SIZE=2**24),
}


@pytest.mark.parametrize("opening", HOSTILE.values(), ids=HOSTILE)
async def test_who_does_not_speak_http2_was_not_reached(opening: bytes) -> None:
    frames: list[http2.Frame] = []

    async def play(peer: Peer) -> None:
        frames.extend(await peer.closed())

    async with scripted(play, opening=opening) as connector:
        error = await refused(connector.exchange(ask()))
    assert (error.status, error.reason, error.sent) == (Status.UNAVAILABLE, Reason.UNREACHABLE, False)
    assert frames[-1] == (GOAWAY, 0, 0, bytes(7) + bytes([PROTOCOL_ERROR]))
    assert HEADERS not in {kind for kind, *_ in frames}


BROKEN = {
    "an acknowledgement with settings": frame(SETTINGS, ACK, 0, bytes(6)),
    "DATA of no stream": frame(DATA, 0, 0, b""),
    "DATA of a stream that was never opened": http2.data(b"x", stream=5),
    "DATA of a server's stream": http2.data(b"x", stream=2),
    "padding beyond the frame": HEAD + frame(DATA, 0x8, 1, b"\x05"),
    "HEADERS of no stream": http2.head(OK, stream=0),
    "HEADERS of a stream that was never opened": http2.head(OK, stream=5),
    "HEADERS cut off by a frame": frame(HEADERS, 0, 1, b"\x88") + frame(PING, 0, 0, bytes(8)),
    "HEADERS cut off by another stream's": frame(HEADERS, 0, 1, b"\x88") + frame(CONTINUATION, END_HEADERS, 3, b""),
    "CONTINUATION of nothing": frame(CONTINUATION, END_HEADERS, 1, b""),
    "CONTINUATION without an end": frame(HEADERS, 0, 1, b"\x88") + frame(CONTINUATION, 0, 1, bytes(16384)) * 20,
    "CONTINUATION of nothing without an end": frame(HEADERS, 0, 1, b"\x88")
    + frame(CONTINUATION, 0, 1, b"") * (SMALL.headers + 1),
    "PRIORITY of no stream": frame(2, 0, 0, bytes(5)),
    "RST_STREAM of 3 octets": frame(RST_STREAM, 0, 1, bytes(3)),
    "RST_STREAM of no stream": http2.reset(8, 0),
    "RST_STREAM of a stream that was never opened": http2.reset(8, 5),
    "PUSH_PROMISE": frame(5, END_HEADERS, 1, b"\0\0\0\2\x88"),
    "PING of 7 octets": frame(PING, 0, 0, bytes(7)),
    "PING of a stream": frame(PING, 0, 1, bytes(8)),
    "GOAWAY of 7 octets": frame(GOAWAY, 0, 0, bytes(7)),
    "GOAWAY of a stream": frame(GOAWAY, 0, 1, bytes(8)),
    "WINDOW_UPDATE by 0": http2.window_update(0, 0),
    "WINDOW_UPDATE of 5 octets": frame(WINDOW_UPDATE, 0, 0, bytes(5)),
    "WINDOW_UPDATE of a stream that was never opened": http2.window_update(5, 1),
    "a window beyond all": http2.window_update(0, 2**31 - 1),
    "a frame larger than announced": frame(DATA, 0, 1, bytes(2**14 + 1)),
}


@pytest.mark.parametrize("frames", BROKEN.values(), ids=BROKEN)
async def test_who_breaks_http2_is_left(frames: bytes) -> None:
    """The call fails, the endpoint is told, and the next one has a new connection."""
    ends: list[http2.Frame] = []

    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(frames)
        ends.extend(await peer.closed())

    async with scripted(play, playing(http2.reply())) as connector:
        error = await refused(connector.exchange(ask()))
        assert await reply_of(connector, ask()) == b"reply"
    assert (error.status, error.reason, error.sent) == (Status.UNAVAILABLE, Reason.UNREACHABLE, True)
    assert error.message.startswith("the gateway closed the connection: ")
    if ends:  # a reset takes what had been sent
        assert ends[-1] == (GOAWAY, 0, 0, bytes(7) + bytes([PROTOCOL_ERROR]))


RESETS = {
    0: (Reason.INVALID_OUTPUT, True, "NO_ERROR"),
    1: (Reason.INVALID_OUTPUT, True, "PROTOCOL_ERROR"),
    2: (Reason.INVALID_OUTPUT, True, "INTERNAL_ERROR"),
    3: (Reason.INVALID_OUTPUT, True, "FLOW_CONTROL_ERROR"),
    4: (Reason.INVALID_OUTPUT, True, "SETTINGS_TIMEOUT"),
    6: (Reason.INVALID_OUTPUT, True, "FRAME_SIZE_ERROR"),
    7: (Reason.UNREACHABLE, False, "REFUSED_STREAM"),
    8: (Reason.CANCELLED, True, "CANCEL"),
    9: (Reason.INVALID_OUTPUT, True, "COMPRESSION_ERROR"),
    10: (Reason.INVALID_OUTPUT, True, "CONNECT_ERROR"),
    11: (Reason.OVERLOADED, True, "ENHANCE_YOUR_CALM"),
    12: (Reason.PERMISSION_DENIED, True, "INADEQUATE_SECURITY"),
    13: (Reason.INVALID_OUTPUT, True, "HTTP_1_1_REQUIRED; is this the address of a gRPC server?"),
    99: (Reason.INVALID_OUTPUT, True, "error code 99"),
}


@pytest.mark.parametrize(("code", "expected"), RESETS.items())
async def test_a_reset_is_an_error_of_its_call_alone(code: int, expected: tuple[Reason, bool, str]) -> None:
    """The codes of gRPC's PROTOCOL-HTTP2.md: the status is that of the reason. The endpoint keeps its calls."""
    reason, sent, name = expected
    async with scripted(playing(HEAD + http2.reset(code))) as connector:
        endpoint = Endpoint("toy", connector)
        error = await refused(endpoint.exchange(ask()))
        assert (error.status, error.reason, error.sent) == (reason.status, reason, sent)
        assert error.message == f"the call was reset: {name}"
        assert endpoint.health.state is State.UP
        assert (await endpoint.exchange(ask())).body == b"next"


async def test_going_away_refuses_what_is_above_the_last_call_and_lets_the_others_end() -> None:
    async def first(peer: Peer) -> None:
        streams = [await peer.request() for _ in range(3)]
        assert streams == [1, 3, 5]
        peer.send(http2.go_away(3), http2.reply(b"one"))
        assert await peer.next(RST_STREAM, GOAWAY) == (RST_STREAM, 0, 3, bytes(3) + bytes([CANCEL]))
        assert await peer.closed() == [(GOAWAY, 0, 0, bytes(8))]

    async with scripted(first, playing(http2.reply())) as connector:
        one, three, five = (asyncio.ensure_future(connector.exchange(ask())) for _ in range(3))
        error = await refused(five)
        assert (error.status, error.sent) == (Status.UNAVAILABLE, False)
        assert (await one).body == b"one"
        # a new call goes elsewhere while the old one is still running
        assert await reply_of(connector, ask()) == b"reply"
        assert not three.done()
        three.cancel()
        await asyncio.wait([three])


async def test_going_away_while_idle_costs_no_call() -> None:
    async def first(peer: Peer) -> None:
        peer.send(http2.reply(stream=await peer.request()), http2.go_away(1))
        assert await peer.closed() == [(GOAWAY, 0, 0, bytes(8))]
        left.set()

    left = asyncio.Event()
    async with scripted(first, playing(http2.reply())) as connector:
        await connector.exchange(ask())
        await left.wait()
        assert await reply_of(connector, ask()) == b"reply"


async def test_a_cancelled_call_is_reset_and_what_comes_late_is_dropped() -> None:
    asked = asyncio.Event()

    async def play(peer: Peer) -> None:
        assert await peer.request() == 1
        asked.set()
        assert await peer.next(RST_STREAM) == (RST_STREAM, 0, 1, bytes(3) + bytes([CANCEL]))
        peer.send(http2.reply())
        peer.send(http2.reply(b"next", stream=await peer.request()))

    async with scripted(play) as connector:
        task = asyncio.ensure_future(connector.exchange(ask()))
        await asked.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert await reply_of(connector, ask()) == b"next"


async def test_that_the_deadline_passed_is_told_alike_whoever_notices_first() -> None:
    """A server's own word counts as long as there is time left."""
    told = http2.head(OK, CONTENT_TYPE, (b"grpc-status", b"4"), (b"grpc-message", b"mine"), end=True)

    async with scripted(playing(told)) as connector:
        deadline = asyncio.get_running_loop().time() + GENEROUS
        assert (await connector.exchange(ask(deadline=deadline))).body == b"mine"

    call = ClientCall(Limits(), streamed=False)
    assert not call.is_late(1e9)
    call.ends_at = 1e9
    assert not call.is_late(1e9 - 1)
    assert call.is_late(1e9)


async def test_a_reply_before_the_request_is_complete_ends_the_sending() -> None:
    async def play(peer: Peer) -> None:
        await peer.next(DATA)
        peer.send(http2.head(OK, CONTENT_TYPE, (b"grpc-status", b"8"), (b"grpc-message", b"too large"), end=True))
        assert await peer.next(RST_STREAM) == (RST_STREAM, 0, 1, bytes(4))
        peer.send(http2.window_update(0, 2**20), http2.window_update(1, 2**20))
        peer.send(http2.reply(stream=await peer.request()))

    async with scripted(play) as connector:
        reply = await connector.exchange(ask(bytes(1_000_000)))
        assert (reply.status, reply.body) == (Status.RESOURCE_EXHAUSTED, b"too large")
        assert await reply_of(connector, ask()) == b"reply"


async def test_calls_beyond_what_the_server_takes_wait_their_turn() -> None:
    at_once = 2

    async def play(peer: Peer) -> None:
        waiting = [await peer.request() for _ in range(at_once)]
        for number in range(10):
            stream = waiting.pop(0)
            peer.send(http2.reply(b"%d" % stream, stream=stream))
            if number < 8:
                waiting.append(await peer.request())

    async with scripted(play, opening=http2.settings(MAX_CONCURRENT_STREAMS=at_once)) as connector:
        replies = await asyncio.gather(*(reply_of(connector, ask()) for _ in range(10)))
    assert replies == [b"%d" % stream for stream in range(1, 21, 2)]


async def test_one_that_waits_and_gives_up_leaves_its_turn_to_the_next() -> None:
    go, asked = asyncio.Event(), asyncio.Event()

    async def play(peer: Peer) -> None:
        stream = await peer.request()
        asked.set()
        await go.wait()
        peer.send(http2.reply(b"first", stream=stream))
        peer.send(http2.reply(b"third", stream=await peer.request()))

    async with scripted(play, opening=http2.settings(MAX_CONCURRENT_STREAMS=1)) as connector:
        first, second, third = (asyncio.ensure_future(reply_of(connector, ask())) for _ in range(3))
        await asked.wait()
        second.cancel()
        error = await refused(connector.exchange(ask(deadline=asyncio.get_running_loop().time() + 0.01)))
        assert (error.status, error.sent) == (Status.DEADLINE_EXCEEDED, False)
        go.set()
        assert await first == b"first"
        assert await third == b"third"


async def test_one_that_gives_up_as_its_turn_comes_passes_it_on() -> None:
    async def play(peer: Peer) -> None:
        peer.send(http2.reply(b"first", stream=await peer.request()))
        peer.send(http2.reply(b"third", stream=await peer.request()))

    async with scripted(play, opening=http2.settings(MAX_CONCURRENT_STREAMS=1)) as connector:

        async def call_and_cancel() -> bytes:
            reply = await reply_of(connector, ask())
            second.cancel()  # it has been woken, and did not run yet
            return reply

        first = asyncio.ensure_future(call_and_cancel())
        second, third = (asyncio.ensure_future(reply_of(connector, ask())) for _ in range(2))
        assert await first == b"first"
        assert await third == b"third"
        assert second.cancelled()


async def test_more_calls_are_begun_once_the_server_takes_more() -> None:
    async def play(peer: Peer) -> None:
        peer.send(http2.settings(MAX_CONCURRENT_STREAMS=2))
        streams = [await peer.request(), await peer.request()]
        peer.send(*(http2.reply(stream=stream) for stream in streams))

    async with scripted(play, opening=http2.settings(MAX_CONCURRENT_STREAMS=0)) as connector:
        assert await asyncio.gather(*(reply_of(connector, ask()) for _ in range(2))) == [b"reply"] * 2


async def test_a_message_is_sent_as_the_windows_open() -> None:
    less, more = http2.settings(INITIAL_WINDOW_SIZE=5), http2.settings(INITIAL_WINDOW_SIZE=40_000)
    steps: list[tuple[list[int], bytes]] = [
        ([10], http2.window_update(1, 20)),
        # RFC 9113 section 6.9.2: the window becomes negative, here -5, then -1, and 39,994
        ([20], b"".join((less, http2.window_update(1, 4), more))),
        ([16_384, 16_384, 7_226], http2.window_update(1, 60_000)),
        ([16_384, 9_127], http2.window_update(0, 10_000)),  # the connection's window of 65,535 is full
        ([10_000], http2.reply()),
    ]
    size = sum(sum(sizes) for sizes, _ in steps)
    body = bytes(range(251)) * 400
    received = b""

    async def play(peer: Peer) -> None:
        nonlocal received
        for sizes, answer in steps:
            for size in sizes:
                _, flags, _, payload = await peer.next(DATA)
                assert len(payload) == size
                received += payload
            assert flags == (END_STREAM if answer == http2.reply() else 0)
            peer.send(answer)

    async with scripted(play, opening=http2.settings(INITIAL_WINDOW_SIZE=10)) as connector:
        assert await reply_of(connector, ask(body[: size - 5])) == b"reply"
    assert received == b"\0" + (size - 5).to_bytes(4, "big") + body[: size - 5]


async def test_a_call_that_waits_for_its_window_holds_up_no_other() -> None:
    async def play(peer: Peer) -> None:
        assert (await peer.next(DATA))[2] == 1
        assert await peer.request() == 3
        peer.send(http2.reply(b"small", stream=3), http2.window_update(1, 1000))
        assert await peer.request() == 1
        peer.send(http2.reply(b"large"))

    async with scripted(play, opening=http2.settings(INITIAL_WINDOW_SIZE=100)) as connector:
        large = asyncio.ensure_future(reply_of(connector, ask(bytes(1000))))
        small = asyncio.ensure_future(reply_of(connector, ask(bytes(10))))
        assert await small == b"small"
        assert await large == b"large"


async def test_frames_are_as_large_as_the_server_takes() -> None:
    most = 2**31 - 1

    async def play(peer: Peer) -> None:
        peer.send(http2.window_update(0, most - 65_535))
        sizes = [len((await peer.next(DATA))[3]) for _ in range(3)]
        assert sizes == [100_000, 100_000, 50_005]
        peer.send(http2.reply())

    async with scripted(play, opening=http2.settings(INITIAL_WINDOW_SIZE=most, MAX_FRAME_SIZE=100_000)) as connector:
        assert await reply_of(connector, ask(bytes(250_000))) == b"reply"


async def test_a_head_that_is_too_large_for_a_frame_is_continued() -> None:
    async def play(peer: Peer) -> None:
        kind, flags, stream, first = await peer.next(HEADERS)
        assert (kind, flags, stream, len(first)) == (HEADERS, 0, 1, 2**14)
        rest = [await peer.frame() for _ in range(2)]
        assert [each[:3] for each in rest] == [(CONTINUATION, 0, 1), (CONTINUATION, END_HEADERS, 1)]
        block = first + b"".join(payload for *_, payload in rest)
        assert b"x" * 40_000 in block
        await peer.next(DATA)
        peer.send(http2.reply())

    async with scripted(play) as connector:
        assert await reply_of(connector, ask(b"", (b"some", b"x" * 40_000))) == b"reply"


async def test_a_stream_that_is_not_pulled_keeps_its_window_closed() -> None:
    """The server is told of room for the replies that were pulled, and no more."""
    size = 16_384 - 5
    frames = WINDOW // 16_384
    pulled = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.next(WINDOW_UPDATE)  # the connection's
        await peer.request()
        peer.send(HEAD, *[http2.data(bytes(size))] * frames)
        peer.send(frame(PING, 0, 0, bytes(8)))
        assert (await peer.next(WINDOW_UPDATE, PING))[0] == PING  # all was received, and there is no more room
        pulled.set()
        assert await peer.next(WINDOW_UPDATE) == (WINDOW_UPDATE, 0, 1, (WINDOW // 2).to_bytes(4, "big"))
        peer.send(http2.data(bytes(size)), TRAILERS)

    async with scripted(play, limits=Limits()) as connector, aclosing(connector.stream(ask())) as replies:
        first = asyncio.ensure_future(anext(replies))
        await pulled.wait()
        assert len((await first).body) == size
        assert [len(reply.body) async for reply in replies] == [size] * frames


async def test_a_server_that_sends_beyond_the_window_is_left() -> None:
    left = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(HEAD, *[http2.data(bytes(16_379))] * (WINDOW // 16_384), http2.data(b"x"))
        assert (await peer.closed())[-1] == (GOAWAY, 0, 0, bytes(7) + bytes([PROTOCOL_ERROR]))
        left.set()

    async with scripted(play, limits=Limits()) as connector, aclosing(connector.stream(ask())) as replies:
        await anext(replies)
        await left.wait()
        error = await refused(exhausted(replies))
    assert error.message == "the gateway closed the connection: it sent more than the window of a stream"


async def test_a_message_of_any_size_fits_through_the_window() -> None:
    size = 3 * WINDOW

    async def play(peer: Peer) -> None:
        assert (await peer.next(WINDOW_UPDATE))[2] == 0
        await peer.request()
        room = WINDOW
        body = b"\0" + size.to_bytes(4, "big") + bytes(size)
        peer.send(HEAD)
        for start in range(0, len(body), 16_384):
            piece = body[start : start + 16_384]
            while room < len(piece):
                room += int.from_bytes((await peer.next(WINDOW_UPDATE))[3], "big")
            room -= len(piece)
            peer.send(frame(DATA, 0, 1, piece))
        peer.send(TRAILERS)

    for streamed in (False, True):
        async with scripted(play, limits=Limits()) as connector:
            if streamed:
                assert [len(reply.body) async for reply in connector.stream(ask())] == [size]
            else:
                assert len(await reply_of(connector, ask())) == size


async def test_calls_do_not_pile_up_before_a_server_that_does_not_read() -> None:
    """What the kernel takes, and a bounded buffer: the others wait, and nothing of them is kept when they give up."""
    calls, size = 3000, 9000
    heads = 0
    go = asyncio.Event()

    async def play(peer: Peer) -> None:
        nonlocal heads
        await peer.opening()
        peer.send(http2.reply(stream=await peer.request()))
        await go.wait()
        while b"last" not in (found := await peer.next(HEADERS, DATA))[3]:
            heads += found[0] == HEADERS
        peer.send(http2.reply(stream=found[2]))
        await peer.closed()

    async with asyncio.timeout(GENEROUS), serving(play) as address:
        async with connected(address) as connector:
            await connector.exchange(ask())
            large = ask(b"", (b"some", b"x" * size))
            waiting = [asyncio.ensure_future(connector.exchange(large)) for _ in range(calls)]
            await asyncio.sleep(0)  # they run up to their wait
            for each in waiting:
                each.cancel()
            await asyncio.wait(waiting)
            last = asyncio.ensure_future(reply_of(connector, ask(b"last")))
            go.set()
            assert await last == b"reply"
        assert all(each.cancelled() for each in waiting)
    assert 0 < heads < calls * 2 / 3


async def test_silence_is_asked_about_and_no_answer_ends_the_calls() -> None:
    timeouts = GrpcEndpointTimeouts(silence=0.05, answer=0.5)

    async def play(peer: Peer) -> None:
        await peer.request()
        for _ in range(3):
            kind, flags, _, payload = await peer.next(PING)
            peer.send(frame(kind, ACK, 0, payload))
        assert (await peer.next(PING))[1] == flags == 0

    async with scripted(play, timeouts=timeouts) as connector:
        error = await refused(connector.exchange(ask()))
    assert (error.status, error.sent) == (Status.UNAVAILABLE, True)
    assert error.message == "no answer to a PING within 0.5 s"


async def test_a_server_that_does_not_begin_is_unreachable() -> None:
    async def play(peer: Peer) -> None:
        await peer.closed()

    timeouts = GrpcEndpointTimeouts(connect=0.05)
    async with serving(play) as address, connected(address, timeouts=timeouts) as connector:
        error = await refused(connector.exchange(ask()))
    assert (error.status, error.sent, error.message) == (Status.UNAVAILABLE, False, "no connection within 0.05 s")


@hypothesis_settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.builds(
                frame,
                st.integers(0, 10),
                st.integers(0, 255),
                st.sampled_from([0, 1, 2, 3, 2**32 - 1]),
                st.one_of(
                    st.binary(max_size=20),
                    st.sampled_from([BLOCK, STATUS_0, b"\0\0\0\0\1x", bytes(4), bytes(8), bytes(6)]),
                ),
            ),
        ),
        max_size=12,
    )
)
def test_whatever_a_server_sends_a_call_ends(pieces: list[bytes]) -> None:
    async def play(peer: Peer) -> None:
        await peer.opening()
        await peer.request()
        peer.send(*pieces)

    async def call() -> None:
        async with serving(play) as address, connected(address) as connector:
            try:
                await connector.exchange(ask())
            except TransportError as error:
                assert error.message  # noqa: PT017  # what it says is of no matter here

    asyncio.run(call())
