"""The slots of servers that the gateway starts when calls wait for them. If the backend has no endpoints, calls wait
for the first one.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Protocol

from gateway.core.errors import DetailedError, GatewayError, Reason, Status, TransportError
from gateway.core.requests import Request
from gateway.core.transport import Connector
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.health import Ejection
from gateway.routing.queue import overloaded
from gateway.routing.sequences import sequence_of
from gateway.routing.slots import Ended, LocalSlots, Slots, may_try_another

TRIES = 3
"""The maximum number of attempts for a call that has not reached any server."""


class ServerFailure(Protocol):
    """The reason why a server is gone."""

    @property
    def text(self) -> str:
        """The reason."""

    @property
    def detail(self) -> str:
        """The last lines of the server's output."""


class Starter(Protocol):
    """The interface that starts a backend's servers. `gateway.servers.fleet` implements it."""

    @property
    def starts(self) -> int:
        """The number of started servers."""

    @property
    def failures(self) -> int:
        """The number of servers that have failed."""

    def reports(self) -> Sequence[Any]:
        """Return a `gateway.servers.started_server.ServerReport` for each current server."""

    def call_waits(self) -> None:
        """Notify the Starter that a call is waiting for a server."""

    async def failure_at(self, address: str) -> ServerFailure | None:
        """After a failed call to the server at this address, return the reason why the server is gone, or None if it is
        not gone."""

    @property
    def can_serve(self) -> bool:
        """True if a call would now cause a server to start."""


class CountedEndpoint(Endpoint):
    """An Endpoint that counts its calls and records the time at which the last one ended."""

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
        """Start counting from zero for a new server.

        `on_limit` is called after `most_calls` calls (0: no limit), before another call can take the last call's slot.
        """
        self.calls, self.last_used = 0, self.clock()
        self.most_calls, self.on_limit = most_calls, on_limit

    def take(self) -> None:
        """See `Endpoint.take`."""
        self.calls += 1
        super().take()

    def give_back(self, answered: bool = False) -> None:
        """See `Endpoint.give_back`."""
        self.last_used = self.clock()
        if self.most_calls and self.calls >= self.most_calls and self.on_limit is not None:
            self.on_limit()
        super().give_back(answered)


class StartedSlots:
    """The slots of servers that a Starter starts when calls wait for them. The Starter adds and removes the endpoints.
    If the backend has no endpoints, calls that take a slot wait in the queue; other requests, such as metadata
    requests, wait outside the queue."""

    def __init__(self, local: LocalSlots) -> None:
        self.local = local
        self.answers = local.answers
        self.starter: Starter | None = None
        """The Starter of the servers. If it is None, calls fail when the backend has no endpoints."""
        self._first: set[asyncio.Future[None]] = set()
        """The calls that wait outside the queue for an endpoint."""
        self.closed = asyncio.Event()
        """An event that is set when no more requests can arrive."""
        local.keeps_waiting = True
        local.calls.on_wait = self._call_waits
        local.on_join.append(self._wake)

    def start_by(self, starter: Starter) -> None:
        """From now on, use `starter` to start servers."""
        self.starter = starter

    @property
    def call_seconds(self) -> float | None:
        """The mean time for which a call holds its slot, in seconds; None before the first call has ended."""
        return self.local.calls.times.mean

    def free(self, request: Request, tried: Sequence[Endpoint] = ()) -> Endpoint | None:
        """See `Slots.free`."""
        return self.local.free(request, tried) if self.local.endpoints else None

    async def wait(self, request: Request, tried: Sequence[Endpoint] = ()) -> Endpoint:
        """See `Slots.wait`. If the backend has no endpoints, wait until a server is ready."""
        local = self.local
        while True:
            if self.starter is None and not local.endpoints:
                raise local.choice.none_there()
            if local.endpoints or self._is_queued(request):
                return await local.wait(request, tried)
            await self._first_endpoint()
            if local.endpoints and (endpoint := local.free(request, tried)) is not None:
                return endpoint

    def began(self, request: Request, endpoint: Endpoint) -> Ended:
        """See `Slots.began`."""
        return self.local.began(request, endpoint)

    async def again(
        self, request: Request, error: GatewayError, tried: Sequence[Endpoint], rounds: int
    ) -> Request | None:
        """See `Slots.again`.

        If a call fails because its server is gone, the error explains why the server is gone. If that server cannot
        have received the call, another server receives it."""
        if may_try_another(error, tried, self.local.serving):
            return None
        failed = await self._explained(error)
        if failed is None:
            raise error
        if failed.sent or rounds == TRIES - 1:
            raise failed from error
        return request

    async def is_ready(self) -> bool | None:
        """See `Slots.is_ready`. If the backend has no endpoints, return True if the Starter would start a server."""
        if self.local.endpoints:
            return None
        return self.starter is not None and self.starter.can_serve

    def replace(self, previous: Slots) -> None:
        """See `Slots.replace`."""
        self.local.replace(previous)

    def close(self) -> None:
        """See `Slots.close`."""
        self.local.close()
        self.closed.set()

    def fail_waiting(self, text: str, detail: str) -> None:
        """Fail the waiting calls. `detail` is only for clients that have permission to see server output."""

        def error() -> TransportError:
            return self._error(text, detail, sent=False)

        self.local.queue.fail(error)
        for each in self._first:
            if not each.done():
                each.set_exception(error())

    def _call_waits(self) -> None:
        if self.starter is not None:
            self.starter.call_waits()

    def _wake(self, endpoint: Endpoint) -> None:
        for each in self._first:
            if not each.done():
                each.set_result(None)

    async def _explained(self, error: GatewayError) -> TransportError | None:
        """Return `error` with the reason why its server is gone, or None if the server is not gone."""
        if self.starter is None or not isinstance(error, TransportError) or error.status is not Status.UNAVAILABLE:
            return None
        failure = await self.starter.failure_at(error.endpoint)
        if failure is None:
            return None
        explained = self._error(f"{error.message}: {failure.text}", failure.detail, sent=error.sent)
        explained.endpoint = error.endpoint
        return explained

    def _error(self, text: str, detail: str, *, sent: bool) -> TransportError:
        text = text if text.startswith("backend ") else f"backend {self.local.name!r}: {text}"
        return DetailedError(Status.UNAVAILABLE, Reason.UNREACHABLE, text, detail, sent=sent)

    def _is_queued(self, request: Request) -> bool:
        """Return True if the request would wait in the queue when the backend has no endpoints."""
        local = self.local
        return bool(local.max_in_flight) and request.operation in local.with_slot and sequence_of(request) is None

    async def _first_endpoint(self) -> None:
        """Wait for the first endpoint.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if too many calls are waiting, or after `queue.timeout`;
                UNAVAILABLE if the Starter cannot start a server.
        """
        local, waiting = self.local, self.local.calls.number
        if waiting >= local.queue_settings.length:
            text = f"backend {local.name!r}: {waiting} calls wait for a server (queue.length); try again later"
            raise overloaded(text, None)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._first.add(waiter)
        local.calls.without_place += 1
        self._call_waits()
        seconds = local.queue_settings.timeout
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError as error:
            text = f"backend {local.name!r}: no server within {seconds:g} s (queue.timeout); try again later"
            raise overloaded(text, None) from error
        finally:
            self._first.discard(waiter)
            local.calls.without_place -= 1


def started(backends: Mapping[str, Backend]) -> dict[str, StartedSlots]:
    """Return the slots of the backends whose servers the gateway starts, by backend name."""
    return {name: each.slots for name, each in backends.items() if isinstance(each.slots, StartedSlots)}
