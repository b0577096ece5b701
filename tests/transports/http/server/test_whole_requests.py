"""A request that arrives in one read is answered at once. One that comes in parts, or is special, is answered alike."""

import asyncio

import pytest

from gateway.core.messages import Message
from gateway.core.protocol import Limits, ListenerSettings, Protocol
from gateway.transports.memory import MIN_COUNTED, PROCESS_MEMORY
from tests.limits import settle
from tests.transports.http.server.test_requests import SERVED, bad, malformed
from tests.transports.http.server.toy_listener import (
    HELLO,
    LAST,
    ROWS,
    SAID,
    SAID_LAST,
    TOO_LARGE,
    PausedExchange,
    client,
    connected,
    echo,
    exchanges,
    listening,
    ok,
    post,
    read_reply,
    say_back,
    send_whole,
)

AB = ok("POST /echo [ab]")


async def send_in_parts(writer: asyncio.StreamWriter, *parts: bytes) -> None:
    """Send each part in a segment of its own. The listener, on the same loop, has read it before the next is sent."""
    for part in parts:
        await send_whole(writer, part)
        await settle(3)


@pytest.mark.parametrize("name", SERVED)
async def test_the_same_request_again_gets_the_same_reply(name: str) -> None:
    """Its head is known by then, and it comes in a read of its own."""
    request, expected = SERVED[name]
    async with client() as (reader, writer):
        for _ in range(3):
            await send_whole(writer, request)
            assert await reader.readexactly(len(expected)) == expected
        await send_whole(writer, LAST)
        assert await reader.read() == SAID_LAST


async def test_requests_may_be_cut_anywhere() -> None:
    """Into a head and a body, one request and a half, a whole one and nothing, ..."""
    sent, said = post(b"ab") + post(b"cde") + HELLO, AB + ok("POST /echo [cde]") + SAID
    async with client() as (reader, writer):
        for cut in range(len(sent) + 1):
            await send_in_parts(writer, sent[:cut], sent[cut:])
            assert await reader.readexactly(len(said)) == said


async def test_replies_that_take_time_keep_the_order_of_the_requests() -> None:
    async def later(message: Message, protocol: Protocol) -> Message:
        await asyncio.sleep(0)
        return say_back(message, protocol)

    async with client(later) as (reader, writer):
        await send_in_parts(writer, post(b"1"), post(b"2"), post(b"3") + post(b"4"), post(b"5")[:-1], b"5", LAST)
        said = b"".join(ok(f"POST /echo [{number}]") for number in range(1, 6))
        assert await reader.read() == said + SAID_LAST


async def test_a_body_that_is_shorter_than_its_length_is_waited_for() -> None:
    async with listening() as listener, connected(listener) as (reader, writer):
        await send_in_parts(writer, post(b"ab"), post(b"ab")[:-1])
        assert await read_reply(reader) == AB
        assert listener.unanswered_requests == 1
        await send_whole(writer, b"b")
        assert await read_reply(reader) == AB


async def test_what_follows_a_body_is_the_next_request() -> None:
    async with client() as (reader, writer):
        await send_in_parts(writer, post(b"ab"), post(b"ab") + b"cd\r\n\r\n")
        assert await reader.read() == AB + AB + malformed("Invalid method encountered")


async def test_a_known_head_is_held_to_the_limits_of_its_time() -> None:
    """The body of 10 bytes is as large as allowed, and after the listener is renewed, one byte too large."""
    ten = b"0123456789"
    async with listening() as listener, connected(listener) as (reader, writer):
        for limit in (1000, 10):
            listener.renew(ListenerSettings(limits=Limits(message=limit, headers=500)), ROWS, exchanges(say_back))
            for _ in range(2):
                await send_whole(writer, post(ten))
                assert await read_reply(reader) == ok("POST /echo [0123456789]")
        listener.renew(ListenerSettings(limits=Limits(message=9, headers=500)), ROWS, exchanges(say_back))
        await send_whole(writer, post(ten))
        error = "the body of 10 bytes is larger than limits.message, 9 bytes; send less, or raise the limit"
        assert await reader.read() == bad(error, TOO_LARGE)


async def test_a_body_that_is_not_small_is_counted_while_it_is_in_memory() -> None:
    paused = PausedExchange()
    paused.resume.set()
    async with client(paused, limits=Limits()) as (reader, writer):
        for _ in range(2):
            await send_whole(writer, post(bytes(MIN_COUNTED)))
            await read_reply(reader)
            await paused.requests.get()
        paused.resume.clear()
        before = PROCESS_MEMORY.used
        await send_whole(writer, post(bytes(MIN_COUNTED)))
        message = await paused.requests.get()
        assert len(message.body) == MIN_COUNTED
        assert PROCESS_MEMORY.used - before == MIN_COUNTED


async def test_the_requests_of_a_bounded_connection_are_counted() -> None:
    limits = Limits(message=1000, headers=500, requests_per_connection=3)
    async with client(limits=limits) as (reader, writer):
        for _ in range(2):
            await send_whole(writer, HELLO)
            assert await read_reply(reader) == SAID
        await send_whole(writer, HELLO)
        assert await reader.read() == SAID_LAST


async def test_a_client_that_leaves_before_its_reply_is_read_harms_nobody() -> None:
    paused = PausedExchange()
    async with listening(paused) as listener:
        for _ in range(3):
            async with connected(listener) as (_, writer):
                await send_whole(writer, post(b"ab"))
                await paused.requests.get()
                writer.transport.abort()
            await paused.cancelled.wait()
            paused.cancelled.clear()
        paused.resume.set()
        async with connected(listener) as (reader, writer):
            await send_whole(writer, post(b"ab") + LAST)
            assert await reader.read() == AB + SAID_LAST


async def test_a_large_reply_that_is_read_slowly_holds_back_the_next_request() -> None:
    """Bytes that wait to be read by the client are not joined by those of more replies."""
    answered = []

    def big(message: Message, protocol: Protocol) -> Message:
        answered.append(message.body)
        return Message(status=200, parts=(bytes(2**20), message.body))

    async with client(big) as (reader, writer):
        for number in range(100):
            await send_in_parts(writer, post(b"%02d" % number))
        assert len(answered) < 50
        for number in range(100):
            assert (await read_reply(reader)).endswith(bytes(100) + b"%02d" % number)
    assert len(answered) == 100


async def test_an_echoed_body_is_the_clients() -> None:
    async with client(echo) as (reader, writer):
        for body in (b"", b"a", b"ab", b"\r\n\r\n", b"a" * 1000, b""):
            await send_whole(writer, post(body))
            assert (await read_reply(reader)).endswith(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
