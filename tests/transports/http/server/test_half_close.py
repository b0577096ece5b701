"""Clients that end their side of the connection after their requests: those that wait get every answer, those that have
left are noticed."""

import asyncio
import select
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from gateway.core.messages import Message
from gateway.core.protocol import Protocol
from gateway.core.transport import EventualReply
from tests.limits import GENEROUS, until
from tests.transports.http.server.toy_listener import LOOPS as LOOPS
from tests.transports.http.server.toy_listener import (
    connected,
    listening,
    read_all,
    reply,
    say_back,
    send_byte_by_byte,
    send_whole,
    text_reply,
)

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="the system has no epoll")

HELLO = b"GET /hello HTTP/1.1\r\nHost: x\r\n\r\n"
STREAM = b"GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def echo(body: str) -> bytes:
    return f"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


class Slow:
    """Answers each request when `release` is set."""

    def __init__(self) -> None:
        self.begun, self.release, self.cancelled = asyncio.Semaphore(0), asyncio.Event(), asyncio.Event()

    def __call__(self, message: Message, protocol: Protocol) -> EventualReply:
        return self._later(message, protocol)

    async def _later(self, message: Message, protocol: Protocol) -> Message:
        self.begun.release()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return say_back(message, protocol)


async def test_a_request_that_is_answered_at_once_has_its_answer() -> None:
    async with listening() as listener, connected(listener) as (reader, writer):
        writer.write(HELLO)
        writer.write_eof()
        assert await read_all(reader) == reply("200 OK", "GET /hello []")


async def test_a_request_whose_answer_takes_time_has_it_and_the_connection_ends_with_it() -> None:
    slow = Slow()
    async with asyncio.timeout(GENEROUS), listening(slow) as listener, connected(listener) as (reader, writer):
        writer.write(echo("one"))
        writer.write_eof()
        await slow.begun.acquire()
        assert await reader.readexactly(1) == b"H"  # the client's end has been seen
        slow.release.set()
        assert b"H" + await read_all(reader) == reply("200 OK", "POST /echo [one]")


async def test_a_request_that_arrives_in_parts_has_its_answer() -> None:
    async with listening() as listener, connected(listener) as (reader, writer):
        await send_byte_by_byte(writer, echo("one"))
        writer.write_eof()
        assert await read_all(reader) == reply("200 OK", "POST /echo [one]")


async def test_a_request_that_can_never_be_whole_ends_the_connection() -> None:
    async with listening() as listener, connected(listener) as (reader, writer):
        await send_byte_by_byte(writer, echo("one")[:-1])
        writer.write_eof()
        assert await read_all(reader) == b""


@pytest.mark.parametrize("count", [2, 3, 100])
async def test_every_one_of_several_requests_has_its_answer(count: int) -> None:
    slow = Slow()
    async with asyncio.timeout(GENEROUS), listening(slow) as listener, connected(listener) as (reader, writer):
        writer.write(b"".join(echo(str(number)) for number in range(count)))
        writer.write_eof()
        await slow.begun.acquire()
        assert await reader.readexactly(1) == b"H"
        slow.release.set()
        expected = b"".join(reply("200 OK", f"POST /echo [{number}]") for number in range(count))
        assert b"H" + await read_all(reader) == expected


async def test_several_requests_that_are_answered_at_once_have_their_answers() -> None:
    async with listening() as listener, connected(listener) as (reader, writer):
        writer.write(HELLO * 200)
        writer.write_eof()
        assert await read_all(reader) == 200 * reply("200 OK", "GET /hello []")


async def test_a_request_that_is_not_whole_behind_whole_ones_ends_the_connection() -> None:
    slow = Slow()
    slow.release.set()
    async with listening(slow) as listener, connected(listener) as (reader, writer):
        writer.write(echo("one") + echo("two")[:-1])
        writer.write_eof()
        assert await read_all(reader) == reply("200 OK", "POST /echo [one]")


async def test_an_error_is_an_answer_too() -> None:
    async def fail() -> Message:
        await asyncio.sleep(0)
        raise RuntimeError("the fault")

    async with listening(lambda message, protocol: fail()) as listener, connected(listener) as (reader, writer):
        writer.write(HELLO)
        writer.write_eof()
        assert (await read_all(reader)).startswith(b"HTTP/1.1 500 Internal Server Error\r\n")


async def test_an_idle_connection_is_closed_at_once() -> None:
    async with asyncio.timeout(GENEROUS), listening() as listener, connected(listener) as (reader, writer):
        await send_whole(writer, HELLO)
        whole = reply("200 OK", "GET /hello []")
        assert await reader.readexactly(len(whole)) == whole
        writer.write_eof()
        assert await read_all(reader) == b""
        await until(lambda: not listener.open_connections, 0)


@pytest.mark.parametrize("count", [1, 3])
async def test_a_client_that_has_left_is_noticed(count: int) -> None:
    """It closes its socket, which sends the same FIN."""
    slow = Slow()
    async with asyncio.timeout(GENEROUS), listening(slow) as listener, connected(listener) as (_, writer):
        writer.write(echo("one") * count)
        await slow.begun.acquire()
        writer.close()
        await slow.cancelled.wait()


async def test_a_client_that_has_left_is_noticed_while_a_later_request_is_answered() -> None:
    slow = Slow()

    def exchange(message: Message, protocol: Protocol) -> EventualReply:
        return say_back(message, protocol) if message.path == "/hello" else slow(message, protocol)

    async with asyncio.timeout(GENEROUS), listening(exchange) as listener, connected(listener) as (_, writer):
        writer.write(HELLO + echo("one"))
        writer.close()
        await slow.cancelled.wait()
        await until(lambda: not listener.open_connections, 0)


async def test_a_stream_that_has_not_begun_is_whole() -> None:
    release, begun = asyncio.Event(), asyncio.Event()

    async def stream(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        begun.set()
        await release.wait()
        yield text_reply("one")
        yield text_reply("two")

    async with (
        asyncio.timeout(GENEROUS),
        listening(stream=stream) as listener,
        connected(listener) as (reader, writer),
    ):
        writer.write(STREAM)
        writer.write_eof()
        await begun.wait()
        assert await reader.readexactly(1) == b"H"
        release.set()
        got = b"H" + await read_all(reader)
        assert got.startswith(b"HTTP/1.1 200 OK\r\n")
        assert got.endswith(b"\r\n4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n")


@pytest.mark.parametrize("has_begun", [True, False])
async def test_a_client_that_leaves_a_stream_is_noticed(has_begun: bool) -> None:
    begun, closed = asyncio.Event(), asyncio.Event()

    async def stream(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        try:
            if has_begun:
                yield text_reply("one")
            begun.set()
            await asyncio.Event().wait()
        finally:
            closed.set()

    async with asyncio.timeout(GENEROUS), listening(stream=stream) as listener, connected(listener) as (reader, writer):
        writer.write(STREAM)
        await begun.wait()
        if has_begun:
            await reader.readuntil(b"one\n\r\n")
        writer.close()
        await closed.wait()
