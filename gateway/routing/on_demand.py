"""The slots of servers that are started when calls wait for them: without endpoints calls wait for one to come."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Protocol

from gateway.core.errors import DetailedError, GatewayError, Reason, Status, TransportError
from gateway.core.frozen import frozen
from gateway.core.transport import Connector
from gateway.core.types import Request
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.health import Ejection
from gateway.routing.queue import overloaded
from gateway.routing.sequences import sequence_of
from gateway.routing.slots import Ended, LocalSlots, Slots, may_try_another

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

    def give_back(self, answered: bool = False) -> None:
        """As the Endpoint's."""
        self.last_used = self.clock()
        if self.most_calls and self.calls >= self.most_calls and self.on_limit is not None:
            self.on_limit()
        super().give_back(answered)


class StartedSlots:
    """The slots of servers that a Starter starts when calls wait for them; it adds and removes the endpoints. While
    there is none, calls that take a slot wait in the queue, and others, such as questions for metadata, beside it."""

    def __init__(self, local: LocalSlots) -> None:
        self.local = local
        self.answers = local.answers
        self.starter: Starter | None = None
        """What starts the servers; without it calls fail while there is no endpoint."""
        self._first: set[asyncio.Future[None]] = set()
        """Calls without a place in the queue that wait for an endpoint."""
        self.closed = asyncio.Event()
        """No request will come any more."""
        local.keeps_waiting = True
        local.calls.on_wait = self._call_waits
        local.on_join.append(self._wake)

    def start_by(self, starter: Starter) -> None:
        """Have servers started by `starter` from now on."""
        self.starter = starter

    @property
    def call_seconds(self) -> float | None:
        """How long a call holds its slot; None before the first one has ended."""
        return self.local.calls.times.mean

    def free(self, request: Request, tried: Sequence[Endpoint] = ()) -> Endpoint | None:
        """As Slots'."""
        return self.local.free(request, tried) if self.local.endpoints else None

    async def wait(self, request: Request, tried: Sequence[Endpoint] = ()) -> Endpoint:
        """As Slots'. Without an endpoint it waits until a server is there."""
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
        """As Slots'."""
        return self.local.began(request, endpoint)

    async def again(
        self, request: Request, error: GatewayError, tried: Sequence[Endpoint], rounds: int
    ) -> Request | None:
        """As Slots'. A call that fails with its server tells why the server is gone; if the server cannot have seen it,
        it is sent to another one."""
        if may_try_another(error, tried, self.local.serving):
            return None
        failed = await self._explained(error)
        if failed is None:
            raise error
        if failed.sent or rounds == TRIES - 1:
            raise failed from error
        return request

    async def is_ready(self) -> bool | None:
        """As Slots'; without endpoints, whether one would be started."""
        if self.local.endpoints:
            return None
        return self.starter is not None and self.starter.can_serve

    def replace(self, previous: Slots) -> None:
        """As Slots'."""
        self.local.replace(previous)

    def close(self) -> None:
        """As Slots'."""
        self.local.close()
        self.closed.set()

    def fail_waiting(self, text: str, detail: str) -> None:
        """Fail the calls that wait. `detail` is for those only who may see what servers print."""

        def error() -> TransportError:
            return self._error(ServerFailure(text, detail), sent=False)

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
        """`error` with the reason why its server is gone; None if the server is not gone."""
        if self.starter is None or not isinstance(error, TransportError) or error.status is not Status.UNAVAILABLE:
            return None
        failure = await self.starter.failure_at(error.endpoint)
        if failure is None:
            return None
        explained = self._error(ServerFailure(f"{error.message}: {failure.text}", failure.detail), sent=error.sent)
        explained.endpoint = error.endpoint
        return explained

    def _error(self, failure: ServerFailure, *, sent: bool) -> TransportError:
        text = failure.text if failure.text.startswith("backend ") else f"backend {self.local.name!r}: {failure.text}"
        return DetailedError(Status.UNAVAILABLE, Reason.UNREACHABLE, text, failure.detail, sent=sent)

    def _is_queued(self, request: Request) -> bool:
        """Whether the request waits in the queue if there is no endpoint."""
        local = self.local
        return bool(local.max_in_flight) and request.operation in local.with_slot and sequence_of(request) is None

    async def _first_endpoint(self) -> None:
        """Wait until there is an endpoint.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), too many wait, or `queue.timeout` is over; UNAVAILABLE, no
                server could be started.
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
    """The slots of the backends whose servers the gateway starts, by name."""
    return {name: each.slots for name, each in backends.items() if isinstance(each.slots, StartedSlots)}
