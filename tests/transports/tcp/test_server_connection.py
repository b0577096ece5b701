"""One client's connection to the listener."""

import asyncio
from collections.abc import Callable

import pytest

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.protocol import Limits, Protocol
from gateway.core.transport import EventualReply
from gateway.transports.inflate import IN_THREAD
from gateway.transports.tcp.listener import MAX_IN_FLIGHT
from gateway.transports.timeouts import Timeouts
from tests.limits import GENEROUS, until
from tests.skipping_loop import ON_ASYNCIO, skip
from tests.transports.tcp.toy_protocol import (
    HEADED,
    HEADER,
    SQUEEZING,
    TAGGED,
    PausedExchange,
    body_of,
    client,
    connected,
    listening,
    packet,
    read_packet,
    reply,
    say_back,
    squeezed,
    tag_of,
)


async def test_several_requests_on_one_connection_are_answered_one_by_one() -> None:
    async with client() as (reader, writer):
        for text in ("one", "two"):
            writer.write(packet(text))
            assert await read_packet(reader) == (0, text.upper())


async def test_a_request_may_come_byte_by_byte() -> None:
    async with client() as (reader, writer):
        for byte in packet("slow"):
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert await read_packet(reader) == (0, "SLOW")


async def test_pipelined_requests_are_answered_in_order_one_at_a_time() -> None:
    paused = PausedExchange()
    async with client(paused) as (reader, writer):
        writer.write(packet("one") + packet("two") + packet("three"))
        assert await paused.requests.get() == "one"
        assert paused.requests.empty()
        for text in ("one", "two", "three"):
            paused.resume[text].set()
            assert await read_packet(reader) == (0, text.upper())
            if text != "three":
                await paused.requests.get()


async def test_hundreds_of_tagged_requests_are_answered_in_any_order() -> None:
    paused, count = PausedExchange(), 3 * MAX_IN_FLIGHT
    async with client(paused, framing=TAGGED) as (reader, writer):
        writer.write(b"".join(packet(f"n{at}", at) for at in range(count)))
        for first in range(0, count, MAX_IN_FLIGHT):
            asked = [await paused.requests.get() for _ in range(MAX_IN_FLIGHT)]
            assert asked == [f"n{at}" for at in range(first, first + MAX_IN_FLIGHT)]
            assert paused.requests.empty()  # no more than that are in flight
            for text in reversed(asked):
                paused.resume[text].set()
                assert await read_packet(reader) == (int(text[1:]), text.upper())


