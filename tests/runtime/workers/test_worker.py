"""A worker in this process, at the other end of the supervisor's channel."""

import asyncio
import pickle
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.runtime.workers import worker as module
from gateway.runtime.workers.channel import Channel
from gateway.runtime.workers.worker import Worker
from tests.interop.processes import free_port
from tests.limits import GENEROUS, until
from tests.paused_server import INFER, Held, ask, get, held
from tests.running_gateway import config_of

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:PORT", protocols: [v2-rest]}]
backends: {lab: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:BACKEND"]}}
routes: [{match: {model: m}, backend: lab MORE}]
"""


LAST = INFER.replace(b"Host: a", b"Host: a\r\nConnection: close")


class Lab:
    """A worker, and what its supervisor has heard of it."""

    def __init__(self) -> None:
        self.left: list[int] = []
        self.ended = asyncio.Event()
        handlers: dict[str, Callable[..., Any]] = {"leave": self.left.append, "learned": lambda *_: None}
        self.channel = Channel(handlers, lambda: None)
        self.port = free_port()

    def pickled(self, backend: int = 1, port: int = 0, more: str = "") -> bytes:
        """A configuration, with the listener at the worker's port or another one."""
        text = CONFIG.replace("PORT", str(port or self.port)).replace("BACKEND", str(backend)).replace("MORE", more)
        return pickle.dumps(config_of(text))

    async def start(self, server: Held | None = None, more: str = "") -> None:
        config = self.pickled(server.port if server else 1, more=more)
        error, addresses, _ = await self.channel.ask("start", config, 1, False, [])
        assert (error, addresses) == ("", {"http": f"127.0.0.1:{self.port}"})


@asynccontextmanager
async def lab(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    here = Lab()
    monkeypatch.setattr(module, "end_process", here.ended.set)
    monkeypatch.setattr(module, "log_to_stderr", lambda config: None)  # pytest's log is that of this process
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    worker = Worker()
    serving = asyncio.ensure_future(worker.serve(theirs))
    await asyncio.get_running_loop().create_unix_connection(lambda: here.channel, sock=ours)
    try:
        async with asyncio.timeout(GENEROUS):
            yield here
    finally:
        if worker._gateway is not None:
            await worker.gateway.drain(0)
        here.channel.close()
        await here.ended.wait()
        serving.cancel()


async def test_a_worker_tells_why_it_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with lab(monkeypatch) as here:
            error, *bound = await here.channel.ask("start", here.pickled(port=port), 1, False, [])
    assert (error, bound) == (f"listener 'http': cannot bind 127.0.0.1:{port}: Address already in use", [{}, []])


async def test_news_before_the_start_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async with lab(monkeypatch) as here:
        here.channel.tell("learn", "lab", "127.0.0.1:1", "note_failure", ["refused"], {"unreachable": True})
        here.channel.tell("lists_others", "lab")
        assert await here.channel.ask("clear_caches", "") is None
        assert await here.channel.ask("has_calls", "v2-rest", "127.0.0.1:1") is False
        await here.start()
        here.channel.tell("learn", "gone", "127.0.0.1:1", "note_failure", ["refused"], {"unreachable": True})
        here.channel.tell("lists_others", "gone")  # of a backend that a reload has removed
        assert b"200 OK" in await ask(here.port, get("/v2/health/live"))


async def test_a_reload_that_fails_changes_nothing_and_its_slots_are_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with held() as server, lab(monkeypatch) as here:
        server.release.set()
        await here.start(server)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            why = await here.channel.ask("reload", here.pickled(port=port), 2)
        assert why == f"listener 'http': cannot bind 127.0.0.1:{port}: Address already in use"
        assert set(here.left) == {2}
        assert b"200 OK" in await ask(here.port, LAST)


async def test_a_rate_limit_that_the_supervisor_does_not_answer_holds_in_the_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with held() as server, lab(monkeypatch) as here:
        server.release.set()
        await here.start(server, ", policies: [{rate_limit: {requests: 1, seconds: 1000}}]")
        found = [(await ask(here.port, LAST)).split(b"\r\n")[0] for _ in range(2)]
    assert found == [b"HTTP/1.1 200 OK", b"HTTP/1.1 429 Too Many Requests"]


async def test_a_second_drain_with_less_time_replaces_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async with held() as server, lab(monkeypatch) as here:
        await here.start(server)
        call = asyncio.ensure_future(ask(here.port, INFER))
        await server.arrived.wait()
        assert await here.channel.ask("has_calls", "v2-rest", f"127.0.0.1:{server.port}") is True
        first = here.channel.ask("drain", GENEROUS)
        second = here.channel.ask("drain", 0.0)
        assert [await first, await second] == [0, 1]
        await call


async def test_a_worker_ends_with_its_supervisor(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with lab(monkeypatch) as here:
        await here.start()
        here.channel.close()
        await until(here.ended.is_set, 0)
    assert "the supervisor has ended; this worker ends, too" in caplog.text
