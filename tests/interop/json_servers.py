"""Real servers that speak JSON in forms of their own: the programs of `servers/json`, on loopback.

The peers `cog`, `seldon`, `torchserve` and `ray` are built by `make peers`, the last only by its name.
"""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from unittest import SkipTest

from tests.interop.processes import HERE, Process, Server, answers, clean_environment, free_port
from tests.limits import GENEROUS
from tests.peers import system
from tests.peers.build import require

PROGRAMS = HERE / "servers" / "json"


def start_flask(folder: Path, program: str = "flask_app") -> Server:
    """A program of Flask by its name; without a path of its own for probes, it is ready when it answers at all."""
    port = free_port()
    return _started(folder, port, ["flask", "--app", program, "run", "--port", str(port)], "/static/none", 404)


def start_fastapi(folder: Path, program: str = "fastapi_app") -> Server:
    port = free_port()
    return _started(folder, port, ["uvicorn", f"{program}:app", "--port", str(port)], "/health")


def start_bentoml(folder: Path) -> Server:
    port = free_port()
    command = ["bentoml", "serve", "bentoml_service:Numbers", "--host", "127.0.0.1", "--port", str(port)]
    return _started(folder, port, command, "/readyz")


def start_litserve(folder: Path) -> Server:
    port = free_port()
    return _started(folder, port, ["python", "litserve_server.py", str(port)], "/health")


def write_mlflow_models(folder: Path) -> None:
    """Write the models of `mlflow_models.py` into a folder."""
    writing = _process(folder / "programs", ["python", "mlflow_models.py", str(folder)])
    assert writing.wait(GENEROUS) == 0, writing.output()


def start_mlflow(folder: Path, model: Path) -> Server:
    """`mlflow models serve` with a model that was written."""
    port = free_port()
    options = ["--env-manager", "local", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    return _started(folder, port, ["mlflow", "models", "serve", "--model-uri", str(model), *options], "/ping")


def start_cog(folder: Path) -> Server:
    """Cog's server, with one prediction at a time."""
    port = free_port()
    command = ["python", "-m", "cog.server.http", "--host", "127.0.0.1"]
    settings = {"PORT": str(port), "COG_PREDICT_TYPE_STUB": "cog_predictor.py:Predictor"}
    server = _started(folder, port, command, "/health-check", peer="cog", settings=settings)
    server.process.wait_until(lambda: b"READY" in read(f"{server.url}/health-check"), GENEROUS)
    return server


def start_seldon(folder: Path) -> Server:
    port = free_port()
    command = ["gunicorn", "--bind", f"127.0.0.1:{port}", "seldon_double:app"]
    return _started(folder, port, command, "/health/ping", peer="seldon")


TORCHSERVE = """
inference_address=http://127.0.0.1:{}
management_address=http://127.0.0.1:{}
metrics_address=http://127.0.0.1:{}
grpc_inference_address=127.0.0.1
grpc_management_address=127.0.0.1
grpc_inference_port={}
grpc_management_port={}
disable_token_authorization=true
default_workers_per_model=1
number_of_netty_threads=1
"""


def start_torchserve(folder: Path) -> Server:
    """TorchServe with the model `double`, version 1.0, and one worker. Raises SkipTest: there is no Java."""
    if "java" in system.missing():
        raise SkipTest("TorchServe needs java")
    ports = [free_port() for _ in range(5)]
    model = folder / "server" / "models" / "double"
    (model / "MAR-INF").mkdir(parents=True)
    shutil.copy(PROGRAMS / "torchserve_handler.py", model)
    named = {"modelName": "double", "handler": "torchserve_handler.py", "modelVersion": "1.0"}
    (model / "MAR-INF" / "MANIFEST.json").write_text(json.dumps({"runtime": "python", "model": named}))
    (folder / "server" / "config.properties").write_text(TORCHSERVE.format(*ports))
    command = ["torchserve", "--start", "--foreground", "--ncs", "--ts-config", "config.properties"]
    command += ["--model-store", "models", "--models", "double=double"]
    # It writes its process id there, and one that runs elsewhere is none of its concern.
    settings = {"TMPDIR": str(folder), "JAVA_TOOL_OPTIONS": "-Xmx256m"}
    server = _started(folder, ports[0], command, "/ping", peer="torchserve", settings=settings)
    server.process.wait_until(lambda: answers(f"{server.url}/predictions/double"), GENEROUS)
    return server


def start_ray(folder: Path) -> Server:
    """Ray Serve with applications at `/double` and `/text`."""
    port = free_port()
    settings = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    server = _started(
        folder, port, ["python", "ray_applications.py", str(port)], "/-/routes", peer="ray", settings=settings
    )
    server.process.wait_until(lambda: b"/text" in read(f"{server.url}/-/routes"), GENEROUS)
    return server


def read(url: str) -> bytes:
    """The body of the reply to a GET."""
    with urllib.request.urlopen(url, timeout=GENEROUS) as reply:
        body: bytes = reply.read()
        return body


def _started(
    folder: Path,
    port: int,
    command: Sequence[str],
    probe: str,
    status: int = 200,
    peer: str = "json-servers",
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Server:
    process = _process(folder / "server", command, peer, settings)
    url = f"http://127.0.0.1:{port}"
    process.wait_until(lambda: answers(f"{url}{probe}", status), GENEROUS)
    return Server(process, url)


def _process(
    folder: Path, command: Sequence[str], peer: str = "json-servers", settings: Mapping[str, str] = MappingProxyType({})
) -> Process:
    """A command of the peer's environment, in a folder with the programs. `settings` are for its own environment."""
    bin = require(peer) / "bin"
    shutil.copytree(PROGRAMS, folder, dirs_exist_ok=True)
    # Commands find each other, and BentoML a home of its own, in which it writes.
    environment = clean_environment(
        PATH=f"{bin}:/usr/bin:/bin", BENTOML_HOME=str(folder / "bentoml"), BENTOML_DO_NOT_TRACK="True", **settings
    )
    return Process([str(bin / command[0]), *command[1:]], folder, environment)
