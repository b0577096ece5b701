"""Clients that end their side of the connection after their requests: those that wait get every answer, those that have
left are noticed."""

import asyncio
import select

import pytest

from gateway.core.messages import Message
from gateway.core.protocol import Protocol
from gateway.core.transport import EventualReply, Exchange
from tests.limits import until
from tests.transports.http.server.toy_listener import (
    HELLO,
    SAID,
    PausedExchange,
    Source,
    client,
    connected,
    get,
    listening,
    ok,
    post,
    read_reply,
    reply,
    say_back,
    send_byte_by_byte,
    send_whole,
)

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="the system has no epoll")

FAILED = "toy: the gateway failed on this request; its log says why"
ONE = ok("POST /echo [one]")


async def later(message: Message, protocol: Protocol) -> Message:
    await asyncio.sleep(0)
    return say_back(message, protocol)


async def fail(message: Message, protocol: Protocol) -> Message:
    await asyncio.sleep(0)
    raise RuntimeError("the fault")


@pytest.mark.parametrize(
    ("exchange", "sent", "said"),
    [
        (say_back, HELLO, SAID),
        (say_back, HELLO * 200, SAID * 200),
        (later, post(b"one") + post(b"two")[:-1], ONE),
        (fail, HELLO, reply("500 Internal Server Error", FAILED)),
    ],
    ids=["one", "several", "a whole one and a part", "an error"],
)
async def test_requests_that_are_answered_at_once_have_their_answers(
    exchange: Exchange, sent: bytes, said: bytes
) -> None:
    async with client(exchange) as (reader, writer):
        writer.write(sent)
        writer.write_eof()
        assert await reader.read() == said


async def test_a_request_whose_answer_takes_time_has_it_and_the_connection_ends_with_it() -> None:
    paused = PausedExchange()
    async with client(paused) as (reader, writer):
        writer.write(post(b"one"))
        writer.write_eof()
        await paused.requests.get()
        assert await reader.readexactly(1) == b"H"  # the client's end has been seen
        paused.resume.set()
        assert b"H" + await reader.read() == ONE


@pytest.mark.parametrize(("sent", "said"), [(post(b"one"), ONE), (post(b"one")[:-1], b"")])
async def test_a_request_that_arrives_in_parts_has_its_answer_if_it_can_be_whole(sent: bytes, said: bytes) -> None:
    async with client() as (reader, writer):
        await send_byte_by_byte(writer, sent)
        writer.write_eof()
        assert await reader.read() == said


@pytest.mark.parametrize("count", [2, 3, 100])
async def test_every_one_of_several_requests_has_its_answer(count: int) -> None:
    paused = PausedExchange()
    async with client(paused) as (reader, writer):
        writer.write(b"".join(post(b"%d" % number) for number in range(count)))
        writer.write_eof()
        await paused.requests.get()
        assert await reader.readexactly(1) == b"H"
        paused.resume.set()
        expected = b"".join(ok(f"POST /echo [{number}]") for number in range(count))
        assert b"H" + await reader.read() == expected


async def test_an_answer_that_takes_time_stands_before_one_that_takes_none() -> None:
    paused = PausedExchange()

    def exchange(message: Message, protocol: Protocol) -> EventualReply:
        return say_back(message, protocol) if message.path == "/hello" else paused(message, protocol)

    async with client(exchange) as (reader, writer):
        writer.write(post(b"one") + HELLO)
        writer.write_eof()
        assert await reader.readexactly(1) == b"H"
        paused.resume.set()
        assert b"H" + await reader.read() == ONE + SAID


async def test_an_idle_connection_is_closed_at_once() -> None:
    async with listening() as listener, connected(listener) as (reader, writer):
        await send_whole(writer, HELLO)
        assert await read_reply(reader) == SAID
        writer.write_eof()
        assert await reader.read() == b""
        await until(lambda: not listener.open_connections, 0)


@pytest.mark.parametrize("count", [1, 3])
async def test_a_client_that_has_left_is_noticed(count: int) -> None:
    """It closes its socket, which sends the same FIN."""
    paused = PausedExchange()
    async with client(paused) as (_, writer):
        writer.write(post(b"one") * count)
        await paused.requests.get()
        writer.close()
        await paused.cancelled.wait()


async def test_a_client_that_has_left_is_noticed_while_a_later_request_is_answered() -> None:
    paused = PausedExchange()

    def exchange(message: Message, protocol: Protocol) -> EventualReply:
        return say_back(message, protocol) if message.path == "/hello" else paused(message, protocol)

    async with listening(exchange) as listener, connected(listener) as (_, writer):
        writer.write(HELLO + post(b"one"))
        writer.close()
        await paused.cancelled.wait()
        await until(lambda: not listener.open_connections, 0)


@pytest.mark.parametrize(("before", "said"), [(b"", b""), (post(b"one"), ONE)], ids=["alone", "behind another"])
async def test_a_stream_that_has_not_begun_is_whole(before: bytes, said: bytes) -> None:
    source = Source()
    async with client(later, stream=source) as (reader, writer):
        writer.write(before + get("/stream", "Connection: close"))
        writer.write_eof()
        await source.asked.wait()
        assert await reader.readexactly(len(said)) == said
        assert await reader.readexactly(1) == b"H"
        source.say("one", "two", None)
        got = b"H" + await reader.read()
        assert got.startswith(b"HTTP/1.1 200 OK\r\n")
        assert got.endswith(b"\r\n4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n")
