"""The server of the admin applications."""

import asyncio
import signal
import socket
from contextlib import suppress
from typing import Any

import pytest

from gateway.admin import server as admin_server
from gateway.admin.server import AdminServer
from gateway.admin.status import application
from gateway.core.address import Address
from gateway.core.tasks import spawn
from gateway.transports.timeouts import Timeouts
from tests.admin.served import served
from tests.admin.test_status import STATUS
from tests.descriptors import listening_ports
from tests.limits import GENEROUS
from tests.paused_server import ask, get, port_of

_POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n123456123"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_it_serves_from_start_to_stop(host: str) -> None:
    server = AdminServer(application(lambda: STATUS))
    await server.start(Address(host, 0))
    port = port_of(server.address)
    assert server.address == str(Address(host, port))
    if host == "127.0.0.1":
        assert (await ask(port, get("/status"))).startswith(b"HTTP/1.1 200 ")
    assert port in listening_ports()
    await server.stop()
    assert port not in listening_ports()


async def test_it_leaves_signals_alone() -> None:
    before = signal.getsignal(signal.SIGTERM)
    async with served(application(lambda: STATUS)):
        assert signal.getsignal(signal.SIGTERM) is before


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
    async with served(application(lambda: STATUS)) as here, asyncio.timeout(GENEROUS):
        with suppress(ConnectionError):
            await ask(here.port, sent)


async def answer(send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def reading(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers when the body is there."""
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] != "http.disconnect":
        await answer(send)


@pytest.mark.parametrize("rest", [_POST, _POST[9:], b"123"])
async def test_a_request_takes_the_place_of_the_oldest_connection_that_waits_for_its_client(
    rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_server, "PORT_CONNECTIONS", 2)
    async with served(reading) as here, asyncio.timeout(GENEROUS):
        held = [await asyncio.open_connection("127.0.0.1", here.port) for _ in range(2)]
        for _, writer in held:
            writer.write(_POST.removesuffix(rest))
        assert (await here.get("/"))[0] == 200
        (oldest, _), (newest, kept) = held
        with suppress(ConnectionResetError):
            assert await oldest.read() == b""
        kept.write(rest)
        assert (await newest.readline()).startswith(b"HTTP/1.1 200 ")
        for _, writer in held:
            writer.close()


async def test_requests_that_are_being_answered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_server, "PORT_CONNECTIONS", 2)
    begun, answered = asyncio.Semaphore(0), asyncio.Event()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        begun.release()
        await answered.wait()
        await answer(send)

    async with served(slow) as here, asyncio.timeout(GENEROUS):
        asked = [spawn(here.get("/")) for _ in range(2)]
        for _ in asked:
            await begun.acquire()
        assert await here.get("/") == (503, "too many requests are served\n")
        answered.set()
        assert [status for status, _ in await asyncio.gather(*asked)] == [200, 200]


async def test_a_client_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_server, "PORT_TIMEOUTS", Timeouts(first_byte=0.05))
    async with served(application(lambda: STATUS)) as here, asyncio.timeout(admin_server.CONNECTION_SECONDS / 2):
        with suppress(ConnectionError):
            assert await ask(here.port, b"") == b""
