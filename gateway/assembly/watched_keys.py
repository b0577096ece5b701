"""The API keys in a file, which the gateway reloads when the file changes."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from gateway.auth.keys import KeyFile, KeyFileError, read_keys
from gateway.config.watching import Look, Watched, look
from gateway.core.surviving import log_and_continue
from gateway.core.tasks import spawn

log = logging.getLogger(__name__)

LOOKS = 2
"""Number of checks in one `reload.interval`.

A change takes effect after two checks, so a revoked key stops working within one interval.
"""
MOST_CHANGING = 3
"""Number of checks after which the gateway reads a file even if it keeps changing. Otherwise, constant writes could
keep a revoked key valid."""


class WatchedKeys:
    """The API keys of one file.

    Configurations that name the same file share one object, so a reload does not interrupt checks. The file is checked
    from the first use until the last use ends."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._watched = Watched(look([path]))
        self._changing = 0
        """Number of consecutive checks that found a file different from the last one read."""
        self._uses: dict[object, Callable[[], None]] = {}
        """The users of the keys, and the function to call for each when the keys have changed."""
        self._interval = 1.0
        self._watching: asyncio.Task[None] | None = None
        self.keys: KeyFile | None = None
        try:
            self.keys = read_keys(path)
        except KeyFileError as error:  # the file was valid before the start, so it broke since then
            log.error("cannot read the API keys in %s, so the gateway accepts no key: %s", path, error)

    def begin_use(self, user: object, interval: float, changed: Callable[[], None]) -> None:
        """Check the file from now on, at the configured `interval`. Call `changed` after each change of the keys."""
        self._interval = interval
        self._uses[user] = changed
        if self._watching is None:
            self._watching = spawn(self._watch())

    def end_use(self, user: object) -> None:
        """End the use by `user`, if it has begun."""
        self._uses.pop(user, None)
        if not self._uses and self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval / LOOKS)
            with log_and_continue("reading the file of API keys again"):
                if await self.read_if_changed():
                    self._changed()

    def _changed(self) -> None:
        for changed in list(self._uses.values()):
            changed()

    async def read_now(self) -> None:
        """Reload the file, because this process has changed it.

        Other processes notice the change at their next checks."""
        found = await asyncio.to_thread(look, [self.path])
        if await self._read(found):
            self._changed()

    async def read_if_changed(self) -> bool:
        """Reload the file if it has changed.

        If the file has errors, keep the previous keys. Return True if the keys have changed."""
        found = await asyncio.to_thread(look, [self.path])
        self._changing = self._changing + 1 if self._watched.differs(found) else 0
        if not self._watched.has_changed(found) and self._changing < MOST_CHANGING:
            return False
        return await self._read(found)

    async def _read(self, found: Look) -> bool:
        """Read the file, whose state was `found`. Return True if its keys are now in use."""
        self._changing = 0
        self._watched.loaded(found)
        try:
            self.keys = await asyncio.to_thread(read_keys, self.path)
        except KeyFileError as error:
            log.error("cannot read the API keys in %s, so the gateway keeps the previous ones: %s", self.path, error)
            return False
        log.info("keys of %s: %d", self.path, len(self.keys.entries))
        return True
