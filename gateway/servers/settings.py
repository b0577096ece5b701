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
    """A program with its arguments; for a job script its absolute path alone."""
    is_script: bool
    state: Path
    """The folder of what the gateway has to remember: its jobs, and a folder for each of them."""
    directory: Path | None = None
    """Where the engine's server is found, for engines that need it."""
    min: int = 0
    max: int = 1
    idle: float = 300.0
    """Seconds without a call after which a server is ended."""
    start_timeout: float = 600.0
    """Seconds that a server may take from its job's submission until it announces itself."""
    calls_per_server: int = 0
    """The calls after which a server is replaced; 0: any number."""
    resources: Resources = Resources()
    keep: bool = False
    """The jobs go on when the gateway ends."""
