"""The server of the admin applications."""

import asyncio
import signal
import socket
from contextlib import suppress

import pytest

from gateway.admin import server as admin_server
from gateway.admin.server import AdminServer
from gateway.admin.status import application
from gateway.core.address import Address
from tests.admin.test_status import STATUS
from tests.limits import GENEROUS
from tests.paused_server import ask, get, port_of


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_it_serves_from_start_to_stop(host: str) -> None:
    server = AdminServer(application(lambda: STATUS))
    await server.start(Address(host, 0))
    port = port_of(server.address)
    assert server.address == str(Address(host, port))
    if host == "127.0.0.1":
        assert (await ask(port, get("/status"))).startswith(b"HTTP/1.1 200 ")
    await server.stop()
    with pytest.raises(ConnectionRefusedError), socket.create_connection((host, port)):
        pass


async def test_it_leaves_signals_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    server = AdminServer(application(lambda: STATUS))
    await server.start(Address("127.0.0.1", 0))
    assert signal.getsignal(signal.SIGTERM) is before
    await server.stop()


async def test_an_address_in_use_raises_oserror_and_does_not_end_the_process() -> None:
    server = AdminServer(application(lambda: STATUS))
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        await server.start(Address("127.0.0.1", taken.getsockname()[1]))
    await server.stop()


@pytest.mark.parametrize(
    "sent", [b"", b"GET /sta", b"POST /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"]
)
async def test_idle_and_trickling_connections_end(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_server, "CONNECTION_SECONDS", 0.05)
    server = AdminServer(application(lambda: STATUS))
    await server.start(Address("127.0.0.1", 0))
    try:
        async with asyncio.timeout(GENEROUS):
            with suppress(ConnectionError):
                await ask(port_of(server.address), sent)
    finally:
        await server.stop()


async def test_one_connection_too_many_is_answered_503_and_the_next_one_after_a_close_is_served() -> None:
    server = AdminServer(application(lambda: STATUS))
    await server.start(Address("127.0.0.1", 0))
    port = port_of(server.address)
    try:
        async with asyncio.timeout(GENEROUS):
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(admin_server.MAX_CONNECTIONS - 1)]
            assert (await ask(port, get("/status"))).startswith(b"HTTP/1.1 200 ")
            idle.append(await asyncio.open_connection("127.0.0.1", port))
            assert (await ask(port, get("/status"))).startswith(b"HTTP/1.1 503 ")
            for _, writer in idle:
                writer.close()
                await writer.wait_closed()
            while not (await ask(port, get("/status"))).startswith(b"HTTP/1.1 200 "):
                pass
    finally:
        await server.stop()
