"""Queries the endpoints of one backend for their models: when they join or return, periodically, and on request."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from gateway.core.errors import GatewayError
from gateway.core.log_limit import LogLimit
from gateway.core.surviving import log_and_continue
from gateway.core.tasks import spawn
from gateway.routing.endpoint import Endpoint
from gateway.routing.placement.signatures import SignatureComparison
from gateway.routing.placement.table import Placements, ServerInventory

_lines = LogLimit(logging.getLogger(__name__))

FIRST_WAIT = 1.0
"""Delay before an endpoint that did not respond is queried again, in seconds. It doubles with each failure, up to the
interval."""
JITTER = 0.1
"""Random jitter of each wait, as a fraction of the interval."""


class InventoryRefresher:
    """Keeps `placements` up to date. At most one query per endpoint is in progress.

    - `ask`: Returns the models on an endpoint, or raises GatewayError.
    - `is_busy`: Returns True if an endpoint cannot respond now because it is running a call.
    - `randomly`: Returns numbers from 0 to 1.
    """

    def __init__(
        self,
        placements: Placements,
        ask: Callable[[Endpoint], Awaitable[ServerInventory]],
        interval: float,
        clock: Callable[[], float],
        *,
        is_busy: Callable[[Endpoint], bool] = lambda endpoint: False,
        randomly: Callable[[], float] = random.random,
    ) -> None:
        self._placements = placements
        self._ask = ask
        self._interval = interval
        self._clock = clock
        self._is_busy = is_busy
        self._random = randomly
        self._due: dict[Endpoint, float] = {}
        self._asking: dict[Endpoint, asyncio.Task[None]] = {}
        self._again: set[Endpoint] = set()
        """Endpoints that changed during their query, so they are queried once more."""
        self._failures: dict[Endpoint, int] = {}
        self._loop: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self.on_lost: Callable[[Endpoint, tuple[str, ...]], None] = lambda endpoint, models: None
        self.comparison: SignatureComparison | None = None
        """Compares the signatures that servers report. If it is None, signatures are not compared."""
        self.errors: dict[Endpoint, GatewayError] = {}
        """The reason for each endpoint that did not report its models."""

    def use(self, placements: Placements) -> None:
        """Update another table from now on."""
        self._placements = placements

    def start(self) -> None:
        """Start querying the endpoints, in a separate task."""
        if self._loop is None:
            self._loop = spawn(self._run())

    def stop(self) -> None:
        """Stop all queries."""
        self._again.clear()
        for task in (self._loop, *self._asking.values()):
            if task is not None:
                task.cancel()
        self._loop = None

    def ask_soon(self, endpoint: Endpoint) -> "asyncio.Task[None]":
        """Query an endpoint now or, if a query is in progress, again after it. Return the task of the query."""
        asking = self._asking.get(endpoint)
        if asking is None:
            asking = self._asking[endpoint] = spawn(self._take_stock(endpoint))
        else:
            self._again.add(endpoint)
        return asking

    def leave(self, endpoint: Endpoint) -> None:
        """Forget an endpoint."""
        self._due.pop(endpoint, None)
        self._failures.pop(endpoint, None)
        self.errors.pop(endpoint, None)
        self._again.discard(endpoint)
        if (asking := self._asking.get(endpoint)) is not None:
            asking.cancel()

    def round(self) -> float:
        """Query the endpoints that are due. Return the seconds until the next round."""
        now = self._clock()
        following = now + self._interval
        for endpoint in self._placements.stocks:
            due = self._due.setdefault(endpoint, now)
            if due <= now:
                self._due[endpoint] = due = now + self._wait()
                if endpoint not in self._asking and not self._is_busy(endpoint):
                    self.ask_soon(endpoint)
            following = min(following, due)
        return max(following - now, 0.0)

    async def _run(self) -> None:
        while True:
            self._news.clear()
            with log_and_continue("querying the servers' models"):
                seconds = self.round()
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                pass

    def _wait(self) -> float:
        return self._interval * (1 + JITTER * (2 * self._random() - 1))

    async def _take_stock(self, endpoint: Endpoint) -> None:
        try:
            with log_and_continue(f"querying the models of {endpoint.address}"):
                await self._answered(endpoint)
        finally:  # even if it was cancelled, because the endpoint might have left and immediately returned
            del self._asking[endpoint]
            if endpoint in self._again:
                self._again.discard(endpoint)
                if endpoint in self._placements.stocks:
                    self.ask_soon(endpoint)

    async def _answered(self, endpoint: Endpoint) -> None:
        placements, asked = self._placements, self._placements.moment
        try:
            stock = await self._ask(endpoint)
        except GatewayError as error:
            self._failed(endpoint, error)
            return
        self.errors.pop(endpoint, None)
        self._failures.pop(endpoint, None)
        self._due[endpoint] = self._clock() + self._wait()
        if placements is not self._placements:  # the query started with the change counter of another table
            self._again.add(endpoint)
            return
        lost = self._placements.reported(endpoint, stock, asked)
        if lost:
            self.on_lost(endpoint, lost)
        if self.comparison is not None:
            await self.comparison.look(placements, endpoint)

    def _failed(self, endpoint: Endpoint, error: GatewayError) -> None:
        if endpoint not in self._placements.stocks:
            return
        failures = self._failures[endpoint] = self._failures.get(endpoint, 0) + 1
        wait = min(FIRST_WAIT * 2.0 ** min(failures - 1, 16), self._wait())
        self._due[endpoint] = self._clock() + wait
        self._news.set()
        self.errors[endpoint] = error
        if failures == 1:
            text = "endpoint %s did not report its models: %s"
            _lines.write(endpoint.address, logging.WARNING, text, endpoint.address, error.message)
