"""The key `backends.*.servers`: model servers that the gateway starts itself."""

import os
import re
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, Strict

from gateway.config.fields import VALUE, Flag, Keys, Name, OrText, Period, Size, refusal

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


def state_folder(backend: str) -> Path:
    """Return the default of `state`."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(base) / "modelglot" / (re.sub(r"[^A-Za-z0-9_.-]", "_", backend).lstrip(".") or "_")