@pytest.mark.parametrize(
    ("size", "limit", "written", "at_once"),
    [
        (60_000, 100_000, packet, 4),
        (100_000, 100_000, packet, 2),
        (90_000, 100_000, squeezed, 3),
        (IN_THREAD + 2, IN_THREAD + 2, squeezed, 2),
    ],
    ids=["large", "largest", "inflated", "inflated in a thread"],
)
async def test_the_bytes_of_the_requests_in_flight_are_bounded(
    size: int, limit: int, written: Callable[[str, int], bytes], at_once: int
) -> None:
    paused, count = PausedExchange(), 3 * at_once
    texts = [f"{at:02}" * (size // 2) for at in range(count)]

    def exchange(message: Message, protocol: Protocol) -> EventualReply:
        return say_back(message, protocol) if body_of(message) == "ping" else paused(message, protocol)

    async with (
        listening(exchange, framing=SQUEEZING, limits=Limits(message=limit)) as listener,
        connected(listener) as (reader, writer),
    ):
        writer.write(b"".join(written(text, at) for at, text in enumerate(texts)))
        asked = [await paused.requests.get() for _ in range(at_once)]
        async with connected(listener) as (other, asking):  # what the listener does by itself has had its turn
            for _ in range(50):
                asking.write(packet("ping"))
                await read_packet(other)
        assert paused.requests.empty()
        for at in range(count):
            paused.resume[asked[at]].set()
            assert (await read_packet(reader))[1] == asked[at]
            if len(asked) < count:
                asked.append(await paused.requests.get())
        assert sorted(asked) == texts


async def test_draining_answers_all_that_is_in_flight() -> None:
    paused = PausedExchange()
    async with listening(paused, framing=TAGGED) as listener, connected(listener) as (reader, writer):
        writer.write(packet("one", 1) + packet("two", 2))
        asked = [await paused.requests.get() for _ in range(2)]
        draining = asyncio.ensure_future(listener.drain(GENEROUS))
        for text in reversed(asked):
            paused.resume[text].set()
            assert (await read_packet(reader))[1] == text.upper()
        assert await reader.read() == b""
        await draining


async def test_a_request_without_a_readable_tag_ends_the_connection_after_the_others() -> None:
    def choosy(message: Message) -> int:
        if body_of(message) == "bad":
            raise DecodeError("no tag")
        return tag_of(message)

    paused = PausedExchange()
    framing = replace(TAGGED, tag=choosy)
    async with client(paused, framing=framing) as (reader, writer):
        writer.write(packet("one", 1) + packet("bad", 2) + packet("three", 3))
        paused.resume[await paused.requests.get()].set()
        assert await read_packet(reader) == (1, "ONE")
        assert "invalid-input: no tag" in (await read_packet(reader))[1]
        assert await reader.read() == b""
    assert paused.requests.empty()


@pytest.mark.parametrize("size", [10, IN_THREAD + 1], ids=["at once", "in a thread"])
async def test_a_compressed_request_is_inflated(size: int) -> None:
    text = "a" * size
    async with client(framing=SQUEEZING, limits=Limits(message=2**20)) as (reader, writer):
        writer.write(squeezed(text, 7) + packet("plain", 8))
        assert sorted([await read_packet(reader), await read_packet(reader)]) == [(7, text.upper()), (8, "PLAIN")]


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (squeezed(bytes(100_001)), "too-large: more than 100000 bytes"),
        (packet(b"\0no zlib"), "invalid-input: Error -3"),
    ],
)
async def test_a_request_that_cannot_be_inflated_is_refused_and_the_next_is_answered(sent: bytes, why: str) -> None:
    async with client(framing=SQUEEZING) as (reader, writer):
        writer.write(sent)
        assert (await read_packet(reader))[1].startswith(why)
        writer.write(packet("next"))
        assert await read_packet(reader) == (0, "NEXT")


async def test_credentials_in_a_compressed_request_are_checked_before_it_is_inflated() -> None:
    def admit(headers: Headers, identity: str, peer: str) -> None:
        assert (identity, peer.partition(":")[0]) == ("", "127.0.0.1")
        if headers.get("key") != "1":
            raise refusal(Reason.UNAUTHENTICATED, "wrong key")

    def credential(message: Message) -> Headers:
        return Headers([(b"key", b"%d" % tag_of(message))])

    async with (
        listening(framing=SQUEEZING, credential=credential, admit=admit) as listener,
        connected(listener) as (reader, writer),
    ):
        writer.write(squeezed("one", 1))
        assert await read_packet(reader) == (1, "ONE")
        writer.write(squeezed("two", 2)[:-1] + b"\xff")
        assert await read_packet(reader) == (0, "unauthenticated: wrong key []")


@pytest.mark.parametrize("piece", [1000, 200_000], ids=["in pieces", "at once"])
async def test_a_message_over_the_limit_is_cut_to_its_head_and_the_next_is_read(piece: int) -> None:
    async with client(framing=HEADED) as (reader, writer):
        sent = packet("head" + "x" * 100_000, 1) + packet("next", 2)
        for at in range(0, len(sent), piece):
            writer.write(sent[at : at + piece])
            await writer.drain()
        assert await read_packet(reader) == (1, "HEAD")
        assert await read_packet(reader) == (2, "NEXT")


async def test_a_message_over_the_limit_has_the_same_time_limits() -> None:
    async with client(framing=HEADED, timeouts=Timeouts(body=0.01)) as (reader, writer):
        writer.write(packet("head" + "x" * 100_000, 1)[:50_000])
        assert await read_packet(reader) == (1, "HEAD")
        assert b"nothing of the message came for 0.01 s" in await reader.read()


