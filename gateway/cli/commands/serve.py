"""`gateway serve`: run the gateway with a configuration file until SIGTERM or SIGINT."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.assembly.listening import BindError
from gateway.assembly.observing import is_on
from gateway.assembly.server_info import INFO
from gateway.cli.examples import examples
from gateway.cli.exit_codes import fail
from gateway.cli.options import ConfigArgument, OptionalConfigFile, catalog, one_config, read_with_warnings
from gateway.cli.orphans import reap_if_first
from gateway.cli.stopping import Signals, drain_on_signal, is_started
from gateway.config.keys import Config
from gateway.config.observing import LogConfig
from gateway.config.warnings import find_warnings
from gateway.config.watching import Look, look_at_all
from gateway.core.tasks import spawn
from gateway.runtime.process import log_to_stderr, run, say, warn
from gateway.runtime.workers.worker_config import number_of_workers
from gateway.transports.listener_connections import raise_descriptor_limit

if TYPE_CHECKING:
    from gateway.runtime.app import Gateway
    from gateway.tools.cassettes.recorder import Recorder

log = logging.getLogger(__name__)

PATHS = {
    "health": "/healthz, /readyz, /metrics",
    "admin": "/ (console), /status, /reload, /docs",
    "scaler": "KEDA's external scaler",
}
"""The paths on each port, which the command prints when the gateway starts."""


def serve(file: ConfigArgument = None, config: OptionalConfigFile = None) -> None:
    """Run the gateway with a configuration file. SIGTERM or SIGINT stops the gateway after the times set in `drain`; a
    second signal stops it immediately. The gateway reloads the configuration on SIGHUP and when the file changes."""
    serve_file(one_config(file, config))


def serve_file(config: Path, recorder: "Recorder | None" = None) -> None:
    """Run the gateway with a configuration file. `recorder`, if set, records requests and responses."""
    files = look_at_all(config)
    loaded, warnings = read_with_warnings(config)
    log_to_stderr(loaded.log)
    for warning in warnings:
        if loaded.log.format == "json":
            log.warning("%s", warning)
        else:
            warn(warning)
    raise_descriptor_limit()
    log.info("%s %s starts with %s", INFO.name, INFO.version, config)
    count = 1 if recorder is not None else number_of_workers(loaded)
    run(_serve(config, files, loaded, recorder) if count == 1 else _supervise(config, files, loaded, count))


async def _serve(path: Path, files: Look, config: Config, recorder: "Recorder | None") -> None:
    # Imported here because the import takes a quarter of a second, and other commands do not need it.
    from gateway.cli.reloading import Reloader
    from gateway.runtime.app import Gateway

    reap_if_first()
    reloader = Reloader(path, files)
    tap = None if recorder is None else recorder.tap
    gateway = reloader.gateway = Gateway(config, reloader.on_call, lambda config: find_warnings(config, catalog()), tap)
    signals = Signals(reloader.on_hangup)
    server = gateway if recorder is None else _Recorded(gateway, recorder)
    try:
        if not await is_started(gateway.start(), signals):
            await drain_on_signal(server, signals, 0, config.drain.timeout)
    except (BindError, ValueError) as error:
        fail(error)
    addresses = {name: listener.address for name, listener in gateway.state.listeners.items()}
    _print_start(gateway, addresses, [each.address for each in gateway.references])
    watching = spawn(reloader.watch())
    await signals.first.wait()
    watching.cancel()
    drain = gateway.state.config.drain
    await drain_on_signal(server, signals, drain.delay, drain.timeout)


async def _supervise(path: Path, files: Look, config: Config, count: int) -> None:
    from gateway.cli.reloading import Reloader
    from gateway.runtime.app import Gateway
    from gateway.runtime.workers.supervisor import Supervisor, WorkerError

    reap_if_first()
    reloader = Reloader(path, files)
    signals = Signals(reloader.on_hangup)
    try:
        supervisor = reloader.gateway = Supervisor(config, count)
        supervisor.gateway = Gateway(
            supervisor.own(config),
            reloader.on_call,
            lambda config: find_warnings(config, catalog()),
            None,
            supervisor.part,
        )
        if not await is_started(supervisor.start(), signals):
            await drain_on_signal(supervisor, signals, config.drain.delay, config.drain.timeout)
    except (BindError, ValueError, WorkerError) as error:
        fail(error)
    first = supervisor.workers[0]
    _print_start(supervisor.gateway, first.addresses, first.references)
    watching = spawn(reloader.watch())
    await signals.first.wait()
    watching.cancel()
    drain = supervisor.gateway.state.config.drain
    await drain_on_signal(supervisor, signals, drain.delay, drain.timeout)


def _print_start(gateway: "Gateway", addresses: Mapping[str, str], references: Sequence[str]) -> None:
    """Print the addresses of listeners, sample servers and ports, example commands, and the line `ready`."""
    config = gateway.state.config
    if not _is_read_as_json(config.log):
        lines = _addresses(gateway, addresses, references)
        say("\n".join([*lines, *examples(config, addresses), "ready"]))
    log.info("ready")


class _Recorded:
    """A gateway with a recorder. After the gateway has drained, the recorder writes its queued entries."""

    def __init__(self, gateway: "Gateway", recorder: "Recorder") -> None:
        self._gateway = gateway
        self._recorder = recorder

    def announce_end(self) -> None:
        """See `Gateway.announce_end`."""
        self._gateway.announce_end()

    async def drain(self, seconds: float) -> int:
        """See `Gateway.drain`."""
        given_up = await self._gateway.drain(seconds)
        await asyncio.to_thread(self._recorder.close)
        log.info("recorded requests: %d, left out: %d", self._recorder.recorded, self._recorder.left_out.total())
        return given_up


def _is_read_as_json(config: LogConfig) -> bool:
    """Return whether a program reads standard output as one JSON object per line. If so, the command prints only access
    lines there, and the listener addresses go to the log."""
    return config.format == "json" and config.access.path == "stdout" and is_on(config)


def _addresses(gateway: "Gateway", addresses: Mapping[str, str], references: Sequence[str]) -> list[str]:
    config = gateway.state.config
    rows = [(f"listener {each.name}", addresses[each.name], ", ".join(each.protocols)) for each in config.listeners]
    rows += [
        (f"reference {each.protocol}", address, ", ".join(each.models))
        for each, address in zip(config.reference, references, strict=True)
    ]
    rows += [(name, port.address, PATHS[name]) for name, port in gateway.ports.all.items()]
    width = max(len(name) for name, _, _ in rows)
    return [f"{name:{width}}  {address:21}  {what}" for name, address, what in rows]
