"""Settings of the servers of one backend."""

from pathlib import Path

from gateway.core.frozen import frozen
from gateway.servers.engine import Resources


@frozen
class ServersSettings:
    """The servers of one backend, as `backends.NAME.servers` configures them."""

    backend: str
    engine: str
    """The name of a module in `gateway.servers.engines`."""
    command: tuple[str, ...]
    """A program with its arguments; for a job script, only its absolute path."""
    is_script: bool
    state: Path
    """The folder for the gateway's persistent data: its jobs, and a folder for each of them."""
    directory: Path | None = None
    """The folder of the engine's server, for engines that need it."""
    min: int = 0
    max: int = 1
    idle: float = 300.0
    """Time without a call after which a server is stopped, in seconds."""
    start_timeout: float = 600.0
    """Maximum time from the submission of a job to the announcement of its server, in seconds."""
    calls_per_server: int = 0
    """The number of calls after which a server is replaced; 0: no limit."""
    resources: Resources = Resources()
    keep: bool = False
    """True if the jobs continue when the gateway stops."""
