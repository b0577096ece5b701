"""Measures the memory that remains after requests, and the memory that announced sizes use."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.attacks import hostile
from tests.attacks.attacked import MIB, Attacked, attacked_by
from tests.attacks.clients import INFER, WAYS
from tests.attacks.stalls import Figure
from tests.core.http2 import by_hand as http2
from tests.core.http2.conversation import OPENING, fields
from tests.limits import GENEROUS

LEFT = 150 * MIB
"""What failed requests may leave of all their bodies, which the allocator may keep for the next ones. It
is 6% of them: a body that is kept in one of 16 shows."""
SIZE = 8 * MIB
REQUESTS = 300


def leave(gateway: Attacked, way: str, model: str, requests: int) -> tuple[int, int]:
    """Bytes of memory more than before, after so many large requests on two connections; and at most."""
    with ExitStack() as stack:
        form = WAYS[way]
        connections = [stack.enter_context(form.connect(gateway.address(form.listener))) for _ in range(2)]
        request = form.request(model, bytes(SIZE))
        connections[0].call(form.request(model, bytes(16)))
        before = gateway.resident
        gateway.forget_peak()
        for at in range(requests):
            connections[at % 2].call(request)
        return gateway.resident - before, gateway.peak - before


CASES = [(way, model) for way in WAYS for model in ("dead", "unknown") if (way, model) != ("mip", "unknown")]


@pytest.mark.parametrize(("way", "model"), CASES)
def test_requests_that_fail_leave_nothing(gateway: Attacked, way: str, model: str, figure: Figure) -> None:
    left, peak = leave(gateway, way, model, REQUESTS)
    figure(f"{REQUESTS} x 8 MiB leave {left / MIB:.0f} MiB, peak {peak / MIB:.0f} MiB")
    assert peak < LEFT


def waiting(gateway: Attacked, listener: str, octets: bytes, count: int, until: Callable[[], object] = bool) -> int:
    """Bytes of memory more than before while so many connections have sent `octets` and wait; seen after `until`."""
    with ExitStack() as stack:
        for _ in range(5):  # what the first ones cost once
            stack.enter_context(socket.create_connection(gateway.address(listener))).sendall(octets[:4])
        gateway.look()
        gateway.forget_peak()
        before = gateway.resident
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(gateway.address(listener)))
            connection.sendall(octets)
        until()
        with WAYS["http"].connect(gateway.address("http")) as other:  # by its answer, the others have been read
            for _ in range(20):
                assert b" 404 " in other.call(WAYS["http"].request("unknown", b""))
        return gateway.peak - before


LARGE = 60 * MIB
ANNOUNCED = {
    "http": b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n." % LARGE,
    "mip": struct.pack("!4BL", 0, 2, 0, 0, LARGE) + b".",
    "brpc": struct.pack("!4s2L", b"PRPC", LARGE, 20) + b".",
    "grpc": OPENING + http2.head(*fields(INFER)) + http2.data(b"", size=LARGE),
}


@pytest.mark.parametrize("listener", ANNOUNCED)
def test_what_clients_announce_costs_nothing(gateway: Attacked, listener: str, figure: Figure) -> None:
    cost = waiting(gateway, listener, ANNOUNCED[listener], 50)
    figure(f"50 x {len(ANNOUNCED[listener])} bytes that announce 60 MiB cost {cost / MIB:.1f} MiB")
    assert cost < 30 * MIB


ANNOUNCED_BY_SERVER = threading.Semaphore(0)
"""Released with each reply that has begun."""


def announcing(request: Callable[[socket.socket], object], begin: bytes) -> hostile.Script:
    def script(connection: socket.socket) -> None:
        request(connection)
        connection.sendall(begin)
        ANNOUNCED_BY_SERVER.release()
        hostile.silent(connection)

    return script


def announce_over_grpc(connection: socket.socket) -> None:
    hostile.http2_opening(connection)
    while True:
        stream, message = hostile.http2_request(connection)
        if message == bytes(5):  # what extensions it has
            unimplemented = (b"grpc-status", b"12")
            connection.sendall(http2.head(http2.OK, http2.CONTENT_TYPE, unimplemented, end=True, stream=stream))
            continue
        connection.sendall(http2.head(http2.OK, http2.CONTENT_TYPE, stream=stream))
        connection.sendall(http2.data(b"", size=LARGE, stream=stream))
        ANNOUNCED_BY_SERVER.release()


ANNOUNCERS = {
    "v2-rest": (announcing(hostile.http_request, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n." % LARGE), 25),
    "v2-grpc": (announce_over_grpc, 25),
    "mip": (announcing(hostile.mip_request, struct.pack("!4BL", 0, 2, 1, 0, LARGE) + b"."), 25),
    "grps-brpc": (announcing(hostile.brpc_request, struct.pack("!4s2L", b"PRPC", LARGE, 20) + b"."), 1),
}


def announced(count: int) -> None:
    for _ in range(count):
        assert ANNOUNCED_BY_SERVER.acquire(timeout=GENEROUS)


@pytest.mark.parametrize("protocol", ANNOUNCERS)
def test_what_servers_announce_costs_nothing(tmp_path: Path, works: str, protocol: str, figure: Figure) -> None:
    script, count = ANNOUNCERS[protocol]
    more = "flavor: plain" if protocol == "v2-rest" else ""
    with attacked_by(script, protocol, tmp_path, works, more=more) as gateway:
        cost = waiting(gateway, "http", WAYS["http"].request("hostile", b"."), 25, lambda: announced(count))
    figure(f"25 replies that announce 60 MiB cost {cost / MIB:.1f} MiB")
    assert cost < 30 * MIB
