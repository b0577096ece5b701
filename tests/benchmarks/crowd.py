"""What many idle and slow connections cost a fast client: its p99 with them by its p99 without, at the gateway and at
nginx before the same model server, in turns.

`python -m tests.benchmarks.crowd HOST:PORT` is the crowd, a process of its own: it prints a line once all of it is
connected, and leaves with its standard input; then it prints how many of its connections were closed meanwhile.
"""

from __future__ import annotations

import asyncio
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

import uvloop

from tests.attacks.attacked import reference
from tests.attacks.clients import post
from tests.attacks.probe import BODY
from tests.benchmarks.load import Load
from tests.benchmarks.measure import Generator, generator
from tests.interop.processes import Process, free_port, start_gateway
from tests.peers.build import ROOT

IDLE, SLOW = 5000, 500
TITLE = f"p99 of a fast client beside {IDLE:,} idle and {SLOW} slow connections"
AIM = 1.2
"""The gateway's ratio by nginx's."""
REQUESTS = 3000
ROUNDS = 7
BATCH = 200
"""Connections that are opened at once."""

GATEWAY = """
listeners: [{{name: http, bind: "{address}", protocols: [v2-rest]}}]
backends: {{works: {{protocol: v2-rest, flavor: plain, endpoints: ["{server}"]}}}}
routes: [{{match: {{model: "*"}}, backend: works}}]
"""
NGINX = """
daemon off; master_process off; worker_processes 1; worker_rlimit_nofile 16384;
pid {folder}/pid; error_log stderr;
events {{ worker_connections 8192; }}
http {{
  access_log off; keepalive_requests 1000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream works {{ server {server}; keepalive 32; keepalive_requests 1000000; }}
  server {{
    listen {address} backlog=2048;
    location / {{ proxy_pass http://works; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""
REQUEST = post("/v2/models/identity/infer", BODY)


@dataclass(frozen=True)
class Moved:
    """A fast client's p99 in microseconds, alone and beside the crowd; of the rounds the best, since the machine is not
    alone."""

    alone: float
    beside: float

    @property
    def ratio(self) -> float:
        return self.beside / self.alone


@dataclass(frozen=True)
class Crowded:
    gateway: Moved
    nginx: Moved | None
    """None where nginx is not installed."""

    def shown(self) -> str:
        lines = [f"{TITLE}, us{'':8}{'alone':>10}{'beside':>10}{'ratio':>8}", _row("gateway", self.gateway)]
        if self.nginx is None:
            return "\n".join([*lines, "nginx: not installed"])
        by_nginx = self.gateway.ratio / self.nginx.ratio
        return "\n".join([*lines, _row("nginx", self.nginx), f"gateway by nginx: {by_nginx:.2f}; aim {AIM}"])


def _row(name: str, moved: Moved) -> str:
    return f"{name:72}{moved.alone:12.0f}{moved.beside:10.0f}{moved.ratio:8.2f}"


def measure(folder: Path) -> Crowded:
    """Raises AssertionError if a server closes connections of the crowd."""
    with ExitStack() as stack:
        server = stack.enter_context(reference(folder / "server", "v2-rest"))
        addresses = {"gateway": f"127.0.0.1:{free_port()}"}
        gateway = start_gateway(GATEWAY.format(address=addresses["gateway"], server=server), folder / "gateway")
        stack.callback(gateway.stop)
        if (nginx := _nginx()) is not None:
            addresses["nginx"] = f"127.0.0.1:{free_port()}"
            stack.enter_context(_running_nginx(nginx, addresses["nginx"], server, folder / "nginx"))
        load = stack.enter_context(generator())
        rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in addresses}
        for address in addresses.values():
            _p99(load, address)  # caches are filled
        for _ in range(ROUNDS):
            for name, address in addresses.items():
                rounds[name].append(_once(load, address))
        moved = {name: Moved(*map(min, zip(*found, strict=True))) for name, found in rounds.items()}
        return Crowded(moved["gateway"], moved.get("nginx"))


def _once(load: Generator, address: str) -> tuple[float, float]:
    alone = _p99(load, address)
    with _crowd(address):
        return alone, _p99(load, address)


def _p99(load: Generator, address: str) -> float:
    found = load.send(Load(address, REQUEST.decode(), REQUESTS, 1, keep_alive=True)).microseconds
    return quantiles(found, n=100)[98]


@contextmanager
def _crowd(address: str) -> Iterator[None]:
    command = [sys.executable, "-m", "tests.benchmarks.crowd", address]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield
        closed, _ = child.communicate()
        assert closed == "closed: 0\n", f"{address}: {closed}"


def _nginx() -> str | None:
    return shutil.which("nginx") or shutil.which("/usr/sbin/nginx")


@contextmanager
def _running_nginx(nginx: str, address: str, server: str, folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True)
    file = folder / "nginx.conf"
    file.write_text(NGINX.format(folder=folder, address=address, server=server))
    process = Process([nginx, "-p", str(folder), "-c", str(file), "-e", "stderr"], folder)
    host, port = address.split(":")

    def accepts() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0

    process.wait_until(accepts, 20)
    try:
        yield
    finally:
        process.stop()


# The crowd.

_BEGUN: Sequence[bytes] = (
    b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: a\r\nX: ",
    post("/v2/models/identity/infer", bytes(1000))[:-1000],
)
"""What slow connections have sent, in turns: the beginning of a head, and a head whose body is still to come. Then they
send a byte a second."""


class _Member(asyncio.Protocol):
    closed = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        _Member.closed += 1


async def _gather(address: str) -> None:
    host, port = address.split(":")
    loop, left = asyncio.get_running_loop(), asyncio.Event()
    members: list[asyncio.WriteTransport] = []
    while len(members) < IDLE + SLOW:
        count = min(BATCH, IDLE + SLOW - len(members))
        opened = await asyncio.gather(*(loop.create_connection(_Member, host, int(port)) for _ in range(count)))
        members += [transport for transport, _ in opened]
    slow = members[IDLE:]
    for at, member in enumerate(slow):
        member.write(_BEGUN[at % 2])
    loop.add_reader(sys.stdin.fileno(), left.set)
    print("ready", flush=True)
    begun, sent = loop.time(), 0
    while not left.is_set():
        # Each sends one byte a second; clients that know nothing of each other do not send at the same time.
        while sent < (loop.time() - begun) * SLOW:
            slow[sent % SLOW].write(b"x")
            sent += 1
        await asyncio.sleep(1 / SLOW)
    print(f"closed: {_Member.closed}", flush=True)


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    uvloop.run(_gather(sys.argv[1]))


if __name__ == "__main__":
    main()
