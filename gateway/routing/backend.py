"""A named backend: distributes calls over its endpoints, with a bounded number of slots and a fair queue.

A call that runs a model (`CALLS`) holds a slot of its endpoint until it ends. Where servers take one connection only,
every request holds one. The endpoint is chosen so:

1. A request of a sequence goes to the endpoint that has the sequence's state, and is refused if that is full.
2. Others go to the endpoint that the backend's strategy chooses (`balancing`): by default the one with the fewest calls
   in flight.
3. If all are full, the call waits in the queue. When a call gives its slot back, the endpoint hands it to the next
   waiter.

Endpoints can be added and removed at any time. Without any, calls fail at once: nobody knows when one will come. But
calls wait in the queue for the first one where servers are started for calls that wait: by somebody else
(`queue.wait_for_endpoints`), or by the gateway (`on_demand`).

Endpoints that are down are left out (`choice`). If nothing could be sent to an endpoint, another one is tried, each at
most once. Policies can bound each try and name endpoints to avoid (`Tries`).
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from time import monotonic

from gateway.core.errors import GatewayError, Reason, Status, TransportError, refusal
from gateway.core.frozen import replace
from gateway.core.operations import CALLS, CONTROL_OPERATIONS, Operation
from gateway.core.protocol import Protocol, Target
from gateway.core.record import UNRECORDED
from gateway.core.streaming import ask_stream
from gateway.core.surviving import surviving
from gateway.core.types import Answer, Request, Response
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Attempt, Endpoint, adopt_drains
from gateway.routing.one_try import ask_all, begun, in_time, send_in_time, span_of_try
from gateway.routing.queue import QueueSettings, Waiter
from gateway.routing.readiness import is_any_ready, probe
from gateway.routing.sending import Send, TrySender
from gateway.routing.sequences import SequenceKey, Sequences, sequence_of
from gateway.routing.spans import with_spans
from gateway.routing.stopwatch import Stopwatch
from gateway.routing.targets import Targets
from gateway.routing.waiting import WaitingCalls


class Backend:
    """A named group of model servers that speak one wire form: a Handler that sends each Request to one of its
    endpoints.

    At most `max_in_flight` calls run at once on each endpoint (0: any number).
    """

    starts_servers = False
    """Whether the gateway starts servers for calls (`on_demand` sets it): calls then wait while there is no
    endpoint."""

    def __init__(
        self,
        target: Target,
        protocol: Protocol,
        endpoints: Sequence[Endpoint],
        max_in_flight: int,
        choice: EndpointChoice | None = None,
        queue: QueueSettings | None = None,
        clock: Callable[[], float] = monotonic,
        *,
        has_tls: bool = False,
    ) -> None:
        self.name = target.backend
        self._has_tls = has_tls
        """All endpoints are reached over TLS, whatever the schemes of their addresses are."""
        self.protocol = protocol
        self._servers = protocol.traits.servers
        # A busy server can still answer what does not run a model, unless it serves one connection at a time.
        self._with_slot = frozenset(Operation) if self._servers.one_connection else CALLS
        """The operations whose requests take a slot."""
        self.max_in_flight = max_in_flight
        self.choice = choice or EndpointChoice()
        self.choice.name = self.name
        self._set_endpoints(tuple(endpoints))
        self.queue_settings = queue or QueueSettings()
        self.waiting_calls = WaitingCalls(self.queue_settings, self.choice, max_in_flight, clock)
        self.queue = self.waiting_calls.queue
        self._replaced: list[Backend] = []
        """Those that had this name before and whose calls still wait for the first endpoint."""
        self._joined = 0
        self._clock = clock
        self._targets = Targets(target, protocol, endpoints, clock=clock)
        self._sender = TrySender(protocol, self._targets, self.waiting_calls.times, clock, is_limited=max_in_flight > 0)
        self._send_in_slot: Send = self._sender.to_the_end if self._servers.runs_to_the_end else self._sender.in_slot
        self._gives_back = not max_in_flight and not self._servers.runs_to_the_end
        """Slots are given back where they were taken, in `__call__`: nobody counts how long they are held."""
        if self._gives_back:
            self._send_in_slot = self._sender.ask
        self._sequences = Sequences()
        self._on_recovery: list[Callable[[], None]] = []
        self.is_probed = False
        """A Prober asks its endpoints whether they are ready."""
        on_free = self._hand_over_slot if max_in_flight else None
        self._watches = on_free, self._recovered, self._drain_changed, self._targets.lost
        for endpoint in endpoints:
            endpoint.health.used_by(self.name)
            endpoint.watch(*self._watches)

    @property
    def serving(self) -> tuple[Endpoint, ...]:
        """The endpoints that are not drained."""
        return self.choice.endpoints

    @property
    def capacity(self) -> int:
        """The number of calls that can run at once; 0: any number."""
        return self.max_in_flight * len(self.serving)

    def add(self, endpoint: Endpoint) -> None:
        """Send calls to `endpoint` as well, waiting ones at once; nothing happens if it is there already.

        The first endpoint of a backend that had none may have other models than the last one: it counts as an endpoint
        that came back.
        """
        if endpoint in self.endpoints:
            return
        self._targets.add(endpoint)
        endpoint.health.used_by(self.name)
        self._set_endpoints((*self.endpoints, endpoint))
        endpoint.watch(*self._watches)
        if endpoint.takes_calls:
            self._offer_all(endpoint)
        self._replaced = [each for each in self._replaced if each.queue]
        for each in self._replaced:
            each.add(endpoint)

    def remove(self, endpoint: Endpoint) -> None:
        """Send no more calls to `endpoint`; nothing happens if it is not there. Calls in flight go on, and its
        sequences lose their state. If it was the last endpoint, the calls that wait in the queue fail, unless the
        backend waits for endpoints.

        It is not closed here: `Endpoint.is_used` says whether another backend has it, `Endpoint.idle` waits for the
        end of its calls.
        """
        if endpoint not in self.endpoints:
            return
        self._set_endpoints(tuple(each for each in self.endpoints if each is not endpoint))
        endpoint.unwatch(*self._watches)
        self._targets.remove(endpoint)
        self._sequences.forget(endpoint)
        if endpoint.takes_calls:
            self._go_on_without_one()
        for replaced in self._replaced:
            replaced.remove(endpoint)

    def _set_endpoints(self, endpoints: tuple[Endpoint, ...]) -> None:
        self.endpoints = endpoints
        self.choice.among(endpoints)

    def sequences_at(self, endpoint: Endpoint) -> int:
        """How many sequences of clients have their state at `endpoint`."""
        return self._sequences.count(endpoint)

    def _offer_all(self, endpoint: Endpoint) -> None:
        """Offer the slots of an endpoint that gets calls from now on."""
        endpoint.since = self._clock()
        if len(self.serving) == 1:
            self.waiting_calls.emptied_or_filled()
            self._recovered()
        while endpoint.offer() if self.max_in_flight else self._hand_over_slot(endpoint):
            pass

    def _go_on_without_one(self) -> None:
        """An endpoint gets no more calls."""
        if not self.serving:
            self.waiting_calls.emptied_or_filled()
            if self.waiting_calls.patience is None and not self.starts_servers:
                self.queue.fail(self.choice.none_there)
        for each in self.serving:  # a slot may have been kept free because that endpoint was only busy
            while each.offer():
                pass

    def _drain_changed(self, endpoint: Endpoint) -> None:
        """Send no more calls to an endpoint that is drained, or calls again to one that is not any more."""
        if endpoint.takes_calls == (endpoint in self.serving):
            return
        self._set_endpoints(self.endpoints)
        if endpoint.takes_calls:
            self._recovered()  # its server may have been restarted, with other models
            self._offer_all(endpoint)
        else:
            self._go_on_without_one()

    def free_slot(self, request: Request, tried: tuple[Endpoint, ...]) -> Endpoint | None:
        """The endpoint for this request, with a slot taken, for a caller that sends the call itself; None if it has to
        wait.

        Raises:
            GatewayError: as `__call__`.
        """
        if request.tries is None:
            return self._free_endpoint(request, tried)
        return self._preferred_endpoint(request, tried)

    async def next_slot(self, request: Request) -> Endpoint:
        """As `free_slot`, but waits for the request's turn in the queue.

        Raises:
            GatewayError: as `__call__`.
        """
        return await self._wait_for_slot(request)

    def on_recovery(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when an endpoint that was down answers again, and when its models have changed."""
        self._on_recovery.append(watcher)

    def on_other_models(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when the answer to MODELS may have changed."""
        self.on_recovery(watcher)

    def replace(self, previous: "Backend") -> None:
        """Take over from the backend that had this name before: the sequences at endpoints that both have. From now on
        `previous` gets no new requests."""
        self._sequences.adopt(previous._sequences, self.endpoints)
        adopt_drains(self.endpoints, previous.endpoints)
        if previous.waiting_calls.patience is not None and previous.protocol is self.protocol:
            # Nobody else adds endpoints to it any more.
            before, previous._replaced = previous._replaced, []
            self._replaced = [each for each in (previous, *before) if each.queue]
            for each in self._replaced:
                for endpoint in self.endpoints:
                    each.add(endpoint)

    @property
    def waiting(self) -> int:
        """How many calls wait in its queue, and in those of the backends that it replaced; while there is no endpoint,
        also those that wait for the answer to one in the queue."""
        in_queues = len(self.queue) + sum(len(each.queue) for each in self._replaced)
        return in_queues if self.serving else in_queues + self.joined

    @property
    def joined(self) -> int:
        """How many calls wait for the answer to another call, such as that for the metadata of their model."""
        return self._joined + sum(each._joined for each in self._replaced)

    def count_joined(self, change: int) -> None:
        """So many more calls wait for the answer to another one; `change` is negative when they do not any more."""
        self._joined += change

    def close(self) -> None:
        """Leave the endpoints, which other backends may share. No request may be in flight."""
        for endpoint in self.endpoints:
            endpoint.unwatch(*self._watches)

    async def __call__(self, request: Request) -> Answer:
        """The answer of one endpoint; for CONTROL_OPERATIONS that of all. If nothing could be sent to an endpoint,
        another one is asked; if another server has taken an endpoint over and refuses, it is asked once more in its
        own way.

        Raises:
            GatewayError: as `exchange.ask`; RESOURCE_EXHAUSTED if too many calls are waiting; UNAVAILABLE if there is
                no endpoint.
        """
        send, gives_back, record = self._send_in_slot, self._gives_back, request.record
        if request.operation not in self._with_slot:
            if request.operation in CONTROL_OPERATIONS:
                if not self.serving:
                    raise self.choice.none_there()
                return await ask_all(request, self.name, self.serving, self._sender.to_each)
            send, gives_back = self._sender.without_slot, False
        if record.events is not None:
            send = partial(self._send_in_span, send)
        if request.tries is not None:
            send = partial(send_in_time, send, request, self.name)
        tried: tuple[Endpoint, ...] = ()
        one_try, is_repeated = request, False
        while True:
            changes = self._targets.changes
            if request.tries is None:  # as `free_slot`, written out
                endpoint = self._free_endpoint(request, tried) or await self._wait_for_slot(request, tried)
            else:
                endpoint = self._preferred_endpoint(request, tried) or await self._wait_for_slot(request, tried)
                one_try = begun(request, endpoint)
            began = (endpoint.clock(), endpoint.health.answers) if one_try.deadline is not None else None
            if record is not UNRECORDED:
                record.sent(self.name, self.protocol.name, endpoint.address)
                sent = monotonic()
            try:
                return await send(one_try, endpoint)
            except TransportError as error:
                error.endpoint = endpoint.address
                if error.status is Status.DEADLINE_EXCEEDED and began is not None:
                    self._given_up(endpoint.attempt(*began), one_try, error)
                tried = (*tried, endpoint)
                if error.sent or all(each in tried for each in self._able(request)):
                    raise
                record.retried()
            except GatewayError as error:
                error.endpoint = endpoint.address
                if is_repeated or not await self._targets.has_changed(endpoint, request, error, changes):
                    raise
                is_repeated = True
                record.retried()
            except asyncio.CancelledError:
                if began is not None:
                    self._given_up(endpoint.attempt(*began), one_try)
                raise
            finally:
                if gives_back:
                    endpoint.give_back()
                if record is not UNRECORDED:
                    record.answered(monotonic() - sent)

    async def _send_in_span(self, send: Send, request: Request, endpoint: Endpoint) -> Answer:
        with span_of_try(request, self.name, endpoint, self.protocol, tls=self._has_tls) as span:
            return await send(replace(request, span=span), endpoint)

    async def stream(self, request: Request, *, passthrough: bool = False) -> AsyncGenerator[Response, None]:
        """The responses of one endpoint. If nothing could be sent to an endpoint, another one is asked.

        With `passthrough` messages are in the protocol's passthrough form.

        Raises:
            GatewayError: as `streaming.ask_stream`; RESOURCE_EXHAUSTED if too many calls are waiting; UNAVAILABLE if
                there is no endpoint.
        """
        protocol = self.protocol.http.passthrough if passthrough else self.protocol
        assert protocol is not None
        tries = request.tries
        tried: tuple[Endpoint, ...] = ()
        is_begun = is_repeated = False
        while True:
            changes = self._targets.changes
            endpoint = self.free_slot(request, tried) or await self._wait_for_slot(request, tried)
            end_slot = self._begin_stream(request, endpoint)
            one_try = request if tries is None else begun(request, endpoint)
            tried = (*tried, endpoint)
            began, waiting = self._clock(), Stopwatch(self._clock)
            sent, spoken, span, record = request, protocol, None, request.record
            record.sent(self.name, self.protocol.name, endpoint.address)
            if record.events is not None:
                span = span_of_try(request, self.name, endpoint, self.protocol, tls=self._has_tls)
                sent, spoken = replace(request, span=span), with_spans(protocol, record, span, is_stream=True)
            attempt = endpoint.attempt(endpoint.clock(), endpoint.health.answers)
            try:
                target = self._targets.known.get(endpoint) or await self._targets.find(endpoint, request.deadline)
                connector = endpoint.passthrough if passthrough else endpoint
                assert connector is not None
                # The server is not told the end of the try: it bounds the wait for the first response only.
                async with aclosing(ask_stream(sent, spoken, connector, target)) as responses:
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
                if tries is not None:
                    tries.answered(endpoint.address)
                self.waiting_calls.times.add(self._clock() - began)
                return
            except GatewayError as error:
                if span is not None:
                    span.failed(error)
                if not isinstance(error, TransportError):
                    error.endpoint = endpoint.address
                    is_final = is_begun or is_repeated
                    if is_final or not await self._targets.has_changed(endpoint, request, error, changes):
                        raise
                    is_repeated, tried = True, tried[:-1]
                    record.retried()
                    continue
                if error.status is Status.DEADLINE_EXCEEDED:
                    self._given_up(attempt, one_try, error)
                error.endpoint = endpoint.address
                if error.sent or all(each in tried for each in self._able(request)):
                    raise
                record.retried()
            except asyncio.CancelledError:
                self._given_up(attempt, one_try)
                raise
            finally:
                end_slot()
                record.answered(waiting.stop())
                if span is not None:
                    span.end()

    async def is_ready(self) -> bool:
        """Whether one of its endpoints is ready. Where probes run, their outcome says it. Elsewhere all endpoints are
        asked at once, and the answers do not affect the health of endpoints."""
        if self.is_probed:
            return any(endpoint.health.is_ready for endpoint in self.serving)
        return await is_any_ready(self.protocol, self.serving, self._targets.of)

    def is_busy(self, endpoint: Endpoint) -> bool:
        """Whether the endpoint runs a call and cannot answer anything else meanwhile: servers that take one call at a
        time, or compute each call to its end."""
        servers = self._servers
        one_at_a_time = servers.one_connection or servers.runs_to_the_end or self.max_in_flight == 1
        return one_at_a_time and endpoint.in_flight > 0

    async def target_of(self, endpoint: Endpoint) -> Target:
        """The Target of an endpoint, whose server is asked for its flavor if that is not known. Raises GatewayError."""
        return self._targets.known.get(endpoint) or await self._targets.find(endpoint)

    async def probe(self, operation: Operation, endpoint: Endpoint) -> None:
        """As `readiness.probe`, for one endpoint. It takes no slot, and its outcome is not noted."""
        await probe(operation, self.protocol, endpoint.connector, self._targets.of(endpoint))

    def _given_up(self, attempt: Attempt, request: Request, error: TransportError | None = None) -> None:
        attempt.given_up(request, error, runs_to_the_end=self._servers.runs_to_the_end)

    def _free_endpoint(self, request: Request, tried: Sequence[Endpoint]) -> Endpoint | None:
        """The endpoint for this request; None if it has to wait for a slot. If the request takes a slot, it is taken
        already."""
        if request.operation not in self._with_slot:
            if not self.serving:
                if self.waiting_calls.waits_for_endpoint(request):
                    return None
                raise self.choice.none_there()
            return self.choice.choose(0, tried) or self.serving[0]
        if request.unread is None and request.parameters and (sequence := sequence_of(request)) is not None:
            return self._endpoint_of_sequence(request, sequence, self.choice, tried)
        endpoint = self.choice.choose(self.max_in_flight, tried)
        if endpoint is not None:
            endpoint.take()
        return endpoint

    def _preferred_endpoint(self, request: Request, tried: tuple[Endpoint, ...]) -> Endpoint | None:
        """As `_free_endpoint`, but one that `request.tries` does not avoid, if one is free that is not left out. A
        sequence stays where its state is.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), there is none, and `tries` allows no other.
        """
        tries = request.tries
        assert tries is not None
        if tries.avoided:
            able = self._able(request)
            avoided = tuple(each for each in able if each.address in tries.avoided)
            others = (each for each in able if each not in avoided and each not in tried)
            if any(not each.health.is_left_out for each in others) and sequence_of(request) is None:
                endpoint = self._free_endpoint(request, (*tried, *avoided))
                if endpoint is not None and endpoint not in avoided:
                    return endpoint
        if tries.elsewhere:
            raise refusal(Reason.OVERLOADED, f"backend {self.name!r}: no other endpoint is free")
        return self._free_endpoint(request, tried)

    def _endpoint_of_sequence(
        self, request: Request, key: SequenceKey, choice: EndpointChoice, tried: Sequence[Endpoint]
    ) -> Endpoint | None:
        """The endpoint that has the sequence's state, or the one that `choice` makes for a new sequence, with a slot
        taken; None if it waits for the first endpoint.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), that endpoint has no free slot; UNAVAILABLE, there is no
                endpoint.
        """
        return self._sequences.take(request, key, choice, self.waiting_calls, tried)

    def _able(self, request: Request) -> Sequence[Endpoint]:
        """The endpoints that can answer `request`."""
        return self.serving

    def _begin_stream(self, request: Request, endpoint: Endpoint) -> Callable[[], None]:
        """A stream has its slot. Returns the function that gives it back."""
        return endpoint.give_back

    def _wait_for_slot(self, request: Request, tried: tuple[Endpoint, ...] = ()) -> Awaitable[Endpoint]:
        """The endpoint whose slot this request gets when its turn comes.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), the queue has no place, or `queue.timeout` is over;
                UNAVAILABLE, there is no endpoint.
        """
        if not self.serving and not self.starts_servers:
            return self._wait_for_endpoint(request)
        return self.waiting_calls.wait(request)

    async def _wait_for_endpoint(self, request: Request) -> Endpoint:
        """As `_wait_for_slot`, while there is no endpoint."""
        if not self.waiting_calls.waits_for_endpoint(request):
            raise self.choice.none_there()
        endpoint = await self.waiting_calls.wait(request)
        if request.operation not in self._with_slot:
            endpoint.give_back()
        elif request.unread is None and request.parameters and (sequence := sequence_of(request)) is not None:
            self._sequences.note(request, sequence, endpoint)
        return endpoint

    def _hand_over_slot(self, endpoint: Endpoint) -> bool:
        """Give a free slot of `endpoint` to the next waiter. Returns whether there was one."""
        return self.waiting_calls.hand_over(endpoint, self._next_waiter)

    def _next_waiter(self, endpoint: Endpoint) -> Waiter[Endpoint] | None:
        """The waiter whose turn it is at `endpoint`, which is taken out of the queue."""
        return self.queue.next()

    def _recovered(self) -> None:
        self._targets.forget()
        for watcher in self._on_recovery:
            with surviving(f"telling that an endpoint of backend {self.name!r} has changed"):
                watcher()
