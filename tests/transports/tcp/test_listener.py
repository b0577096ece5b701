import asyncio
import os
import socket
import stat
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from gateway.core.address import Address
from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.protocol import HttpBinding, ListenerSettings, Protocol
from gateway.core.transport import Exchanges
from gateway.transports.tcp.listener import TcpListener
from gateway.transports.tcp.server_connection import MESSAGES_PER_TURN
from gateway.transports.timeouts import Timeouts
from tests.limits import until
from tests.transports.tcp.toy_protocol import (
    ORDERED,
    SMALL,
    TAGGED,
    PausedExchange,
    client,
    connected,
    exchanges,
    listening,
    packet,
    read_packet,
    reply,
    say_back,
    toy,
    unused,
)

BRIEF = Timeouts(grace=0.01)
PATIENT = Timeouts(grace=1000)


async def begun(listener: TcpListener) -> "asyncio.Task[int]":
    """A drain that has closed the listener's sockets."""
    assert listener._server is not None
    server, draining = listener._server, asyncio.ensure_future(listener.drain(1000))
    await until(lambda: not server.is_serving(), 0)
    return draining


async def test_draining_closes_idle_connections_and_lets_requests_in_flight_finish() -> None:
    paused = PausedExchange()
    async with (
        listening(paused, timeouts=BRIEF) as listener,
        connected(listener) as (idle, _),
        connected(listener) as (busy, writer),
    ):
        writer.write(packet("one"))
        await paused.requests.get()
        draining = asyncio.ensure_future(listener.drain(20))
        assert await idle.read() == b""
        assert not draining.done()
        paused.resume["one"].set()
        assert await busy.read() == packet("ONE")
        assert await draining == 0


async def test_a_message_that_arrives_on_an_idle_connection_while_draining_is_answered_and_the_last() -> None:
    async with listening(timeouts=PATIENT) as listener, connected(listener) as (reader, writer):
        writer.write(packet("one"))
        assert await read_packet(reader) == (0, "ONE")
        draining = await begun(listener)
        writer.write(packet("two"))
        assert await reader.read() == packet("TWO")
        writer.close()
        assert await draining == 0


async def test_new_requests_beside_those_in_flight_are_refused_while_draining() -> None:
    """Where replies carry a tag, the client knows which request was refused, and can send it elsewhere."""
    paused = PausedExchange()
    async with (
        listening(paused, framing=TAGGED, timeouts=Timeouts(grace=0.5)) as listener,
        connected(listener) as (reader, writer),
        connected(listener) as (idle, other),
    ):
        writer.write(packet("one", 1))
        await paused.requests.get()
        draining = await begun(listener)
        refused = "not-ready: the gateway is stopping []"
        for stream, out in ((reader, writer), (reader, writer), (idle, other)):
            out.write(packet("two", 2))
            assert await read_packet(stream) == (0, refused)
        assert await idle.read() == b""
        paused.resume["one"].set()
        assert (await read_packet(reader))[1] == "ONE"
        assert await reader.read() == b""
        writer.close()
        other.close()
        assert await draining == 0
        assert paused.requests.empty()


