"""The key `backends.*.servers`: model servers that the gateway starts itself."""

import os
import re
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler, Strict
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from gateway.config.fields import VALUE, Flag, Keys, Name, Period, Size, refusal

Count = Annotated[int, Strict(), Field(ge=0)]

_OF_SHELLS = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1"})


def _words(value: Any) -> Any:
    """A command that is written as one text, as the words that a shell makes of it."""
    if not isinstance(value, str):
        return value
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise refusal(f"{VALUE} is no command: {str(error).lower()}") from None
    for each in words:
        if each in _OF_SHELLS:
            raise refusal(
                f"no shell runs the command, and {each!r} would be an argument; write a job script (`script`)"
            )
    return words


class _TextOrWords:
    """The JSON Schema of a list of words that may be one text."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [handler(schema), {"type": "string", "minLength": 1}]}


Command = Annotated[tuple[Name, ...], Field(min_length=1), BeforeValidator(_words), _TextOrWords()]
"""A program and its arguments: a list, or one text that is split as a shell does."""


class ResourcesConfig(Keys):
    """The resources that one job needs, as far as its job script does not say it. The engine `process` knows `memory`
    and `seconds` only."""

    cpus: Size | None = None
    """Processor cores."""
    gpus: Size | None = None
    """GPUs."""
    memory: Size | None = None
    """Bytes of memory. The engine `process` bounds the address space of each process of a job by it."""
    seconds: Period | None = None
    """The walltime: the engine ends a job that runs longer. Before that the server gets no more calls, and is
    replaced."""
    options: tuple[Name, ...] = ()
    """Further options in the engine's own words, such as `--partition=gpu` for SLURM."""


class ServersConfig(Keys):
    """Model servers that the gateway starts when calls wait for them, each as a job of an engine."""

    engine: Literal["process", "hyperqueue", "slurm"]
    """What runs the jobs: `process` (this machine), `hyperqueue` or `slurm`."""
    directory: Name | None = None
    """HyperQueue's server directory; without it the engine's default."""
    script: Name | None = None
    """The absolute path of a job script. It gets the variables `PORT` and `UMBRIDGE_LOADBALANCER_COMM_FILEDIR`."""
    command: Command | None = None
    """In place of `script`: a program with its arguments, as a list or as one text, which is split into words as a
    shell does it. `{port}` is replaced by the port. No shell runs it."""
    min: Count = 0
    """How many servers are kept even if nobody calls."""
    max: Size = 1
    """The most jobs at once, those that start and end included."""
    idle: Period = 300
    """Seconds without a call after which a server is ended."""
    start_timeout: Period = 600
    """Seconds that a job may take until its server has announced itself, the time in the engine's queue included. Calls
    that wait that long without any server get an error."""
    calls_per_server: Count = 0
    """The calls after which a server is replaced by a new one; 0: any number."""
    resources: ResourcesConfig = ResourcesConfig()
    """What one job needs."""
    keep: Flag = False
    """Jobs go on when the gateway ends, and the next gateway with this configuration uses them. Without it they are
    ended with the gateway."""
    state: Name | None = None
    """The absolute path of a folder in which the gateway remembers its jobs, with a folder for each job; where jobs run
    on other machines, one that these see, too. Without it `modelglot/BACKEND` in `$XDG_STATE_HOME`, or in
    `~/.local/state`."""


def state_folder(backend: str) -> Path:
    """The default of `state`."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local/state")
    return Path(base) / "modelglot" / (re.sub(r"[^A-Za-z0-9_.-]", "_", backend).lstrip(".") or "_")
