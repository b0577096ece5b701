"""A named backend: distributes calls over its endpoints, with a bounded number of slots and a fair queue.

A call that runs a model (`CALLS`) holds a slot of its endpoint until it ends. Where servers take one connection only,
every request does. The endpoint is chosen so:

1. A request of a sequence goes to the endpoint that has the sequence's state, and is refused if that is full.
2. Others go to the endpoint that the backend's strategy chooses (`balancing`): by default the one with the fewest calls
   in flight.
3. If all are full, the call waits in the queue. An endpoint that gives a slot back hands it to the next waiter.

Endpoints can be added and removed at any time. Without any, calls fail at once: nobody knows when one will come. They
wait in the queue for the first one where servers are started for calls that wait: by somebody else
(`waits_for_endpoints`), or by the gateway (`on_demand`).

Endpoints that are down are left out, but at most `Ejection.most` of all: beyond that the ones that failed least
recently are used all the same. Only if `Ejection.most` is 1 can all be left out: then calls fail at once. If nothing
could be sent to an endpoint, another one is tried, each at most once. Policies can
bound each try and name endpoints to avoid (`Tries`).
"""

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Sequence
from contextlib import aclosing
from functools import partial
from time import monotonic
from typing import TypeAlias, TypeVar

from gateway.core.deadlines import wait_until
from gateway.core.errors import GatewayError, Reason, Status, TransportError, refusal
from gateway.core.exchange import ask
from gateway.core.frozen import replace
from gateway.core.operations import CALLS, CONTROL_OPERATIONS, WAKING, Operation
from gateway.core.protocol import Protocol, Target
from gateway.core.queue_wait import note_wait
from gateway.core.record import Record
from gateway.core.spans import Span, begin, note
from gateway.core.streaming import ask_stream
from gateway.core.surviving import surviving
from gateway.core.tasks import outlived_by, spawn
from gateway.core.types import Answer, Request, Response
from gateway.routing.balancing import LeastInFlight, Strategy
from gateway.routing.endpoint import Attempt, Endpoint
from gateway.routing.health import Ejection
from gateway.routing.longest_first import KindTimes, LongestFirstQueue, kind_of
from gateway.routing.queue import FairQueue, QueueSettings, SlotTimes, Waiter, overloaded
from gateway.routing.readiness import is_ready, probe
from gateway.routing.sequences import SequenceKey, Sequences, sequence_of
from gateway.routing.spans import with_spans
from gateway.routing.stopwatch import Stopwatch
from gateway.routing.targets import Targets

T = TypeVar("T")

Send: TypeAlias = Callable[[Request, Endpoint], Awaitable[Answer]]


