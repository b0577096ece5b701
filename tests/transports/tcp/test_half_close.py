"""Clients that end their side of the connection after their requests: those that wait get every answer, those that have
left are noticed."""

import errno
import select
from types import SimpleNamespace

import pytest

from gateway.core.frozen import replace
from gateway.core.protocol import Framing
from gateway.transports import half_close
from tests.transports.raw_server import reset_connection
from tests.transports.tcp.toy_protocol import ORDERED, TAGGED, PausedExchange, client, packet

pytestmark = pytest.mark.skipif(not hasattr(select, "epoll"), reason="the system has no epoll")

both_framings = pytest.mark.parametrize("framing", [ORDERED, TAGGED], ids=["one by one", "tagged"])


@both_framings
async def test_a_request_that_is_answered_at_once_has_its_answer(framing: Framing) -> None:
    async with client(framing=framing) as (reader, writer):
        writer.write(packet("one", 1))
        writer.write_eof()
        assert await reader.read() == packet("ONE", 1)


@both_framings
async def test_a_request_whose_answer_takes_time_has_it_and_the_connection_ends_with_it(framing: Framing) -> None:
    paused = PausedExchange()
    async with client(paused, framing=framing) as (reader, writer):
        writer.write(packet("one", 1))
        writer.write_eof()
        assert await paused.requests.get() == "one"
        assert await reader.readexactly(1) == b"T"  # the client's end has been seen
        paused.resume["one"].set()
        assert b"T" + await reader.read() == packet("ONE", 1)


@pytest.mark.parametrize("count", [2, 100])
async def test_every_one_of_several_requests_has_its_answer(count: int) -> None:
    paused = PausedExchange()
    async with client(paused) as (reader, writer):
        writer.write(b"".join(packet(f"n{at}") for at in range(count)))
        writer.write_eof()
        for at in range(count):
            assert await paused.requests.get() == f"n{at}"
            paused.resume[f"n{at}"].set()
        assert await reader.read() == b"".join(packet(f"N{at}") for at in range(count))


async def test_answers_may_come_in_any_order() -> None:
    paused = PausedExchange()
    async with client(paused, framing=TAGGED) as (reader, writer):
        writer.write(packet("one", 1) + packet("two", 2))
        writer.write_eof()
        for _ in range(2):
            await paused.requests.get()
        assert await reader.readexactly(1) == b"T"
        paused.resume["two"].set()
        two = packet("TWO", 2)
        assert await reader.readexactly(len(two)) == two[1:] + b"T"
        paused.resume["one"].set()
        assert b"T" + await reader.read() == packet("ONE", 1)


async def test_a_request_that_is_not_whole_behind_a_whole_one_ends_the_connection() -> None:
    paused = PausedExchange()
    async with client(paused) as (reader, writer):
        writer.write(packet("one") + packet("two")[:-1])
        writer.write_eof()
        paused.resume[await paused.requests.get()].set()
        assert await reader.read() == packet("ONE")


async def test_a_client_that_waits_and_then_leaves_is_noticed() -> None:
    paused = PausedExchange()
    async with client(paused) as (reader, writer):
        writer.write(packet("one"))
        writer.write_eof()
        await paused.requests.get()
        assert await reader.readexactly(1) == b"T"
        assert not paused.cancelled.is_set()
        reset_connection(writer)
        await paused.cancelled.wait()


async def test_where_no_descriptor_is_left_to_wait_with_the_client_counts_as_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def none_left() -> select.epoll:
        raise OSError(errno.EMFILE, "Too many open files")

    paused = PausedExchange()
    async with client(paused) as (reader, writer):
        writer.write(packet("one"))
        await paused.requests.get()
        monkeypatch.setattr(half_close, "select", SimpleNamespace(epoll=none_left))
        writer.write_eof()
        assert await reader.read() == b""
        await paused.cancelled.wait()


async def test_without_a_first_byte_that_all_replies_have_the_client_counts_as_gone() -> None:
    paused = PausedExchange()
    async with client(paused, framing=replace(ORDERED, magic=b"")) as (reader, writer):
        writer.write(packet("one"))
        await paused.requests.get()
        writer.write_eof()
        assert await reader.read() == b""
        await paused.cancelled.wait()
