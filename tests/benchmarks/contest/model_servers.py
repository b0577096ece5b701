"""Real model servers, and the adapters that people write by hand, as sides."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks import models, servers
from tests.benchmarks.contest.sides import Started, peer
from tests.benchmarks.servers import Server, reference_server
from tests.interop.processes import answers, free_port, triton_command, triton_environment
from tests.interop.servers.triton_models import repository

ENVIRONMENTS = Path(__file__).resolve().parents[1] / "environments"
"""What runs in the environments of the peers."""

Start = Callable[[Started], Server]


def reference(protocol: str) -> Start:
    """`gateway reference` with the vectors of `tests.benchmarks.models`."""

    def start(started: Started) -> Server:
        return started.server(
            f"reference {protocol}", lambda: reference_server(protocol, started.folder, started.stack)
        )

    return start


def umbridge_adapter(started: Started) -> Server:
    """umbridge.Model and tritonclient.grpc, before `gateway reference`."""
    peer("adapters")
    return servers.umbridge_adapter(
        "umbridge_to_grpc", reference("v2-grpc")(started).address, started.folder, started.stack
    )


def v2_adapter(started: Started) -> Server:
    """FastAPI, pydantic and httpx, before `gateway reference`."""
    peer("adapters")
    backend = f"http://{reference('umbridge')(started).address}"
    return servers.fastapi_adapter("v2_to_umbridge", started.folder, started.stack, UMBRIDGE=backend)


def mlserver(started: Started) -> Server:
    """In one process, without metrics and access log."""
    program = peer("mlserver") / "bin" / "mlserver"
    http, folder = free_port(), started.folder / "mlserver-models"
    folder.mkdir()
    shutil.copy(ENVIRONMENTS / "mlserver_vectors.py", folder)
    ports = {"host": "127.0.0.1", "http_port": http, "grpc_port": free_port()}
    settings = {**ports, "metrics_endpoint": None, "debug": False, "parallel_workers": 0}
    (folder / "settings.json").write_text(json.dumps(settings))
    for name in models.NAMES:
        home = folder / name
        home.mkdir()
        served = {"name": name, "implementation": "mlserver_vectors.Vector"}
        (home / "model-settings.json").write_text(json.dumps(served))
    address = f"127.0.0.1:{http}"
    return started.run("mlserver", [str(program), "start", str(folder)], address, _all_ready(address))


def kserve(started: Started) -> Server:
    python, http = peer("kserve") / "bin" / "python", free_port()
    address = f"127.0.0.1:{http}"
    command = [str(python), str(ENVIRONMENTS / "kserve_vectors.py"), str(http)]
    return started.run("kserve", command, address, lambda: answers(f"http://{address}/v2/models/vector_10/ready"))


def triton(protocol: str) -> Start:
    """One process for both protocols; the model is of the Python backend."""

    def start(started: Started) -> Server:
        home, http, grpc = peer("triton"), free_port(), free_port()
        folder = started.folder / "triton-models"
        input0, output0 = (repository.Port(name, "FP32", (-1, -1)) for name in ("input0", "output0"))
        model = repository.Model("vector_10", "identity", (input0,), (output0,))
        code = folder / model.name / "1"
        code.mkdir(parents=True)
        shutil.copy(repository.HERE / model.code, code / "model.py")
        shutil.copy(repository.HERE.parent / "functions.py", code)
        (folder / model.name / "config.pbtxt").write_text(model.config())
        memory = f"triton_benchmark_{http}_"
        command = triton_command(home, folder, http, grpc, memory)
        address = f"127.0.0.1:{http}"
        ready = _all_ready(address, (model.name,))
        started.stack.callback(_remove, memory)
        server = started.run("triton", command, address, ready, **triton_environment(home))
        started.server("triton v2-rest", lambda: server)
        started.server("triton v2-grpc", lambda: Server(f"127.0.0.1:{grpc}", server.pid))
        return server

    def one(started: Started) -> Server:
        started.server("triton", lambda: start(started))
        return started.server(f"triton {protocol}", lambda: start(started))

    return one


def _all_ready(address: str, names: tuple[str, ...] = models.NAMES) -> Callable[[], bool]:
    return lambda: all(answers(f"http://{address}/v2/models/{name}/ready") for name in names)


def _remove(memory: str) -> None:
    """A Triton that was killed leaves a megabyte per model behind."""
    for region in Path("/dev/shm").glob(f"{memory}*"):
        region.unlink(missing_ok=True)
