"""The processes of the benchmark: the backends, the gateway before them, and the adapters."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks import models
from tests.benchmarks.rows import (
    BRPC_TO_UMBRIDGE,
    GRPC_TO_GRPC,
    GRPC_TO_REST,
    GRPS_TO_GRPC,
    JSON_TO_GRPC,
    REST_TO_GRPC,
    REST_TO_GRPS,
    REST_TO_JSON,
    UMBRIDGE_TO_GRPC,
    UMBRIDGE_TO_V2,
    V1_TO_V2,
    V2_TO_UMBRIDGE,
    V2_TO_V1,
    Way,
)
from tests.interop.processes import Process, answers, clean_environment, free_port, start_gateway
from tests.peers.build import ROOT, require

ADAPTERS = Path(__file__).resolve().parent / "adapters"
START_SECONDS = 30

GATEWAY = """
listeners:
  - {{name: http, bind: "{address}", protocols: [v2-rest, v1-rest, umbridge]}}
  - {{name: to_grpc, bind: "{to_grpc}", protocols: [v2-rest, umbridge, grps-rest]}}
  - {{name: to_grps, bind: "{to_grps}", protocols: [v2-rest]}}
  - {{name: brpc, bind: "tcp://{brpc}", protocols: [grps-brpc]}}
  - {{name: grpc_to_grpc, bind: "{grpc_to_grpc}", protocols: [v2-grpc]}}
  - {{name: grpc_to_rest, bind: "{grpc_to_rest}", protocols: [v2-grpc]}}
  - {{name: to_v1, bind: "{to_v1}", protocols: [v2-rest]}}
  - {{name: json_to_grpc, bind: "{json_to_grpc}", protocols: ["json:house"]}}
  - {{name: to_json, bind: "{to_json}", protocols: [v2-rest]}}
forms:
  house:
    infer: {{path: "/predict/{{model}}", request: {{features: $x}}, response: {{prediction: $y}}}}
backends:
  v1: {{protocol: v1-rest, endpoints: ["{v1}"]}}
  tensors: {{protocol: v2-rest, endpoints: ["{v2}"]}}
  grpc: {{protocol: v2-grpc, endpoints: ["{grpc}"]}}
  grps: {{protocol: grps-grpc, endpoints: ["{grps}"]}}
  plain: {{protocol: "json:torchserve", endpoints: ["http://{plain}"]}}
  science: {{protocol: umbridge, endpoints: ["http://{umbridge}"]}}
routes:
  - {{match: {{listener: to_v1}}, backend: v1}}
  - {{match: {{listener: json_to_grpc, model: "*"}}, backend: grpc}}
  - {{match: {{listener: to_json}}, backend: plain}}
  - {{match: {{protocol: v1-rest, model: "*"}}, backend: tensors}}
  - {{match: {{listener: to_grpc, model: "*"}}, backend: grpc}}
  - {{match: {{listener: to_grps}}, backend: grps}}
  - {{match: {{listener: grpc_to_grpc}}, backend: grpc}}
  - {{match: {{listener: grpc_to_rest}}, backend: tensors}}
  - {{match: {{listener: brpc, model: "*"}}, backend: science}}
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

    gateways: Mapping[Way, Server]
    adapters: Mapping[Way, Server]
    backends: Mapping[Way, Server]


_BACKENDS = ("v2-rest", "v2-grpc", "grps-grpc", "umbridge", "v1-rest", "json:torchserve")


