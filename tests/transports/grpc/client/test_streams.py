import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
import pytest

from gateway.core.errors import Reason, Status, TransportError
from gateway.core.messages import Headers, Message
from gateway.core.protocol import Limits
from gateway.transports.grpc import Connector
from tests.core.http2 import by_hand as http2
from tests.transports.grpc.toy import CHAT, HEAD, SMALL, TRAILERS, ask, connected, connector_to, refused

QUESTION = ask(b"question", (b"some", b"text"), path=CHAT)


async def all_of(connector: Connector, message: Message = QUESTION) -> list[Message]:
    return [reply async for reply in connector.stream(message)]


async def test_one_message_is_sent_and_each_reply_is_a_message() -> None:
    async def serve(requests: AsyncIterator[bytes], context: Any) -> None:
        received = [body async for body in requests]  # ends once the client is done writing
        metadata = dict(context.invocation_metadata())
        for body in (*received, metadata["some"].encode()):
            await context.write(body)

    async with connector_to(stream=serve) as connector:
        assert await all_of(connector) == [Message(parts=(b"question",)), Message(parts=(b"text",))]


async def test_a_stream_may_have_no_reply() -> None:
    async def serve(requests: AsyncIterator[bytes], context: Any) -> None:
        return None

    async with connector_to(stream=serve) as connector:
        assert await all_of(connector) == []


@pytest.mark.parametrize("before", [0, 3])
async def test_a_status_that_the_server_sends_is_the_last_reply(before: int) -> None:
    async def serve(requests: AsyncIterator[bytes], context: Any) -> None:
        for _ in range(before):
            await context.write(b"reply")
        await context.abort(grpc.StatusCode.NOT_FOUND, "why", (("gateway-reason", "model-not-found"),))

    async with connector_to(stream=serve) as connector:
        *replies, last = await all_of(connector)
    assert replies == [Message(parts=(b"reply",))] * before
    headers = Headers(((b"gateway-reason", b"model-not-found"),))
    assert last == Message(status=Status.NOT_FOUND, headers=headers, parts=(b"why",))


class Endless:
    """A server's stream that always has more, and notes whether its client gave it up."""

    def __init__(self, size: int) -> None:
        self.written = 0
        self.cancelled = asyncio.Event()
        self._size = size

    async def serve(self, requests: AsyncIterator[bytes], context: Any) -> None:
        try:
            while True:
                await context.write(bytes(self._size))
                self.written += 1
        finally:
            self.cancelled.set()


async def test_closing_the_stream_cancels_the_call() -> None:
    endless = Endless(100)
    async with connector_to(stream=endless.serve) as connector:
        async with aclosing(connector.stream(QUESTION)) as replies:
            async for _ in replies:
                break
        await endless.cancelled.wait()


async def test_cancelling_who_waits_cancels_the_call() -> None:
    asked, cancelled = asyncio.Event(), asyncio.Event()

    async def serve(requests: AsyncIterator[bytes], context: Any) -> None:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async with connector_to(stream=serve) as connector:
        task = asyncio.ensure_future(all_of(connector))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await cancelled.wait()


async def test_who_pulls_nothing_stops_the_server() -> None:
    endless = Endless(1_000_000)

    async def echo(body: bytes, context: Any) -> bytes:
        return body

    async with (
        connector_to(echo, endless.serve, Limits()) as connector,
        aclosing(connector.stream(QUESTION)) as replies,
    ):
        await anext(replies)
        # Time for hundreds of replies, had they somewhere to go.
        for _ in range(200):
            await connector.exchange(ask(bytes(100)))
        assert endless.written < 50
        for _ in range(100):
            await anext(replies)


async def one_and_no_more(requests: AsyncIterator[bytes], context: Any) -> None:
    await context.write(b"first")
    await asyncio.Event().wait()


async def test_the_deadline_ends_a_stream() -> None:
    async with connector_to(stream=one_and_no_more) as connector:
        replies = connector.stream(ask(path=CHAT, deadline=asyncio.get_running_loop().time() + 1.0))
        assert (await anext(replies)).body == b"first"
        error = await refused(anext(replies))
    assert (error.status, error.reason) == (Status.DEADLINE_EXCEEDED, Reason.TIMEOUT)


async def test_a_reply_over_the_limit_ends_a_stream() -> None:
    async def serve(requests: AsyncIterator[bytes], context: Any) -> None:
        await context.write(b"first")
        await context.write(bytes(SMALL.message + 1))

    async with connector_to(stream=serve) as connector:
        replies = connector.stream(QUESTION)
        assert (await anext(replies)).body == b"first"
        with pytest.raises(TransportError, match=r"reply has 100001 bytes, .*limits.message"):
            await anext(replies)


async def test_a_stream_to_nobody_was_not_sent() -> None:
    async with connected("127.0.0.1:1") as connector:
        error = await refused(all_of(connector))
    assert (error.status, error.sent) == (Status.UNAVAILABLE, False)


async def test_a_stream_that_breaks_off_is_an_error_after_its_replies() -> None:
    async with http2.endpoint(HEAD + http2.data(b"first")) as address:
        connector = Connector(address, connection_per_call=False, limits=SMALL)
        replies = connector.stream(QUESTION)
        assert (await anext(replies)).body == b"first"
    error = await refused(anext(replies))
    await connector.close()
    assert (error.status, error.reason, error.sent) == (Status.UNAVAILABLE, Reason.UNREACHABLE, True)


async def test_a_stream_that_ends_within_a_message_is_an_error() -> None:
    cut = HEAD + http2.data(b"first") + http2.data(b"sec", size=6) + TRAILERS
    async with http2.endpoint(cut) as address, connected(address) as connector:
        replies = connector.stream(QUESTION)
        assert (await anext(replies)).body == b"first"
        with pytest.raises(TransportError, match="reply ended within a message") as caught:
            await anext(replies)
    assert caught.value.reason is Reason.INVALID_OUTPUT


async def test_compressed_replies_are_inflated() -> None:
    async def serve(requests: AsyncIterator[bytes], context: Any) -> None:
        context.set_compression(grpc.Compression.Gzip)
        for _ in range(3):
            await context.write(bytes(50_000))

    async with connector_to(stream=serve) as connector:
        assert await all_of(connector) == [Message(parts=(bytes(50_000),))] * 3


async def test_closing_the_connector_ends_its_streams() -> None:
    async with connector_to(stream=one_and_no_more) as connector:
        replies = connector.stream(QUESTION)
        await anext(replies)
        waiting = asyncio.ensure_future(anext(replies))
        await asyncio.sleep(0)  # it runs up to its wait
        await connector.close()
        with pytest.raises(TransportError, match="the gateway has closed the connector"):
            await waiting
