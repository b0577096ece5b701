"""The connector against an endpoint whose every byte the test decides."""

import asyncio
import re
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gateway.assembly.registry import protocols
from gateway.core.errors import Reason, Status, TransportError
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, StreamBinding, Target
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from gateway.transports.inflate import IN_THREAD
from gateway.transports.tcp.client_connection import MAX_UNREQUESTED, TcpClientConnection
from gateway.transports.tcp.connector import TcpConnector
from tests.limits import GENEROUS, settle, until
from tests.transports.raw_server import Handle, raw_server, reset_connection
from tests.transports.tcp.toy_protocol import (
    HEADED,
    HEADER,
    SQUEEZING,
    TAGGED,
    body_of,
    connecting,
    packet,
    read_packet,
    squeezed,
    tag_of,
)


def ask(text: str) -> Message:
    data = packet(text)
    return Message(parts=(data[: HEADER.size], data[HEADER.size :]))


class Upper:
    """Replies with each text in upper case, and counts connections."""

    def __init__(self, per_connection: int = 1000) -> None:
        self.connections = 0
        self.per_connection = per_connection

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        for _ in range(self.per_connection):
            tag, text = await read_packet(reader)
            writer.write(packet(text.upper(), tag))


@pytest.mark.parametrize(("per_connection", "connections"), [(1000, 1), (1, 2)])
async def test_a_connection_is_kept_unless_the_endpoint_closes_it(per_connection: int, connections: int) -> None:
    upper = Upper(per_connection)
    async with raw_server(upper) as address, connecting(address) as connector:
        for text in ("one", "two"):
            assert body_of(await connector.exchange(ask(text))) == text.upper()
            await settle()  # the loop notices that the endpoint has closed the connection
    assert upper.connections == connections


