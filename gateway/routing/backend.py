"""A named backend: a Handler that sends each request to one of its endpoints, and retries a failed request if another
attempt might succeed. Bridges call the backend.

A Backend has two parts. Its Slots choose the endpoint for a request, and the time at which to send the request (see
`slots` for the variants). Its Sender sends single attempts. Calls and streams go through the same steps:

1. The Slots choose an endpoint, either immediately or when it is the request's turn.
2. The Sender sends one attempt to this endpoint, within the limits that policies set (`Tries`).
3. The backend reports the end of the attempt to the Slots.
4. If the attempt failed, the Slots decide whether to use another endpoint or to retry the request. Their decision
   depends on whether another endpoint exists, and whether a server is gone or does not have the model. If a different
   server has taken over the address and has rejected the request, the backend sends the request once more, in the form
   that the new server expects.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from time import monotonic
from typing import final

from gateway.core.errors import GatewayError, Status, TransportError
from gateway.core.frozen import frozen, replace
from gateway.core.operations import CONTROL_OPERATIONS, Operation
from gateway.core.protocol import Protocol, Target
from gateway.core.record import UNRECORDED
from gateway.core.requests import Answer, Request, Response
from gateway.core.surviving import log_and_continue
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Attempt, Endpoint
from gateway.routing.one_try import Send, ask_all, begun, in_time, send_in_time
from gateway.routing.queue import FairQueue, QueueSettings
from gateway.routing.readiness import is_any_ready
from gateway.routing.sending import Sender
from gateway.routing.slots import LocalSlots, OwnAnswer, Slots


class Stopwatch:
    """A stopwatch that runs from its creation. `clock` returns the time in seconds."""

    __slots__ = ("_clock", "_seconds", "_since")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._since: float | None = clock()

    def stop(self) -> float:
        """Pause the stopwatch if it is running. Return the total running time, in seconds."""
        if self._since is not None:
            self._seconds += self._clock() - self._since
            self._since = None
        return self._seconds

    def go_on(self) -> None:
        """Resume the stopwatch."""
        self._since = self._clock()


@frozen
class Done:
    """The failed attempts of a request so far.

    - `tried`: The endpoints to which the gateway could not send the request.
    - `rounds`: The number of retries so far.
    - `is_repeated`: True if the request was already sent again because a different server had taken over the address.
    """

    tried: tuple[Endpoint, ...] = ()
    rounds: int = 0
    is_repeated: bool = False


_NOTHING = Done()


@final
class Backend:
    """A named group of model servers that use the same protocol. As a Handler, the Backend sends each Request to one of
    its servers.

    `sender` sends attempts; `slots` choose the endpoint and the time."""

    def __init__(self, sender: Sender, slots: Slots) -> None:
        self.name = sender.name
        self.protocol = sender.protocol
        self.slots = slots
        self.local = slots.local
        """This process's view of the endpoints, and the queue of calls that wait in this process."""
        self._sender = sender
        self._answers: dict[Operation, OwnAnswer] = {
            **dict.fromkeys(CONTROL_OPERATIONS - self.local.with_slot, self._ask_all),
            **slots.answers,
        }
        self._to_the_end = self.local.with_slot if sender.runs_to_the_end else frozenset[Operation]()
        """Operations whose calls keep their slots until the server has finished, even if the client disconnects."""
        self._send_to_the_end: Send = partial(sender.to_the_end, slots.began)
        self._replaced: list[Backend] = []
        """Previous backends with this name whose calls are still waiting for a first endpoint."""
        self._on_recovery: list[Callable[[], None]] = []
        self._on_other_models: list[Callable[[], None]] = []
        self.is_probed = False
        """True if a Prober checks the readiness of the endpoints."""
        targets = sender.targets
        self.local.watch(self._recovered, targets.forget, targets.doubt, self._lists_others)

    # --- queries ---

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """All endpoints of the backend."""
        return self.local.endpoints

    @property
    def serving(self) -> tuple[Endpoint, ...]:
        """The endpoints that are not drained."""
        return self.local.serving

    @property
    def max_in_flight(self) -> int:
        """The maximum number of parallel calls to each endpoint; 0 means no limit."""
        return self.local.max_in_flight

    @property
    def capacity(self) -> int:
        """The maximum number of parallel calls to all endpoints together; 0 means no limit."""
        return self.max_in_flight * len(self.serving)

    @property
    def choice(self) -> EndpointChoice:
        """The strategy that chooses among all endpoints."""
        return self.local.choice

    @property
    def queue(self) -> FairQueue[Endpoint]:
        """The queue of calls that wait for a slot."""
        return self.local.queue

    @property
    def waiting(self) -> int:
        """The number of waiting calls, including the queues of the backends that this backend has replaced.

        While the backend has no endpoints, the number includes calls that wait for the response to another call."""
        waiting = self.local.waiting + sum(len(each.queue) for each in self._replaced)
        return waiting if self.serving else waiting + sum(each.local.joined for each in self._replaced)

    @property
    def joined(self) -> int:
        """The number of calls that wait for the response to another call, such as a query for their model's
        metadata."""
        return self.local.joined + sum(each.local.joined for each in self._replaced)

    def on_recovery(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when an endpoint that was down responds again, or when an endpoint's models have changed."""
        self._on_recovery.append(watcher)

    def on_other_models(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when the response to the operation MODELS might have changed."""
        self._on_other_models.append(watcher)

    async def is_ready(self) -> bool:
        """Return whether at least one endpoint is ready.

        If the endpoints are probed, use the probe results. Otherwise, query all endpoints in parallel; their responses
        do not affect endpoint health."""
        if (known := await self.slots.is_ready()) is not None:
            return known
        if self.is_probed:
            return any(endpoint.health.is_ready for endpoint in self.serving)
        return await is_any_ready(self.protocol, self.serving, self._sender.targets.of)

    async def probe(self, operation: Operation, endpoint: Endpoint) -> None:
        """Probe one endpoint like `readiness.probe`. The probe takes no slot, and its result is not recorded."""
        await self._sender.probe(operation, endpoint)

    # --- added and removed endpoints ---

    def add(self, endpoint: Endpoint) -> None:
        """Add `endpoint`; waiting calls can use it immediately. Do nothing if the backend already has it."""
        if endpoint in self.endpoints:
            return
        self._sender.targets.add(endpoint)
        self.local.add(endpoint)
        self._replaced = [each for each in self._replaced if each.queue]
        for each in self._replaced:
            each.add(endpoint)

    def remove(self, endpoint: Endpoint) -> None:
        """Stop sending calls to `endpoint`. Do nothing if the backend does not have it.

        The endpoint stays open, because another backend might use it. `Endpoint.idle` waits until its calls have ended.
        """
        if endpoint not in self.endpoints:
            return
        self.local.remove(endpoint)
        self._sender.targets.remove(endpoint)
        for replaced in self._replaced:
            replaced.remove(endpoint)

    def replace(self, previous: "Backend") -> None:
        """Take over from `previous`, the backend with the same name. From now on, `previous` receives no new
        requests."""
        self.slots.replace(previous.slots)
        if previous.local.calls.patience is not None and previous.protocol is self.protocol:
            # From now on, no other code adds endpoints to the replaced backends.
            self._replaced = [each for each in (previous, *previous.hand_over_replaced()) if each.queue]
            for each in self._replaced:
                for endpoint in self.endpoints:
                    each.add(endpoint)

    def hand_over_replaced(self) -> list["Backend"]:
        """Return the backends that this backend has replaced. From now on, the caller is responsible for them."""
        before, self._replaced = self._replaced, []
        return before

    def close(self) -> None:
        """Detach from the endpoints, which other backends might share. Call this only when no requests are in
        flight."""
        self.slots.close()

    # --- requests ---

    async def __call__(self, request: Request) -> Answer:
        """Return the response of one endpoint or, for CONTROL_OPERATIONS, the combined response of all endpoints.

        Raises:
            GatewayError: the errors of `exchange.ask`; also RESOURCE_EXHAUSTED if too many calls are waiting, and
                UNAVAILABLE if the backend has no endpoint.
        """
        slots, sender, record, operation = self.slots, self._sender, request.record, request.operation
        if operation in self._answers and (answer := await self._answers[operation](request)) is not None:
            return answer
        done = _NOTHING
        while True:
            endpoint = slots.free(request, done.tried) or await slots.wait(request, done.tried)
            changes = sender.targets.changes.get(endpoint, 0)
            one_try = request if request.tries is None else begun(request, endpoint)
            began = (endpoint.clock(), endpoint.health.answers) if one_try.deadline is not None else None
            answered, ended, send = False, None, self._send_to_the_end
            if operation not in self._to_the_end:
                ended, send = slots.began(request, endpoint), sender.ask
            if record.events is not None:
                send = partial(sender.in_span, send)
            if request.tries is not None:
                send = partial(send_in_time, send, request, self.name)
            if record is not UNRECORDED:
                record.sent(self.name, self.protocol.name, endpoint.address)
                sent = monotonic()
            try:
                answer = await send(one_try, endpoint)
                answered = True
                return answer
            except GatewayError as error:
                self._failed(error, endpoint, one_try, None if began is None else endpoint.attempt(*began))
                failed = error
            except asyncio.CancelledError:
                if began is not None:
                    self._given_up(endpoint.attempt(*began), one_try)
                raise
            finally:
                if ended is not None:
                    ended(answered)
                if record is not UNRECORDED:
                    record.answered(monotonic() - sent)
            try:
                request, done = await self._again(request, failed, endpoint, changes, done)
            finally:
                del failed  # avoid a reference cycle: the traceback of the error refers to this frame

    async def stream(self, request: Request, *, passthrough: bool = False) -> AsyncGenerator[Response, None]:
        """Yield the responses of one endpoint.

        If `passthrough` is True, requests and responses are raw messages in the protocol's passthrough form.

        Raises:
            GatewayError: the errors of `streaming.ask_stream`; also RESOURCE_EXHAUSTED if too many calls are waiting,
                and UNAVAILABLE if the backend has no endpoint.
        """
        slots, sender, record, clock = self.slots, self._sender, request.record, self.local.clock
        done, is_begun = _NOTHING, False
        while True:
            endpoint = slots.free(request, done.tried) or await slots.wait(request, done.tried)
            changes = sender.targets.changes.get(endpoint, 0)
            ended, answered = slots.began(request, endpoint), False
            one_try = request if request.tries is None else begun(request, endpoint)
            waiting = Stopwatch(clock)
            record.sent(self.name, self.protocol.name, endpoint.address)
            span = None if record.events is None else sender.span(request, endpoint)
            attempt = endpoint.attempt(endpoint.clock(), endpoint.health.answers)
            try:
                # Do not send the attempt's deadline to the server, because it limits only the wait for the first
                # response.
                opened = await sender.stream(request, endpoint, span, passthrough=passthrough)
                async with aclosing(opened) as responses:
                    first = anext(responses, None)
                    response = await (first if one_try is request else in_time(one_try, first, self.name, endpoint))
                    one_try = request
                    while response is not None:
                        is_begun = True
                        waiting.stop()
                        yield response
                        waiting.go_on()
                        attempt.responded()
                        response = await anext(responses, None)
                if request.tries is not None:
                    request.tries.answered(endpoint.address)
                answered = True
                return
            except GatewayError as error:
                if span is not None:
                    span.failed(error)
                self._failed(error, endpoint, one_try, attempt)
                if is_begun:
                    raise
                failed = error
            except asyncio.CancelledError:
                self._given_up(attempt, one_try)
                raise
            finally:
                ended(answered)
                record.answered(waiting.stop())
                if span is not None:
                    span.end()
            try:
                request, done = await self._again(request, failed, endpoint, changes, done)
            finally:
                del failed  # avoid a reference cycle: the traceback of the error refers to this frame

    async def _again(
        self, request: Request, error: GatewayError, endpoint: Endpoint, changes: int, done: "Done"
    ) -> "tuple[Request, Done]":
        """After a failed attempt at `endpoint`, return the request for the next attempt and the updated `done`.
        `changes` is the number of times that the endpoint's server had changed before the attempt.

        Raises:
            GatewayError: the gateway does not retry the request.
        """
        if not done.is_repeated and await self._sender.targets.has_changed(endpoint, request, error, changes):
            request.record.retried()
            return request, replace(done, is_repeated=True)
        tried = (*done.tried, endpoint)
        following = await self.slots.again(request, error, tried, done.rounds)
        if following is None:
            request.record.retried()
            return request, replace(done, tried=tried)
        return following, Done(rounds=done.rounds + 1, is_repeated=done.is_repeated)

    async def _ask_all(self, request: Request) -> Answer:
        if not self.serving:
            raise self.choice.none_there()
        return await ask_all(request, self.name, self.serving, self._sender.to_each)

    def _failed(self, error: GatewayError, endpoint: Endpoint, one_try: Request, attempt: Attempt | None) -> None:
        """Handle the failure of an attempt. `attempt` is None if it had no deadline."""
        error.endpoint = endpoint.address
        if attempt is not None and isinstance(error, TransportError) and error.status is Status.DEADLINE_EXCEEDED:
            self._given_up(attempt, one_try, error)

    def _given_up(self, attempt: Attempt, request: Request, error: TransportError | None = None) -> None:
        attempt.given_up(request, error, runs_to_the_end=self._sender.runs_to_the_end)

    def _lists_others(self) -> None:
        for watcher in self._on_other_models:
            watcher()

    def _recovered(self, endpoint: Endpoint) -> None:
        self._sender.targets.forget(endpoint)
        for watcher in (*self._on_recovery, *self._on_other_models):
            with log_and_continue(f"announcing that an endpoint of backend {self.name!r} has changed"):
                watcher()


def local_backend(
    target: Target,
    protocol: Protocol,
    endpoints: Sequence[Endpoint],
    max_in_flight: int,
    choice: EndpointChoice | None = None,
    queue: QueueSettings | None = None,
    clock: Callable[[], float] = monotonic,
) -> Backend:
    """Return a Backend whose slots this process manages alone."""
    servers = protocol.traits.servers
    slots = LocalSlots(target.backend, servers, endpoints, max_in_flight, choice, queue, clock)
    return Backend(Sender(target, protocol, endpoints, clock), slots)