@contextmanager
def running(folder: Path) -> Iterator[Servers]:
    """Everything started and ready; stopped with the context, the last first."""
    with ExitStack() as stack:
        servers = {name: reference_server(name, folder, stack) for name in _BACKENDS}
        v2, grpc, grps, umbridge, v1, plain = servers.values()
        places = {"v2": v2, "grpc": grpc, "grps": grps, "umbridge": umbridge, "v1": v1, "plain": plain}
        gateway = _gateway({name: each.address for name, each in places.items()}, folder, stack)
        yield Servers(
            {
                UMBRIDGE_TO_V2: gateway["address"],
                V2_TO_UMBRIDGE: gateway["address"],
                UMBRIDGE_TO_GRPC: gateway["to_grpc"],
                REST_TO_GRPC: gateway["to_grpc"],
                GRPS_TO_GRPC: gateway["to_grpc"],
                REST_TO_GRPS: gateway["to_grps"],
                BRPC_TO_UMBRIDGE: gateway["brpc"],
                GRPC_TO_GRPC: gateway["grpc_to_grpc"],
                GRPC_TO_REST: gateway["grpc_to_rest"],
                V1_TO_V2: gateway["address"],
                V2_TO_V1: gateway["to_v1"],
                JSON_TO_GRPC: gateway["json_to_grpc"],
                REST_TO_JSON: gateway["to_json"],
            },
            {
                UMBRIDGE_TO_V2: umbridge_adapter("umbridge_to_v2", v2.address, folder, stack),
                UMBRIDGE_TO_GRPC: umbridge_adapter("umbridge_to_grpc", grpc.address, folder, stack),
                V2_TO_UMBRIDGE: fastapi_adapter("v2_to_umbridge", folder, stack, UMBRIDGE=f"http://{umbridge.address}"),
                JSON_TO_GRPC: fastapi_adapter("json_to_grpc", folder, stack, V2=grpc.address),
                REST_TO_JSON: fastapi_adapter("v2_to_json", folder, stack, SERVER=f"http://{plain.address}"),
            },
            {
                UMBRIDGE_TO_V2: v2,
                V2_TO_UMBRIDGE: umbridge,
                UMBRIDGE_TO_GRPC: grpc,
                REST_TO_GRPC: grpc,
                GRPS_TO_GRPC: grpc,
                REST_TO_GRPS: grps,
                BRPC_TO_UMBRIDGE: umbridge,
                GRPC_TO_GRPC: grpc,
                GRPC_TO_REST: v2,
                V1_TO_V2: v2,
                V2_TO_V1: v1,
                JSON_TO_GRPC: grpc,
                REST_TO_JSON: plain,
            },
        )


def own_address() -> str:
    return f"127.0.0.1:{free_port()}"


def own_gateway(config: str, folder: Path, stack: ExitStack, **values: object) -> Server:
    """A gateway, at the `address` in its configuration."""
    address = own_address()
    gateway = start_gateway(config.format(address=address, **values), folder)
    stack.callback(gateway.stop)
    return Server(address, gateway.process.pid)


VECTORS = [f"{models.__name__}:{name}" for name in models.NAMES]


def reference_server(protocol: str, folder: Path, stack: ExitStack, served: Sequence[str] = VECTORS) -> Server:
    address = own_address()
    named = [word for name in served for word in ("--model", name)]
    command = [sys.executable, "-m", "gateway", "reference", "--protocol", protocol, "--bind", address, *named]
    environment = clean_environment(PYTHONPATH=str(ROOT))
    process = Process(command, folder / f"reference-{protocol}", environment)
    return _ready(process, address, lambda: "\nready" in process.stdout(), stack)


FACES = ("address", "to_grpc", "to_grps", "brpc", "grpc_to_grpc", "grpc_to_rest", "to_v1", "json_to_grpc", "to_json")


def _gateway(backends: Mapping[str, str], folder: Path, stack: ExitStack) -> dict[str, Server]:
    """One gateway at several addresses, in front of `backends`; both by their names in GATEWAY."""
    faces = {name: own_address() for name in FACES}
    config = GATEWAY.format(**backends, **faces)
    gateway = start_gateway(config, folder / "gateway")
    stack.callback(gateway.stop)
    return {name: Server(address, gateway.process.pid) for name, address in faces.items()}


def umbridge_adapter(script: str, v2: str, folder: Path, stack: ExitStack) -> Server:
    address = own_address()
    python, port = str(require("adapters") / "bin" / "python"), address.rpartition(":")[2]
    process = Process([python, str(ADAPTERS / f"{script}.py"), port, v2], folder / script)
    return _ready(process, address, lambda: answers(f"http://{address}/Info"), stack)


def fastapi_adapter(script: str, folder: Path, stack: ExitStack, **environment: str) -> Server:
    address = own_address()
    host, _, port = address.partition(":")
    where = ["--app-dir", str(ADAPTERS), "--host", host, "--port", port]
    # Without the line per request that uvicorn prints by default, since the gateway prints none.
    command = [str(require("adapters") / "bin" / "python"), "-m", "uvicorn", f"{script}:app", *where, "--no-access-log"]
    process = Process(command, folder / script, clean_environment(**environment))
    return _ready(process, address, lambda: answers(f"http://{address}/openapi.json"), stack)


def _ready(process: Process, address: str, ready: Callable[[], bool], stack: ExitStack) -> Server:
    stack.callback(process.stop)
    process.wait_until(ready, START_SECONDS)
    return Server(address, process.pid)
