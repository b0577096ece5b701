"""How `gateway serve` and `gateway reference` end: under load over every transport, with a backend that hangs, and at
a second signal; and what they print meanwhile."""

import asyncio
import http.client
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier

import grpc
import numpy as np
import pytest

from gateway.assembly.registry import protocols
from gateway.cli.stopping import Signals, is_started
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from tests.cli.commands import said, served, started, written
from tests.interop.processes import free_port
from tests.limits import GENEROUS, settle
from tests.paused_server import INFER, ask, get, held, port_of
from tests.peers.brpc_client import Call, Client

CONFIG = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
  - {name: mip, bind: "tcp://127.0.0.1:0", protocols: [mip], model: double}
  - {name: brpc, bind: "tcp://127.0.0.1:0", protocols: [grps-brpc]}
health: {bind: "127.0.0.1:0"}
reference:
  - {protocol: v2-grpc, bind: "127.0.0.1:BACKEND", models: [double, upper]}
backends:
  all: {protocol: v2-grpc, endpoints: ["127.0.0.1:BACKEND"]}
routes: [{match: {model: "*"}, backend: all}]
drain: {delay: DELAY}
"""
HANGING = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
health: {bind: "127.0.0.1:0"}
backends:
  lab: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:PORT"], policies: [{timeout: {seconds: 600}}]}
routes: [{match: {model: "*"}, backend: lab}]
"""
EACH = 4
"""Clients of each sort."""
BEFORE = 20
"""Calls of each client before the signal."""

Port = int

# Each client yields True for a call that was answered, and at last False: the server told it to go elsewhere, in a way
# that its protocol has. Whatever else happens to a call is an exception.


