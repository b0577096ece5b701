import asyncio
from collections.abc import Callable
from contextlib import suppress
from unittest.mock import MagicMock

import pytest

from gateway.core.errors import Reason, refusal
from gateway.core.messages import Headers, Message
from gateway.core.protocol import Limits, Protocol
from gateway.transports.http.server import connection
from gateway.transports.memory import PROCESS_MEMORY
from gateway.transports.timeouts import Timeouts
from tests.limits import GENEROUS, settle
from tests.transports.http.server.toy_listener import (
    HELLO,
    LAST,
    SAID,
    SAID_LAST,
    PausedExchange,
    client,
    connected,
    echo,
    listening,
    ok,
    post,
    read_reply,
    replies_to,
    reply,
    send_whole,
)

FAILED = "toy: the gateway failed on this request; its log says why"
MIB = 2**20
SOON = 0.05


# What the exchange is given.


async def test_the_message_has_peer_time_and_deadline() -> None:
    paused = PausedExchange()
    async with client(paused) as (_, writer):
        before = asyncio.get_running_loop().time()
        await send_whole(writer, post(b"abc", "Request-Timeout: 2.5", "X-A: \xc3\xa4", "X-A: 2"))
        message = await paused.requests.get()
        host, port = writer.get_extra_info("sockname")
        assert message.peer == f"{host}:{port}"
        assert (message.method, message.path, message.query, message.pattern) == ("POST", "/echo", "", "POST /echo")
        assert message.headers.all("x-a") == ["\xc3\xa4", "2"]
        assert message.parts == (b"abc",)
        assert before <= message.received <= asyncio.get_running_loop().time()
        assert message.deadline == message.received + 2.5


