"""Processes for the interop tests: servers, the gateway, and client scripts in the peers' own environments.

Each child leads a process group, since some have children of their own (Triton one per Python model) that outlive a
parent that is killed. Output goes to files and not to pipes: nobody has to read them, and they cannot fill up.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.interop.servers.triton_models.repository import TABLE, Ensemble, Model, write_repository
from tests.limits import GENEROUS
from tests.peers.build import ROOT, require

HERE = Path(__file__).resolve().parent
TAIL = 4000
POLL = 0.02
LINGER = 2.0
FIRST, LAST = map(int, os.environ.get("TEST_PORTS", "20000-32000").split("-"))
"""Two runs at the same time get ranges of their own, since a port is only taken when its server has started."""
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
PORTS = range(FIRST + WORKER, LAST, WORKERS)
"""Those of this process: no two workers of a test run ask for the same."""
_given: set[int] = set()
_random = random.SystemRandom()  # no seed of a test runner makes two runs ask for the same ports


class ProcessError(Exception):
    """A child did not start, stop or answer as it should; the text holds the tail of what it printed."""


def free_port() -> int:
    """A free port on loopback, never the same twice: two servers may be configured before either is started.

    It is none of those the system gives to outgoing connections, which could take it before the server does.
    """
    while True:
        port = _random.choice(PORTS)
        if port in _given:
            continue
        _given.add(port)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Process:
    """A child process that leads its own group, with its output in two files of `folder`."""

    def __init__(self, command: Sequence[str], folder: Path, env: Mapping[str, str] | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._stdout, self._stderr = folder / "stdout", folder / "stderr"
        self.command = list(command)
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self._child = subprocess.Popen(
                self.command,
                cwd=folder,
                env=clean_environment() if env is None else dict(env),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
        self.pid = self._child.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative for the signal that ended it.

        It is not reaped before `stop`, so that until then its id is no one else's.
        """
        if self._child.returncode is not None:
            return self._child.returncode
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def stdout(self) -> str:
        return self._stdout.read_text(errors="replace")

    def output(self) -> str:
        return self.stdout() + self._stderr.read_text(errors="replace")

    def wait_until(self, ready: Callable[[], bool], seconds: float) -> None:
        """Poll until `ready`; a child that died or takes too long is stopped and told with what it printed."""
        if eventually(lambda: self.returncode is not None or ready(), seconds) and self.returncode is None:
            return
        status = self.returncode
        self.stop()
        if status is None:
            raise self._error(f"was not ready within {seconds} s")
        raise self._error(f"ended with status {status} before it was ready")

    def wait(self, seconds: float) -> int:
        """The exit status of a child that is about to end by itself."""
        if not eventually(lambda: self.returncode is not None, seconds):
            raise self._error(f"still runs after {seconds} s")
        return self.stop()

    def signal(self, number: signal.Signals) -> None:
        """Signal the child alone; nothing if it has ended. One that is to stop has stopped when this returns."""
        if self._child.returncode is None:
            os.kill(self.pid, number)
            if number is signal.SIGSTOP:
                wait_until_stopped(self.pid)

    def stop(self, seconds: float = 5) -> int:
        """Ask the child to end, kill what is left of its group after `seconds`, and return its exit status."""
        self.signal(signal.SIGTERM)
        ended = eventually(lambda: self.returncode is not None, seconds)
        # What the child started may still be on its way out.
        if self._child.returncode is None and not (ended and eventually(self._is_alone, LINGER)):
            os.killpg(self.pid, signal.SIGKILL)
            eventually(self._is_alone, LINGER)
        return self._child.wait()

    def _is_alone(self) -> bool:
        return not members(self.pid)

    def _error(self, what: str) -> ProcessError:
        return ProcessError(f"`{' '.join(self.command)}` {what}; its output ends:\n{self.output()[-TAIL:]}")


def wait_until_stopped(pid: int) -> None:
    """Of a child that was sent SIGSTOP: its threads run on for a moment, on a busy machine for a long one."""
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def eventually(condition: Callable[[], bool], seconds: float) -> bool:
    """Poll until the condition holds; False if it does not within the time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


def members(group: int) -> list[int]:
    """The living processes of a process group. Zombies do not count: in containers nobody may reap them."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _parent, owner = stat.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(owner) == group and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def clean_environment(**extra: str) -> dict[str, str]:
    """The environment without what would reach into another Python, or send loopback traffic to a proxy."""
    unwanted = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH"}
    kept = {key: value for key, value in os.environ.items() if key not in unwanted}
    return {key: value for key, value in kept.items() if not key.lower().endswith("_proxy")} | extra


