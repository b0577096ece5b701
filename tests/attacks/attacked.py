"""A gateway under attack: its process, a model server behind it, and measurements of both. Most attack tests use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.attacks import hostile
from tests.interop.processes import Process, clean_environment, free_port
from tests.peers.build import ROOT

MIB = 2**20
TRIES = 3

LISTENERS = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge, graphpipe, grps-rest]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc, grps-grpc]}
  - {name: mip, bind: "tcp://127.0.0.1:0", protocols: [mip], model: identity}
  - {name: mip_dead, bind: "tcp://127.0.0.1:0", protocols: [mip], model: dead}
  - {name: brpc, bind: "tcp://127.0.0.1:0", protocols: [grps-brpc]}
  - {name: shared, bind: "127.0.0.1:0", protocols: [v2-rest, v2-grpc, mip, grps-brpc], model: identity}
health: {bind: "127.0.0.1:0"}
admin: {bind: "127.0.0.1:0"}
"""
ROUTES = """
backends:
  works: {{protocol: v2-grpc, endpoints: ["{works}"]}}
  dead: {{protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:{dead}"]}}
{backends}
routes:
  - {{match: {{model: dead}}, backend: dead}}
  - {{match: {{model: identity}}, backend: works}}
{routes}
"""

BACKEND = """
  hostile:
    protocol: {protocol}
    max_in_flight: 25
    endpoints: ["{endpoint}"]
    {more}
"""
SCHEMES = {"mip": "tcp://", "grps-brpc": "tcp://", "umbridge": "http://"}
TO_HOSTILE = """
  - match: {model: hostile}
    backend: hostile
    signature:
      inputs: [{name: x, datatype: UINT8, shape: [-1, -1]}]
      outputs: [{name: x, datatype: UINT8, shape: [-1, -1]}]
"""


@dataclass(frozen=True)
class Seen:
    """Measurements of the gateway since the previous look."""

    stall: float
    """The longest time, in seconds, for which the gateway's own work blocked its event loop."""
    user: float
    """The same without the time in the kernel."""
    wall: float
    """The same by wall clock, which includes delays by other work on the machine."""
    tasks: int


@dataclass(frozen=True)
class Beside:
    """The results of a well-behaved client since the previous look: successful and failed inferences, and the longest
    duration in seconds."""

    good: int
    failed: int
    longest: float


FEW_DESCRIPTORS = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
os.execv(sys.executable, [sys.executable, "-m", *sys.argv[2:]])
"""
"""A program that becomes a module with few descriptors."""


class Talker:
    """A process that answers each input line with a line of JSON, and ends when its standard input ends."""

    def __init__(self, module: str, *arguments: str, descriptors: int = 0, log: Path | None = None) -> None:
        limited = ["-c", FEW_DESCRIPTORS, str(descriptors)] if descriptors else ["-m"]
        self.log = log
        with ExitStack() as stack:
            errors = stack.enter_context(log.open("wb")) if log else None
            self._child = subprocess.Popen(
                [sys.executable, *limited, module, *arguments],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=clean_environment(),
            )
        self.pid = self._child.pid

    def read(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        assert line, f"{self._child.args!r} ended: {self.log.read_text()[-2000:] if self.log else ''}"
        document: dict[str, Any] = json.loads(line)
        return document

    def ask(self) -> dict[str, Any]:
        assert self._child.stdin is not None
        self._child.stdin.write(b"\n")
        self._child.stdin.flush()
        return self.read()

    def end(self) -> None:
        """End the process, and wait for its end."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.close()
        try:
            self._child.wait(20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()


class Attacked:
    """A gateway and, after the first call of `beside`, a well-behaved client next to the attackers."""

    def __init__(self, gateway: Talker) -> None:
        self._gateway = gateway
        self._addresses: dict[str, str] = gateway.read()
        self._probe: Talker | None = None
        self.pid = gateway.pid

    def address(self, name: str) -> tuple[str, int]:
        """Return the address of a listener, of `health` or of `admin`."""
        host, port = self._addresses[name].removeprefix("tcp://").rsplit(":", 1)
        return host, int(port)

    def look(self) -> Seen:
        return Seen(**self._gateway.ask())

    def beside(self) -> Beside:
        """Return the results of the well-behaved client, which starts with the first call."""
        if self._probe is None:
            host, port = self.address("http")
            self._probe = Talker("tests.attacks.probe", host, str(port))
        return Beside(**self._probe.ask())

    @property
    def log(self) -> str:
        assert self._gateway.log is not None
        return self._gateway.log.read_text()

    @property
    def resident(self) -> int:
        """The current resident memory in bytes."""
        return self._status("VmRSS")

    @property
    def peak(self) -> int:
        """The maximum resident memory in bytes since `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    @property
    def descriptors(self) -> int:
        """The number of open descriptors."""
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    @property
    def cpu(self) -> float:
        """The CPU time of all threads in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status(self, name: str) -> int:
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        (line,) = (line for line in lines if line.startswith(name))
        return int(line.split()[1]) * 1024

    def end(self) -> None:
        if self._probe is not None:
            self._probe.end()
        self._gateway.end()


@contextmanager
def reference(folder: Path, protocol: str = "v2-grpc", *models: str) -> Iterator[str]:
    """Yield the address of a model server in its own process."""
    with reference_process(folder, protocol, *models) as (address, _):
        yield address


@contextmanager
def reference_process(folder: Path, protocol: str = "v2-grpc", *models: str) -> Iterator[tuple[str, Process]]:
    """Like `reference`; the process comes with the address, for tests that pause the server."""
    address = f"127.0.0.1:{free_port()}"
    named = [word for model in models or ("identity",) for word in ("--model", model)]
    bind = f"tcp://{address}" if protocol in ("mip", "grps-brpc") else address
    process = Process(
        [sys.executable, "-m", "gateway", "reference", "--protocol", protocol, "--bind", bind, *named], folder
    )
    process.wait_until(lambda: "\nready" in process.stdout(), 60)
    try:
        yield address, process
    finally:
        process.stop()


@contextmanager
def attacked(
    folder: Path, works: str, *, backends: str = "", routes: str = "", descriptors: int = 0, listener: str = ""
) -> Iterator[Attacked]:
    """Yield a gateway with two backends: the model server at `works`, and a dead server."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "gateway.yaml"
    listeners = LISTENERS.replace("health:", f"{listener}health:")
    file.write_text(listeners + ROUTES.format(works=works, dead=free_port(), backends=backends, routes=routes))
    gateway = Attacked(Talker("tests.attacks.observed", str(file), descriptors=descriptors, log=folder / "gateway.log"))
    try:
        yield gateway
    finally:
        gateway.end()


@contextmanager
def attacked_by(
    script: hostile.Script, protocol: str, folder: Path, works: str, *, more: str = "", routes: str = TO_HOSTILE
) -> Iterator[Attacked]:
    """Yield a gateway in front of a server that runs `script` on each connection."""
    with hostile.serving(script) as address:
        endpoint = SCHEMES.get(protocol, "") + address
        backend = BACKEND.format(protocol=protocol, endpoint=endpoint, more=more)
        with attacked(folder, works, backends=backend, routes=routes) as gateway:
            yield gateway
