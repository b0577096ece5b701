"""More connections than there may be: those that are open work, new ones are refused in words."""

import asyncio
import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path

import grpc
import pytest

from gateway.client import AsyncClient, ClientError
from gateway.core.errors import GatewayError
from gateway.core.protocol import Limits
from gateway.runtime.app import Gateway
from gateway.transports import listener_connections, memory
from gateway.transports.lifecycle import ConnectionContext, Lifecycle
from gateway.transports.listener_connections import Admission, ConnectionLimit, ListenerConnections, reserve
from gateway.transports.timeouts import DEFAULT_TIMEOUTS
from tests.attacks.clients import Brpc, Connection, Grpc, Http, Mip, infer, message, tensor
from tests.interop.processes import free_port
from tests.limits import GENEROUS, until
from tests.paused_server import ask, get, port_of
from tests.running_gateway import running_gateway
from tests.test_loops import INFER

CONFIG = """
listeners: [{name: here, bind: "127.0.0.1:0", protocols: [PROTOCOL], model: m, limits: {connections: 2}}]
"""


BEGINNINGS = {
    **dict.fromkeys(
        ("umbridge", "v2-rest", "v1-rest", "graphpipe", "grps-rest"), b"HTTP/1.1 503 Service Unavailable\r\n"
    ),
    "v2-grpc": b"\0\0",
    "grps-grpc": b"\0\0",
    "mip": b"\0Enot-ready: ",
}


@pytest.mark.parametrize(("protocol", "beginning"), BEGINNINGS.items(), ids=BEGINNINGS)
async def test_one_too_many_is_told_so_in_the_words_of_the_protocol(
    protocol: str, beginning: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with full(protocol) as (gateway, port):
        for _ in range(3):
            reply = await ask(port, b"")
            assert beginning in reply[:40]
            assert b"the gateway has too many connections open" in reply
            if beginning.startswith(b"HTTP"):
                assert b"\r\nConnection: close\r\n" in reply
        assert gateway.state.status().listeners["here"].refused_connections >= 3
    lines = [each.getMessage() for each in caplog.records if "refuses connections" in each.getMessage()]
    assert lines == [
        "listener 'here' refuses connections: 2 are open; limits.connections of the listener (2) allows no more"
    ]
    shared = listener_connections.PROCESS_CONNECTIONS
    assert (shared.open, shared.being_refused) == (0, 0)


@asynccontextmanager
async def full(protocol: str, config: str = CONFIG) -> AsyncIterator[tuple[Gateway, int]]:
    """A gateway whose listener has as many connections open as it may have from one client, and its port. After it the
    listener accepts connections again."""
    async with running_gateway(config.replace("PROTOCOL", protocol)) as gateway:
        port = port_of(gateway.state.listeners["here"].address)
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        yield gateway, port
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        while b"too many" in await ask(port, get("/")):
            pass


async def refused(address: str, protocol: str) -> None:
    """A call over one connection too many fails in words."""
    async with AsyncClient(address, protocol=protocol) as client:
        with pytest.raises(ClientError, match="the gateway has too many connections open"):
            await client.ask(INFER)


async def test_one_too_many_over_brpc_has_its_request_refused() -> None:
    async with full("grps-brpc") as (gateway, _):
        await refused(gateway.state.listeners["here"].address, "grps-brpc")


async def test_one_too_many_over_grpc_is_no_connection_that_was_ready() -> None:
    """gRPC's clients connect again at once after one that was: it begins with SETTINGS. After one that failed they wait
    longer and longer."""
    async with full("v2-grpc") as (gateway, port):
        address = gateway.state.listeners["here"].address
        assert (await ask(port, b""))[3:9] == b"\x07\0\0\0\0\0"  # GOAWAY
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 60_000)]
        async with grpc.aio.insecure_channel(address, options) as channel:
            live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
            for _ in range(3):
                with pytest.raises(grpc.aio.AioRpcError) as failed:
                    await live(b"", timeout=GENEROUS)
                assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
        assert gateway.state.listeners["here"].refused_connections <= 3
        await refused(address, "v2-grpc")


PER_CLIENT = """
listeners: [{name: here, bind: "127.0.0.1:0", protocols: [PROTOCOL], model: m, limits: {connections_per_client: 2}}]
"""
PER_CLIENT_OF_ALL = """
limits: {connections_per_client: 2}
listeners: [{name: here, bind: "127.0.0.1:0", protocols: [PROTOCOL], model: m}]
"""