def answers(url: str, status: int = 200) -> bool:
    """Whether a GET is answered with `status`, 200: the servers' own notion of being ready."""
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return bool(reply.status == status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code == status
    except (urllib.error.URLError, OSError):
        return False


def start_script(peer: str, script: str, folder: Path, *arguments: object) -> Process:
    """A program of `servers` in the environment of its peer."""
    python = require(peer) / "bin" / "python"
    return Process([str(python), str(HERE / "servers" / f"{script}.py"), *map(str, arguments)], folder)


@dataclass
class Running:
    """A program that serves. It stops with its context."""

    process: Process

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        return self.process.stop(seconds=10)


@dataclass
class Server(Running):
    """A server at one URL."""

    url: str

    @property
    def address(self) -> str:
        """`host:port`."""
        return self.url.rpartition("/")[2]


def start_umbridge(folder: Path, port: int = 0) -> Server:
    """The real `umbridge` package serving `servers/umbridge_models.py`. `port` is for a server that comes back where
    another one was; else a free one is taken."""
    port = port or free_port()
    server = Server(start_script("umbridge", "umbridge_models", folder, port), f"http://127.0.0.1:{port}")
    server.process.wait_until(lambda: answers(f"{server.url}/Info"), seconds=GENEROUS)
    return server


@dataclass
class V2Server(Running):
    """A server of V2 over REST and gRPC; both addresses are `host:port`."""

    http: str
    grpc: str


@dataclass
class Triton(V2Server):
    """The real Triton serving the table of `servers/triton_models`."""

    memory: str
    """What the names of its shared memory begin with."""

    def stop(self) -> int:
        # Triton unloads its models on SIGTERM, and each of their processes takes its time.
        status = self.process.stop(seconds=20)
        # A server that was killed, or died, leaves a megabyte per model behind.
        for region in Path("/dev/shm").glob(f"{self.memory}*"):
            region.unlink(missing_ok=True)
        return status


_TRITON_STARTS = 3
_ABORTED_AT_START = "boost::interprocess::lock_exception"
"""What Triton 2.51 ends with while it starts on a busy machine: its processes wait for each other too long."""


def start_triton(folder: Path, *options: str, models: Iterable[Model | Ensemble] = TABLE) -> Triton:
    """The real Triton with these models, ready; `options` of its command line are added."""
    repository = write_repository(folder / "repository", models)
    for _ in range(_TRITON_STARTS - 1):
        try:
            return _start_triton(folder, options, repository)
        except ProcessError as error:
            if _ABORTED_AT_START not in str(error):
                raise
    return _start_triton(folder, options, repository)


def _start_triton(folder: Path, options: Sequence[str], repository: Path) -> Triton:
    home = require("triton")
    http, grpc = free_port(), free_port()
    memory = f"triton_{os.getpid()}_{http}_"
    command = triton_command(home, repository, http, grpc, memory)
    process = Process([*command, *options], folder, triton_environment(home))
    triton = Triton(process, f"127.0.0.1:{http}", f"127.0.0.1:{grpc}", memory)
    try:
        process.wait_until(lambda: answers(f"http://{triton.http}/v2/health/ready"), seconds=GENEROUS)
    except ProcessError:
        triton.stop()
        raise
    return triton


def triton_binary(home: Path) -> Path:
    (server,) = home.glob("lib/python*/site-packages/pytriton/tritonserver/bin/tritonserver")
    return server


def triton_command(home: Path, repository: Path, http: int, grpc: int, memory: str) -> list[str]:
    return [
        str(triton_binary(home)),
        f"--model-repository={repository}",
        f"--backend-directory={home / 'backends'}",
        f"--backend-config=python,shm-region-prefix-name={memory}",
        "--http-address=127.0.0.1",
        f"--http-port={http}",
        "--grpc-address=127.0.0.1",
        f"--grpc-port={grpc}",
        "--allow-metrics=false",
        "--exit-timeout-secs=10",
        "--model-load-thread-count=32",  # loading a Python model is mostly waiting: 4 s instead of 10
        "--log-info=false",  # a model that does not load is else lost in tables
    ]


def triton_environment(home: Path) -> dict[str, str]:
    """The models' stub needs libpython of the interpreter itself, then the libraries that came in the wheel."""
    (bundled,) = home.glob("lib/python*/site-packages/nvidia_pytriton.libs")
    ask = "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"
    libdir = subprocess.run([home / "bin" / "python", "-c", ask], capture_output=True, text=True, check=True)
    path = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return clean_environment(LD_LIBRARY_PATH=f"{libdir.stdout.strip()}:{bundled}", PATH=path)


@dataclass
class Gateway(Running):
    """`gateway serve`, ready; `config` is the file it was started with, for tests that reload it."""

    config: Path

    def output(self) -> str:
        return self.process.output()

    def stop(self) -> int:
        return self.process.stop(GENEROUS)


def start_gateway(config: str, folder: Path, python: Path = Path(sys.executable)) -> Gateway:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "gateway.yaml"
    file.write_text(config)
    command = [str(python), "-m", "gateway", "serve", "--config", str(file)]
    process = Process(command, folder, clean_environment(PYTHONPATH=str(ROOT), PYTHONUNBUFFERED="1"))
    process.wait_until(lambda: f"\n{process.stdout()}".find("\nready") >= 0, seconds=GENEROUS)
    return Gateway(process, file)
