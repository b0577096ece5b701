"""The processes of the benchmark: two backends, the gateway between them, and the two adapters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import models
from tests.benchmarks.rows import UMBRIDGE_TO_V2, V2_TO_UMBRIDGE, Way
from tests.interop.processes import Process, answers, clean_environment, free_port, start_gateway
from tests.peers.build import ROOT, require

ADAPTERS = Path(__file__).resolve().parent / "adapters"
START_SECONDS = 30

BACKENDS = "the gateway's own reference servers, in processes of their own: the fastest there are here"

GATEWAY = """
listeners:
  - {{name: http, bind: "{address}", protocols: [v2-rest, umbridge]}}
backends:
  tensors: {{protocol: v2-rest, endpoints: ["{v2}"]}}
  science: {{protocol: umbridge, endpoints: ["http://{umbridge}"]}}
routes:
  - {{match: {{protocol: umbridge, model: "*"}}, backend: tensors}}
  - {{match: {{protocol: v2-rest, model: "*"}}, backend: science}}
"""


@dataclass(frozen=True)
class Server:
    address: str
    """`host:port`."""
    pid: int


@dataclass(frozen=True)
class Servers:
    """Whom the load of a Way is sent to: the gateway, the adapter, or directly the server behind both."""

    gateway: Server
    adapters: Mapping[Way, Server]
    backends: Mapping[Way, Server]


@contextmanager
def running(folder: Path) -> Iterator[Servers]:
    """Everything started and ready; stopped with the context, the last first."""
    with ExitStack() as stack:
        v2 = _reference("v2-rest", folder, stack)
        umbridge = _reference("umbridge", folder, stack)
        yield Servers(
            _gateway(v2.address, umbridge.address, folder, stack),
            {
                UMBRIDGE_TO_V2: _umbridge_adapter(v2.address, folder, stack),
                V2_TO_UMBRIDGE: _v2_adapter(umbridge.address, folder, stack),
            },
            {UMBRIDGE_TO_V2: v2, V2_TO_UMBRIDGE: umbridge},
        )


def _address() -> str:
    return f"127.0.0.1:{free_port()}"


def _reference(protocol: str, folder: Path, stack: ExitStack) -> Server:
    address = _address()
    named = [word for name in models.NAMES for word in ("--model", f"{models.__name__}:{name}")]
    command = [sys.executable, "-m", "gateway", "reference", "--protocol", protocol, "--bind", address, *named]
    environment = clean_environment(PYTHONPATH=str(ROOT))
    process = Process(command, folder / f"reference-{protocol}", environment)
    return _ready(process, address, lambda: "\nready" in process.stdout(), stack)


def _gateway(v2: str, umbridge: str, folder: Path, stack: ExitStack) -> Server:
    address = _address()
    gateway = start_gateway(GATEWAY.format(address=address, v2=v2, umbridge=umbridge), folder / "gateway")
    stack.callback(gateway.stop)
    return Server(address, gateway.process.pid)


def _umbridge_adapter(v2: str, folder: Path, stack: ExitStack) -> Server:
    address = _address()
    command = [_python(), str(ADAPTERS / "umbridge_to_v2.py"), address.rpartition(":")[2], v2]
    process = Process(command, folder / "umbridge-adapter")
    return _ready(process, address, lambda: answers(f"http://{address}/Info"), stack)


def _v2_adapter(umbridge: str, folder: Path, stack: ExitStack) -> Server:
    address = _address()
    host, _, port = address.partition(":")
    where = ["--app-dir", str(ADAPTERS), "--host", host, "--port", port]
    # Without the line per request that uvicorn prints by default, since the gateway prints none.
    command = [_python(), "-m", "uvicorn", "v2_to_umbridge:app", *where, "--no-access-log"]
    process = Process(command, folder / "v2-adapter", clean_environment(UMBRIDGE=f"http://{umbridge}"))
    return _ready(process, address, lambda: answers(f"http://{address}/openapi.json"), stack)


def _python() -> str:
    return str(require("adapters") / "bin" / "python")


def _ready(process: Process, address: str, ready: Callable[[], bool], stack: ExitStack) -> Server:
    stack.callback(process.stop)
    process.wait_until(ready, START_SECONDS)
    return Server(address, process.pid)
