"""Real servers of a fleet: Tritons with explicit model control, and MLServers, that start without any model.

All servers of one kind have the same repository. Each model answers its own name and the numbers that it got.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.processes import HERE, Process, V2Server, answers, free_port, triton_command, triton_environment
from tests.interop.v2_servers import write_settings
from tests.limits import GENEROUS
from tests.peers.build import require

MODELS = HERE / "servers" / "fleet_models"
CONFIG = """\
name: "{name}"
backend: "python"
max_batch_size: 0
input {{ name: "x" data_type: TYPE_FP64 dims: [-1] }}
output [ {{ name: "model" data_type: TYPE_STRING dims: [1] }}, {{ name: "y" data_type: TYPE_FP64 dims: [-1] }} ]
instance_group {{ kind: KIND_CPU count: 1 }}
"""
PARAMETER = 'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
OPTIONS = ("--model-control-mode=explicit", "--disable-auto-complete-config")
"""Without its completion of configurations a Triton starts each model once and not twice: a load takes a fifth."""


def write_triton_models(folder: Path, names: Sequence[str], faults: Mapping[str, Mapping[str, str]]) -> Path:
    """The model repository; `faults` has the parameters of models that do not just load."""
    for name in names:
        code = folder / name / "1"
        code.mkdir(parents=True)
        shutil.copy(MODELS / "triton_model.py", code / "model.py")
        parameters = {"kind": "named", **faults.get(name, {})}
        written = "".join(PARAMETER.format(key=key, value=value) for key, value in parameters.items())
        (folder / name / "config.pbtxt").write_text(CONFIG.format(name=name) + written)
    return folder


@dataclass
class FleetTriton:
    """A Triton that can be killed and started again at the same addresses, which are `host:port`."""

    repository: Path
    folder: Path
    http: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")
    grpc: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")
    process: Process | None = None

    def begin(self) -> None:
        """Start it, without waiting until it serves."""
        home = require("triton")
        http, grpc = (int(each.rpartition(":")[2]) for each in (self.http, self.grpc))
        command = triton_command(home, self.repository, http, grpc, self._memory)
        self.process = Process([*command, *OPTIONS], self.folder, triton_environment(home))

    def wait(self) -> None:
        assert self.process is not None
        self.process.wait_until(lambda: self.serves, seconds=GENEROUS)

    @property
    def serves(self) -> bool:
        return answers(f"http://{self.http}/v2/health/ready")

    def kill(self) -> None:
        """It and the processes of its models are gone when this returns."""
        if self.process is not None and self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """End it, paused or not."""
        if self.process is None:
            return
        self.process.signal(signal.SIGCONT)
        self.process.stop(seconds=20)
        self.process = None
        for region in Path("/dev/shm").glob(f"{self._memory}*"):
            region.unlink(missing_ok=True)

    @property
    def _memory(self) -> str:
        """What the names of its shared memory begin with."""
        return f"triton_{os.getpid()}_{self.http.rpartition(':')[2]}_"


def write_mlserver_models(folder: Path, names: Sequence[str], http: int, grpc: int, fails: Mapping[str, str]) -> Path:
    """What `mlserver start` takes: the server's settings, the runtime, and a folder with the settings of each model.

    `fails` has the models whose load fails, with the reason.
    """
    folder.mkdir(parents=True)
    shutil.copy(MODELS / "mlserver_model.py", folder)
    write_settings(folder, http, grpc, load_models_at_startup=False)
    for name in names:
        (folder / name).mkdir()
        model: dict[str, object] = {"name": name, "implementation": "mlserver_model.Named"}
        if name in fails:
            model["parameters"] = {"extra": {"fails": fails[name]}}
        (folder / name / "model-settings.json").write_text(json.dumps(model))
    return folder


class FleetMlserver(V2Server):
    """An MLServer that loads models when it is asked."""

    def wait(self) -> None:
        self.process.wait_until(lambda: answers(f"http://{self.http}/v2/health/ready"), GENEROUS)


def start_mlserver(folder: Path, names: Sequence[str], fails: Mapping[str, str]) -> FleetMlserver:
    """Begin it, without waiting until it serves."""
    home, http, grpc = require("mlserver"), free_port(), free_port()
    models = write_mlserver_models(folder / "models", names, http, grpc, fails)
    process = Process([str(home / "bin" / "mlserver"), "start", str(models)], folder)
    return FleetMlserver(process, f"127.0.0.1:{http}", f"127.0.0.1:{grpc}")
