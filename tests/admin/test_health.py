"""The health port."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from gateway.admin import health
from gateway.admin.health import HealthServer
from gateway.core.address import Address
from gateway.core.tasks import spawn
from gateway.transports.timeouts import PORT_TIMEOUTS, Timeouts
from tests.limits import GENEROUS
from tests.paused_server import ask, get, port_of


@asynccontextmanager
async def serving(
    is_accepting: Callable[[], bool] = lambda: True,
    backends_ready: Callable[[], Awaitable[bool]] | None = None,
    timeouts: Timeouts = PORT_TIMEOUTS,
) -> AsyncIterator[int]:
    server = HealthServer(is_accepting, backends_ready, timeouts=timeouts)
    await server.start(Address("127.0.0.1", 0))
    try:
        yield port_of(server.address)
    finally:
        await server.stop()


async def get_text(port: int, path: str) -> tuple[int, str]:
    head, _, body = (await ask(port, get(path))).decode().partition("\r\n\r\n")
    return int(head.split(" ")[1]), body


_WITH_BODY = b"GET /healthz HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n123456789"


def probe(port: int, path: str) -> bytes:
    """A blocking request, as kubelet sends it: the event loop of this thread does not run meanwhile."""
    with socket.create_connection(("127.0.0.1", port), timeout=GENEROUS) as connection:
        connection.sendall(get(path))
        return connection.recv(1000)


@pytest.mark.usefixtures("patient_readyz")
async def test_it_says_whether_the_process_is_alive_and_accepts_requests() -> None:
    states = [False, True]

    async def ready() -> bool:
        return states.pop(0)

    async with serving(backends_ready=ready) as port:
        assert await get_text(port, "/healthz") == (200, "ok")
        assert await get_text(port, "/readyz") == (503, "not ready")
        assert await get_text(port, "/readyz") == (200, "ready")


async def test_other_paths_and_methods_are_refused() -> None:
    async with serving() as port:
        assert [(await get_text(port, path))[0] for path in ("/", "/docs", "/openapi.json", "/status")] == [404] * 4
        assert b" 405 " in await ask(port, get("/healthz").replace(b"GET", b"DELETE"))
        assert b" 200 " in await ask(port, get("/healthz").replace(b"GET", b"HEAD"))


async def test_a_busy_event_loop_fails_no_probe() -> None:
    """The main event loop is blocked during the whole test."""
    async with serving() as port:
        assert probe(port, "/healthz").endswith(b"\r\n\r\nok")
        assert probe(port, "/readyz").endswith(b"\r\n\r\nready")


async def test_an_event_loop_blocked_for_long_fails_both_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as port:
        monkeypatch.setattr(health, "STALLED_SECONDS", -1.0)
        assert b" 503 " in probe(port, "/healthz")
        assert b" 503 " in probe(port, "/readyz")


async def test_while_the_event_loop_is_busy_the_last_readiness_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ready() -> bool:
        return True

    monkeypatch.setattr(health, "ANSWER_SECONDS", 0.01)
    async with serving(backends_ready=ready) as port:
        assert b" 503 " in probe(port, "/readyz")  # there is no earlier result
        async with asyncio.timeout(GENEROUS):
            while await get_text(port, "/readyz") != (200, "ready"):
                pass
        assert b" 200 " in probe(port, "/readyz")
        monkeypatch.setattr(health, "LAST_RESULT_SECONDS", -1.0)
        assert b" 503 " in probe(port, "/readyz")


@pytest.mark.usefixtures("patient_readyz")
async def test_the_announced_end_shows_at_once() -> None:
    is_up = True

    async def ready() -> bool:
        return True

    async with serving(lambda: is_up, ready) as port:
        assert await get_text(port, "/readyz") == (200, "ready")
        is_up = False
        assert b" 503 " in probe(port, "/readyz")
        assert b" 200 " in probe(port, "/healthz")


async def test_idle_and_trickling_connections_are_closed() -> None:
    async with serving(timeouts=Timeouts(head=0.05, first_byte=0.5, linger=0.05)) as port:
        assert await ask(port, b"") == b""
        assert b" 408 " in await ask(port, b"GET /hea")


@pytest.mark.parametrize("rest", [get("/healthz"), get("/healthz")[9:], b"123456789"])
async def test_a_probe_takes_the_place_of_the_oldest_connection_that_waits_for_its_client(
    rest: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(health, "PORT_CONNECTIONS", 2)
    async with serving() as port, asyncio.timeout(GENEROUS):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        whole = _WITH_BODY if rest.isdigit() else get("/healthz")
        for _, writer in held:
            writer.write(whole.removesuffix(rest))
        assert b" 200 " in await ask(port, get("/healthz"))
        (oldest, _), (newest, kept) = held
        with suppress(ConnectionResetError):
            assert await oldest.read() == b""
        kept.write(rest)
        assert b" 200 " in await newest.readline()
        for _, writer in held:
            writer.close()
    assert [each.getMessage() for each in caplog.records if "wait for their clients" in each.getMessage()] != []


@pytest.mark.usefixtures("patient_readyz")
async def test_a_connection_whose_request_is_being_answered_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "PORT_CONNECTIONS", 1)
    asked, answered = asyncio.Event(), asyncio.Event()

    async def ready() -> bool:
        asked.set()
        return await answered.wait()

    async with serving(backends_ready=ready) as port, asyncio.timeout(GENEROUS):
        first = spawn(ask(port, get("/readyz")))
        await asked.wait()
        assert b" 503 " in await ask(port, get("/healthz"))
        answered.set()
        assert b" 200 " in await first


async def test_an_address_in_use_raises_oserror() -> None:
    server = HealthServer(lambda: True, None)
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        await server.start(Address("127.0.0.1", taken.getsockname()[1]))
