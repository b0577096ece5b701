"""Defines the settings of one backend's servers."""

from pathlib import Path

from gateway.core.frozen import frozen
from gateway.servers.engine import Resources


@frozen
class ServersSettings:
    """The settings from `backends.NAME.servers`."""

    backend: str
    engine: str
    """The name of a module in `gateway.servers.engines`."""
    command: tuple[str, ...]
    """A program with its arguments, or the absolute path of a job script."""
    is_script: bool
    state: Path
    """The folder for the gateway's persistent data: the job list, and a folder for each job."""
    directory: Path | None = None
    """The folder of the engine's server, for engines that need one."""
    min: int = 0
    max: int = 1
    idle: float = 300.0
    """The time without a call after which the gateway stops a server, in seconds."""
    start_timeout: float = 600.0
    """Maximum time from the submission of a job to the announcement of its server, in seconds."""
    calls_per_server: int = 0
    """The number of calls after which the gateway replaces a server; 0 means no limit."""
    resources: Resources = Resources()
    keep: bool = False
    """True if the jobs continue after the gateway stops."""
