"""Periodically fetches the metrics pages of a backend's servers, and records the loads in them.

A fetch takes no slot, passes through no policies, and does not affect the server's health. If the gateway cannot fetch
or read a page, it logs the failure once per outage, and tries again at increasing intervals (up to MOST_SECONDS).
During this time, the strategy uses the calls in flight.
"""

import asyncio
import logging
import random
import typing
from collections.abc import Callable, Generator

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import frozen
from gateway.core.long_work import between_requests
from gateway.core.messages import Headers, Message
from gateway.core.surviving import log_and_continue
from gateway.core.tasks import spawn
from gateway.core.transport import Connector
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.load import prometheus
from gateway.routing.load.reported import Measure, ReportedLoads

log = logging.getLogger(__name__)

MOST_BYTES = 4 * 2**20
"""The maximum size of a page, in bytes. This limit is sufficient for a Triton server with five thousand models."""
MOST_SECONDS = 60.0
"""The maximum time between two attempts after failures, in seconds."""
JITTER = 0.1
"""The random jitter of each wait, as a fraction of the interval."""

_HEADERS = Headers(((b"accept", b"text/plain"),))


@frozen
class Asked:
    """An endpoint whose page arrived at the time `at`, and the number of its calls in flight during the fetch (the mean
    of the numbers before and after the fetch)."""

    endpoint: Endpoint
    at: float
    in_flight: float


class PageMeter(typing.Protocol):
    """Computes the load of one server from its pages."""

    def steps(self, page: bytes, asked: "Asked", loads: ReportedLoads) -> Generator[None, None, None]:
        """Record the load of an endpoint from a page, in short steps between which other tasks can run. Raises
        DecodeError if the page is malformed."""


class TritonPageMeter:
    """The PageMeter of a Triton server."""

    def __init__(self) -> None:
        self._meter = prometheus.TritonMeter()

    def steps(self, page: bytes, asked: "Asked", loads: ReportedLoads) -> Generator[None, None, None]:
        """See `PageMeter.steps`."""
        found = yield from prometheus.read_triton(page)
        if found.answered is None:
            raise DecodeError(f"the page has no metric {prometheus.ANSWERED}, so it is not Triton's; set `load`")
        told = self._meter.load(found, asked.at, asked.in_flight)
        loads.note_time(asked.endpoint, told.calls, told.at_once, told.answered, told.work)


class GaugePageMeter:
    """The PageMeter of a server that reports its load in one metric."""

    def __init__(self, metric: str, labels: typing.Mapping[str, str], measure: Measure) -> None:
        self._metric = metric
        self._labels = labels
        self._measure = measure

    def steps(self, page: bytes, asked: "Asked", loads: ReportedLoads) -> Generator[None, None, None]:
        """See `PageMeter.steps`."""
        found = yield from prometheus.read_gauge(page, self._metric, self._labels)
        loads.note(asked.endpoint, found, self._measure)


@frozen
class Page:
    """The location of one server's page."""

    connector: Connector
    path: str
    query: str = ""


@frozen
class Asking:
    """The settings for fetching pages.

    - `page`: Returns the Page of an endpoint, or raises ValueError if the endpoint has no page.
    - `meter`: Creates the PageMeter of an endpoint.
    - `interval`: The time between two fetches, in seconds.
    - `timeout`: The time limit for one fetch, in seconds.
    """

    page: Callable[[Endpoint], Page]
    meter: Callable[[], PageMeter]
    interval: float = 1.0
    timeout: float = 1.0


class _Server:
    """One server: its page and its meter, the time of the next fetch, and the number of consecutive failed fetches."""

    def __init__(self, page: Page, meter: PageMeter, next_at: float) -> None:
        self.page = page
        self.meter = meter
        self.next_at = next_at
        self.failures = 0
        self.task: asyncio.Task[None] | None = None


