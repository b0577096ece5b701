"""The real MLServer and KServe, serving the table of `servers/v2_models.py`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from tests.interop.processes import HERE, Process, V2Server, answers, free_port, start_script
from tests.interop.servers.v2_models import TABLE, Model
from tests.limits import GENEROUS
from tests.peers.build import require

CODE = ("mlserver_runtime.py", "v2_kinds.py", "v2_models.py", "functions.py")


def start_mlserver(folder: Path) -> V2Server:
    home, http, grpc = require("mlserver"), free_port(), free_port()
    models = write_models(folder / "models", http, grpc)
    return _started(Process([str(home / "bin" / "mlserver"), "start", str(models)], folder), http, grpc)


def start_kserve(folder: Path) -> V2Server:
    http, grpc = free_port(), free_port()
    return _started(start_script("kserve", "kserve_server", folder, http, grpc), http, grpc)


def _started(process: Process, http: int, grpc: int) -> V2Server:
    # Not the server's own readiness: MLServer is ready before its first model is loaded.
    ready = f"http://127.0.0.1:{http}/v2/models/{TABLE[0].name}/ready"
    process.wait_until(lambda: answers(ready), GENEROUS)
    return V2Server(process, f"127.0.0.1:{http}", f"127.0.0.1:{grpc}")


def write_models(folder: Path, http: int, grpc: int) -> Path:
    """What `mlserver start` takes: the server's settings, the runtime, and a folder with the settings of each model."""
    folder.mkdir(parents=True)
    for name in CODE:
        shutil.copy(HERE / "servers" / name, folder)
    write_settings(folder, http, grpc)
    for model in TABLE:
        home = folder / model.name
        home.mkdir()
        (home / "model-settings.json").write_text(json.dumps(model_settings(model)))
    return folder


def write_settings(folder: Path, http: int, grpc: int, **more: object) -> None:
    settings = {
        "host": "127.0.0.1",
        "http_port": http,
        "grpc_port": grpc,
        "grpc_max_message_length": 2**27,  # 4 MiB by default
        "metrics_endpoint": None,
        "debug": False,
        # Streams work only in the server's own process, and not through its compression.
        "parallel_workers": 0,
        "gzip_enabled": False,
        **more,
    }
    (folder / "settings.json").write_text(json.dumps(settings))


def model_settings(model: Model) -> dict[str, Any]:
    ports = {"inputs": model.inputs, "outputs": model.outputs}
    settings: dict[str, Any] = {key: [each.described() for each in value] for key, value in ports.items() if value}
    settings["name"] = model.name
    settings["implementation"] = f"mlserver_runtime.{model.kind.title() if model.streams else 'Runtime'}"
    if model.version:
        settings |= {"parameters": {"version": model.version}, "versions": list(model.versions)}
    return settings
