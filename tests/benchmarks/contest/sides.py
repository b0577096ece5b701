"""Who takes part: each side is started when it is first asked for, and is stopped with the run. A side whose program is
not there is told with the line that installs it."""

from __future__ import annotations

import shutil
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from unittest import SkipTest

from gateway.protocols.v2.grpc import schema
from tests.attacks.attacked import Attacked, Talker
from tests.benchmarks.contest import envoy
from tests.benchmarks.contest.forms import Form
from tests.benchmarks.contest.nginx import nginx_config
from tests.benchmarks.contest.traffic import Traffic
from tests.benchmarks.servers import Server
from tests.interop.processes import Process, clean_environment, free_port, start_gateway
from tests.peers.build import ROOT, BuildError, require, site_packages
from tests.peers.system import PATH

START_SECONDS = 60


AnyForm: TypeAlias = Form | Traffic


class MissingError(Exception):
    """A program is not there; the text is the command that installs it, or says why it cannot be there."""


class Started:
    """What has been started, by name; each is started once."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self._servers: dict[str, Server] = {}
        self._observed: dict[str, tuple[str, Attacked]] = {}

    def observed(self, name: str, gateway: Gateway) -> tuple[str, Attacked]:
        """`Gateway.observed`, started once."""
        if name not in self._observed:
            self._observed[name] = gateway.observed(self)
        return self._observed[name]

    def server(self, name: str, start: Callable[[], Server]) -> Server:
        if name not in self._servers:
            self._servers[name] = start()
        return self._servers[name]

    def run(
        self, name: str, command: list[str], address: str, ready: Callable[[], bool] | None = None, **environment: str
    ) -> Server:
        """A process that is `ready`, by default when it accepts connections."""
        process = Process(command, self.folder / name, clean_environment(**environment))
        self.stack.callback(process.stop)
        process.wait_until(ready or (lambda: _accepts(address)), START_SECONDS)
        return Server(address, process.pid)


@dataclass(frozen=True)
class Side:
    name: str
    form: AnyForm
    """Of the requests that it gets."""
    start: Callable[[Started], Server]


def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def echo(started: Started, protocol: str) -> Server:
    """The server behind the proxies: the same process for both protocols."""

    def start() -> Server:
        rest, grpc = free_port(), free_port()
        command = [sys.executable, "-m", "tests.benchmarks.contest.echo", str(rest), str(grpc)]
        server = started.run("echo", command, f"127.0.0.1:{grpc}", PYTHONPATH=str(ROOT))
        started.server("echo v2-rest", lambda: Server(f"127.0.0.1:{rest}", server.pid))
        return server

    grpc = started.server("echo v2-grpc", start)
    return grpc if protocol == "v2-grpc" else started.server("echo v2-rest", lambda: grpc)


GATEWAY = """
listeners: [{{name: in, bind: "{address}", protocols: [{facing}]}}]
backends: {{server: {{protocol: {protocol}, endpoints: ["{backend}"]}}}}
routes: [{{match: {{model: "*"}}, backend: server}}]
"""


@dataclass(frozen=True)
class Gateway:
    """A gateway of its own with the default configuration: one listener, one backend, one route."""

    facing: str
    protocol: str
    backend: Callable[[Started], Server] | None = None
    """By default the server that echoes."""

    def __call__(self, started: Started) -> Server:
        address = f"127.0.0.1:{free_port()}"
        process = start_gateway(self._config(started, address), started.folder / f"gateway {address}")
        started.stack.callback(process.stop)
        return Server(address, process.process.pid)

    def observed(self, started: Started) -> tuple[str, Attacked]:
        """The same in a process that knows how long its loop was kept from its turn; and its address."""
        folder = started.folder / f"observed {free_port()}"
        folder.mkdir()
        file = folder / "gateway.yaml"
        file.write_text(self._config(started, f"127.0.0.1:{free_port()}"))
        gateway = Attacked(Talker("tests.attacks.observed", str(file), log=folder / "log"))
        started.stack.callback(gateway.end)
        host, port = gateway.address("in")
        return f"{host}:{port}", gateway

    def _config(self, started: Started, address: str) -> str:
        backend = self.backend(started) if self.backend else echo(started, self.protocol)
        return GATEWAY.format(address=address, facing=self.facing, protocol=self.protocol, backend=backend.address)


def direct(protocol: str) -> Callable[[Started], Server]:
    """No proxy."""
    return lambda started: echo(started, protocol)


def envoy_as(kind: str) -> Callable[[Started], Server]:
    def start(started: Started) -> Server:
        backend = echo(started, "v2-rest" if kind == envoy.PROXY else "v2-grpc").address
        port = free_port()
        folder = started.folder / f"envoy {kind} {port}"
        folder.mkdir(parents=True)
        (folder / "schema").write_bytes(schema.DESCRIPTORS)
        return start_envoy(started, folder, port, envoy.config(kind, port, backend, str(folder / "schema")))

    return start


def start_envoy(started: Started, folder: Path, port: int, config: str, threads: int = 1) -> Server:
    """Raises:
    MissingError: it is not there.
    """
    program = site_packages(peer("envoy")) / "envoy" / "_bin" / "envoy"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "envoy.json"
    file.write_text(config)
    where = ["-c", str(file), "--concurrency", str(threads), "--disable-hot-restart", "-l", "warn"]
    return started.run(folder.name, [str(program), *where], f"127.0.0.1:{port}")


def peer(name: str) -> Path:
    """The folder of a peer's environment.

    Raises:
        MissingError: it is not there.
    """
    try:
        return require(name)
    except BuildError as error:
        raise MissingError(f"python -m tests.peers.build {name}") from error
    except SkipTest as error:
        raise MissingError(str(error)) from error


def nginx(protocol: str) -> Callable[[Started], Server]:
    def start(started: Started) -> Server:
        grpc = protocol == "v2-grpc"
        backend, address = echo(started, protocol).address, f"127.0.0.1:{free_port()}"
        passed = "grpc_pass grpc://backend" if grpc else "proxy_pass http://backend"
        folder = started.folder / f"nginx-{address}"
        listen = f"{address} http2" if grpc else address
        return start_nginx(started, folder, address, nginx_config(folder, listen, {"backend": backend}, {"/": passed}))

    return start


def start_nginx(started: Started, folder: Path, address: str, config: str) -> Server:
    """Raises:
    MissingError: it is not installed.
    """
    program = shutil.which("nginx", path=PATH)
    if program is None:
        raise MissingError("apt-get install nginx-light")
    folder.mkdir(parents=True)
    file = folder / "nginx.conf"
    file.write_text(config)
    return started.run(folder.name, [program, "-c", str(file)], address)