async def test_a_multiplexed_connection_may_be_idle_once_it_was_used() -> None:
    idle = Timeouts(idle=0.4)
    async with listening(framing=TAGGED, timeouts=idle) as listener, connected(listener) as (reader, writer):
        writer.write(packet("one", 1))
        assert await read_packet(reader) == (1, "ONE")
        async with connected(listener) as (unused, _):
            assert await unused.read() == b""  # 0.4 s have passed
        writer.write(packet("two", 2))
        assert await read_packet(reader) == (2, "TWO")


async def test_a_head_has_a_limit_of_its_own() -> None:
    async with client(framing=HEADED, limits=Limits(headers=3)) as (reader, writer):
        writer.write(packet("one"))
        assert await read_packet(reader) == (0, "ONE")
        writer.write(packet("head"))
        _, text = await read_packet(reader)
        assert "the head of a message, of 4 bytes, is larger than limits.headers, 3 bytes" in text
        assert await reader.read() == b""


async def test_a_large_request_and_a_large_reply() -> None:
    text = "ab" * 5_000_000
    async with client(limits=Limits(message=2**24)) as (reader, writer):
        writer.write(packet(text))
        assert (await read_packet(reader))[1] == text.upper()


@pytest.mark.long
async def test_a_client_that_does_not_read_is_not_read_from() -> None:
    """Neither requests nor replies pile up in the gateway."""
    asked = 0

    def enlarge(message: Message, protocol: Protocol) -> Message:
        nonlocal asked
        asked += 1
        return reply(bytes(1_000_000))

    async with client(enlarge) as (reader, writer):
        writer.write(packet("more") * 1000)
        await read_packet(reader)
        assert asked < 30  # what the kernel's buffers hold, and a little
        for _ in range(999):
            await read_packet(reader)
        assert asked == 1000


BEYOND_THE_LIMIT = "a message of 4294967295 bytes is larger than limits.message, 100000 bytes"


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "invalid-input: magic b'G', expected b'T' [GET / HTT]"),
        (HEADER.pack(b"T", 0, 0xFFFFFFFF), f"too-large: {BEYOND_THE_LIMIT}; send less, or raise the limit []"),
    ],
    ids=["no header", "too large"],
)
async def test_a_malformed_message_is_refused_after_those_before_it_and_ends_the_connection(
    sent: bytes, answer: str
) -> None:
    paused = PausedExchange()
    async with client(paused) as (reader, writer):
        writer.write(packet("first") + sent)
        first = await paused.requests.get()
        paused.resume[first].set()
        assert await read_packet(reader) == (0, "FIRST")
        assert await read_packet(reader) == (0, answer)
        assert await reader.read() == b""


async def test_a_client_that_goes_on_sending_gets_its_error_and_no_reset() -> None:
    async with client() as (reader, writer):
        writer.write(HEADER.pack(b"T", 0, 100_001))
        assert (await read_packet(reader))[1].startswith("too-large")
        writer.write(bytes(90_000))  # a reset would answer this
        await writer.drain()
        writer.write_eof()
        assert await reader.read() == b""


async def test_the_bytes_dropped_while_lingering_are_bounded() -> None:
    async with client() as (reader, writer):
        writer.write(b"no header")
        await read_packet(reader)
        with pytest.raises(ConnectionError):
            await flood(writer)


async def flood(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(bytes(100_000))
        await writer.drain()


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (packet("abcd")[:3], "3 of the 9 bytes of its header"),
        (packet("abcd")[:9], "0 of the 4 bytes that its header announces"),
        (packet("abcd")[:11], "2 of the 4 bytes that its header announces"),
    ],
)
async def test_a_message_that_is_cut_off_is_answered(sent: bytes, why: str) -> None:
    async with client() as (reader, writer):
        writer.write(sent)
        writer.write_eof()
        assert why in (await read_packet(reader))[1]
        assert await reader.read() == b""


