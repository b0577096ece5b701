"""A named backend: distributes calls over its endpoints, with a bounded number of slots and a fair queue.

A call that runs a model (`CALLS`) holds a slot of its endpoint until it ends. Where servers take one connection only,
every request does. The endpoint is chosen so:

1. A request of a sequence goes to the endpoint that has the sequence's state, and is refused if that is full.
2. Others go to the endpoint with the fewest calls in flight; equally busy ones take turns.
3. If all are full, the call waits in the queue. An endpoint that gives a slot back hands it to the next waiter.

Ejected endpoints are left out, but at most `Ejection.most` of them: beyond that the ones that failed least recently are
used all the same. If nothing could be sent to an endpoint, another one is tried, each at most once.
"""

import asyncio
import math
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Container, Sequence
from contextlib import aclosing

from gateway.core.errors import GatewayError, Reason, Status, TransportError, refusal
from gateway.core.exchange import ask
from gateway.core.operations import CONTROL_OPERATIONS, DERIVATIVES, Operation
from gateway.core.protocol import Protocol, Target
from gateway.core.streaming import ask_stream
from gateway.core.tasks import outlived_by, spawn
from gateway.core.types import Answer, Request, Response
from gateway.routing.endpoint import Attempt, Endpoint
from gateway.routing.health import Ejection
from gateway.routing.queue import FairQueue
from gateway.routing.readiness import is_ready
from gateway.routing.sequences import SequenceKey, Sequences, sequence_of
from gateway.routing.targets import Targets

CALLS = frozenset({Operation.INFER, Operation.EXPLAIN, Operation.STREAM, *DERIVATIVES})
"""The operations that run a model. Only these take a slot: a busy server can still answer others, unless it serves one
connection at a time."""

MAX_WAITING = 1000
"""Calls in the queue of one backend."""


