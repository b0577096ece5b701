"""A backend whose servers are started when calls wait for them: without endpoints calls wait for one to come.

Calls that take a slot wait in the fair queue, as they do while all endpoints are busy; others, such as questions for
metadata, wait until there is an endpoint.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from time import monotonic
from typing import Any, Protocol

from gateway.core.errors import DetailedError, Reason, Status, TransportError
from gateway.core.frozen import frozen
from gateway.core.transport import Connector
from gateway.core.types import Answer, Request, Response
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.health import Ejection
from gateway.routing.queue import overloaded
from gateway.routing.sequences import sequence_of

TRIES = 3
"""How often a call is sent that no server has seen."""


@frozen
class ServerFailure:
    """Why a server is gone. `detail`: the end of what it printed."""

    text: str
    detail: str = ""


class Starter(Protocol):
    """The interface to start the servers of a backend."""

    @property
    def starts(self) -> int:
        """How many servers were started."""

    @property
    def failures(self) -> int:
        """How many of them failed."""

    def reports(self) -> Sequence[Any]:
        """The servers that are there, as `gateway.servers.started_server.ServerReport`."""

    def call_waits(self) -> None:
        """A call waits for a server."""

    async def failure_at(self, address: str) -> ServerFailure | None:
        """Why the server at this address, to which a call has just failed, is gone; None if it is not."""

    @property
    def can_serve(self) -> bool:
        """Whether a server would be started for a call now."""


class CountedEndpoint(Endpoint):
    """An Endpoint that knows how many calls it was given, and when the last one ended."""

    __slots__ = ("calls", "last_used", "most_calls", "on_limit")

    def __init__(
        self,
        address: str,
        connector: Connector,
        clock: Callable[[], float] = monotonic,
        ejection: Ejection | None = None,
    ) -> None:
        super().__init__(address, connector, clock, ejection)
        self.renew()

    def renew(self, most_calls: int = 0, on_limit: Callable[[], None] | None = None) -> None:
        """Count from zero: another server is there now. `on_limit` is called when it has had `most_calls` (0: any
        number), before another call gets the slot of the last one."""
        self.calls, self.last_used = 0, self.clock()
        self.most_calls, self.on_limit = most_calls, on_limit

    def take(self) -> None:
        """As the Endpoint's."""
        self.calls += 1
        super().take()

    def give_back(self) -> None:
        """As the Endpoint's."""
        self.last_used = self.clock()
        if self.most_calls and self.calls >= self.most_calls and self.on_limit is not None:
            self.on_limit()
        super().give_back()