def on_kept_connection(port: Port) -> Iterator[bool]:
    """An HTTP client that makes a new connection when it is told that the old one closes."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=GENEROUS)
    while True:
        try:
            if client.sock is None:
                client.connect()
        except ConnectionRefusedError:
            yield False
            return
        client.request("GET", "/v2/models/double")
        reply = client.getresponse()
        assert reply.status == 200
        assert b"double" in reply.read()
        yield True


def new_connections(port: Port) -> Iterator[socket.socket]:
    """One after the other, until the server refuses them."""
    with suppress(ConnectionRefusedError):
        while True:
            with socket.create_connection(("127.0.0.1", port), 20) as sock:
                yield sock


def on_new_connections(port: Port) -> Iterator[bool]:
    """An HTTP client that makes a connection for every call."""
    for sock in new_connections(port):
        sock.sendall(get("/v2/models/double"))
        with sock.makefile("rb") as reply:
            assert b"double" in reply.read()
        yield True
    yield False


def over_mip(port: Port) -> Iterator[bool]:
    """A connection for every call, as the real client."""
    mip = protocols()["mip"]
    request = Request(Operation.INFER, "double", inputs=(tensor("x", np.ones((1, 1))),), protocol="v2-rest")
    sent = b"".join(mip.encode_request(request, Target(batch="split")).parts)
    for sock in new_connections(port):
        sock.sendall(sent)
        assert len(sock.recv(10_000)) > 20
        yield True
    yield False


def over_grpc(port: Port) -> Iterator[bool]:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelMetadata")
        while True:
            try:
                assert b"double" in call(b"\x0a\x06double", timeout=GENEROUS)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
                yield False
                return
            yield True


def over_brpc(port: Port) -> Iterator[bool]:
    """Several calls at once on one connection."""
    with Client(f"127.0.0.1:{port}") as client:
        while True:
            replies = client.exchange([Call({"model": "upper", "str_data": "x"})] * 3)
            codes = {reply.code for reply in replies}
            assert codes <= {0, 2003}, replies
            assert all(reply.message["str_data"] == "X" for reply in replies if not reply.code)
            if 2003 in codes:
                yield False
                return
            yield True


CLIENTS = {
    "http": (on_kept_connection, on_new_connections), "grpc": (over_grpc,), "mip": (over_mip,), "brpc": (over_brpc,)
}  # fmt: skip


def run(client: Iterator[bool], under_load: Barrier) -> int:
    """Call until the client is told to go; the number of calls that were answered."""
    for answered, is_served in enumerate(client):
        if not is_served:
            return answered
        if answered == BEFORE:
            under_load.wait(GENEROUS)
    raise AssertionError("a client ends only when it is told to")


@pytest.mark.long
@pytest.mark.parametrize("delay", [0, 1])
def test_no_call_is_lost_under_load(tmp_path: Path, delay: int) -> None:
    text = CONFIG.replace("BACKEND", str(free_port())).replace("DELAY", str(delay))
    with served(written(tmp_path, text)) as (process, ports), ThreadPoolExecutor(64) as pool:
        clients = [make(ports[name]) for name, makes in CLIENTS.items() for make in makes for _ in range(EACH)]
        under_load = Barrier(len(clients) + 1)
        calls = [pool.submit(run, client, under_load) for client in clients]
        under_load.wait(GENEROUS)
        process.send_signal(signal.SIGTERM)
        assert min(call.result() for call in calls) >= BEFORE
        assert process.wait(GENEROUS) == 0
        told = said(process, "ended")
    assert told[-1].endswith("INFO gateway.cli.stopping: ended; cancelled requests: 0\n")


STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def test_every_step_is_logged_with_time_and_level(tmp_path: Path) -> None:
    text = HANGING.replace("PORT", "1") + "drain: {delay: 0.01, timeout: 5}\n"
    with served(written(tmp_path, text)) as (process, ports):
        process.send_signal(signal.SIGTERM)
        assert process.wait(GENEROUS) == 0
        lines = said(process, "ended")
    expected = [
        r"gateway.cli.commands.serve: modelglot \S+ starts with \S+/gateway.yaml",
        rf"gateway.app: listener 'http' accepts v2-rest at 127.0.0.1:{ports['http']}",
        rf"gateway.app: health answers at 127.0.0.1:{ports['health']}",
        "gateway.cli.commands.serve: ready",
        "gateway.cli.stopping: SIGTERM received",
        "gateway.cli.stopping: draining: not ready, but accepting new requests for 0.01 s",
        "gateway.cli.stopping: draining: closed to new connections; requests in flight have 5 s",
        "gateway.cli.stopping: ended; cancelled requests: 0",
    ]
    assert len(lines) == len(expected), lines
    for line, text in zip(lines, expected, strict=True):
        assert re.fullmatch(f"{STAMP} INFO {text}\n", line), line


async def test_during_the_delay_it_is_not_ready_and_still_serves(tmp_path: Path) -> None:
    text = HANGING.replace("PORT", "1") + "ready: none\ndrain: {delay: 1000}\n"
    with served(written(tmp_path, text)) as (process, ports):
        assert (await ask(ports["health"], get("/readyz"))).startswith(b"HTTP/1.1 200")
        assert (await ask(ports["http"], get("/v2/health/ready"))).startswith(b"HTTP/1.1 200")
        process.send_signal(signal.SIGINT)
        await asyncio.to_thread(said, process, "draining: not ready")
        assert (await ask(ports["health"], get("/readyz"))).startswith(b"HTTP/1.1 503")
        assert (await ask(ports["health"], get("/healthz"))).startswith(b"HTTP/1.1 200")
        assert not (await ask(ports["http"], get("/v2/health/ready"))).startswith(b"HTTP/1.1 200")
        live = await ask(ports["http"], b"GET /v2/health/live HTTP/1.1\r\nHost: a\r\n\r\n")
        assert live.startswith(b"HTTP/1.1 200")
        assert b"Connection: close" in live
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait) == 0


@pytest.mark.long
async def test_requests_that_take_too_long_are_cancelled_and_counted(tmp_path: Path) -> None:
    async with held() as lab:
        text = HANGING.replace("PORT", str(lab.port)) + "drain: {timeout: 1}\n"
        with served(written(tmp_path, text)) as (process, ports):
            calls = [asyncio.ensure_future(ask(ports["http"], INFER)) for _ in range(3)]
            await lab.connected(3)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait) == 0
            assert await asyncio.gather(*calls, return_exceptions=True)
            told = said(process, "ended")
    assert told[-1].endswith("WARNING gateway.cli.stopping: ended; cancelled requests: 3\n")


async def test_a_second_signal_cancels_requests_in_flight(tmp_path: Path) -> None:
    async with held() as lab:
        with served(written(tmp_path, HANGING.replace("PORT", str(lab.port)))) as (process, ports):
            call = asyncio.ensure_future(ask(ports["http"], INFER))
            await lab.arrived.wait()
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(said, process, "closed to new connections")
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait) == 0
            with suppress(ConnectionError):
                assert await call == b""
            told = said(process, "ended")
    assert told[0].endswith("SIGTERM received again: ending immediately\n")
    assert told[-1].endswith("WARNING gateway.cli.stopping: ended; cancelled requests: 1\n")


ENDLESS = """
import threading


