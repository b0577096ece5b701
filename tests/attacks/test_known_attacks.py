"""Idle connections, oversized bodies, decompression bombs, a killed server: the gateway keeps serving within its memory
limit."""

from __future__ import annotations

import resource
import signal
import socket
import threading
import time
import zlib
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.attacks.attacked import MIB, SCHEMES, Attacked, attacked, reference_process
from tests.attacks.clients import WAYS, Http, at_once, infer, post
from tests.attacks.stalls import Figure


@pytest.mark.parametrize(
    "octets", [b"", b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: a\r\nX"], ids=["idle", "half"]
)
def test_thousands_of_idle_connections_slow_nobody(gateway: Attacked, octets: bytes, figure: Figure) -> None:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(3000, limit - 500)
    with ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(gateway.address("http"))) for _ in range(count)]
        for connection in idle:
            connection.sendall(octets)
        gateway.beside()
        gateway.look()
        time.sleep(2)
        beside, seen = gateway.beside(), gateway.look()
        figure(
            f"{count}: stall {1e3 * seen.stall:.0f} ms, {beside.good} answered, longest {1e3 * beside.longest:.0f} ms"
        )
        assert not beside.failed
        assert seen.stall < 0.1
        if octets:
            deadline = time.monotonic() + 40
            while gateway.descriptors > 200 and time.monotonic() < deadline:
                time.sleep(1)
            assert gateway.descriptors < 200


def test_a_body_beyond_the_limit_is_refused_before_it_is_sent(gateway: Attacked) -> None:
    with Http(gateway.address("http")) as connection:
        head = b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % 2**30
        assert b" 413 " in connection.call(head)[:20]


KEPT = 50 * MIB
"""Memory that can remain after large requests, when the gateway has had time to return memory to the system."""


@pytest.mark.parametrize("way", ["http", "grpc-gzip", "brpc"])
def test_large_requests_at_once_give_their_memory_back(gateway: Attacked, way: str, figure: Figure) -> None:
    """Over grpc-gzip they inflate to more than they may, in threads, and are refused."""
    form = WAYS[way]
    request = form.request("identity", bytes(80 * MIB if way == "grpc-gzip" else 40 * MIB))
    model = form.request("identity", bytes(16))
    with form.connect(gateway.address(form.listener)) as connection:
        connection.call(model)
    before = gateway.resident
    gateway.forget_peak()
    for _ in range(2):
        at_once(6, lambda: ask(gateway, way, request))
    deadline = time.monotonic() + 20
    while (left := gateway.resident - before) > KEPT and time.monotonic() < deadline:
        time.sleep(0.1)
    peak = gateway.peak - before
    figure(f"6 x 40 MiB at once, twice: peak {peak / MIB:.0f} MiB, {left / MIB:.0f} MiB left")
    assert left < KEPT


def ask(gateway: Attacked, way: str, request: bytes) -> None:
    with WAYS[way].connect(gateway.address(WAYS[way].listener)) as connection:
        connection.call(request)


BOMB = 2**30


def bomb() -> bytes:
    """Return a compressed GiB of blanks."""
    packer = zlib.compressobj(9, wbits=31)
    return b"".join([*(packer.compress(b" " * MIB) for _ in range(BOMB // MIB)), packer.flush()])


def test_what_inflates_beyond_the_limit_is_refused(gateway: Attacked, figure: Figure) -> None:
    request = post("/v2/models/identity/infer", bomb(), "Content-Encoding: gzip")
    before = gateway.resident
    gateway.forget_peak()
    gateway.look()
    for _ in range(3):
        with Http(gateway.address("http")) as connection:
            assert b" 413 " in connection.call(request)[:20]
    peak, stall = gateway.peak - before, gateway.look().stall
    figure(f"1 MiB that inflates to 1 GiB: peak {peak / MIB:.0f} MiB, stall {1e3 * stall:.0f} ms")
    assert peak < 200 * MIB
    assert not gateway.beside().failed


TO_TWO = """
  - match: {model: two}
    backend: two
    rewrite: {model: identity}
    signature:
      inputs: [{name: x, datatype: UINT8, shape: [-1, -1]}]
      outputs: [{name: x, datatype: UINT8, shape: [-1, -1]}]
"""


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc", "grps-brpc"])
def test_of_two_servers_one_may_be_killed(tmp_path: Path, works: str, protocol: str, figure: Figure) -> None:
    """Only the calls in flight on this server fail."""
    with ExitStack() as stack:
        servers = [stack.enter_context(reference_process(tmp_path / f"server{at}", protocol)) for at in range(2)]
        endpoints = ", ".join(f'"{SCHEMES.get(protocol, "")}{address}"' for address, _ in servers)
        more = "flavor: plain" if protocol == "v2-rest" else ""
        backend = f"  two: {{protocol: {protocol}, endpoints: [{endpoints}], {more}}}\n"
        gateway = stack.enter_context(attacked(tmp_path, works, backends=backend, routes=TO_TWO))
        replies: list[bytes] = []
        killed = threading.Event()

        def client() -> None:
            with Http(gateway.address("http")) as connection:
                after = 0
                while after < 50:
                    after += killed.is_set()
                    replies.append(connection.call(infer("two", b"123"))[:15])

        threads = [threading.Thread(target=client) for _ in range(10)]
        for thread in threads:
            thread.start()
        while len(replies) < 300:
            time.sleep(0.01)
        servers[0][1].signal(signal.SIGKILL)
        killed.set()
        for thread in threads:
            thread.join()
    failed = [reply for reply in replies if b" 200 " not in reply]
    figure(f"{len(replies)} calls of 10 clients, {len(failed)} failed")
    assert len(failed) <= 10