class OnDemandBackend(Backend):
    """A Backend whose endpoints a Starter adds and removes."""

    starts_servers = True

    def __init__(self, *args: Any, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self.starter: Starter | None = None
        """What starts the servers; without it calls fail while there is no endpoint."""
        self._first: set[asyncio.Future[None]] = set()
        """Calls without a place in the queue that wait for an endpoint."""
        self.closed = asyncio.Event()
        """No request will come any more."""

    def close(self) -> None:
        """As the Backend's."""
        super().close()
        self.closed.set()

    @property
    def waiting(self) -> int:
        """The calls that wait; while there is no endpoint, also those that wait for the answer to one of them."""
        return self._in_line if self.endpoints else self._in_line + self.joined

    @property
    def _in_line(self) -> int:
        return len(self.queue) + len(self._first)

    def count_joined(self, change: int) -> None:
        """As the Backend's."""
        super().count_joined(change)
        if change > 0 and not self.endpoints and self.starter is not None:
            self.starter.call_waits()

    @property
    def call_seconds(self) -> float | None:
        """How long a call holds its slot; None before the first one has ended."""
        return self.waiting_calls.times.mean

    def add(self, endpoint: Endpoint) -> None:
        """As the Backend's."""
        super().add(endpoint)
        for each in self._first:
            if not each.done():
                each.set_result(None)

    def fail_waiting(self, text: str, detail: str) -> None:
        """Fail the calls that wait. `detail` is for those only who may see what servers print."""

        def error() -> TransportError:
            return self._error(ServerFailure(text, detail), sent=False)

        self.queue.fail(error)
        for each in self._first:
            if not each.done():
                each.set_exception(error())

    async def is_ready(self) -> bool:
        """As the Backend's; without endpoints, whether one would be started."""
        if not self.endpoints:
            return self.starter is not None and self.starter.can_serve
        return await super().is_ready()

    async def __call__(self, request: Request) -> Answer:
        """As the Backend's. A call that fails with its server tells why the server is gone; if the server cannot have
        seen it, it is sent to another one.

        Raises:
            GatewayError: as the Backend's.
        """
        for tries in range(1, TRIES + 1):
            if not self.endpoints and not self._is_queued(request):
                await self._first_endpoint()
            try:
                return await super().__call__(request)
            except TransportError as error:
                failed = await self._explained(error)
                if failed is None:
                    raise
                if failed.sent or tries == TRIES:
                    raise failed from error
        raise AssertionError

    async def stream(self, request: Request, *, passthrough: bool = False) -> AsyncGenerator[Response, None]:
        """As the Backend's, with the same errors as calls."""
        for tries in range(1, TRIES + 1):
            if not self.endpoints and not self._is_queued(request):
                await self._first_endpoint()
            try:
                async with aclosing(super().stream(request, passthrough=passthrough)) as responses:
                    async for each in responses:
                        yield each
                return
            except TransportError as error:
                failed = await self._explained(error)
                if failed is None:
                    raise
                if failed.sent or tries == TRIES:
                    raise failed from error

    async def _explained(self, error: TransportError) -> TransportError | None:
        """`error` with the reason why its server is gone; None if the server is not gone."""
        if self.starter is None or not error.endpoint or error.status is not Status.UNAVAILABLE:
            return None
        failure = await self.starter.failure_at(error.endpoint)
        if failure is None:
            return None
        explained = self._error(ServerFailure(f"{error.message}: {failure.text}", failure.detail), sent=error.sent)
        explained.endpoint = error.endpoint
        return explained

    def _error(self, failure: ServerFailure, *, sent: bool) -> TransportError:
        text = failure.text if failure.text.startswith("backend ") else f"backend {self.name!r}: {failure.text}"
        return DetailedError(Status.UNAVAILABLE, Reason.UNREACHABLE, text, failure.detail, sent=sent)

    def _is_queued(self, request: Request) -> bool:
        """Whether the request waits in the queue if there is no endpoint."""
        return bool(self.max_in_flight) and request.operation in self._with_slot and sequence_of(request) is None

    async def _wait_for_slot(self, request: Request, tried: tuple[Endpoint, ...] = ()) -> Endpoint:
        if self.starter is None and not self.endpoints:
            raise self.choice.none_there()
        if self.starter is not None:
            self.starter.call_waits()
        return await super()._wait_for_slot(request, tried)

    def _free_endpoint(self, request: Request, tried: Sequence[Endpoint]) -> Endpoint | None:
        if not self.endpoints and self._is_queued(request):
            return None
        return super()._free_endpoint(request, tried)

    async def _first_endpoint(self) -> None:
        """Wait until there is an endpoint.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), too many wait, or `queue.timeout` is over; UNAVAILABLE, no
                server could be started.
        """
        if self.starter is None:
            raise self.choice.none_there()
        if self._in_line >= self.queue_settings.length:
            text = f"backend {self.name!r}: {self._in_line} calls wait for a server (queue.length); try again later"
            raise overloaded(text, None)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._first.add(waiter)
        self.starter.call_waits()
        seconds = self.queue_settings.timeout
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError as error:
            text = f"backend {self.name!r}: no server within {seconds:g} s (queue.timeout); try again later"
            raise overloaded(text, None) from error
        finally:
            self._first.discard(waiter)
