"""A request takes as many function calls in the gateway beside many routes, backends and idle connections as beside
none. Their time is measured by `python -m tests.benchmarks.growth`."""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.runtime.process import COLLECT_AFTER
from tests.attacks.clients import post
from tests.attacks.probe import BODY, ECHOED
from tests.benchmarks.calls import Counts, _gateway, _in_thread, _nothing, _usual
from tests.benchmarks.growth.costs import configuration, wide_server
from tests.benchmarks.servers import own_address

ROUTES, BACKENDS, IDLE, IN_FLIGHT = 1000, 200, 500, 256


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        yield wide_server(Path(folder), stack)


def calls(server: str, routes: int, backends: int, model: int, idle: int = 0) -> tuple[int, int]:
    """Calls in Python and in C of one request to that model, beside so many idle connections."""
    address, found = own_address(), Counts()
    host, port = address.split(":")
    request = post(f"/v2/models/m{model}/infer", BODY)
    with _gateway(configuration(address, server, routes, backends)) as loop, ExitStack() as stack:
        for _ in range(idle):
            stack.enter_context(socket.create_connection((host, int(port)), 20))
        connection = stack.enter_context(socket.create_connection((host, int(port)), 20))

        def exchange() -> None:
            connection.sendall(request)
            reply = b""
            while ECHOED not in reply:
                reply += connection.recv(2**16)
                assert reply.startswith(b"HTTP/1.1 200 "), reply
            # In the next turn of the loop the request is over, with what follows the reply.
            _in_thread(loop, _nothing)

        for _ in range(50):
            exchange()
        return counted(loop, found, exchange)


def counted(loop: asyncio.AbstractEventLoop, found: Counts, exchange: Callable[[], None]) -> tuple[int, int]:
    _in_thread(loop, lambda: sys.setprofile(found.count))
    one = _usual(found, exchange)
    _in_thread(loop, lambda: sys.setprofile(None))
    return one.python, one.c


@pytest.fixture(scope="module")
def alone(server: str) -> tuple[int, int]:
    return calls(server, 1, 1, 0)


@pytest.mark.parametrize(
    ("routes", "backends", "idle"),
    [(ROUTES, 1, 0), (ROUTES, BACKENDS, 0), (1, 1, IDLE)],
    ids=["routes", "backends", "idle-connections"],
)
def test_a_request_takes_as_many_calls_beside_many(
    server: str, alone: tuple[int, int], routes: int, backends: int, idle: int
) -> None:
    assert calls(server, routes, backends, routes - 1, idle) == alone


def test_hundreds_of_requests_in_flight_begin_no_collection_of_garbage(server: str) -> None:
    """Each would look at what all connections have, too."""
    address, before = own_address(), gc.get_threshold()
    host, port = address.split(":")
    request, found = post("/v2/models/m0/infer", BODY), list[str]()

    def collecting(phase: str, facts: object) -> None:
        found.append(threading.current_thread().name)

    with _gateway(configuration(address, server, 1, 1)), ExitStack() as stack:
        connections = [stack.enter_context(socket.create_connection((host, int(port)), 20)) for _ in range(IN_FLIGHT)]

        def exchange() -> None:
            for each in connections:
                each.sendall(request)
            for each in connections:
                reply = b""
                while ECHOED not in reply:
                    reply += each.recv(2**16)
                    assert reply.startswith(b"HTTP/1.1 200 "), reply

        exchange()
        gc.set_threshold(COLLECT_AFTER, *before[1:])
        try:
            gc.collect()
            gc.callbacks.append(collecting)
            for _ in range(10):
                exchange()
        finally:
            gc.callbacks.remove(collecting)
            gc.set_threshold(*before)
    assert found == []