@pytest.mark.parametrize("config", [PER_CLIENT, PER_CLIENT_OF_ALL], ids=["listener", "all"])
@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "mip"])
async def test_a_client_with_too_many_connections_does_not_keep_others_out(
    protocol: str, config: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener_connections.PROCESS_CONNECTIONS.clients, "limit", None)
    async with full(protocol, config) as (gateway, port):
        for _ in range(2):
            assert b"this client has too many connections open" in await ask(port, b"")
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        if protocol == "v2-rest":
            writer.write(get("/v2/health/live"))
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()
        assert gateway.state.status().listeners["here"].refused_connections >= 2
    (line,) = [each.getMessage() for each in caplog.records if "refuses connections" in each.getMessage()]
    assert line.startswith("listener 'here' refuses connections of client 127.0.0.1: limits.connections_per_client ")
    assert not len(listener_connections.PROCESS_CONNECTIONS.clients)


class Idle:
    """A connection that does nothing."""

    unanswered = 0
    awaits_client = True

    def drain(self) -> None: ...
    def abort(self) -> None: ...
    def terminate(self) -> None: ...


def test_listeners_share_the_limit_of_the_process() -> None:
    shared = ConnectionLimit(3)
    first, second = ListenerConnections("a", None, shared), ListenerConnections("b", 2, shared)
    taken = [Idle() for _ in range(3)]
    seen = [each.admit(idle) for each, idle in zip((first, second, first), taken, strict=True)]
    assert seen == [Admission.ACCEPTED] * 3
    late = Idle()
    assert second.admit(late) is Admission.REFUSED
    assert (shared.open, shared.being_refused, second.refused, len(second)) == (3, 1, 1, 2)
    second.discard(late)
    second.discard(late)
    first.discard(taken[0])
    assert (shared.open, shared.being_refused) == (2, 0)
    assert second.admit(Idle()) is Admission.ACCEPTED
    assert second.admit(Idle()) is Admission.REFUSED


def test_clients_are_counted_by_address_and_forgotten_with_their_last_connection() -> None:
    shared = ConnectionLimit(100, per_client=2)
    here = ListenerConnections("a", None, shared)
    peers = ["[2001:db8::1]:1", "[2001:db8::2]:1", "[::ffff:10.0.0.1]:1", "10.0.0.1:2", "", "", ""]
    open_ones = [Idle() for _ in peers]
    for each, peer in zip(open_ones, peers, strict=True):
        assert here.admit(each, peer) is Admission.ACCEPTED
    for peer in ("[2001:db8::3]:1", "10.0.0.1:3"):
        late = Idle()
        assert here.admit(late, peer) is Admission.REFUSED
        here.discard(late)
    last = Idle()
    assert here.admit(last, "[2001:db8:0:1::1]:1") is Admission.ACCEPTED
    assert len(shared.clients) == 3
    for each in (*open_ones, last):
        here.discard(each)
    assert not len(shared.clients)


async def test_a_connection_whose_end_the_loop_never_reports_does_not_hold_the_end_of_its_listener(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener_connections, "LOST_SECONDS", 0.01)
    shared = ConnectionLimit(1)
    here = ListenerConnections("a", None, shared)
    assert here.admit(Idle()) is Admission.ACCEPTED  # its `terminate` has no effect
    assert await asyncio.wait_for(here.end(0), GENEROUS) == 0
    assert (len(here), shared.open) == (0, 0)


