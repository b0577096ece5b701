"""Reloads the configuration of `gateway serve`: on SIGHUP, when a file has changed, and on `POST /reload`.

The gateway first checks the configuration, as `gateway check` does. If the configuration has errors, the gateway logs
them and keeps the current configuration. If the errors concern other files, such as certificates, the gateway reads the
configuration again when one of these files changes.
"""

import asyncio
import logging
import typing
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from gateway.admin.state import GatewayState
from gateway.admin.status import ConfigurationError, LoadError, NotReloaded, Reloaded
from gateway.assembly.certificates import certificate_files
from gateway.assembly.listening import BindError
from gateway.cli.options import catalog
from gateway.config import Config, ConfigError, Problem, load_with_warnings
from gateway.config.problems import without_credentials
from gateway.config.watching import Look, Watched, look, look_at_all
from gateway.core.long_work import small_collections
from gateway.core.surviving import log_and_continue
from gateway.core.tasks import spawn
from gateway.runtime.app.replacing import ReloadError
from gateway.runtime.process import log_to_stderr

log = logging.getLogger(__name__)


class Reloadable(typing.Protocol):
    """A gateway in one process, or the Supervisor of several gateway processes."""

    @property
    def state(self) -> GatewayState:
        """The configuration in use, and the error from the last reload, if any."""

    def reopen_logs(self) -> None:
        """See `Gateway.reopen_logs`."""

    async def reload(self, config: Config) -> tuple[str, ...]:
        """See `Gateway.reload`."""


class Reloader:
    """Reloads the configuration at `path`. `loaded` is the state of its files before the first read. Set `gateway`
    before the first call."""

    gateway: Reloadable

    def __init__(self, path: Path, loaded: Look) -> None:
        self._path = path
        self._watched = Watched(loaded)
        self._failed_on = Watched({})
        """Files, other than the configuration itself, that made the last attempt fail."""
        self._one_at_a_time = asyncio.Lock()

    def on_hangup(self) -> None:
        """Start a task that reloads."""
        spawn(self._reload("SIGHUP"))

    async def on_call(self) -> Reloaded | NotReloaded:
        """Reload, and return the changes or the errors."""
        return await self._reload("POST /reload")

    async def watch(self) -> NoReturn:
        """While `reload.watch` is set, reload whenever the files have changed."""
        while True:
            await asyncio.sleep(self.gateway.state.config.reload.interval)
            with log_and_continue("watching the files of the configuration"):
                if self.gateway.state.config.reload.watch and await self._has_changed():
                    await self._reload("a file has changed")

    async def _has_changed(self) -> bool:
        both = (self._watched, self._failed_on)
        found = [await asyncio.to_thread(look, each.files) for each in both]
        changed = [each.has_changed(now) for each, now in zip(both, found, strict=True)]
        return any(changed)

    async def _reload(self, why: str) -> Reloaded | NotReloaded:
        async with self._one_at_a_time:
            log.info("reading %s again: %s", self._path, why)
            self.gateway.reopen_logs()
            try:
                config, warnings, changes = await self._change()
            except ConfigError as error:
                return self._failed([_error(each) for each in error.problems if not each.is_warning], error.problems)
            except (BindError, ReloadError) as error:
                return self._failed([ConfigurationError(text=str(error))], [error])
            except Exception:
                log.exception("unexpected error while the configuration was reloaded")
                text = "the gateway failed to change to this configuration; see its log for the reason"
                return self._failed([ConfigurationError(text=text)], [text])
        self.gateway.state.last_reload_error = None
        log_to_stderr(config.log)
        for warning in warnings:
            log.warning("%s", warning)
        log.info("configuration reloaded: %s", "; ".join(changes) or "nothing changed")
        return Reloaded(changes=list(changes))

    async def _change(self) -> tuple[Config, tuple[Problem, ...], tuple[str, ...]]:
        """Read the configuration, and switch to it. If the failure is due to files that were not watched during the
        read, retry once, because these files might have changed in the meantime."""
        files: frozenset[Path] = frozenset()
        try:
            with small_collections():
                config, warnings = await asyncio.to_thread(self._load)
            files = certificate_files(config)
            changes = await self.gateway.reload(config)
        except (ConfigError, ReloadError) as error:
            files = error.files if isinstance(error, ConfigError) else files
            if self._failed_on.files >= files:
                raise
            self._failed_on = Watched(await asyncio.to_thread(look, self._failed_on.files | files))
        else:
            self._failed_on = Watched({})
            return config, warnings, changes
        return await self._change()

    def _load(self) -> tuple[Config, tuple[Problem, ...]]:
        self._failed_on.loaded(look(self._failed_on.files))
        self._watched.loaded(look_at_all(self._path))
        return load_with_warnings(self._path, catalog())  # new packages might have been installed since the last read

    def _failed(self, errors: list[ConfigurationError], lines: Sequence[object]) -> NotReloaded:
        for line in lines:
            log.error("%s", line)
        log.error("reload failed, so the gateway keeps the previous configuration; errors: %d", len(errors))
        self.gateway.state.last_reload_error = LoadError(
            text="\n".join(map(str, lines)), at=datetime.now(UTC), errors=errors
        )
        return NotReloaded(errors=errors)


def _error(problem: Problem) -> ConfigurationError:
    text = without_credentials(problem.message)
    return ConfigurationError(
        text=text, file=problem.file, line=problem.line, column=problem.column, location=list(problem.location)
    )