class Backend:
    """A Handler that sends each Request to one of its endpoints.

    At most `max_in_flight` calls run at once on each endpoint (0: any number).
    """

    starts_servers = False
    """Servers are started for calls that wait: they wait in the queue while there is no endpoint."""

    def __init__(
        self,
        target: Target,
        protocol: Protocol,
        endpoints: Sequence[Endpoint],
        max_in_flight: int,
        ejection: Ejection | None = None,
        strategy: Strategy | None = None,
        queue: QueueSettings | None = None,
        clock: Callable[[], float] = monotonic,
        *,
        has_tls: bool = False,
    ) -> None:
        self.name = target.backend
        self._has_tls = has_tls
        """All endpoints are reached over TLS, whatever the schemes of their addresses are."""
        self.protocol = protocol
        self._form = protocol.name
        self._servers = protocol.traits.servers
        # A busy server can still answer what does not run a model, unless it serves one connection at a time.
        self._with_slot = frozenset(Operation) if self._servers.one_connection else CALLS
        """The operations whose requests take a slot."""
        self._in_slot = self._in_timed_slot if max_in_flight else self._in_any_slot
        self._send_in_slot = self._to_the_end if self._servers.runs_to_the_end else self._in_slot
        self._gives_back = not max_in_flight and not self._servers.runs_to_the_end
        """Slots are given back where they were taken, in `__call__`: nobody counts how long they are held."""
        if self._gives_back:
            self._send_in_slot = self._ask
        self.endpoints = tuple(endpoints)
        self.max_in_flight = max_in_flight
        self._strategy = strategy or LeastInFlight()
        self.queue_settings = queue or QueueSettings()
        self.queue: FairQueue[Endpoint]
        self._slot_times: SlotTimes
        self._wait_in_queue: Callable[[Request, str], Awaitable[Endpoint]]
        if self.queue_settings.order == "fair":
            self.queue = FairQueue(self.name, self.queue_settings.length, self.seconds_until)
            self._wait_in_queue = self._wait_in_line
            self._slot_times = SlotTimes()
        else:
            times = KindTimes()
            length, passed_over = self.queue_settings.length, self.queue_settings.passed_over
            self.queue = LongestFirstQueue(self.name, length, self.seconds_until, times.of, passed_over)
            self._wait_in_queue = self._wait_in_line_of_kind
            self._slot_times = times
        self.note_slot_time = self._slot_times.add
        """Note for how long the call of a request that was answered held its slot."""
        self.waits_for_endpoints = self.queue_settings.wait_for_endpoints
        """Seconds for which a call waits while there is no endpoint; None: it fails at once."""
        self._emptied_or_filled = -math.inf
        """When the last endpoint was removed, or the first one added."""
        self._replaced: list[Backend] = []
        """Those that had this name before and whose calls still wait for the first endpoint."""
        self._joined = 0
        self._clock = clock
        self._targets = Targets(target, protocol, endpoints)
        self._sequences = Sequences()
        self._on_recovery: list[Callable[[], None]] = []
        self._share_left_out = (ejection or Ejection()).most
        self._most_left_out = _most_left_out(self._share_left_out, len(endpoints))
        self.is_probed = False
        """A Prober asks its endpoints whether they are ready."""
        for endpoint in endpoints:
            endpoint.health.used_by(self.name)
            endpoint.watch(self._hand_over_slot if max_in_flight else None, self._recovered)

    @property
    def capacity(self) -> int:
        """The number of calls that can run at once; 0: any number."""
        return self.max_in_flight * len(self.endpoints)

    def add(self, endpoint: Endpoint) -> None:
        """Send calls to `endpoint` as well, waiting ones at once; nothing happens if it is there already.

        The first endpoint of a backend that had none may have other models than the last one: it counts as an endpoint
        that came back.
        """
        if endpoint in self.endpoints:
            return
        is_first = not self.endpoints
        endpoint.since = self._clock()
        self._targets.add(endpoint)
        endpoint.health.used_by(self.name)
        self._replace_endpoints((*self.endpoints, endpoint))
        endpoint.watch(self._hand_over_slot if self.max_in_flight else None, self._recovered)
        if is_first:
            self._emptied_or_filled = self._clock()
            self._recovered()
        while endpoint.offer():
            pass
        if not self.max_in_flight:  # calls wait for the first endpoint only
            while self._hand_over_slot(endpoint):
                pass
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
        self._replace_endpoints(tuple(each for each in self.endpoints if each is not endpoint))
        endpoint.unwatch(self._hand_over_slot, self._recovered)
        self._targets.remove(endpoint)
        self._sequences.forget(endpoint)
        if not self.endpoints:
            self._emptied_or_filled = self._clock()
            if self.waits_for_endpoints is None and not self.starts_servers:
                self.queue.fail(self._no_endpoint)
        for replaced in self._replaced:
            replaced.remove(endpoint)
        for each in self.endpoints:  # a slot may have been kept free because the removed endpoint was only busy
            while each.offer():
                pass

    def _replace_endpoints(self, endpoints: tuple[Endpoint, ...]) -> None:
        self.endpoints = endpoints
        self._most_left_out = _most_left_out(self._share_left_out, len(endpoints))

    def _no_endpoint(self, waited: float | None = None) -> TransportError:
        text = f"backend {self.name!r} has no endpoint at the moment"
        if waited is not None:
            text += f", and none came within {waited:g} s (queue.wait_for_endpoints)"
        return TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, text, sent=False)

    def seconds_until(self, place: int) -> float | None:
        """The estimated seconds until the call at this place of the queue (1: the next one) gets a slot; None before
        the first call has ended, and where the number of slots is not limited."""
        return self._slot_times.until(place, self.capacity)

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
        """The same when the request's turn in the queue has come.

        Raises:
            GatewayError: as `__call__`.
        """
        return await self._wait_for_slot(request)

    def on_recovery(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` when an endpoint that was down answers again, and when its models have changed."""
        self._on_recovery.append(watcher)

    def replace(self, previous: "Backend") -> None:
        """Take over from the backend that had this name before: the sequences at endpoints that both have, and how long
        kinds of calls take. From now on `previous` gets no new requests."""
        self._sequences.adopt(previous._sequences, self.endpoints)
        if isinstance(self._slot_times, KindTimes):
            self._slot_times.adopt(previous._slot_times)
        if previous.waits_for_endpoints is not None and previous.protocol is self.protocol:
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
        return in_queues if self.endpoints else in_queues + self.joined

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
            endpoint.unwatch(self._hand_over_slot if self.max_in_flight else None, self._recovered)

    async def __call__(self, request: Request) -> Answer:
        """The answer of one endpoint; for CONTROL_OPERATIONS that of all. If nothing could be sent to an endpoint,
        another one is asked.

        Raises:
            GatewayError: as `exchange.ask`; RESOURCE_EXHAUSTED if too many calls are waiting; UNAVAILABLE if there is
                no endpoint.
        """
        send, gives_back, record = self._send_in_slot, self._gives_back, request.record
        if request.operation not in self._with_slot:
            if request.operation in CONTROL_OPERATIONS:
                return await self._control(request)
            send, gives_back = self._send_without_slot, False
        if record is not None and record.is_timed and record.events is not None:
            send = partial(self._send_in_span, send, record)
        if request.tries is not None:
            send = partial(self._send_try, send, request)
        tried: tuple[Endpoint, ...] = ()
        one_try = request
        while True:
            if request.tries is None:
                endpoint = self._free_endpoint(request, tried) or await self._wait_for_slot(request, tried)
            else:
                endpoint = self._preferred_endpoint(request, tried) or await self._wait_for_slot(request, tried)
                one_try = _begun(request, endpoint)
            began = (endpoint.clock(), endpoint.health.answers) if one_try.deadline is not None else None
            if record is not None:
                record.tries += 1
                record.backend, record.out_protocol, record.endpoint = self.name, self._form, endpoint.address
                sent = monotonic()
            try:
                return await send(one_try, endpoint)
            except TransportError as error:
                error.endpoint = endpoint.address
                if error.status is Status.DEADLINE_EXCEEDED and began is not None:
                    self._given_up(endpoint.attempt(*began), one_try, error)
                tried = (*tried, endpoint)
                if error.sent or all(each in tried for each in self.endpoints):
                    raise
                if record is not None:
                    record.retries += 1
            except GatewayError as error:
                error.endpoint = endpoint.address
                raise
            except asyncio.CancelledError:
                if began is not None:
                    self._given_up(endpoint.attempt(*began), one_try)
                raise
            finally:
                if gives_back:
                    endpoint.give_back()
                if record is not None:
                    record.upstream += monotonic() - sent

    async def _send_in_span(self, send: Send, record: Record, request: Request, endpoint: Endpoint) -> Answer:
        with self._span_of_try(record, endpoint) as span:
            return await send(replace(request, span=span), endpoint)

    def _span_of_try(self, record: Record, endpoint: Endpoint) -> Span:
        """The span of a try that begins now."""
        span = begin(record, "try")
        span.facts = {
            "backend": self.name,
            "endpoint": endpoint.address,
            "protocol": self.protocol.name,
            "transport": self.protocol.transport,
            "tls": self._has_tls,
            "number": record.tries,
        }
        return span

    async def _send_try(self, send: Send, request: Request, one_try: Request, endpoint: Endpoint) -> Answer:
        """Send `one_try`, a try of `request`, to `endpoint`."""
        sent = send(one_try, endpoint)
        answer = await (sent if one_try is request else self._in_time(one_try, sent, endpoint))
        if request.tries is not None:
            request.tries.answered(endpoint.address)
        return answer

    def _in_time(self, one_try: Request, sent: Awaitable[T], endpoint: Endpoint) -> Awaitable[T]:
        """The result of `sent`, which is cancelled at the deadline of `one_try`.

        Raises:
            TransportError: DEADLINE_EXCEEDED (timeout).
        """
        assert one_try.deadline is not None
        return wait_until(one_try.deadline, sent, partial(self._try_took_too_long, one_try, endpoint))

    def _try_took_too_long(self, one_try: Request, endpoint: Endpoint) -> TransportError:
        seconds = one_try.tries.seconds if one_try.tries is not None else None
        text = f"backend {self.name!r} at {endpoint.address}: no answer within {seconds:g} s,"
        text = f"{text} the limit that the policy timeout sets for one try (timeout.per_try)"
        return TransportError(Status.DEADLINE_EXCEEDED, Reason.TIMEOUT, text, sent=True)

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
        one_try = request
        while True:
            if tries is None:
                endpoint = self._free_endpoint(request, tried) or await self._wait_for_slot(request, tried)
            else:
                endpoint = self._preferred_endpoint(request, tried) or await self._wait_for_slot(request, tried)
                one_try = _begun(request, endpoint)
            tried = (*tried, endpoint)
            began, waiting = self._clock(), Stopwatch(self._clock)
            sent, spoken, span = request, protocol, None
            if (record := request.record) is not None:
                record.tries += 1
                record.backend, record.out_protocol, record.endpoint = self.name, self._form, endpoint.address
                if record.events is not None:
                    span = self._span_of_try(record, endpoint)
                    sent, spoken = replace(request, span=span), with_spans(protocol, record, span, is_stream=True)
            attempt = endpoint.attempt(endpoint.clock(), endpoint.health.answers)
            try:
                target = self._targets.known.get(endpoint) or await self._targets.find(endpoint, request.deadline)
                connector = endpoint.passthrough if passthrough else endpoint
                assert connector is not None
                # The server is not told the end of the try: it bounds the wait for the first response only.
                async with aclosing(ask_stream(sent, spoken, connector, target)) as responses:
                    if one_try is not request:
                        first = await self._in_time(one_try, anext(responses, None), endpoint)
                        one_try = request
                        if first is not None:
                            waiting.stop()
                            yield first
                            waiting.go_on()
                            attempt.responded()
                    async for response in responses:
                        waiting.stop()
                        yield response
                        waiting.go_on()
                        attempt.responded()
                if tries is not None:
                    tries.answered(endpoint.address)
                self.note_slot_time(self._clock() - began, request)
                return
            except GatewayError as error:
                if span is not None:
                    span.failed(error)
                if not isinstance(error, TransportError):
                    raise
                if error.status is Status.DEADLINE_EXCEEDED:
                    self._given_up(attempt, one_try, error)
                if error.sent or all(each in tried for each in self.endpoints):
                    raise
                if request.record is not None:
                    request.record.retries += 1
            except asyncio.CancelledError:
                self._given_up(attempt, one_try)
                raise
            finally:
                self._give_back(endpoint)
                if request.record is not None:
                    request.record.upstream += waiting.stop()
                if span is not None:
                    span.end()

    async def is_ready(self) -> bool:
        """Whether one of its endpoints is ready. Where probes run, their outcome says it. Elsewhere all endpoints are
        asked at once, and the answers do not affect the health of endpoints."""
        if self.is_probed:
            return any(endpoint.health.is_ready for endpoint in self.endpoints)
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
            endpoint.enter()
            try:
                return await is_ready(self.protocol, endpoint.connector, target)
            finally:
                endpoint.leave()
        endpoint.take()
        try:
            return await is_ready(self.protocol, endpoint.connector, target)
        finally:
            endpoint.give_back()

    def is_busy(self, endpoint: Endpoint) -> bool:
        """Whether the endpoint runs a call and cannot answer anything else meanwhile: servers that take one call at a
        time, or compute each call to its end."""
        servers = self._servers
        one_at_a_time = servers.one_connection or servers.runs_to_the_end or self.max_in_flight == 1
        return one_at_a_time and endpoint.in_flight > 0

    async def probe(self, operation: Operation, endpoint: Endpoint) -> None:
        """As `readiness.probe`, for one endpoint. It takes no slot, and its outcome is not noted."""
        await probe(operation, self.protocol, endpoint.connector, self._targets.of(endpoint))

    def _given_up(self, attempt: Attempt, request: Request, error: TransportError | None = None) -> None:
        attempt.given_up(request, error, runs_to_the_end=self._servers.runs_to_the_end)

    async def _control(self, request: Request) -> Answer:
        """The answer of all endpoints, which are asked at once so that their servers stay replicas of each other.

        Raises:
            GatewayError: the error of the first endpoint that failed, naming it if there are several;
                FAILED_PRECONDITION if the answers differ.
        """
        endpoints = self.endpoints
        if not endpoints:
            raise self._no_endpoint()
        asking = (self._send_without_slot(request, each) for each in endpoints)
        found = await asyncio.gather(*asking, return_exceptions=True)
        if request.operation in (Operation.LOAD, Operation.UNLOAD):
            for endpoint in endpoints:
                endpoint.changed()
        for endpoint, answer in zip(endpoints, found, strict=True):
            if isinstance(answer, GatewayError) and len(found) > 1 and not isinstance(answer, TransportError):
                text = f"backend {self.name!r} at {endpoint.address}: {answer.message}"
                raise GatewayError(answer.status, answer.reason, text) from answer
            if isinstance(answer, BaseException):
                raise answer
            if answer != found[0]:
                text = f"endpoints {endpoints[0].address} and {endpoint.address} of backend {self.name!r}"
                raise refusal(Reason.FAILED_PRECONDITION, f"{text} differ in their {request.operation.value}")
        assert not isinstance(found[0], BaseException)
        return found[0]

    def _to_the_end(self, request: Request, endpoint: Endpoint) -> Awaitable[Answer]:
        """As `_in_slot`, for a server that goes on computing even if the client leaves: its slot must stay taken. So
        the exchange is a task of its own that outlives the client's."""
        return outlived_by(asyncio.get_running_loop().create_task(self._in_slot(request, endpoint)))

    async def _in_any_slot(self, request: Request, endpoint: Endpoint) -> Answer:
        try:
            return await self._ask(request, endpoint)
        finally:
            endpoint.give_back()

    async def _send_without_slot(self, request: Request, endpoint: Endpoint) -> Answer:
        endpoint.enter()
        try:
            return await self._ask(request, endpoint)
        finally:
            endpoint.leave()

    async def _in_timed_slot(self, request: Request, endpoint: Endpoint) -> Answer:
        """As `_in_any_slot`, noting how long a call that was answered held the slot."""
        began = self._clock()
        try:
            answer = await self._ask(request, endpoint)
            self.note_slot_time(self._clock() - began, request)
            return answer
        finally:
            endpoint.give_back()

    def _ask(self, request: Request, endpoint: Endpoint) -> Awaitable[Answer]:
        target = self._targets.known.get(endpoint)
        if target is None:
            return self._ask_unknown(request, endpoint)
        if request.span is not None:
            return ask(request, self._protocol_for(request), endpoint, target)
        return ask(request, self.protocol, endpoint, target)

    def _protocol_for(self, request: Request) -> Protocol:
        """The backend's protocol; for a request whose spans are noted, one that notes those of its codec."""
        if request.span is None or request.record is None:
            return self.protocol
        return with_spans(self.protocol, request.record, request.span)

    async def _ask_unknown(self, request: Request, endpoint: Endpoint) -> Answer:
        target = await self._targets.find(endpoint, request.deadline)
        return await ask(request, self._protocol_for(request), endpoint, target)

    def _takes_slot(self, request: Request) -> bool:
        return request.operation in self._with_slot

    def _free_endpoint(self, request: Request, tried: Sequence[Endpoint]) -> Endpoint | None:
        """The endpoint for this request; None if it has to wait for a slot. If the request takes a slot, it is taken
        already."""
        if request.operation not in self._with_slot:
            if not self.endpoints:
                if self._waits(request):
                    return None
                raise self._no_endpoint()
            return self._choose(0, tried) or self.endpoints[0]
        if request.parameters and (sequence := sequence_of(request)) is not None:
            return self._endpoint_of_sequence(request, sequence, tried)
        # As `_choose`, written out: this is done for every call.
        endpoint = self._strategy.choose(self.endpoints, self.max_in_flight, tried)
        if endpoint is not None and not endpoint.health.is_up:
            endpoint = self._instead_of(endpoint, self.max_in_flight, tried)
        if endpoint is not None:
            endpoint.take()
        return endpoint

    def _preferred_endpoint(self, request: Request, tried: tuple[Endpoint, ...]) -> Endpoint | None:
        """As `_free_endpoint`, but one that `request.tries` does not avoid, if such a one is in use and free. A
        sequence stays where its state is.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), there is none, and `tries` allows no other.
        """
        tries = request.tries
        assert tries is not None
        if tries.avoided:
            avoided = tuple(each for each in self.endpoints if each.address in tries.avoided)
            others = (each for each in self.endpoints if each not in avoided and each not in tried)
            if any(not each.health.is_left_out for each in others) and sequence_of(request) is None:
                endpoint = self._free_endpoint(request, (*tried, *avoided))
                if endpoint is not None and endpoint not in avoided:
                    return endpoint
        if tries.elsewhere:
            raise refusal(Reason.OVERLOADED, f"backend {self.name!r}: no other endpoint is free")
        return self._free_endpoint(request, tried)

    def _endpoint_of_sequence(self, request: Request, key: SequenceKey, tried: Sequence[Endpoint]) -> Endpoint | None:
        """The endpoint that has the sequence's state, or the one chosen for a new sequence, with a slot taken; None if
        it waits for the first endpoint.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), that endpoint has no free slot; UNAVAILABLE, there is no
                endpoint.
        """
        endpoint = self._sequences.endpoint(key)
        if endpoint is None or endpoint in tried:
            endpoint = self._choose(self.max_in_flight, tried)
        if endpoint is None or (self.max_in_flight and self._is_full(endpoint)):
            if not self.endpoints:
                if self._waits(request):
                    return None
                raise self._no_endpoint()
            # The sequence stays where its state is: the client's next try finds the same endpoint.
            text = f"backend {self.name!r}: the endpoint of sequence {key[1]!r} is busy; try again later"
            raise refusal(Reason.OVERLOADED, text)
        self._sequences.note(request, key, endpoint)
        endpoint.take()
        return endpoint

    def _choose(self, limit: int, tried: Sequence[Endpoint]) -> Endpoint | None:
        """The endpoint that the strategy chooses among those with fewer than `limit` calls in flight (0: any number)
        that are not in `tried`; another one instead of one that is down."""
        endpoint = self._strategy.choose(self.endpoints, limit, tried)
        if endpoint is None or endpoint.health.is_up:
            return endpoint
        return self._instead_of(endpoint, limit, tried)

    def _instead_of(self, chosen: Endpoint, limit: int, tried: Sequence[Endpoint]) -> Endpoint | None:
        """The endpoint to use if one that is down was `chosen`: itself if it is not left out; else another one; None if
        those not left out are all busy, since a slot will become free; if all others are tried, the one that failed
        least recently.

        Raises:
            TransportError: UNAVAILABLE (unreachable), every endpoint is left out.
        """
        left_out = self._left_out()
        if len(left_out) == len(self.endpoints):
            raise self._all_down()
        unused = (*tried, *left_out)
        if chosen not in left_out:
            best: Endpoint | None = chosen
        elif any(each not in unused for each in self.endpoints):
            best = self._strategy.choose(self.endpoints, limit, unused)
        else:
            free = [each for each in self.endpoints if each not in tried and (not limit or each.in_flight < limit)]
            best = min(free, key=lambda each: each.health.failed_at, default=None)
        if best is not None and not best.health.is_up:
            best.health.try_again()
        return best

    def _left_out(self) -> list[Endpoint]:
        """The endpoints that get no calls: of those that are down the ones that failed last, as many as are allowed."""
        out = [each for each in self.endpoints if each.health.is_left_out]
        out.sort(key=lambda each: -each.health.failed_at)
        return out[: self._most_left_out]

    def _all_down(self) -> TransportError:
        last = max(self.endpoints, key=lambda each: each.health.failed_at).health.last
        assert last is not None
        text = f"all endpoints of backend {self.name!r} are down: {last.text}"
        return TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, text, sent=False)

    def _give_back(self, endpoint: Endpoint) -> None:
        """Give back the slot of a stream."""
        endpoint.give_back()

    def _wait_for_slot(self, request: Request, tried: tuple[Endpoint, ...] = ()) -> Awaitable[Endpoint]:
        """The endpoint whose slot this request gets when its turn comes.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), the queue has no place, or `queue.timeout` is over;
                UNAVAILABLE, there is no endpoint.
        """
        if not self.endpoints and not self.starts_servers:
            return self._wait_for_endpoint(request)
        return self._wait_in_queue(request, request.model)

    def _waits(self, request: Request) -> bool:
        """Whether it waits while there is no endpoint. Questions about readiness do not: they would start servers."""
        return self.waits_for_endpoints is not None and request.operation in WAKING

    async def _wait_for_endpoint(self, request: Request) -> Endpoint:
        """As `_wait_for_slot`, while there is no endpoint."""
        if not self._waits(request):
            raise self._no_endpoint()
        endpoint = await self._wait_in_queue(request, request.model)
        if not self._takes_slot(request):
            endpoint.give_back()
        elif (sequence := sequence_of(request)) is not None:
            self._sequences.note(request, sequence, endpoint)
        return endpoint

    async def _wait_patiently(self, waiter: Waiter[Endpoint], seconds: float) -> None:
        """Wait until `waiter` is done: `seconds` while there is no endpoint, and `queue.timeout` while there are some.

        Raises:
            TimeoutError: one of the two is over.
        """
        joined = self._clock()
        queue_timeout = math.inf if self.queue_settings.timeout is None else self.queue_settings.timeout
        while not waiter.done():
            limit = queue_timeout if self.endpoints else seconds
            left = max(joined, self._emptied_or_filled) + limit - self._clock()
            if left <= 0:
                raise TimeoutError
            # Endpoints may come and go meanwhile, and with them the limit.
            await asyncio.wait((waiter,), timeout=min(left, seconds, queue_timeout))

    def _wait_in_line_of_kind(self, request: Request, _model: str) -> Awaitable[Endpoint]:
        """As `_wait_in_line`, in a queue that has lines by kind."""
        return self._wait_in_line(request, kind_of(request))

    async def _wait_in_line(self, request: Request, line: Hashable) -> Endpoint:
        client, seconds = request.client, self.queue_settings.timeout
        place = self.queue.place(client, line)
        waiter, joined = self.queue.join(client, line), self._clock()
        try:
            if self.waits_for_endpoints is not None:
                await self._wait_patiently(waiter, self.waits_for_endpoints)
                return await waiter
            if seconds is None:
                return await waiter
            async with asyncio.timeout(seconds):
                return await waiter
        except (asyncio.CancelledError, TimeoutError) as error:
            if waiter.done() and not waiter.cancelled():
                if waiter.exception() is None:
                    waiter.result().give_back()
            else:
                self.queue.leave(client, line, waiter)
            if isinstance(error, asyncio.CancelledError):
                raise
            if not self.endpoints and self.waits_for_endpoints is not None:
                raise self._no_endpoint(self.waits_for_endpoints) from error
            text = f"no endpoint was free within {seconds:g} s (queue.timeout); try again later"
            raise overloaded(f"backend {self.name!r}: {text}", self.seconds_until(len(self.queue) + 1)) from error
        finally:
            waited = self._clock() - joined
            note_wait(place, waited)
            if (record := request.record) is not None:
                record.queued += waited
                if record.events is not None:
                    note(record, "queue", waited).facts = {"backend": self.name, "place": place}

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
        return 0 < self.max_in_flight <= endpoint.in_flight

    def _recovered(self) -> None:
        self._targets.forget()
        for watcher in self._on_recovery:
            with surviving(f"telling that an endpoint of backend {self.name!r} has changed"):
                watcher()


def _most_left_out(share: float, count: int) -> int:
    """How many of `count` endpoints may be left out at once: never the last one unless `share` is 1."""
    return count if share >= 1 else max(0, min(math.ceil(share * count), count - 1))


def _begun(request: Request, endpoint: Endpoint) -> Request:
    """One try of `request`, which begins now at `endpoint`: with the deadline and the time limit of the try, or
    `request` itself if the call ends sooner or its tries have no limit."""
    tries = request.tries
    assert tries is not None
    tries.began(endpoint.address)
    if tries.seconds is None:
        return request
    end = asyncio.get_running_loop().time() + tries.seconds
    if request.deadline is not None and request.deadline <= end:
        return request
    limit = tries.seconds if request.time_limit is None else min(request.time_limit, tries.seconds)
    return replace(request, deadline=end, time_limit=limit)