class Backend:
    """A Handler that sends each Request to one of its endpoints.

    At most `max_in_flight` calls run at once on each endpoint (0: any number).
    """

    def __init__(
        self,
        target: Target,
        protocol: Protocol,
        endpoints: Sequence[Endpoint],
        max_in_flight: int,
        ejection: Ejection | None = None,
    ) -> None:
        self.name = target.backend
        self.protocol = protocol
        self._servers = protocol.traits.servers
        self._send_in_slot = self._to_the_end if self._servers.runs_to_the_end else self._in_slot
        self.endpoints = tuple(endpoints)
        self.max_in_flight = max_in_flight
        self.queue: FairQueue[Endpoint] = FairQueue(self.name, MAX_WAITING)
        self._targets = Targets(target, protocol, endpoints)
        self._sequences = Sequences()
        self._on_recovery: list[Callable[[], None]] = []
        self._next = 0
        """The index after that of the endpoint chosen last, where the search for the next one starts."""
        self._most_left_out = math.ceil((ejection or Ejection()).most * len(endpoints))
        for endpoint in endpoints:
            endpoint.watch(self._hand_over_slot if max_in_flight else None, self._recovered)

    @property
    def capacity(self) -> int:
        """The number of calls that can run at once; 0: any number."""
        return self.max_in_flight * len(self.endpoints)

    def on_recovery(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when an endpoint answers again after an ejection, and when its models have changed."""
        self._on_recovery.append(watcher)

    def replace(self, previous: "Backend") -> None:
        """Take over from the backend that had this name before: the sequences at endpoints that both have. From now on
        `previous` gets no new requests."""
        self._sequences.adopt(previous._sequences, self.endpoints)

    def close(self) -> None:
        """Leave the endpoints, which other backends may share. No request may be in flight."""
        for endpoint in self.endpoints:
            endpoint.unwatch(self._hand_over_slot if self.max_in_flight else None, self._recovered)

    async def __call__(self, request: Request) -> Answer:
        """The answer of one endpoint; for CONTROL_OPERATIONS that of all. If nothing could be sent to an endpoint,
        another one is asked.

        Raises:
            GatewayError: as `exchange.ask`; RESOURCE_EXHAUSTED if too many calls are waiting.
        """
        takes_slot = self._takes_slot(request)
        if not takes_slot and request.operation in CONTROL_OPERATIONS:
            return await self._control(request)
        send = self._send_in_slot if takes_slot else self._ask
        tried: tuple[Endpoint, ...] = ()
        while True:
            endpoint = self._free_endpoint(request, tried) or await self._wait_for_slot(request)
            tried = (*tried, endpoint)
            attempt = endpoint.begin_attempt() if request.deadline is not None else None
            try:
                return await send(request, endpoint)
            except TransportError as error:
                if error.status is Status.DEADLINE_EXCEEDED:
                    self._given_up(attempt, request, error)
                if error.sent or len(tried) >= len(self.endpoints):
                    raise
            except asyncio.CancelledError:
                self._given_up(attempt, request)
                raise

    async def stream(self, request: Request, *, passthrough: bool = False) -> AsyncGenerator[Response, None]:
        """The responses of one endpoint. If nothing could be sent to an endpoint, another one is asked.

        With `passthrough` messages are in the protocol's passthrough form.

        Raises:
            GatewayError: as `streaming.ask_stream`; RESOURCE_EXHAUSTED if too many calls are waiting.
        """
        protocol = self.protocol.http.passthrough if passthrough else self.protocol
        assert protocol is not None
        tried: tuple[Endpoint, ...] = ()
        while True:
            endpoint = self._free_endpoint(request, tried) or await self._wait_for_slot(request)
            tried = (*tried, endpoint)
            attempt = endpoint.begin_attempt()
            try:
                target = self._targets.known.get(endpoint) or await self._targets.find(endpoint, request.deadline)
                connector = endpoint.passthrough if passthrough else endpoint
                assert connector is not None
                async with aclosing(ask_stream(request, protocol, connector, target)) as responses:
                    async for response in responses:
                        yield response
                        attempt.responded()
                return
            except TransportError as error:
                if error.status is Status.DEADLINE_EXCEEDED:
                    self._given_up(attempt, request, error)
                if error.sent or len(tried) >= len(self.endpoints):
                    raise
            except asyncio.CancelledError:
                self._given_up(attempt, request)
                raise
            finally:
                endpoint.give_back()

    async def is_ready(self) -> bool:
        """Whether one of its endpoints reports itself ready. All are asked at once. The answers do not affect the
        health of endpoints."""
        asking = [spawn(self._is_ready(endpoint)) for endpoint in self.endpoints]
        try:
            for each in asyncio.as_completed(asking):
                if await each:
                    return True
            return False
        finally:
            for each in asking:
                each.cancel()

    async def _is_ready(self, endpoint: Endpoint) -> bool:
        servers = self._servers
        if endpoint.in_flight and (servers.one_connection or servers.runs_to_the_end):
            return endpoint.health.is_up  # busy with a call that may take hours: it would not answer now
        target = self._targets.of(endpoint)
        if not servers.one_connection:
            return await is_ready(self.protocol, endpoint.connector, target)
        endpoint.take()
        try:
            return await is_ready(self.protocol, endpoint.connector, target)
        finally:
            endpoint.give_back()

    def _given_up(self, attempt: Attempt | None, request: Request, error: TransportError | None = None) -> None:
        if attempt is not None:
            attempt.given_up(request, error, runs_to_the_end=self._servers.runs_to_the_end)

    async def _control(self, request: Request) -> Answer:
        """The answer of all endpoints, which are asked at once so that their servers stay replicas of each other.

        Raises:
            GatewayError: the error of the first endpoint that failed, naming it if there are several;
                FAILED_PRECONDITION if the answers differ.
        """
        found = await asyncio.gather(*(self._ask(request, each) for each in self.endpoints), return_exceptions=True)
        if request.operation in (Operation.LOAD, Operation.UNLOAD):
            for endpoint in self.endpoints:
                endpoint.changed()
        for endpoint, answer in zip(self.endpoints, found, strict=True):
            if isinstance(answer, GatewayError) and len(found) > 1 and not isinstance(answer, TransportError):
                text = f"backend {self.name!r} at {endpoint.address}: {answer.message}"
                raise GatewayError(answer.status, answer.reason, text) from answer
            if isinstance(answer, BaseException):
                raise answer
            if answer != found[0]:
                text = f"endpoints {self.endpoints[0].address} and {endpoint.address} of backend {self.name!r}"
                raise refusal(Reason.FAILED_PRECONDITION, f"{text} differ in their {request.operation.value}")
        assert not isinstance(found[0], BaseException)
        return found[0]

    def _to_the_end(self, request: Request, endpoint: Endpoint) -> Awaitable[Answer]:
        """As `_in_slot`, for a server that goes on computing even if the client leaves: its slot must stay taken. So
        the exchange is a task of its own that outlives the client's."""
        return outlived_by(spawn(self._in_slot(request, endpoint)))

    async def _in_slot(self, request: Request, endpoint: Endpoint) -> Answer:
        try:
            return await self._ask(request, endpoint)
        finally:
            endpoint.give_back()

    def _ask(self, request: Request, endpoint: Endpoint) -> Awaitable[Answer]:
        target = self._targets.known.get(endpoint)
        if target is None:
            return self._ask_unknown(request, endpoint)
        return ask(request, self.protocol, endpoint, target)

    async def _ask_unknown(self, request: Request, endpoint: Endpoint) -> Answer:
        target = await self._targets.find(endpoint, request.deadline)
        return await ask(request, self.protocol, endpoint, target)

    def _takes_slot(self, request: Request) -> bool:
        return request.operation in CALLS or self._servers.one_connection

    def _free_endpoint(self, request: Request, tried: Sequence[Endpoint]) -> Endpoint | None:
        """The endpoint for this request; None if it has to wait for a slot. If the request takes a slot, it is taken
        already."""
        if not self._takes_slot(request):
            return self._least_busy(0, tried) or self.endpoints[0]
        if (sequence := sequence_of(request)) is not None:
            return self._endpoint_of_sequence(request, sequence, tried)
        endpoint = self._least_busy(self.max_in_flight, tried)
        if endpoint is not None:
            endpoint.take()
        return endpoint

    def _endpoint_of_sequence(self, request: Request, key: SequenceKey, tried: Sequence[Endpoint]) -> Endpoint:
        """The endpoint that has the sequence's state, or the least busy one for a new sequence, with a slot taken.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), that endpoint has no free slot.
        """
        endpoint = self._sequences.endpoint(key)
        if endpoint is None or endpoint in tried:
            endpoint = self._least_busy(self.max_in_flight, tried)
        if endpoint is None or (self.max_in_flight and self._is_full(endpoint)):
            # The sequence stays where its state is: the client's next try finds the same endpoint.
            text = f"backend {self.name!r}: the endpoint of sequence {key[1]!r} is busy; try again later"
            raise refusal(Reason.OVERLOADED, text)
        self._sequences.note(request, key, endpoint)
        endpoint.take()
        return endpoint

    def _least_busy(self, limit: int, tried: Container[Endpoint]) -> Endpoint | None:
        """The endpoint with the fewest calls in flight, fewer than `limit` (0: any number), that is not in `tried`."""
        endpoints = self.endpoints
        count = len(endpoints)
        best, fewest = None, limit or sys.maxsize
        at = start = self._next
        for _ in endpoints:
            each = endpoints[at]
            at = at + 1 if at + 1 < count else 0
            if not each.health.is_up:  # some are ejected: the slower search leaves them out
                self._next = start
                return self._least_busy_in_use(limit or sys.maxsize, tried)
            if each.in_flight < fewest and (not tried or each not in tried):
                best, fewest, self._next = each, each.in_flight, at
                if not fewest:
                    break
        return best

    def _least_busy_in_use(self, limit: int, tried: Container[Endpoint]) -> Endpoint | None:
        """As `_least_busy`, if some endpoints are ejected: None if those not left out are all busy, since a slot will
        become free; if all are left out or tried, the one that failed least recently."""
        left_out = self._left_out()
        turns = (*self.endpoints[self._next :], *self.endpoints[: self._next])
        others = [each for each in turns if each not in tried]
        in_use = [each for each in others if each not in left_out]
        free = [each for each in in_use or others if each.in_flight < limit]
        if not free:
            return None
        best = min(free, key=lambda each: each.in_flight if in_use else each.health.failed_at)
        self._next = (self.endpoints.index(best) + 1) % len(self.endpoints)
        if not best.health.is_up:
            best.health.try_again()
        return best

    def _left_out(self) -> list[Endpoint]:
        """The endpoints that get no calls: of the ejected ones those that failed last, as many as are allowed."""
        out = [each for each in self.endpoints if each.health.is_left_out]
        out.sort(key=lambda each: -each.health.failed_at)
        return out[: self._most_left_out]

    async def _wait_for_slot(self, request: Request) -> Endpoint:
        client, model = _host(request.peer), request.model
        waiter = self.queue.join(client, model)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                waiter.result().give_back()
            else:
                self.queue.leave(client, model, waiter)
            raise

    def _hand_over_slot(self, endpoint: Endpoint) -> bool:
        """Give a free slot of `endpoint` to the next waiter. Returns whether there was one.

        An endpoint that is left out gets none while another one is merely busy and will give its slot back: it would
        fail all waiting calls one by one.
        """
        if not self.queue or self._is_full(endpoint):
            return False
        if not endpoint.health.is_up:
            left_out = self._left_out()
            if endpoint in left_out and any(each not in left_out and self._is_full(each) for each in self.endpoints):
                return False
        waiter = self.queue.next()
        if waiter is None:
            return False
        if not endpoint.health.is_up:
            endpoint.health.try_again()
        endpoint.take()
        waiter.set_result(endpoint)
        return True

    def _is_full(self, endpoint: Endpoint) -> bool:
        return endpoint.in_flight >= self.max_in_flight

    def _recovered(self) -> None:
        self._targets.forget()
        for watcher in self._on_recovery:
            watcher()


def _host(peer: str) -> str:
    """The host of `host:port`. It identifies a client: UM-Bridge clients use a new port for every call."""
    return peer.rpartition(":")[0]
