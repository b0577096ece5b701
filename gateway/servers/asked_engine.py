"""An engine as a fleet asks it: opened when it is there, asked within a time, and left alone after each failure."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from gateway.servers.engine import Engine, EngineError
from gateway.servers.log_lines import log
from gateway.servers.settings import ServersSettings
from gateway.servers.sizing import back_off

T = TypeVar("T")

OpenEngine = Callable[[ServersSettings], tuple[Engine, float]]
"""Starts an engine, and returns it with the seconds between two questions for reports. Raises EngineError."""

SECONDS = 60.0
"""How long an engine may take to answer."""
POLL = 1.0
"""Seconds between two questions before the engine says how many."""


class AskedEngine:
    """The engine of one backend. After failures in a row it is asked again later each time."""

    def __init__(self, settings: ServersSettings, open_engine: OpenEngine, clock: Callable[[], float]) -> None:
        self._settings = settings
        self._open_engine = open_engine
        self._clock = clock
        self._opened: Engine | None = None
        self.poll = POLL
        """Seconds between two questions for reports."""
        self.error = ""
        """Why it could not be asked last; empty if it could."""
        self.next_at = -1e9
        """When it may be asked again, on the fleet's clock."""
        self._failures = 0

    async def open(self) -> None:
        """Open it, unless it is open.

        Raises:
            EngineError: it is not there, or cannot be used.
        """
        if self._opened is None:
            self._opened, self.poll = await asyncio.to_thread(self._open_engine, self._settings)
            self.answered()

    @property
    def is_open(self) -> bool:
        """Whether it was opened."""
        return self._opened is not None

    @property
    def engine(self) -> Engine:
        """The engine itself.

        Raises:
            EngineError: it is not open.
        """
        if self._opened is None:
            raise EngineError(f"{self._settings.engine}: it is not open")
        return self._opened

    async def ask(self, asked: Awaitable[T]) -> T:
        """The engine's answer.

        Raises:
            EngineError: that of the engine; it does not answer in time, or in an unexpected way.
        """
        try:
            async with asyncio.timeout(SECONDS):
                return await asked
        except EngineError:
            raise
        except TimeoutError as error:
            raise EngineError(f"{self._settings.engine}: no answer within {SECONDS:g} s") from error
        except Exception as error:  # such as too many open files, or an answer of another version: it is asked again
            raise EngineError(f"{self._settings.engine}: unexpected error: {error!r}") from error

    def answered(self) -> None:
        """It works."""
        self.error, self._failures = "", 0

    def failed(self, error: EngineError) -> None:
        """It could not be asked."""
        self._failures += 1
        self.next_at = self._clock() + back_off(self._failures)
        if str(error) != self.error:
            log.error("backend %r: its servers cannot be managed: %s", self._settings.backend, error)
        self.error = str(error)

    async def close(self) -> None:
        """Leave the engine."""
        if self._opened is not None:
            await self._opened.close()
            self._opened = None
