"""Real servers that speak JSON in forms of their own: the programs of `servers/json`, on loopback."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.interop.processes import HERE, Process, answers, clean_environment, free_port
from tests.limits import GENEROUS
from tests.peers.build import require

PROGRAMS = HERE / "servers" / "json"


@dataclass
class JsonServer:
    """A server; `url` ends without a slash."""

    process: Process
    url: str

    def stop(self) -> int:
        return self.process.stop(seconds=10)


def start_flask(folder: Path, program: str = "flask_app") -> JsonServer:
    """A program of Flask by its name; without a path of its own for probes, it is ready when it answers at all."""
    port = free_port()
    return _started(folder, port, ["flask", "--app", program, "run", "--port", str(port)], "/static/none", 404)


def start_fastapi(folder: Path, program: str = "fastapi_app") -> JsonServer:
    port = free_port()
    return _started(folder, port, ["uvicorn", f"{program}:app", "--port", str(port)], "/health")


def start_bentoml(folder: Path) -> JsonServer:
    port = free_port()
    command = ["bentoml", "serve", "bentoml_service:Numbers", "--host", "127.0.0.1", "--port", str(port)]
    return _started(folder, port, command, "/readyz")


def start_litserve(folder: Path) -> JsonServer:
    port = free_port()
    return _started(folder, port, ["python", "litserve_server.py", str(port)], "/health")


def write_mlflow_models(folder: Path) -> None:
    """Write the models of `mlflow_models.py` into a folder."""
    writing = _process(folder / "programs", ["python", "mlflow_models.py", str(folder)])
    assert writing.wait(GENEROUS) == 0, writing.output()


def start_mlflow(folder: Path, model: Path) -> JsonServer:
    """`mlflow models serve` with a model that was written."""
    port = free_port()
    options = ["--env-manager", "local", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    return _started(folder, port, ["mlflow", "models", "serve", "--model-uri", str(model), *options], "/ping")


def _started(folder: Path, port: int, command: Sequence[str], probe: str, status: int = 200) -> JsonServer:
    process = _process(folder / "server", command)
    url = f"http://127.0.0.1:{port}"
    process.wait_until(lambda: answers(f"{url}{probe}", status), GENEROUS)
    return JsonServer(process, url)


def _process(folder: Path, command: Sequence[str]) -> Process:
    """A command of the peer's environment, in a folder with the programs."""
    bin = require("json-servers") / "bin"
    shutil.copytree(PROGRAMS, folder, dirs_exist_ok=True)
    # Commands find each other, and BentoML a home of its own, in which it writes.
    environment = clean_environment(
        PATH=f"{bin}:/usr/bin:/bin", BENTOML_HOME=str(folder / "bentoml"), BENTOML_DO_NOT_TRACK="True"
    )
    return Process([str(bin / command[0]), *command[1:]], folder, environment)
