"""Clients cancel calls while the gateway opens a connection to a server. After 8,000 such calls over each kind of
connection, no connections, descriptors or memory remain in use."""

import asyncio
import ctypes
import multiprocessing
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import uvloop

from gateway.transports.memory import resident_memory
from tests.descriptors import open_descriptors
from tests.limits import GENEROUS
from tests.tls.certificates import Authority, Files
from tests.transports.abandoning import MAKE, connections_left, connector_to, give_up, silent_server

CALLS = 8_000
ROUND = 1_000
WARM = 3_000
"""Calls after which the process has what it needs for itself."""
KEPT = 2
MOST_GROWTH = 5 * 2**20
"""In bytes, for what the allocator keeps. A connection that is never let go of takes 1.9 KB: 9.5 MB for 5,000 calls."""

NewLoop = Callable[[], asyncio.AbstractEventLoop]
Left = dict[str, float]


def kept_memory() -> int:
    """The resident memory without what is free, which a gateway returns to the system as well: hundreds of handshakes
    at once leave 16 MiB behind."""
    ctypes.CDLL(None).malloc_trim(0)
    return resident_memory()


async def load(wire: str, files: Files | None, port: int) -> Left:
    loop = asyncio.get_running_loop()
    begun, calls, warm = loop.time(), 0, 0
    connector, message = connector_to(wire, files, port)
    await give_up(connector, message, 1)
    before = open_descriptors()
    while calls < CALLS:
        await give_up(connector, message, ROUND)
        calls += ROUND
        if calls == WARM:
            connections_left()  # collects garbage
            warm = kept_memory()
    left = {
        "connections": connections_left(),
        "descriptors": open_descriptors() - before,
        "growth": kept_memory() - warm,
        "calls": calls,
        "seconds": loop.time() - begun,
        "closed": False,
    }
    with suppress(TimeoutError):
        async with asyncio.timeout(GENEROUS):
            await connector.close()
            left["closed"] = True
    return left


def run(new_loop: NewLoop, wire: str, files: Files | None, port: int) -> Left:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(load(wire, files, port))


def serve(wire: str, files: Files | None, told: Connection) -> None:
    async def until_told() -> None:
        async with silent_server(wire, files) as server:
            told.send(server.port)
            await asyncio.to_thread(told.poll, None)

    asyncio.run(until_told())


@pytest.mark.skipif(sys.platform != "linux", reason="memory and descriptors are read from /proc")
@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("wire", MAKE)
def test_connections_descriptors_and_memory_stay_flat(
    wire: str, is_tls: bool, new_loop: NewLoop, tmp_path: Path, figure: Callable[[str], None]
) -> None:
    files = Authority().issue(tmp_path, "localhost") if is_tls else None
    # Processes of their own: their memory has no history of other tests.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(wire, files, theirs), daemon=True)
    server.start()
    try:
        with ProcessPoolExecutor(1, mp_context=context) as processes:
            left = processes.submit(run, new_loop, wire, files, ours.recv()).result()
    finally:
        server.terminate()
        server.join()
    figure(
        f"{left['calls']} calls in {left['seconds']:.0f} s, {left['connections']} connections and "
        f"{left['descriptors']} descriptors left, {left['growth'] / 2**20:+.1f} MiB"
    )
    assert left["connections"] <= 2 * KEPT  # over TLS one of them is two objects
    assert left["descriptors"] <= KEPT
    assert left["growth"] < MOST_GROWTH
    assert left["closed"]