class LostTransport(asyncio.Transport):
    """The loop has closed it, and reports this to nobody."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


class LostConnection(Lifecycle):
    unanswered = 0

    def reject(self, error: GatewayError) -> None: ...
    def proceed(self) -> None: ...


async def test_an_idle_connection_whose_end_the_loop_never_reports_counts_no_longer() -> None:
    here = ListenerConnections("a")
    lost = LostConnection(ConnectionContext(Limits(), DEFAULT_TIMEOUTS, here))
    lost.connection_made(LostTransport())
    assert len(here) == 1
    lost.expire()
    assert len(here) == 0


def test_a_flood_is_not_told_one_by_one() -> None:
    """Being told takes a descriptor for a while, of which only the reserve is left."""
    shared = ConnectionLimit(0)
    here = ListenerConnections("a", None, shared)
    seen = [here.admit(Idle()) for _ in range(shared.max_being_refused + 5)]
    assert seen == [Admission.REFUSED] * shared.max_being_refused + [Admission.DROPPED] * 5


@pytest.mark.parametrize(
    ("available", "configured", "limit"), [(256, 10_000, 192), (256, 100, 100), (20_000, 10_000, 10_000), (32, 5, 1)]
)
def test_the_limit_is_what_the_descriptors_leave(
    available: int, configured: int, limit: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener_connections, "descriptors", lambda: available)
    shared = ConnectionLimit(1)
    shared.fit(configured)
    assert shared.limit == limit
    warned = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert bool(warned) == (limit < configured)
    assert reserve(available) >= 64


async def test_the_memory_of_messages_is_configured() -> None:
    text = CONFIG.replace("PROTOCOL", "umbridge")
    for line, limit in (("limits: {memory: 1000000}", 1_000_000), ("", memory.default_limit())):
        async with running_gateway(f"{text}\n{line}"):
            assert memory.PROCESS_MEMORY.limit == limit


SMALL_SHARES = """
limits: {memory_per_client: 200000}
listeners:
  - {name: v2-rest, bind: "127.0.0.1:0", protocols: [v2-rest]}
  - {name: v2-grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
  - {name: mip, bind: "tcp://127.0.0.1:0", protocols: [mip], model: m}
  - {name: grps-brpc, bind: "tcp://127.0.0.1:0", protocols: [grps-brpc]}
"""
BEGUN = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + bytes(99_000)
LARGE: dict[str, tuple[Callable[[tuple[str, int]], Connection], bytes]] = {
    "v2-rest": (Http, infer("m", bytes(150_000))),
    "v2-grpc": (Grpc, message("v2-grpc", "m", tensor(bytes(150_000)))),
    "mip": (Mip, message("mip", "m", tensor(bytes(150_000)))),
    "grps-brpc": (Brpc, message("grps-brpc", "m", tensor(bytes(150_000)))),
}


async def test_a_body_beyond_the_share_of_a_client_is_refused_in_every_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another client, with a share of its own, is served."""
    monkeypatch.setattr(memory.PROCESS_MEMORY, "per_client", None)
    async with running_gateway(SMALL_SHARES) as gateway:
        addresses = {name: listener.address for name, listener in gateway.state.listeners.items()}
        port = port_of(addresses["v2-rest"])
        _, held = await asyncio.open_connection("127.0.0.1", port)
        held.write(BEGUN)
        shared = memory.PROCESS_MEMORY.of_client("127.0.0.1:1")
        await until(lambda: shared.used >= 99_000, 0)
        for name, (connect, request) in LARGE.items():
            with connect(("127.0.0.1", port_of(addresses[name]))) as connection:
                assert b"the messages of this client hold" in await asyncio.to_thread(connection.call, request)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
        writer.write(BEGUN + bytes(1000))
        assert b" 400 " in await reader.readuntil(b"\r\n")
        writer.close()
        held.close()


SERVED = """
listeners: [{name: here, bind: "127.0.0.1:HTTP", protocols: [v2-rest]}]
health: {bind: "127.0.0.1:HEALTH"}
"""
FEW_DESCRIPTORS = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 256))
os.execv(sys.executable, [sys.executable, "-m", "gateway", *sys.argv[1:]])
"""
"""A program that becomes a gateway with 256 descriptors at most. The test itself may not run code between fork and
exec, since gRPC's threads of another test can be in the process."""


@contextmanager
def serving(path: Path) -> Iterator[tuple[int, int, Path]]:
    ports = free_port(), free_port()
    config, log = path / "gateway.yaml", path / "log"
    config.write_text(SERVED.replace("HTTP", str(ports[0])).replace("HEALTH", str(ports[1])))
    with log.open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", FEW_DESCRIPTORS, "serve", "--config", str(config)],
            stdout=subprocess.PIPE,
            stderr=errors,
        )
        assert process.stdout is not None
        try:
            assert b"ready\n" in iter(process.stdout.readline, b"")
            yield ports[0], ports[1], log
        finally:
            process.send_signal(signal.SIGTERM)
            process.stdout.close()
            process.wait(GENEROUS)


def asked(connection: socket.socket, path: str) -> bytes:
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return connection.recv(4096)


def test_600_connections_with_256_descriptors(tmp_path: Path) -> None:
    """Open ones work, new ones are refused with words or closed, the health port answers, and the log has a line."""
    with serving(tmp_path) as (port, health, log), ExitStack() as stack:
        address = ("127.0.0.1", port)
        opened = [stack.enter_context(socket.create_connection(address, timeout=GENEROUS)) for _ in range(600)]
        for connection in opened[:192]:
            assert asked(connection, "/v2/health/live").startswith(b"HTTP/1.1 200 ")
        for path in ("/healthz", "/readyz"):
            with socket.create_connection(("127.0.0.1", health), timeout=GENEROUS) as probe:
                assert asked(probe, path).startswith(b"HTTP/1.1 200 ")
        told = 0
        for connection in opened[192:]:
            with suppress(ConnectionError):
                told += b"the gateway has too many connections open" in connection.recv(4096)
        assert told >= 10
        for connection in opened:
            connection.close()
        ends = time.monotonic() + GENEROUS
        while time.monotonic() < ends:
            with socket.create_connection(address, timeout=GENEROUS) as again:
                if asked(again, "/v2/health/live").startswith(b"HTTP/1.1 200 "):
                    break
        else:
            pytest.fail("no connection is taken after all others were closed")
        text = log.read_text()
    assert text.count("refuses connections") == 1
    assert "limits.connections is 10000, but the process can open only 256 files, so it accepts 192 connections" in text
    assert "Traceback" not in text
