"""When an idle connection is closed, on a clock that the tests move."""

import asyncio

from gateway.core.messages import Message
from tests.skipping_loop import ON_ASYNCIO, skip
from tests.transports.http.server.toy_listener import (
    HELLO,
    SAID,
    client,
    connected,
    listening,
    ok,
    post,
    read_reply,
    send_whole,
    text_reply,
)

IDLE = 75
"""Seconds, the default."""


@ON_ASYNCIO
async def test_each_request_postpones_the_end_of_an_idle_connection() -> None:
    async with listening(seconds=None) as listener, connected(listener) as (reader, writer):
        for _ in range(20):
            await skip(IDLE - 1)
            await send_whole(writer, HELLO)
            assert await read_reply(reader) == SAID
        await skip(IDLE - 1)
        assert not reader.at_eof()
        assert listener.open_connections == 1
        await skip(2)
        assert await reader.read() == b""


@ON_ASYNCIO
async def test_a_connection_is_not_idle_while_its_request_is_answered() -> None:
    resume = asyncio.Event()
    failed: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))

    async def later() -> Message:
        await resume.wait()
        return text_reply("done")

    async with client(lambda message, protocol: later(), seconds=None) as (reader, writer):
        for _ in range(3):
            resume.clear()
            await send_whole(writer, post(b"ab"))
            await skip(0)
            await skip(10 * IDLE)
            resume.set()
            assert await read_reply(reader) == ok("done")
            assert not failed
            await skip(IDLE - 1)
        assert not reader.at_eof()
        await skip(2)
        assert await reader.read() == b""