class Refusals:
    """The refusals of a listener, counted for each turn of the loop."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self._turn = 0
        self._next_turn()

    def _next_turn(self) -> None:
        self._turn += 1
        self._ticking = asyncio.get_running_loop().call_soon(self._next_turn)

    def __call__(self, error: GatewayError, protocol: Protocol, message: Message) -> Message:
        self.counts[self._turn] += 1
        return reply(error.reason.value)

    def stop(self) -> None:
        self._ticking.cancel()


async def test_a_flood_that_is_refused_is_refused_a_few_at_a_time() -> None:
    paused, refusals = PausedExchange(), Refusals()
    limits = replace(SMALL, connections=1)
    listener = TcpListener(ListenerSettings(limits=limits), [(toy(TAGGED), "")], Exchanges(paused, unused, refusals))
    await listener.start(Address("127.0.0.1", scheme="tcp"))
    flood, refused = packet("two", 2) * 5000, packet("not-ready")
    async with connected(listener) as (reader, writer):
        writer.write(packet("one", 1))
        await paused.requests.get()
        async with connected(listener) as (one_too_many, other):
            other.write(flood)
            assert refused * 32 <= await one_too_many.read()
        draining = await begun(listener)
        writer.write(flood)
        assert await reader.readexactly(len(refused) * 5000) == refused * 5000
        paused.resume["one"].set()
        assert (await read_packet(reader))[1] == "ONE"
        writer.close()
        assert await draining == 0
    refusals.stop()
    assert max(refusals.counts.values()) == MESSAGES_PER_TURN


async def test_a_client_that_goes_on_sending_though_it_is_refused_does_not_hold_up_the_end() -> None:
    async with (
        listening(framing=TAGGED, timeouts=Timeouts(grace=0.05, linger=0.05)) as listener,
        connected(listener) as (reader, writer),
    ):
        draining = await begun(listener)
        while not reader.at_eof():
            writer.write(packet("two", 2))
            await reader.read(1000)
        assert await draining == 0


async def test_a_connection_that_waits_to_be_accepted_is_served(tmp_path: Path) -> None:
    async with listening(timeouts=PATIENT, address=at(tmp_path / "s")) as listener:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))  # the loop has no turn before the drain has
            client.sendall(packet("one"))
            client.setblocking(False)
            draining = asyncio.ensure_future(listener.drain(1000))
            assert await asyncio.get_running_loop().sock_recv(client, 1000) == packet("ONE")
        assert await draining == 0


async def test_draining_lets_a_message_that_is_arriving_finish() -> None:
    async with listening(timeouts=PATIENT) as listener, connected(listener) as (reader, writer):
        writer.write(packet("one") + packet("two")[:10])
        assert await read_packet(reader) == (0, "ONE")
        draining = asyncio.ensure_future(listener.drain(20))
        await asyncio.sleep(0)
        writer.write(packet("two")[10:])
        assert await reader.read() == packet("TWO")
        writer.close()
        assert await draining == 0


async def test_draining_is_bounded() -> None:
    paused = PausedExchange()
    async with listening(paused) as listener, connected(listener) as (_, writer):
        writer.write(packet("one"))
        await paused.requests.get()
        assert await listener.drain(0.01) == 1
        await paused.cancelled.wait()


def at(path: Path) -> Address:
    return Address(path=str(path), scheme="unix")


async def test_a_unix_socket_is_for_user_and_group_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "toy.sock"
    async with listening(address=at(path)) as listener, connected(listener) as (reader, writer):
        assert listener.address == f"unix://{path}"
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        writer.write(packet("one"))
        assert await read_packet(reader) == (0, "ONE")
    assert not path.exists()


async def test_a_socket_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "toy.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    async with client(address=at(path)) as (reader, writer):
        writer.write(packet("one"))
        assert await read_packet(reader) == (0, "ONE")


async def test_a_socket_where_somebody_listens_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "toy.sock"
    async with listening(address=at(path)):
        with pytest.raises(OSError, match="Address already in use"):
            async with listening(address=at(path)):
                pass
        assert path.exists()


async def test_a_socket_of_a_busy_process_is_taken(tmp_path: Path) -> None:
    """So many clients wait to be accepted that no more can connect."""
    path = tmp_path / "toy.sock"
    with ExitStack() as open_sockets:
        busy = open_sockets.enter_context(socket.socket(socket.AF_UNIX))
        busy.bind(str(path))
        busy.listen(0)
        with suppress(BlockingIOError):
            while True:
                waiting = open_sockets.enter_context(socket.socket(socket.AF_UNIX))
                waiting.setblocking(False)
                waiting.connect(str(path))
        with pytest.raises(OSError, match="Address already in use"):
            async with listening(address=at(path)):
                pass


async def test_a_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "toy.sock"
    path.write_text("precious")
    with pytest.raises(OSError, match="not a socket"):
        async with listening(address=at(path)):
            pass
    assert path.read_text() == "precious"


async def test_a_folder_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        async with listening(address=at(tmp_path / "none" / "toy.sock")):
            pass


async def test_a_socket_file_that_another_process_replaced_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "toy.sock"
    async with listening(address=at(path)):
        path.unlink()
        with socket.socket(socket.AF_UNIX) as successor:
            successor.bind(str(path))
    assert path.exists()


async def test_clients_of_a_unix_socket_have_no_address(tmp_path: Path) -> None:
    peers: list[str] = []

    def note(message: object, protocol: object) -> object:
        peers.append(message.peer)  # type: ignore[attr-defined]
        return say_back(message, protocol)  # type: ignore[arg-type]

    async with client(note, address=at(tmp_path / "s")) as (reader, writer):  # type: ignore[arg-type]
        writer.write(packet("one"))
        await read_packet(reader)
    assert peers == [""]
    assert os.listdir(tmp_path) == []


def test_only_one_protocol_with_a_framing_is_accepted() -> None:
    no_framing = replace(toy(ORDERED), binding=HttpBinding())
    with pytest.raises(ValueError, match="toy has no framing"):
        TcpListener(ListenerSettings(), [(no_framing, "")], exchanges())