def answering(reply: Callable[[str, int], bytes]) -> Handle:
    """Answers each request with what `reply` makes of its text and tag."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            tag, text = await read_packet(reader)
            writer.write(reply(text, tag))

    return handle


class SilentEndpoint:
    """Reads a request, and answers nothing."""

    def __init__(self) -> None:
        self.asked, self.left = asyncio.Event(), asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        self.asked.set()
        await reader.read()
        self.left.set()


async def test_a_connection_per_call_where_the_endpoint_wants_it() -> None:
    """Also an endpoint that serves a connection until its client closes it."""
    closed = asyncio.Queue[None]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tag, text = await read_packet(reader)
        writer.write(packet(text.upper(), tag))
        assert await reader.read() == b""
        closed.put_nowait(None)

    async with raw_server(handle) as address, connecting(address, per_call=True) as connector:
        for text in ("one", "two"):
            assert body_of(await connector.exchange(ask(text))) == text.upper()
            await closed.get()


async def test_over_a_unix_socket(tmp_path: Path) -> None:
    async with raw_server(Upper(), path=tmp_path / "s") as address, connecting(address, per_call=True) as connector:
        assert body_of(await connector.exchange(ask("one"))) == "ONE"


async def test_calls_at_once_have_a_connection_each_where_there_are_no_tags() -> None:
    upper = Upper()
    async with raw_server(upper) as address, connecting(address) as connector:
        replies = await asyncio.gather(*(connector.exchange(ask(f"n{at}")) for at in range(8)))
    assert [body_of(reply) for reply in replies] == [f"N{at}" for at in range(8)]
    assert upper.connections == 8


async def test_a_large_message_both_ways() -> None:
    text = "ab" * 5_000_000
    async with raw_server(Upper()) as address, connecting(address, limits=Limits(message=2**24)) as connector:
        assert body_of(await connector.exchange(ask(text))) == text.upper()


# Multiplexed


async def test_tagged_calls_share_a_connection_and_take_their_replies_in_any_order() -> None:
    connections, count = 0, 500

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        asked = [await read_packet(reader) for _ in range(count)]
        writer.write(packet("nobody's", 4711))
        for tag, text in reversed(asked):
            writer.write(packet(text.upper(), tag))
        await reader.read()

    async with raw_server(handle) as address, connecting(address, TAGGED) as connector:
        replies = await asyncio.gather(*(connector.exchange(ask(f"n{at}")) for at in range(count)))
    assert [body_of(reply) for reply in replies] == [f"N{at}" for at in range(count)]
    assert len({tag_of(reply) for reply in replies}) == count
    assert connections == 1


async def test_a_tagged_call_that_is_given_up_leaves_the_others_alone() -> None:
    come, go = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = [await read_packet(reader) for _ in range(2)]
        come.set()
        await go.wait()
        for tag, text in asked:
            writer.write(packet(text.upper(), tag))
        await reader.read()

    async with raw_server(handle) as address, connecting(address, TAGGED) as connector:
        first, second = (asyncio.ensure_future(connector.exchange(ask(text))) for text in ("one", "two"))
        await come.wait()
        first.cancel()
        await asyncio.wait({first})
        go.set()
        assert body_of(await second) == "TWO"


async def test_when_a_shared_connection_ends_all_its_calls_fail_and_the_next_has_a_new_one() -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):
            tag, text = await read_packet(reader)
        if connections > 1:
            writer.write(packet(text.upper(), tag))

    async with raw_server(handle) as address, connecting(address, TAGGED) as connector:
        failures = await asyncio.gather(*(connector.exchange(ask(t)) for t in "ab"), return_exceptions=True)
        assert [isinstance(each, TransportError) and each.sent for each in failures] == [True, True]
        lost, got = await asyncio.gather(*(connector.exchange(ask(t)) for t in "cd"), return_exceptions=True)
        assert isinstance(lost, TransportError)
        assert isinstance(got, Message)
        assert body_of(got) == "D"
    assert connections == 2


async def in_vain(connector: TcpConnector, text: str, goes_on: asyncio.Event) -> None:
    """A call that is given up once the endpoint `goes_on` without a reply to it."""
    call = asyncio.ensure_future(connector.exchange(ask(text)))
    await goes_on.wait()
    await settle()
    assert not call.done()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_a_call_with_a_wrong_tag_in_its_reply_is_free_when_it_is_given_up() -> None:
    """The connection goes on with the other calls."""
    is_answered = asyncio.Event()

    def reply(text: str, tag: int) -> bytes:
        is_answered.set()
        return packet(text.upper(), tag + 1_000_000 if text == "lost" else tag)

    async with raw_server(answering(reply)) as address, connecting(address, TAGGED) as connector:
        await in_vain(connector, "lost", is_answered)
        assert body_of(await connector.exchange(ask("found"))) == "FOUND"
        [connection] = connector._connections._open
        assert not connection._waiting


async def test_a_flood_of_unrequested_replies_ends_the_connection() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        while True:
            writer.write(packet("stray", 4711) * 100)
            await writer.drain()

    async with raw_server(handle) as address:
        error = await fails(address, framing=TAGGED)
    assert (error.status, error.sent) == (Status.INTERNAL, True)
    assert error.message == "reply: more than 1000 unexpected replies"


async def test_the_tail_of_a_late_reply_is_not_read_as_the_next() -> None:
    more = answering(lambda text, tag: packet(text.upper(), tag) + b"\0")
    async with raw_server(more) as address, connecting(address, TAGGED) as connector:
        for text in ("one", "two"):
            assert body_of(await connector.exchange(ask(text))) == text.upper()


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"", []),
        (packet("half", 1)[:-2], []),
        (packet("half", 1)[:5], []),
        (HEADER.pack(b"T", 1, 2**32 - 1) + b"head", ["head"]),
    ],
)
async def test_after_a_call_in_vain_on_a_silent_connection_the_next_has_a_new_one(
    said: bytes, expected: list[str]
) -> None:
    """The endpoint's machine may be gone without a word, or the endpoint stuck in a reply, also in one that is beyond
    the limit and dropped as it comes."""
    connections = 0
    is_said = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        if connections == 1:
            await read_packet(reader)
            writer.write(said)
            is_said.set()
            await reader.read()
        while True:
            tag, text = await read_packet(reader)
            writer.write(packet(text.upper(), tag))

    async with raw_server(handle) as address, connecting(address, HEADED) as connector:
        assert [body_of(await connector.exchange(ask("text"))) for _ in expected] == expected
        await in_vain(connector, "text", is_said)
        assert body_of(await connector.exchange(ask("text"))) == "TEXT"
        assert len(connector._connections._open) == 1


async def test_calls_that_still_wait_on_a_silent_connection_get_their_replies() -> None:
    asked: list[int] = []
    go, came = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await read_packet(reader))[0])
        go.set()
        await read_packet(reader)
        came.set()
        await go.wait()
        writer.write(packet("AFTER ALL", asked[0]))
        closed.set_result(await reader.read())

    closed: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    async with raw_server(handle) as address, connecting(address, TAGGED) as connector:
        patient = asyncio.ensure_future(connector.exchange(ask("patient")))
        await go.wait()
        go.clear()
        await in_vain(connector, "in vain", came)
        go.set()
        assert body_of(await patient) == "AFTER ALL"
        assert await closed == b""  # no call waits there any more


async def test_late_replies_are_no_flood() -> None:
    given_up = asyncio.Event()
    count = MAX_UNREQUESTED + 10

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = [await read_packet(reader) for _ in range(count + 1)]
        writer.write(b"".join(packet("NOW", tag) for tag, text in asked if text == "now"))
        given_up.set()
        tag, last = await read_packet(reader)
        writer.write(b"".join(packet(text, late) for late, text in asked if text == "late") + packet(last.upper(), tag))
        await reader.read()

    async with raw_server(handle) as address, connecting(address, TAGGED) as connector:
        calls = [asyncio.ensure_future(connector.exchange(ask("late"))) for _ in range(count)]
        await connector.exchange(ask("now"))
        await given_up.wait()
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        assert body_of(await connector.exchange(ask("in time"))) == "IN TIME"


async def test_the_time_that_is_left_goes_with_the_request() -> None:
    told: list[float | None] = []

    def retag(message: Message, tag: int, seconds: float | None) -> Message:
        told.append(seconds)
        return message

    framing = replace(TAGGED, tag=lambda message: 1 + tag_of(message), retag=retag)
    async with raw_server(Upper()) as address, connecting(address, framing) as connector:
        deadline = asyncio.get_running_loop().time() + 1000
        await connector.exchange(replace(ask("one"), deadline=deadline))
    assert told[0] is not None
    assert 0 < told[0] < 1001  # doubles round


async def test_nothing_is_sent_after_the_deadline() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tag, text = await read_packet(reader)
        assert text == "in time"
        writer.write(packet("IN TIME", tag))
        await reader.read()

    async with raw_server(handle) as address, connecting(address, TAGGED) as connector:
        passed = asyncio.get_running_loop().time()
        with pytest.raises(TransportError, match="the deadline passed before the gateway sent the request") as failure:
            await connector.exchange(replace(ask("late"), deadline=passed))
        assert (failure.value.reason, failure.value.sent) == (Reason.TIMEOUT, False)
        assert body_of(await connector.exchange(ask("in time"))) == "IN TIME"


def large_calls(connector: TcpConnector) -> list[asyncio.Task[Message]]:
    """More than the buffers of the kernel hold."""
    return [asyncio.ensure_future(connector.exchange(ask("x" * 10_000_000))) for _ in range(10)]


async def test_calls_do_not_pile_up_behind_an_endpoint_that_does_not_read() -> None:
    come, go = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        come.set()
        await go.wait()
        while True:
            tag, text = await read_packet(reader)
            writer.write(packet(text[:1], tag))

    async with raw_server(handle) as address, connecting(address, TAGGED, limits=Limits(message=2**24)) as connector:
        calls = large_calls(connector)
        await come.wait()
        await asyncio.wait(calls, timeout=0.1)
        [connection] = connector._connections._open
        assert len(connection._waiting) < 3  # what the kernel's buffers hold, and one more
        calls.pop().cancel()
        go.set()
        assert [body_of(reply) for reply in await asyncio.gather(*calls)] == ["x"] * 9


async def test_a_call_that_was_never_written_says_so() -> None:
    come, go = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        come.set()
        await go.wait()

    async with raw_server(handle) as address, connecting(address, TAGGED, limits=Limits(message=2**24)) as connector:
        calls = large_calls(connector)
        await come.wait()
        await asyncio.wait(calls, timeout=0.1)
        go.set()
        failures = await asyncio.gather(*calls, return_exceptions=True)
    sent = [each.sent for each in failures if isinstance(each, TransportError)]
    assert len(sent) == 10
    assert sent[0]
    assert not sent[-1]


class Slow(TcpConnector):
    """Sends its request once it knows that the endpoint has closed the connection."""

    async def _connect(self, deadline: float | None) -> TcpClientConnection:
        connection = await super()._connect(deadline)
        await until(lambda: connection._transport.is_closing(), 0)
        return connection


@pytest.mark.parametrize("protocol", ["grps-brpc", "mip"])
@pytest.mark.parametrize("knows", [False, True])
@pytest.mark.parametrize("reset", [False, True])
async def test_an_endpoint_that_closes_each_connection_at_once(protocol: str, knows: bool, reset: bool) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if reset:
            reset_connection(writer)

    form = protocols()[protocol]
    assert isinstance(form.binding, StreamBinding)
    request = Request(Operation.INFER, model="m", inputs=(tensor("x", np.array([[1.0]])),))
    async with raw_server(handle) as address:
        kind = Slow if knows else TcpConnector
        connector = kind(address, framing=form.binding.framing, connection_per_call=False, limits=Limits())
        for _ in range(20):
            with pytest.raises(TransportError) as failure:
                async with asyncio.timeout(GENEROUS):
                    await connector.exchange(form.encode_request(request, Target()))
            error = failure.value
            assert (error.status, error.reason) == (Status.UNAVAILABLE, Reason.UNREACHABLE)
            assert not (knows and error.sent)
            assert re.search("closed|reset|broken", error.message)
        await connector.close()


@pytest.mark.parametrize("size", [10, IN_THREAD + 1], ids=["at once", "in a thread"])
async def test_a_compressed_reply_is_inflated(size: int) -> None:
    large = answering(lambda text, tag: squeezed(text * size, tag))
    async with raw_server(large) as address, connecting(address, SQUEEZING, limits=Limits(message=2**20)) as connector:
        assert body_of(await connector.exchange(ask("a"))) == "a" * size


@pytest.mark.parametrize(
    ("reply", "why"),
    [(squeezed(bytes(100_001), 1), "reply: more than 100000 bytes"), (packet(b"\0no zlib", 1), "reply: Error -3")],
)
async def test_a_reply_that_cannot_be_inflated(reply: bytes, why: str) -> None:
    async with raw_server(answering(lambda text, tag: reply)) as address:
        error = await fails(address, framing=SQUEEZING)
    assert (error.reason, error.sent) == (Reason.INVALID_OUTPUT, True)
    assert error.message.startswith(why)


async def test_a_reply_beyond_the_limit_leaves_the_other_calls_alone() -> None:
    some_large = answering(lambda text, tag: packet(text * (100_000 if text == "big!" else 1), tag))
    async with raw_server(some_large) as address, connecting(address, HEADED) as connector:
        replies = await asyncio.gather(*(connector.exchange(ask(text)) for text in ("one", "big!", "two")))
        assert [body_of(reply) for reply in replies] == ["one", "big!", "two"]
        assert len(connector._connections._open) == 1


# What goes wrong


async def fails(address: str, text: str = "one", **settings: object) -> TransportError:
    async with connecting(address, **settings) as connector:  # type: ignore[arg-type]
        with pytest.raises(TransportError) as failure:
            async with asyncio.timeout(GENEROUS):
                await connector.exchange(ask(text))
    return failure.value


@pytest.mark.parametrize(
    ("reply", "status", "why"),
    [
        (b"", Status.UNAVAILABLE, "the connection was closed without a reply"),
        (packet("abc")[:5], Status.UNAVAILABLE, "the connection was closed in the middle of a reply"),
        (packet("abc")[:11], Status.UNAVAILABLE, "the connection was closed in the middle of a reply"),
        (b"SSH-2.0-OpenSSH", Status.INTERNAL, "reply: magic b'S', expected b'T'"),
        (b"HTTP/1.1 400", Status.INTERNAL, "reply: the first bytes are not of this protocol; it seems to be an HTTP"),
        (HEADER.pack(b"T", 0, 0xFFFFFFFF), Status.INTERNAL, "reply: a message of 4294967295 bytes is larger than"),
    ],
)
async def test_a_malformed_reply_fails_the_call(reply: bytes, status: Status, why: str) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        writer.write(reply)

    async with raw_server(handle) as address:
        error = await fails(address)
    assert (error.status, error.sent) == (status, True)
    assert error.message.startswith(why)


@pytest.mark.parametrize("family", ["tcp", "unix"])
async def test_the_reply_of_an_endpoint_that_did_not_read_the_request_is_found(family: str, tmp_path: Path) -> None:
    """The endpoint answers after the header and closes, which resets the connection while the request is being
    written."""
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_INET if family == "tcp" else socket.AF_UNIX) as server:
        server.bind(("127.0.0.1", 0) if family == "tcp" else path)
        server.listen()
        address = "{}:{}".format(*server.getsockname()) if family == "tcp" else f"unix://{path}"

        def refuse() -> None:
            accepted, _ = server.accept()
            with accepted:
                accepted.recv(HEADER.size)
                accepted.sendall(packet("no"))

        async with connecting(address, per_call=True) as connector:
            refusing = asyncio.ensure_future(asyncio.to_thread(refuse))
            reply = await connector.exchange(ask("x" * 20_000_000))
            await refusing
    assert body_of(reply) == "no"


async def test_nothing_listens_at_the_address(tmp_path: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets the port
        error = await fails(f"127.0.0.1:{bound.getsockname()[1]}")
    assert (error.reason, error.sent, error.message) == (Reason.UNREACHABLE, False, "connection refused")
    error = await fails(f"unix://{tmp_path}/none")
    assert (error.reason, error.sent, error.message) == (Reason.UNREACHABLE, False, "no such file or directory")


async def test_a_call_that_is_given_up_closes_its_connection() -> None:
    silent = SilentEndpoint()
    async with raw_server(silent) as address, connecting(address) as connector:
        call = asyncio.ensure_future(connector.exchange(ask("one")))
        await silent.asked.wait()
        call.cancel()
        await silent.left.wait()


async def test_unrequested_bytes_are_not_taken_for_a_reply() -> None:
    sent = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tag, text = await read_packet(reader)
        writer.write(packet(text.upper(), tag))
        await asyncio.sleep(0)
        writer.write(packet("surprise"))
        await writer.drain()
        sent.set()
        await reader.read()

    async with raw_server(handle) as address, connecting(address) as connector:
        for text in ("one", "two"):
            assert body_of(await connector.exchange(ask(text))) == text.upper()
            await sent.wait()
            sent.clear()


async def test_bytes_that_nobody_requested_end_a_connection_without_tags() -> None:
    replied, ended = asyncio.Event(), asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tag, text = await read_packet(reader)
        writer.write(packet(text.upper(), tag))
        await replied.wait()
        writer.write(packet("surprise"))
        assert await reader.read() == b""
        ended.set()

    async with raw_server(handle) as address, connecting(address) as connector:
        assert body_of(await connector.exchange(ask("one"))) == "ONE"
        replied.set()
        async with asyncio.timeout(GENEROUS):
            await ended.wait()


async def test_closing_fails_a_call_whose_connection_is_being_opened() -> None:
    async with raw_server(Upper()) as address, connecting(address, TAGGED) as connector:
        call = asyncio.ensure_future(connector.exchange(ask("one")))
        await asyncio.sleep(0)
        await connector.close()
        with pytest.raises(TransportError, match="the gateway has closed the connector"):
            await call


async def test_closing_waits_for_a_connection_that_was_opened_after_another_was_lost() -> None:
    asked = asyncio.Event()

    async def one_reply_then_silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tag, text = await read_packet(reader)
        if text == "one":
            writer.write(packet(text, tag))
        else:
            asked.set()
            await reader.read()

    async with raw_server(one_reply_then_silence) as address, connecting(address) as connector:
        await connector.exchange(ask("one"))
        running = asyncio.ensure_future(connector.exchange(ask("two")))
        async with asyncio.timeout(GENEROUS):
            await asked.wait()
            await connector.close()
        assert not connector._connections._open
        with pytest.raises(TransportError):
            await running


async def test_closing_fails_running_and_later_exchanges() -> None:
    silent = SilentEndpoint()
    async with raw_server(silent) as address, connecting(address) as connector:
        call = asyncio.ensure_future(connector.exchange(ask("one")))
        await silent.asked.wait()
        await connector.close()
        with pytest.raises(TransportError, match="closed without a reply"):
            await call
        with pytest.raises(TransportError, match="the gateway has closed the connector"):
            await connector.exchange(ask("two"))


async def test_with_an_ip_the_name_is_not_looked_up() -> None:
    async with raw_server(Upper()) as address:
        name = address.replace("127.0.0.1", "models.invalid")
        async with connecting(name, HEADED, ip="127.0.0.1") as connector:
            assert body_of(await connector.exchange(ask("one"))) == "ONE"
