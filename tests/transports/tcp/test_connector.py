"""What the connector does with an endpoint whose every byte the test decides."""

import asyncio
import socket
from pathlib import Path

import pytest

from gateway.core.errors import Reason, Status, TransportError
from gateway.core.protocol import Limits
from gateway.core.types import Message
from tests.transports.tcp.toy import (
    GENEROUS,
    HEADER,
    TAGGED,
    body_of,
    connecting,
    packet,
    read_packet,
    serving,
    tag_of,
)
from tests.transports.tcp.toy import LOOPS as LOOPS


def ask(text: str) -> Message:
    data = packet(text)
    return Message(parts=(data[: HEADER.size], data[HEADER.size :]))


class Upper:
    """Says everything back in upper case, and counts connections."""

    def __init__(self, per_connection: int = 1000) -> None:
        self.connections = 0
        self.per_connection = per_connection

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        for _ in range(self.per_connection):
            tag, text = await read_packet(reader)
            writer.write(packet(text.upper(), tag))
            await writer.drain()


async def test_a_connection_is_kept() -> None:
    upper = Upper()
    async with serving(upper) as address, connecting(address) as connector:
        for text in ("one", "two"):
            assert body_of(await connector.exchange(ask(text))) == text.upper()
    assert upper.connections == 1


async def test_a_kept_connection_that_the_endpoint_closed_is_not_used() -> None:
    upper = Upper(per_connection=1)
    async with serving(upper) as address, connecting(address) as connector:
        for text in ("one", "two"):
            assert body_of(await connector.exchange(ask(text))) == text.upper()
            await asyncio.sleep(0.01)  # or the loop has not seen the end: then the call itself fails, and says so
    assert upper.connections == 2


async def test_a_connection_per_call_where_the_endpoint_wants_it() -> None:
    """Also one that serves a connection until its client closes it."""
    closed = asyncio.Queue[None]()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tag, text = await read_packet(reader)
        writer.write(packet(text.upper(), tag))
        assert await reader.read() == b""
        closed.put_nowait(None)

    async with serving(handle) as address, connecting(address, per_call=True) as connector:
        for text in ("one", "two"):
            assert body_of(await connector.exchange(ask(text))) == text.upper()
            await closed.get()


async def test_over_a_unix_socket(tmp_path: Path) -> None:
    async with serving(Upper(), tmp_path / "s") as address, connecting(address, per_call=True) as connector:
        assert body_of(await connector.exchange(ask("one"))) == "ONE"


async def test_calls_at_once_have_a_connection_each_where_there_are_no_tags() -> None:
    upper = Upper()
    async with serving(upper) as address, connecting(address) as connector:
        replies = await asyncio.gather(*(connector.exchange(ask(f"n{at}")) for at in range(8)))
    assert [body_of(reply) for reply in replies] == [f"N{at}" for at in range(8)]
    assert upper.connections == 8


async def test_a_large_message_both_ways() -> None:
    text = "ab" * 5_000_000
    async with serving(Upper()) as address, connecting(address, limits=Limits(message=2**24)) as connector:
        assert body_of(await connector.exchange(ask(text))) == text.upper()


# Multiplexed


async def test_tagged_calls_share_a_connection_and_take_their_replies_in_any_order() -> None:
    connections = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        asked = [await read_packet(reader) for _ in range(20)]
        writer.write(packet("nobody's", 4711))
        for tag, text in reversed(asked):
            writer.write(packet(text.upper(), tag))
        await reader.read()

    async with serving(handle) as address, connecting(address, TAGGED) as connector:
        replies = await asyncio.gather(*(connector.exchange(ask(f"n{at}")) for at in range(20)))
    assert [body_of(reply) for reply in replies] == [f"N{at}" for at in range(20)]
    assert len({tag_of(reply) for reply in replies}) == 20
    assert connections == 1


async def test_a_tagged_call_that_is_given_up_leaves_the_others_alone() -> None:
    go = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = [await read_packet(reader) for _ in range(2)]
        await go.wait()
        for tag, text in asked:
            writer.write(packet(text.upper(), tag))
        await reader.read()

    async with serving(handle) as address, connecting(address, TAGGED) as connector:
        first, second = (asyncio.ensure_future(connector.exchange(ask(text))) for text in ("one", "two"))
        await asyncio.wait({first, second}, timeout=0.05)
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

    async with serving(handle) as address, connecting(address, TAGGED) as connector:
        failures = await asyncio.gather(*(connector.exchange(ask(t)) for t in "ab"), return_exceptions=True)
        assert [isinstance(each, TransportError) and each.sent for each in failures] == [True, True]
        lost, got = await asyncio.gather(*(connector.exchange(ask(t)) for t in "cd"), return_exceptions=True)
        assert isinstance(lost, TransportError)
        assert isinstance(got, Message)
        assert body_of(got) == "D"
    assert connections == 2


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
        (b"HTTP/1.1 400", Status.INTERNAL, "reply: magic b'H', expected b'T'"),
        (HEADER.pack(b"T", 0, 0xFFFFFFFF), Status.INTERNAL, "reply: a message of 4294967295 bytes is larger than"),
    ],
)
async def test_what_is_no_reply(reply: bytes, status: Status, why: str) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        writer.write(reply)

    async with serving(handle) as address:
        error = await fails(address)
    assert (error.status, error.sent) == (status, True)
    assert error.message.startswith(why)


@pytest.mark.parametrize("family", ["tcp", "unix"])
async def test_the_reply_of_an_endpoint_that_did_not_read_the_request_is_found(family: str, tmp_path: Path) -> None:
    """It answers by the header alone and closes, which resets the connection while the request is still written."""
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


async def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets the port
        error = await fails(f"127.0.0.1:{held.getsockname()[1]}")
    assert (error.reason, error.sent, error.message) == (Reason.UNREACHABLE, False, "connection refused")
    error = await fails(f"unix://{tmp_path}/none")
    assert (error.reason, error.sent, error.message) == (Reason.UNREACHABLE, False, "no such file or directory")


async def test_a_call_that_is_given_up_closes_its_connection() -> None:
    ended = asyncio.Event()
    began = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_packet(reader)
        began.set()
        await reader.read()
        ended.set()

    async with serving(handle) as address, connecting(address) as connector:
        call = asyncio.ensure_future(connector.exchange(ask("one")))
        await began.wait()
        call.cancel()
        await ended.wait()


async def test_what_nobody_asked_for_is_not_taken_for_a_reply() -> None:
    sent = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tag, text = await read_packet(reader)
        writer.write(packet(text.upper(), tag))
        await asyncio.sleep(0)
        writer.write(packet("surprise"))
        await writer.drain()
        sent.set()
        await reader.read()

    async with serving(handle) as address, connecting(address) as connector:
        for text in ("one", "two"):
            assert body_of(await connector.exchange(ask(text))) == text.upper()
            await sent.wait()
            sent.clear()


async def test_closing_fails_what_is_running_and_what_comes_after() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(handle) as address, connecting(address) as connector:
        call = asyncio.ensure_future(connector.exchange(ask("one")))
        await asyncio.wait({call}, timeout=0.05)
        await connector.close()
        with pytest.raises(TransportError, match="closed without a reply"):
            await call
        with pytest.raises(TransportError, match="the connector is closed"):
            await connector.exchange(ask("two"))
