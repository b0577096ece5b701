"""The streams of a listener."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any

import grpc

from gateway.core.errors import Reason, Status, refusal
from gateway.core.messages import Headers, Message
from gateway.core.protocol import Protocol
from tests.transports.grpc.toy import (
    CHAT,
    ECHO,
    SMALL,
    TELLING,
    TOLD,
    Endless,
    Held,
    channel,
    client,
    code,
    failed,
    failure,
    listening,
)


async def replies(call: Any) -> list[bytes]:
    return [reply async for reply in call]


async def test_requests_are_answered_in_order() -> None:
    async with client() as made:
        assert await replies(made.stream_stream(CHAT)([b"a", b"b"])) == [b"1a", b"2a", b"1b", b"2b"]


async def test_a_request_is_answered_before_the_next_one_is_sent() -> None:
    async with client() as made:
        call = made.stream_stream(CHAT)()
        for body in (b"a", b"b"):
            await call.write(body)
            assert await call.read() == b"1" + body
            assert await call.read() == b"2" + body
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


async def test_every_message_of_a_stream_is_one_of_its_method() -> None:
    seen = []

    async def stream(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        async for message in messages:
            seen.append((message.path, message.pattern, message.headers.get("some"), message.body, protocol.name))
            yield Message()

    async with client(stream=stream) as made:
        await replies(made.stream_stream(CHAT)([b"a", b"b"], metadata=(("some", "text"),)))
    assert seen == [(CHAT, CHAT, "text", b"a", "toy"), (CHAT, CHAT, "text", b"b", "toy")]


async def test_a_stream_without_replies_ends_well() -> None:
    async with client() as made:
        assert await replies(made.stream_stream(CHAT)([])) == []


async def test_a_status_ends_the_stream_after_the_replies_before_it() -> None:
    async def stream(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        async for message in messages:
            yield message
            yield failure(Status.NOT_FOUND, "no more", (b"gateway-reason", b"model-not-found"))

    async with client(stream=stream) as made:
        call = made.stream_stream(CHAT)()
        await call.write(b"a")
        assert await call.read() == b"a"
        error = await failed(call.read())
    assert (code(error), error.details()) == (Status.NOT_FOUND, "no more")
    assert tuple(error.trailing_metadata()) == (("gateway-reason", "model-not-found"),)


async def test_headers_of_replies_are_trailing_metadata() -> None:
    async def stream(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        yield Message(headers=Headers(((b"some", b"text"),)))

    async with client(stream=stream) as made:
        call = made.stream_stream(CHAT)([])
        await replies(call)
        assert tuple(await call.trailing_metadata()) == (("some", "text"),)


async def test_what_fails_unexpectedly_is_refused_without_a_word_of_it() -> None:
    async def stream(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        yield Message(parts=(b"first",))
        raise RuntimeError("secret")

    async with client(stream=stream) as made:
        call = made.stream_stream(CHAT)()
        assert await call.read() == b"first"
        error = await failed(call.read())
    assert code(error) is Status.INTERNAL
    assert error.details() == "toy: the gateway failed on this request; its log says why"


async def test_an_error_that_its_protocol_tells_in_a_message_is_one() -> None:
    async def stream(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
        async for message in messages:
            yield message
            raise refusal(Reason.OVERLOADED, "no more")

    async with listening(stream=stream, protocols=[TELLING]) as listener, channel(listener.address) as made:
        call = made.stream_stream(TOLD)([b"a", b"b"])
        assert await replies(call) == [b"a", b"no more"]
        assert await call.code() is grpc.StatusCode.OK


async def test_a_client_that_stops_reading_stops_the_producer() -> None:
    endless = Endless(1_000_000)
    async with client(stream=endless) as made:
        call = made.stream_stream(CHAT)()
        assert (await call.read())[:4] == (1).to_bytes(4, "big")
        pulled = 0
        while pulled != endless.pulled:  # until there was time for many replies, and none was made
            pulled = endless.pulled
            assert pulled < 500
            for _ in range(100):
                await made.unary_unary(ECHO)(bytes(100))
        for number in range(2, 100):
            assert (await call.read())[:4] == number.to_bytes(4, "big")
        call.cancel()


async def test_a_client_that_cancels_closes_the_stream() -> None:
    endless = Endless(1_000_000)
    async with client(stream=endless) as made:
        call = made.stream_stream(CHAT)()
        await call.read()
        call.cancel()
        await endless.closed.wait()


async def test_a_client_that_cancels_cancels_what_the_stream_waits_for() -> None:
    held = Held()
    async with client(stream=held.stream) as made:
        call = made.stream_stream(CHAT)()
        await call.write(b"")
        await held.asked.get()
        call.cancel()
        await held.cancelled.wait()


async def test_a_message_over_the_limit_ends_the_stream() -> None:
    async with client() as made:
        call = made.stream_stream(CHAT)()
        await call.write(b"a")
        assert await call.read() == b"1a"
        assert await call.read() == b"2a"
        with suppress(grpc.aio.AioRpcError):
            await call.write(bytes(SMALL.message + 1))
        error = await failed(call.read())
    assert code(error) is Status.RESOURCE_EXHAUSTED


async def test_an_idle_stream_does_not_hold_up_draining() -> None:
    async with listening() as listener, channel(listener.address) as made:
        call = made.stream_stream(CHAT)()
        await call.write(b"a")
        assert await call.read() == b"1a"
        assert await call.read() == b"2a"
        await listener.drain(1000)
        error = await failed(call.read())
    assert (code(error), error.details()) == (Status.UNAVAILABLE, "the gateway is stopping")


async def test_a_request_in_flight_is_answered_before_its_stream_is_ended() -> None:
    held = Held()
    async with listening(stream=held.stream) as listener, channel(listener.address) as made:
        call = made.stream_stream(CHAT)()
        await call.write(b"a")
        await held.asked.get()
        draining = asyncio.ensure_future(listener.drain(1000))
        await asyncio.sleep(0)  # it runs up to its first wait
        assert not draining.done()
        held.go.set()
        assert await call.read() == b"a"
        error = await failed(call.read())
        assert code(error) is Status.UNAVAILABLE
        await draining