class LoadPages:
    """Fetches the pages of the backend's current endpoints, and records their loads. At most one fetch per endpoint is
    in progress. `randomly` returns random numbers from 0 to 1."""

    def __init__(
        self,
        backend: Backend,
        asking: Asking,
        loads: ReportedLoads,
        clock: Callable[[], float],
        randomly: Callable[[], float] = random.random,
    ) -> None:
        self._backend = backend
        self._asking = asking
        self._loads = loads
        self._clock = clock
        self._random = randomly
        self._servers: dict[Endpoint, _Server] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start fetching, in a separate task."""
        self._loop = spawn(self._run())

    def cancel(self) -> None:
        """Stop fetching, and cancel the fetches in progress."""
        if self._loop is not None:
            self._loop.cancel()
        for endpoint in list(self._servers):
            self._leave(endpoint)

    async def stop(self) -> None:
        """Stop fetching like `cancel`, and return after the connections are closed."""
        self.cancel()
        loop = [] if self._loop is None else [self._loop]
        await asyncio.gather(*loop, *self._closing, return_exceptions=True)

    @property
    def running(self) -> "list[asyncio.Task[None]]":
        """The fetches in progress."""
        return [each.task for each in self._servers.values() if each.task is not None]

    async def _run(self) -> None:
        while True:  # noqa: ASYNC110 - it waits for time to pass
            await asyncio.sleep(self.round())

    def round(self) -> float:
        """Fetch the pages that are due. Return the time until the next round, in seconds."""
        now, following = self._clock(), self._clock() + self._asking.interval
        endpoints = self._backend.endpoints
        for gone in self._servers.keys() - set(endpoints):
            self._leave(gone)
        for endpoint in endpoints:
            with log_and_continue(f"querying the load of {endpoint.address}"):
                server = self._servers.get(endpoint) or self._begun(endpoint, now)
                if server.next_at <= now and server.task is None:
                    server.next_at = now + self._wait(server)
                    server.task = spawn(self._ask(endpoint, server))
                following = min(following, max(server.next_at, now + self._asking.interval * JITTER))
        return following - now

    def _begun(self, endpoint: Endpoint, now: float) -> _Server:
        """Add a new endpoint. The pages of all new endpoints are fetched immediately and in parallel, because calls do
        not wait for loads."""
        server = self._servers[endpoint] = _Server(self._asking.page(endpoint), self._asking.meter(), now)
        return server

    def _wait(self, server: _Server) -> float:
        longer: float = 2.0 ** min(server.failures, 16)
        seconds = min(self._asking.interval * longer, max(MOST_SECONDS, self._asking.interval))
        return seconds * (1 + JITTER * (2 * self._random() - 1))

    def _leave(self, endpoint: Endpoint) -> None:
        server = self._servers.pop(endpoint)
        if server.task is not None:
            server.task.cancel()
        self._loads.forget(endpoint)
        closing = spawn(server.page.connector.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def _ask(self, endpoint: Endpoint, server: _Server) -> None:
        try:
            with log_and_continue(f"reading the load of {endpoint.address}"):
                why_not = await self._why_not(endpoint, server)
                self._log_change(endpoint, server, why_not)
        finally:
            server.task = None

    async def _why_not(self, endpoint: Endpoint, server: _Server) -> str:
        """Fetch once. Return an empty string if the load was recorded, otherwise the reason for the failure."""
        page, before = server.page, endpoint.in_flight
        try:
            async with asyncio.timeout(self._asking.timeout):
                reply = await page.connector.exchange(Message("GET", page.path, _HEADERS, query=page.query))
                if reply.status != 200:
                    return f"{page.path} was answered with status {reply.status}"
                asked = Asked(endpoint, self._clock(), (before + endpoint.in_flight) / 2)
                await between_requests(server.meter.steps(bytes(reply.body), asked, self._loads))
        except TimeoutError:
            return f"no page within {self._asking.timeout:g} s"
        except DecodeError as error:
            return str(error)
        except GatewayError as error:
            return error.message
        return ""

    def _log_change(self, endpoint: Endpoint, server: _Server, why_not: str) -> None:
        name, place = self._backend.name, endpoint.address
        if why_not and not server.failures:
            text = "backend %r at %s: its load is unknown, its calls in flight count instead: %s"
            log.warning(text, name, place, why_not)
        elif not why_not and server.failures:
            log.info("backend %r at %s: its load is available again", name, place)
        server.failures = server.failures + 1 if why_not else 0
        if server.failures:
            server.next_at = self._clock() + self._wait(server)