def endless(x):
    print("begun", flush=True)
    threading.Event().wait()
"""
COMPUTING = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
reference: [{protocol: v2-rest, bind: "127.0.0.1:BACKEND", models: ["own:endless"]}]
backends: {lab: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:BACKEND"]}}
routes: [{match: {model: "*"}, backend: lab}]
drain: {timeout: TIMEOUT}
"""


@pytest.mark.long
@pytest.mark.parametrize(("command", "signals"), [("serve", 1), ("serve", 2), ("reference", 2)])
def test_a_thread_that_does_not_end_does_not_keep_the_process_alive(tmp_path: Path, command: str, signals: int) -> None:
    """Threads cannot be stopped, whether they compute a model or decode a large message."""
    (tmp_path / "own.py").write_text(ENDLESS)
    text = COMPUTING.replace("BACKEND", str(free_port())).replace("TIMEOUT", "0.1" if signals == 1 else "1000")
    (tmp_path / "gateway.yaml").write_text(text)
    options = {
        "serve": ("--config", "gateway.yaml"),
        "reference": ("--protocol", "v2-rest", "--bind", "127.0.0.1:0", "--model", "own:endless"),
    }
    with started(command, *options[command], folder=tmp_path, stderr=subprocess.PIPE) as (process, printed):
        (address,) = (re.findall(r"127.0.0.1:\d+", line)[0] for line in printed if re.match("listener|v2-rest", line))
        with socket.create_connection(("127.0.0.1", port_of(address)), 20) as client:
            body = b'{"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [1]}]}'
            head = b"POST /v2/models/endless/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n"
            client.sendall(head % len(body) + body)
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(signal.SIGTERM)
            if signals == 2:
                said(process, "closed to new connections")
                process.send_signal(signal.SIGINT)
            assert process.wait(GENEROUS) == 0
            assert said(process, "ended")[-1].endswith("cancelled requests: 1\n")


@pytest.mark.long
async def test_sighup_does_not_end_a_reference_server() -> None:
    options = ("--protocol", "v2-rest", "--bind", "127.0.0.1:0", "--model", "double")
    with started("reference", *options, stderr=subprocess.PIPE) as (process, _):
        process.send_signal(signal.SIGHUP)
        line = said(process, "SIGHUP")[-1]
        assert re.fullmatch(f"{STAMP} WARNING .* SIGHUP ignored: this command has no configuration to reload\n", line)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait) == 0
        assert said(process, "ended")[-1].endswith("ended; cancelled requests: 0\n")


async def test_a_start_that_fails_while_it_is_cancelled_says_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gateway.cli")
    signals = Signals()

    async def start() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("the port is taken")

    starting = asyncio.ensure_future(is_started(start(), signals))
    await settle()
    signals.first.set()
    assert not await starting
    assert "the start failed during its cancellation: the port is taken" in caplog.messages
