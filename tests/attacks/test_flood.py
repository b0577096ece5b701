"""Clients send more requests than the gateway can answer, with load shedding."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.attacks.attacked import Attacked, attacked
from tests.attacks.clients import Http, post
from tests.attacks.probe import REQUEST
from tests.attacks.stalls import Figure
from tests.attacks.test_connections import health
from tests.limits import GENEROUS

CLIENTS = 60
SECONDS = 60.0
"""Maximum time until the gateway refuses requests of the flood."""
SHED = "\nlimits: {shed: {lag: 0.005}}"
LETTERS = ["a"] * 60_000
DOCUMENT = {"inputs": [{"name": "x", "datatype": "BYTES", "shape": [1, len(LETTERS)], "data": LETTERS}]}
HEAVY = post("/v2/models/identity/infer", json.dumps(DOCUMENT, separators=(",", ":")).encode())
"""The message that blocks the event loop longest (about 10 ms) among messages that are not decoded in a thread. With
it, a few clients overload every machine."""


async def client(address: tuple[str, int], is_over: asyncio.Event, seen: Counter[bytes]) -> None:
    """Sends one large request after the other, and connects again where it is refused."""
    while not is_over.is_set():
        with suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection(*address)
            try:
                while not is_over.is_set():
                    writer.write(HEAVY)
                    head = await reader.readuntil(b"\r\n\r\n")
                    seen[head[9:12]] += 1
                    lines = head.lower().split(b"\r\n")
                    await reader.readexactly(
                        sum(int(line[15:]) for line in lines if line.startswith(b"content-length"))
                    )
                    if b"connection: close" in lines:
                        await asyncio.sleep(0.1)
                        break
            finally:
                writer.close()


async def flood(gateway: Attacked) -> tuple[Counter[bytes], int]:
    """What the clients got until one was refused, and how often the liveness probe was answered meanwhile."""
    seen: Counter[bytes] = Counter()
    is_over = asyncio.Event()
    ends, probes = time.monotonic() + SECONDS, 0
    clients = asyncio.gather(*(client(gateway.address("http"), is_over, seen) for _ in range(CLIENTS)))
    while time.monotonic() < ends and not (seen[b"503"] and probes >= 5):
        probes += await asyncio.to_thread(health, gateway) == b"HTTP/1.1 200"
        await asyncio.sleep(0.05)
    is_over.set()
    await clients
    return seen, probes


def shedding(gateway: Attacked) -> dict[str, object]:
    with urlopen("http://{}:{}/status".format(*gateway.address("admin")), timeout=GENEROUS) as reply:
        found: dict[str, object] = json.load(reply)["shedding"]
    return found


@pytest.mark.alone
def test_a_flood_is_shed_and_the_gateway_recovers(tmp_path: Path, works: str, figure: Figure) -> None:
    with attacked(tmp_path, works, routes=SHED) as gateway:
        with Http(gateway.address("http")) as known:
            assert b" 200 " in known.call(REQUEST)
        seen, probes = asyncio.run(flood(gateway))
        refused = shedding(gateway)["refused"]
        figure(f"{seen[b'200']} answered, {seen[b'503']} refused ({refused} by the gateway), {probes} probes answered")
        ends = time.monotonic() + 20
        while shedding(gateway)["since"] is not None:
            assert time.monotonic() < ends, "it does not end"
        with Http(gateway.address("http")) as again:
            assert b" 200 " in again.call(REQUEST)
    assert seen[b"200"]
    assert seen[b"503"]
    assert probes >= 5
    assert "overloaded, refusing new connections: the event loop is " in gateway.log
    assert "no longer overloaded: " in gateway.log
    assert "Traceback" not in gateway.log
