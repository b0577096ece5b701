"""Defines the interface of a discovery source, and the loop that polls a source."""

import asyncio
import logging
import typing
from collections.abc import Callable, Iterable
from typing import TypeAlias

from gateway.core.frozen import frozen
from gateway.core.log_limit import LogLimit
from gateway.core.surviving import log_and_continue

log = logging.getLogger(__name__)
_lines = LogLimit(log)

LOOK_SECONDS = 5.0
"""The maximum duration of one lookup, in seconds."""

MOST_ADDRESSES = 1000
"""The maximum number of addresses that a backend accepts from all its sources. The limit exists because each address
requires its own connections, health state and probes. A source with more addresses reports at least one address more
than this limit."""


@frozen
class Found:
    """An address that discovery found.

    `address` is in the format of a backend's `endpoints`. If `ip` is not empty, the gateway connects to this IP address
    of the host. In logs, `text` is then the address with the IP address instead of the host name."""

    address: str
    ip: str = ""
    text: str = ""

    def __str__(self) -> str:
        return self.text or self.address


CheckAddress: TypeAlias = Callable[[str], object]
"""A function that raises ValueError, with the reason, if the backend's transport cannot connect to an address."""


class LookupFailedError(Exception):
    """A lookup in a Source failed. The message says why. The Source's last result stays valid."""


class Source(typing.Protocol):
    """A source of a backend's addresses, such as a DNS name or a file."""

    @property
    def description(self) -> str:
        """The source's name in logs, such as `DNS name models.default.svc`."""

    @property
    def pause(self) -> float:
        """The time until the next lookup, in seconds."""

    async def look(self) -> frozenset[Found]:
        """Return the current addresses.

        Raises:
            LookupFailedError: the addresses are unknown; the last result stays valid.
        """


class Watcher:
    """Polls one Source of a backend, and calls `report` with its addresses."""

    def __init__(
        self, backend: str, source: Source, report: Callable[[frozenset[Found]], None], seconds: float = LOOK_SECONDS
    ) -> None:
        self._backend = backend
        self._source = source
        self._report = report
        self._seconds = seconds
        self._is_failing = False
        self._found: frozenset[Found] | None = None

    def inherit(self, others: "Iterable[Watcher]") -> None:
        """Start with the last addresses of the Watcher in `others` that has the same source and backend, if any,
        because the first lookup of this Watcher can fail."""
        for other in others:
            same = (other._backend, other._source.description) == (self._backend, self._source.description)
            if same and other._found is not None:
                self._reported(other._found)

    async def look(self) -> None:
        """Look up the addresses once, and report them. A failed lookup changes nothing. If consecutive lookups fail,
        only the first failure is logged."""
        try:
            async with asyncio.timeout(self._seconds):
                found = await self._source.look()
        except TimeoutError:
            self._failed(f"no answer within {self._seconds:g} s")
        except LookupFailedError as error:
            self._failed(str(error))
        except Exception as error:  # an error in one source must not end the loop
            self._failed(repr(error))
        else:
            if self._is_failing:
                self._is_failing = False
                self._log(logging.INFO, "backend %r: %s is available again", self._backend, self._source.description)
            self._reported(found)

    async def run(self, sleep: Callable[[float], typing.Awaitable[None]] = asyncio.sleep) -> None:
        """Look up the addresses repeatedly, with the Source's pause between two lookups, until the task is
        cancelled."""
        while True:
            await sleep(self._source.pause)
            with log_and_continue(f"taking over what {self._source.description} has for backend {self._backend!r}"):
                await self.look()

    def _reported(self, found: frozenset[Found]) -> None:
        self._found = found
        self._report(found)

    def _failed(self, why: str) -> None:
        if not self._is_failing:
            self._is_failing = True
            text = "backend %r: %s lookup failed: %s; the gateway keeps the last addresses"
            self._log(logging.WARNING, text, self._backend, self._source.description, why)

    def _log(self, level: int, text: str, *values: object) -> None:
        _lines.write((self._backend, self._source.description), level, text, *values)
