"""Handles errors of one backend's engine: opens the engine when it is available, queries it with a time limit, and
pauses after each failure. `jobs` sends all queries through this module."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.servers.engine import Engine, EngineError
from gateway.servers.settings import ServersSettings
from gateway.servers.sizing import back_off
from gateway.servers.started_server import log

T = TypeVar("T")

OpenEngine = Callable[[ServersSettings], tuple[Engine, float]]
"""A function that starts an engine, and returns the engine and its polling interval in seconds. It raises EngineError
if the engine does not exist or is unusable."""

SECONDS = 60.0
"""Maximum time for a response from the engine, in seconds."""
POLL = 1.0
"""The polling interval before the engine has set it, in seconds."""


class AskedEngine:
    """The engine of one backend. The pause before the next query grows with each consecutive failure."""

    def __init__(self, settings: ServersSettings, open_engine: OpenEngine, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._open_engine = open_engine
        self._clock = clock
        self._opened: Engine | None = None
        self.poll = POLL
        """The interval between two queries for reports, in seconds."""
        self.error = ""
        """The error of the last query; empty if it succeeded."""
        self.next_at = -1e9
        """The time of the next permitted query, on the fleet's clock."""
        self._failures = 0

    async def open(self) -> None:
        """Open the engine, unless it is open.

        Raises:
            EngineError: the engine does not exist or is unusable.
        """
        if self._opened is None:
            self._opened, self.poll = await asyncio.to_thread(self._open_engine, self._settings)
            self.answered()

    @property
    def is_open(self) -> bool:
        """True if the engine is open."""
        return self._opened is not None

    @property
    def engine(self) -> Engine:
        """The engine itself.

        Raises:
            EngineError: the engine is not open.
        """
        if self._opened is None:
            raise EngineError(f"{self._settings.engine}: it is not open")
        return self._opened

    async def ask(self, asked: Awaitable[T]) -> T:
        """Return the result of `asked`, a query to the engine.

        Raises:
            EngineError: the engine returned an error, an unexpected response, or no response in time.
        """
        try:
            async with asyncio.timeout(SECONDS):
                return await asked
        except EngineError:
            raise
        except TimeoutError as error:
            raise EngineError(f"{self._settings.engine}: no answer within {SECONDS:g} s") from error
        except Exception as error:  # such as too many open files, or an unknown version; the caller retries the query
            raise EngineError(f"{self._settings.engine}: unexpected error: {error!r}") from error

    def answered(self) -> None:
        """Record a successful query."""
        self.error, self._failures = "", 0

    def failed(self, error: EngineError) -> None:
        """Record a failed query."""
        self._failures += 1
        self.next_at = self._clock() + back_off(self._failures)
        if str(error) != self.error:
            log.error("backend %r: the gateway cannot manage its servers: %s", self._settings.backend, error)
        self.error = str(error)

    async def close(self) -> None:
        """Close the engine."""
        if self._opened is not None:
            await self._opened.close()
            self._opened = None