async def test_a_client_that_leaves_cancels_its_requests() -> None:
    paused = PausedExchange()
    async with client(paused) as (_, writer):
        writer.write(packet("one"))
        await paused.requests.get()
        writer.close()
        await paused.cancelled.wait()


async def test_an_exchange_that_fails_is_answered() -> None:
    async def later(message: Message) -> Message:
        raise refusal(Reason.TIMEOUT, body_of(message))

    def fail(message: Message, protocol: Protocol) -> "asyncio.Future[Message]":
        if body_of(message) == "now":
            raise GatewayError(Reason.TIMEOUT.status, Reason.TIMEOUT, "now")
        return asyncio.ensure_future(later(message))

    async with client(fail) as (reader, writer):
        for text in ("now", "later"):
            writer.write(packet(text))
            assert (await read_packet(reader))[1] == f"timeout: {text} []"


@pytest.mark.parametrize(
    ("sent", "timeouts", "answer"),
    [
        (b"", Timeouts(idle=0.01), b""),
        (packet("x")[:3], Timeouts(head=0.01), b"did not arrive within 0.01 s"),
        (packet("xyz")[:10], Timeouts(body=0.01), b"nothing of the message came for 0.01 s"),
    ],
    ids=["idle", "header", "body"],
)
async def test_a_slow_client_gets_an_error_and_is_disconnected(sent: bytes, timeouts: Timeouts, answer: bytes) -> None:
    async with client(timeouts=timeouts) as (reader, writer):
        writer.write(sent)
        assert answer in await reader.read()


async def test_a_message_that_trickles_has_a_total_time() -> None:
    timeouts = Timeouts(body=0.2, message=0.1, linger=GENEROUS)
    async with client(timeouts=timeouts) as (reader, writer):
        end = asyncio.ensure_future(reader.read())
        writer.write(packet(bytes(1000))[:-1000])
        for _ in range(500):
            writer.write(b"x")
            if (await asyncio.wait({end}, timeout=0.02))[0]:
                break
        assert b"the message did not arrive within 0.1 s" in await end


@ON_ASYNCIO
async def test_each_message_has_its_own_time() -> None:
    """Also for a message that begins in the same piece in which the one before ends."""
    timeouts, message = Timeouts(body=50, message=10), packet(b"x" * 100)
    stream = message * 20
    async with client(timeouts=timeouts) as (reader, writer):
        for at in range(0, len(stream), 90):
            writer.write(stream[at : at + 90])
            await skip(0.6)
        assert [await read_packet(reader) for _ in range(20)] == [(0, "X" * 100)] * 20


async def test_a_flood_on_one_connection_leaves_others_their_turn() -> None:
    """A client that asks after the flood was sent is answered before the whole flood is."""
    async with (
        listening() as listener,
        connected(listener) as (flooded, flooding),
        connected(listener) as (reader, writer),
    ):
        flooding.write(packet("") * 5000)
        whole = asyncio.ensure_future(flooded.readexactly(5000 * len(packet(""))))
        await asyncio.sleep(0)
        writer.write(packet("me"))
        assert await read_packet(reader) == (0, "ME")
        assert not whole.done()
        assert await whole == packet("") * 5000


async def test_a_client_that_never_reads_is_disconnected() -> None:
    asked = []

    def enlarge(message: Message, protocol: Protocol) -> Message:
        asked.append(message)
        return reply(bytes(20_000_000))

    async with listening(enlarge, timeouts=Timeouts(write=0.05)) as listener, connected(listener) as (reader, writer):
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(packet("more"))
        await until(lambda: asked and not listener._connections)


async def test_the_message_has_the_peer() -> None:
    def tell(message: Message, protocol: Protocol) -> Message:
        return reply(message.peer)

    async with client(tell) as (reader, writer):
        writer.write(packet(""))
        host, port = writer.get_extra_info("sockname")
        assert await read_packet(reader) == (0, f"{host}:{port}")
