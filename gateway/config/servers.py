"""The key `backends.*.servers`: model servers that the gateway starts itself."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Strict

from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE, Flag, Keys, Name, OrText, Period, Size, refusal
from gateway.config.problems import Finding

Count = Annotated[int, Strict(), Field(ge=0)]

_OF_SHELLS = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1"})


def _words(value: Any) -> Any:
    """Split a command line into words, like a shell."""
    if not isinstance(value, str):
        return value
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise refusal(f"{VALUE} is not a command: {str(error).lower()}") from None
    for each in words:
        if each in _OF_SHELLS:
            raise refusal(f"no shell runs the command, so {each!r} would be an argument; use a job script (`script`)")
    return words


Command = Annotated[tuple[Name, ...], Field(min_length=1), BeforeValidator(_words), OrText(minLength=1)]
"""A program and its arguments: a list, or one text that the gateway splits like a shell."""


class ResourcesConfig(Keys):
    """Resources of one job that the job script does not set. The engine `process` supports only `memory` and
    `seconds`."""

    cpus: Size | None = None
    """Number of processor cores."""
    gpus: Size | None = None
    """Number of GPUs."""
    memory: Size | None = None
    """Memory, in bytes. The engine `process` applies this limit to the address space of each process of a job."""
    seconds: Period | None = None
    """Maximum runtime (walltime) of a job, in seconds. The engine then terminates the job. Before this limit, the
    gateway stops sending calls to the job's server, and replaces the server."""
    options: tuple[Name, ...] = ()
    """Additional engine options, such as `--partition=gpu` for SLURM."""


class ServersConfig(Keys):
    """Model servers that the gateway starts when calls are waiting. Each server is a job of an engine."""

    engine: Literal["process", "hyperqueue", "slurm"]
    """Engine that runs the jobs: `process` (this machine), `hyperqueue` or `slurm`."""
    directory: Name | None = None
    """HyperQueue's server directory. Default: the engine's default."""
    script: Name | None = None
    """Absolute path of a job script. The script's environment contains `PORT` and
    `UMBRIDGE_LOADBALANCER_COMM_FILEDIR`."""
    command: Command | None = None
    """Program with its arguments, instead of `script`: a list, or a string that the gateway splits into words like a
    shell. The gateway replaces `{port}` with the port, and runs the command without a shell."""
    min: Count = 0
    """Minimum number of servers, which run even without calls."""
    max: Size = 1
    """Maximum number of jobs, including jobs that are starting or stopping."""
    idle: Period = 300
    """Idle time after which the gateway stops a server, in seconds."""
    start_timeout: Period = 600
    """Maximum time until a job announces its server, in seconds, including the time in the engine's queue. If no server
    is available, calls that have waited for this time fail."""
    calls_per_server: Count = 0
    """Number of calls after which the gateway replaces a server. 0: no limit."""
    resources: ResourcesConfig = ResourcesConfig()
    """Resources of one job."""
    keep: Flag = False
    """Keep jobs running when the gateway stops; the next gateway with this configuration takes over the jobs. If
    `false`, jobs stop with the gateway."""
    state: Name | None = None
    """Absolute path of a folder in which the gateway records its jobs, with a subfolder for each job. If jobs run on
    other machines, the folder must be available there too. Default: `modelglot/BACKEND` in `$XDG_STATE_HOME`, or in
    `~/.local/state`."""

    def findings(self, location: Location) -> Iterator[Finding]:
        """Find inconsistent keys, and files that do not exist."""
        if (self.script is None) == (self.command is None):
            yield Finding(location, "expected either `script` or `command`", at_key=True)
        if self.max < self.min:
            yield Finding((*location, "max"), f"expected at least `min`, which is {self.min}, got {VALUE}")
        if self.script is not None:
            yield from _script((*location, "script"), self.script)
        if self.state is not None and not self.state.startswith("/"):
            yield Finding((*location, "state"), f"expected an absolute path, got {VALUE}")
        if self.directory is not None and self.engine != "hyperqueue":
            yield Finding((*location, "directory"), f"the engine {self.engine} has no directory; remove the key")
        if self.engine == "process":
            for name in ("cpus", "gpus", "options"):
                if name in self.resources.model_fields_set:
                    text = "the engine process cannot limit this resource; remove the key"
                    yield Finding((*location, "resources", name), text, at_key=True)

    def warnings(self, location: Location, catalog: Catalog) -> Iterator[Finding]:
        """Find programs that are missing on this machine: programs of the engine, and the program in `command` of the
        engine `process`. A missing program is not an error, because users can check a configuration on a machine
        without access to the cluster."""
        missing = catalog.why_not_engine(self.engine)
        if missing:
            text = f"this machine cannot start servers: the engine {VALUE} needs {missing}"
            yield Finding((*location, "engine"), text)
        if self.engine == "process" and self.command is not None and which(self.command[0]) is None:
            program = self.command[0]
            hint = (
                "; write the command with its arguments as one text, or as a list of words"
                if " " in program
                else "; install it, or write its full path"
            )
            text = f"this machine cannot start servers: the program {program!r} does not exist{hint}"
            yield Finding((*location, "command"), text)


def _script(location: Location, script: str) -> Iterator[Finding]:
    path = Path(script)
    if not path.is_absolute():
        yield Finding(location, f"expected the absolute path of a job script, got {VALUE}")
    elif not path.is_file():
        yield Finding(location, f"{VALUE} is not a file", files=(script,))
    elif not os.access(path, os.R_OK):
        yield Finding(location, f"{VALUE} cannot be read", files=(script,))


def state_folder(backend: str) -> Path:
    """Return the default of `state`."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(base) / "modelglot" / (re.sub(r"[^A-Za-z0-9_.-]", "_", backend).lstrip(".") or "_")