async def test_a_big_body_arrives_in_one_buffer_that_can_be_viewed() -> None:
    body = bytes(range(256)) * 4 * 4096  # 4 MiB, in many segments
    async with client(echo, limits=Limits()) as (reader, writer):
        await send_whole(writer, post(body))
        assert (await read_reply(reader)).endswith(b"\r\n\r\n" + body)
        await send_whole(writer, b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
        await send_whole(writer, b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        assert (await read_reply(reader)).endswith(b"\r\n\r\n" + body)


# One request after the other.


async def test_pipelined_requests_wait_for_the_one_in_flight() -> None:
    paused = PausedExchange()
    async with client(paused) as (reader, writer):
        await send_whole(writer, HELLO + post(b"ab") + LAST)
        assert (await paused.requests.get()).method == "GET"
        assert paused.requests.empty()
        paused.resume.set()
        assert await reader.read() == SAID + ok("POST /echo [ab]") + SAID_LAST


async def test_a_client_that_sends_ahead_is_held_back_while_its_request_is_in_flight() -> None:
    paused, flood = PausedExchange(), HELLO * 500_000
    async with client(paused) as (reader, writer):
        writer.write(HELLO)
        await paused.requests.get()
        writer.write(flood)
        # the kernel's buffers and ours fill; everything else stays with the client
        await settle(1000)
        assert writer.transport.get_write_buffer_size() > len(flood) // 4
        paused.resume.set()
        assert await read_reply(reader) == SAID
        assert await read_reply(reader) == SAID


async def test_what_is_sent_ahead_without_memory_for_it_is_refused_behind_the_reply(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paused = PausedExchange()
    async with client(paused, limits=Limits()) as (reader, writer):
        writer.write(post(b"one"))
        await paused.requests.get()
        monkeypatch.setattr(PROCESS_MEMORY, "limit", 0)
        whole = post(bytes(200_000))
        for at in range(0, len(whole), 50_000):
            writer.write(whole[at : at + 50_000])
            await settle()
        paused.resume.set()
        assert (await read_reply(reader)).endswith(b"POST /echo [one]")
        refused = await reader.read()
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"limits.memory" in refused


async def test_a_body_for_which_the_memory_does_not_suffice_while_it_arrives_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with client(echo, limits=Limits()) as (reader, writer):
        whole = post(bytes(MIB))
        await send_whole(writer, whole[: MIB // 8])
        await settle()
        monkeypatch.setattr(PROCESS_MEMORY, "limit", 0)
        await send_whole(writer, whole[MIB // 8 :])
        refused = await reader.read()
    assert refused.startswith(b"HTTP/1.1 503 ")
    assert b"limits.memory" in refused


async def test_an_unread_reply_pauses_the_connection_until_it_is_read() -> None:
    answered = 0

    def large(message: Message, protocol: Protocol) -> Message:
        nonlocal answered
        answered += 1
        return Message(status=200, parts=(bytes(MIB),))

    async with client(large) as (reader, writer):
        await send_whole(writer, HELLO * 100)
        await settle(1000)
        assert answered < 50
        for _ in range(100):
            assert (await read_reply(reader)).endswith(bytes(MIB))
        assert answered == 100


# Failures.


async def test_an_exception_of_the_exchange_is_an_internal_error_without_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(message: Message, protocol: Protocol) -> Message:
        raise KeyError("secret")

    async def fail_later() -> Message:
        raise KeyError("secret")

    expected = reply("500 Internal Server Error", FAILED)
    for exchange in (fail, lambda message, protocol: fail_later()):
        async with client(exchange) as (reader, writer):
            await send_whole(writer, HELLO + HELLO)
            assert await read_reply(reader) == expected
            assert await read_reply(reader) == expected
    assert "secret" in caplog.text


async def test_a_gateway_error_keeps_its_text() -> None:
    def refuse(message: Message, protocol: Protocol) -> Message:
        raise refusal(Reason.INVALID_INPUT, "no")

    assert await replies_to(LAST, refuse) == reply("400 Bad Request", "toy: no", last=True)


@pytest.mark.parametrize("text", [b"a\r\nSet-Cookie: b", b"a\nb", b"a\rb"])
async def test_a_line_break_in_a_reply_header_is_never_written(text: bytes, caplog: pytest.LogCaptureFixture) -> None:
    def split(message: Message, protocol: Protocol) -> Message:
        return Message(status=200, headers=Headers([(b"X", text)]))

    assert await replies_to(HELLO, split) == reply("500 Internal Server Error", FAILED, last=True)


async def test_a_reply_without_a_body_has_no_length() -> None:
    said = await replies_to(LAST, lambda message, protocol: Message(status=204))
    assert said == b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("disconnect", [asyncio.StreamWriter.close, lambda writer: writer.transport.abort()])
async def test_a_client_that_leaves_cancels_its_request(disconnect: Callable[[asyncio.StreamWriter], None]) -> None:
    paused = PausedExchange()
    async with client(paused) as (_, writer):
        await send_whole(writer, HELLO)
        await paused.requests.get()
        disconnect(writer)
        await paused.cancelled.wait()


async def test_a_request_that_is_cancelled_from_within_closes_its_connection() -> None:
    async def cancelled() -> Message:
        raise asyncio.CancelledError

    with suppress(ConnectionResetError):
        assert await replies_to(HELLO, lambda message, protocol: cancelled()) == b""


async def test_an_error_reaches_a_client_that_is_still_sending() -> None:
    """Closing at once would answer the rest of the body with a reset, and the client would lose the reply."""
    said = await replies_to(post(bytes(3 * MIB), path="/nothing"), limits=Limits(message=4 * MIB))
    text = "toy: unknown path: '/nothing'; this listener speaks toy, other, streamer"
    assert said == reply("404 Not Found", text, last=True)


async def test_what_a_client_sends_behind_its_last_request_is_read_and_dropped() -> None:
    """Also what came together with that request. Unread bytes would turn the end of the connection into a reset."""
    async with client(limits=Limits(), timeouts=Timeouts(linger=10.0)) as (reader, writer):
        await send_whole(writer, LAST + bytes(100 * 2**10))
        assert await reader.read() == SAID_LAST
        await send_whole(writer, bytes(64 * MIB))


# Slow clients.

LATE_HEAD = reply("408 Request Timeout", "toy: the request's head did not arrive within 0.05 s", last=True)
LATE_BODY = reply("408 Request Timeout", "toy: nothing of the request's body came for 0.05 s", last=True)


@pytest.mark.parametrize(
    ("timeouts", "sent", "expected"),
    [
        (Timeouts(idle=SOON), b"", b""),
        (Timeouts(idle=SOON), HELLO, SAID),
        (Timeouts(idle=SOON), HELLO + b"\r\n", SAID),
        (Timeouts(head=SOON), b"G", LATE_HEAD),
        (Timeouts(head=SOON), HELLO[:-1], LATE_HEAD),
        (Timeouts(head=SOON), HELLO + HELLO[:-1], SAID + LATE_HEAD),
        (Timeouts(body=SOON), post(b"abc")[:-1], LATE_BODY),
        (Timeouts(body=SOON), post(b"abc")[:-3], LATE_BODY),
        (Timeouts(body=SOON), post(b"").replace(b"Content-Length: 0", b"Transfer-Encoding: chunked"), LATE_BODY),
    ],
)
async def test_a_slow_client_gets_an_error_and_is_cut_off(timeouts: Timeouts, sent: bytes, expected: bytes) -> None:
    assert await replies_to(sent, timeouts=timeouts) == expected


@pytest.mark.parametrize("sent", [post(b"abc")[:-3], post(b"abc")[:-1]])
async def test_a_body_has_its_time_limit_also_behind_a_head_that_took_long(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SHORT_TURN", -1.0)
    assert await replies_to(sent, timeouts=Timeouts(body=SOON)) == LATE_BODY


async def test_a_body_that_trickles_has_a_total_time() -> None:
    timeouts = Timeouts(body=0.2, message=0.1, linger=GENEROUS)
    async with client(timeouts=timeouts) as (reader, writer):
        end = asyncio.ensure_future(reader.read())
        writer.write(post(bytes(1000))[:-1000])
        for _ in range(500):
            writer.write(b"x")
            if (await asyncio.wait({end}, timeout=0.02))[0]:
                break
        text = "toy: the request's body did not arrive within 0.1 s"
        assert await end == reply("408 Request Timeout", text, last=True)


@pytest.mark.parametrize(
    "flood",
    [HELLO * 5000, b"POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 60_000],
    ids=["requests", "chunks"],
)
async def test_a_flood_on_one_connection_leaves_others_their_turn(flood: bytes) -> None:
    """A client that asks after the flood was sent is answered before the whole flood is."""
    async with (
        listening(limits=Limits()) as listener,
        connected(listener) as (flooded, flooding),
        connected(listener) as (reader, writer),
    ):
        flooding.write(flood)
        whole = asyncio.ensure_future(flooded.read())
        await asyncio.sleep(0)
        writer.write(LAST)
        assert await reader.read() == SAID_LAST
        assert not whole.done()
        flooding.write(b"0\r\n\r\n" + LAST if b"chunked" in flood else LAST)
        replies = await whole
    if b"chunked" in flood:
        assert replies.count(b"HTTP/1.1 200 OK") == 2
    else:
        assert replies == SAID * 5000 + SAID_LAST


def big(message: Message, protocol: Protocol) -> Message:
    return Message(status=200, parts=(bytes(32 * MIB),))


async def test_a_client_that_never_reads_its_reply_is_cut_off() -> None:
    async with listening(big, timeouts=Timeouts(write=SOON)) as listener, connected(listener) as (reader, writer):
        await send_whole(writer, HELLO)
        await reader.readuntil(b"\r\n\r\n")
        await listener.drain(2 * GENEROUS)


async def test_a_client_that_reads_its_reply_too_slowly_is_cut_off() -> None:
    slow = Timeouts(write=0.4, rate=1e12)
    async with client(big, timeouts=slow) as (reader, writer):
        await send_whole(writer, HELLO)
        size = 0
        while piece := await reader.read(MIB // 16):  # six seconds, without a pause that is too long
            size += len(piece)
            await asyncio.sleep(0.01)
        assert size < 32 * MIB


async def test_a_client_that_does_not_close_after_an_error_is_cut_off() -> None:
    async with listening(timeouts=Timeouts(linger=SOON)) as listener, connected(listener) as (reader, writer):
        await send_whole(writer, b"nonsense")
        await reader.readuntil(b"\r\n\r\n")
        await listener.drain(2 * GENEROUS)


async def test_a_place_for_a_body_that_uvloop_asked_for_in_vain_is_not_used_after_the_408() -> None:
    """uvloop asks for a buffer once more when a read has filled the last one, also if nothing follows. The bytes that
    come after the refusal are then elsewhere, and the place has what another message left there."""
    seen: list[bytes] = []

    def note(message: Message, protocol: Protocol) -> Message:
        seen.append(bytes(message.body))
        return echo(message, protocol)

    transport = MagicMock(spec=asyncio.Transport)
    transport.get_extra_info.return_value = None
    transport.is_closing.return_value = False
    transport.get_write_buffer_size.return_value = 0
    async with listening(note, limits=Limits(message=MIB)) as listener:
        connection = listener.serve()
        connection.connection_made(transport)

        def arrive(data: bytes) -> None:
            place = connection.get_buffer(-1)
            place[: len(data)] = data
            connection.buffer_updated(len(data))

        request = post(bytes(100_000))
        arrive(request[:1000])
        connection.get_buffer(-1)
        connection.expire()
        assert transport.write.call_args_list[0].args[0].startswith(b"HTTP/1.1 408")
        arrive(b"Z" * (len(request) - 1000))
        connection.connection_lost(None)
    assert not seen
