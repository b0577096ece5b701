"""The slots of a backend: their interface, and the implementation for slots that one process manages alone.

A call that runs a model (`CALLS`) holds a slot of its endpoint until the call ends. For servers that accept only one
connection, every request holds a slot. The Slots of a Backend choose the endpoint and make calls wait:

| Slots | managed by |
|---|---|
| `LocalSlots` | this process, with the fair queue and the sequences |
| `placement.slots.PlacedSlots` | this process, among the endpoints that have the model of a request |
| `on_demand.StartedSlots` | this process, for servers that start when calls wait for them |
| `runtime.workers.slots.SupervisedSlots` | the supervisor, for all workers together |

The last three classes contain LocalSlots, for the endpoint state that every process has (`Slots.local`).

The Slots choose the endpoint in these steps:

1. A request of a sequence goes to the endpoint that has the sequence's state. If that endpoint is full, the request is
   rejected.
2. Other requests go to the endpoint that the backend's strategy chooses (`balancing`): by default, the endpoint with
   the fewest calls in flight.
3. If all endpoints are full, the call waits in the queue. When another call ends, its slot goes to the next waiting
   call.

Endpoints can be added and removed at any time. If the backend has no endpoints, calls fail immediately, because the
gateway cannot predict when an endpoint will be added. However, if an external system (`queue.wait_for_endpoints`) or
the gateway (`on_demand`) starts servers for waiting calls, the calls wait in the queue for the first endpoint.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Protocol, TypeAlias

from gateway.core.errors import GatewayError, Reason, TransportError, refusal
from gateway.core.frozen import replace
from gateway.core.operations import CALLS, Operation
from gateway.core.protocol import Servers
from gateway.core.requests import Answer, Request
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Endpoint, adopt_drains
from gateway.routing.queue import QueueSettings
from gateway.routing.sequences import Sequences, sequence_of
from gateway.routing.waiting import WaitingCalls

Ended: TypeAlias = Callable[[bool], None]
"""Called once at the end of a request, with True if the request received a response. The callback returns the request's
slot, if the request has one.
"""

OwnAnswer: TypeAlias = Callable[[Request], Awaitable[Answer | None]]
"""Returns the response to a request that requires more than one endpoint, or None if the request can be sent to one
endpoint."""


class Slots(Protocol):
    """Manages the slots of one backend."""

    @property
    def local(self) -> "LocalSlots":
        """This process's view of the backend's endpoints, and the queue of calls that wait in this process."""

    @property
    def answers(self) -> Mapping[Operation, OwnAnswer]:
        """By operation, the functions for requests that require more than one endpoint. CONTROL_OPERATIONS are not
        included, because they go to all endpoints."""

    def free(self, request: Request, tried: Sequence[Endpoint] = ()) -> Endpoint | None:
        """Return the endpoint for this request, excluding the endpoints in `tried`, or None if the request must wait.

        If the request needs a slot, this method has taken the slot. It chooses an endpoint that `request.tries` avoids
        only if no other endpoint exists.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if the endpoint of the request's sequence is full, or if
                `tries` allows no other endpoint; UNAVAILABLE if the backend has no endpoints, or if all are down.
        """

    def wait(self, request: Request, tried: Sequence[Endpoint] = ()) -> Awaitable[Endpoint]:
        """Wait until it is the request's turn, then return an endpoint like `free`.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if the queue is full, or after `queue.timeout`; UNAVAILABLE if
                the backend has no endpoints.
        """

    def began(self, request: Request, endpoint: Endpoint) -> Ended:
        """Record that the request is about to be sent to its endpoint. Return the callback for the end of the
        request."""

    async def again(
        self, request: Request, error: GatewayError, tried: Sequence[Endpoint], rounds: int
    ) -> Request | None:
        """Decide how to continue with a request that failed with `error` at the last endpoint in `tried`.

        Return None to use an endpoint that is not in `tried`, or the request to send to any endpoint. `rounds` is the
        number of times that this method has already returned a request.

        Raises:
            GatewayError: the gateway does not retry the request; this is `error`, or an error with more detail.
        """

    async def is_ready(self) -> bool | None:
        """Return whether the backend is ready, or None if its servers must be queried."""

    def replace(self, previous: Any) -> None:
        """Take over from the previous Slots of the backend with the same name."""

    def close(self) -> None:
        """Detach from the endpoints. Call this only when no requests are in flight."""


class LocalSlots:
    """The slots that this process manages alone.

    Each endpoint runs at most `max_in_flight` calls in parallel (0: no limit). `servers` are the server traits of the
    backend's protocol."""

    answers: Mapping[Operation, OwnAnswer] = {}

    def __init__(
        self,
        name: str,
        servers: Servers,
        endpoints: Sequence[Endpoint],
        max_in_flight: int,
        choice: EndpointChoice | None = None,
        queue: QueueSettings | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.name = name
        # A busy server can still handle requests that do not run a model, unless it accepts only one connection at a
        # time.
        self.with_slot = frozenset(Operation) if servers.one_connection else CALLS
        """The operations whose requests take a slot."""
        self.max_in_flight = max_in_flight
        self._one_at_a_time = servers.one_connection or servers.runs_to_the_end or max_in_flight == 1
        self.choice = choice or EndpointChoice()
        self.choice.name = name
        self.queue_settings = queue or QueueSettings()
        self.calls = WaitingCalls(self.queue_settings, self.choice, max_in_flight, clock)
        self.queue = self.calls.queue
        self.sequences = Sequences()
        self.clock = clock
        self.joined = 0
        """The number of calls that wait for the response to another call, such as a query for their model's
        metadata."""
        self.keeps_waiting = False
        """True if calls wait even when the backend has no endpoints, because a server is started for them."""
        self._on_recovery: Callable[[Endpoint], None] = _nobody
        self._on_outage: Callable[[Endpoint], None] = _nobody
        self._on_disconnect: Callable[[Endpoint], None] = _nobody
        self._on_other_models: Callable[[], None] = _nobody
        self.on_join: list[Callable[[Endpoint], None]] = []
        """Callbacks to run before an endpoint is added."""
        self.on_leave: list[Callable[[Endpoint], None]] = []
        """Callbacks to run when an endpoint is removed."""
        self.on_drain: list[Callable[[Endpoint], None]] = []
        """Callbacks to run before an endpoint stops or resumes receiving calls."""
        on_free = self.hand_over if max_in_flight else None
        on_disconnect = self._disconnected if servers.flavors else None
        self._watches = on_free, self._recovered, self._drain_changed, self._lost, on_disconnect
        self.endpoints: tuple[Endpoint, ...] = tuple(endpoints)
        self.choice.among(self.endpoints)
        for endpoint in self.endpoints:
            endpoint.health.used_by(name)
            endpoint.watch(*self._watches)

    @property
    def local(self) -> "LocalSlots":
        """See `Slots.local`."""
        return self

    def watch(
        self,
        on_recovery: Callable[[Endpoint], None],
        on_outage: Callable[[Endpoint], None],
        on_disconnect: Callable[[Endpoint], None],
        on_other_models: Callable[[], None],
    ) -> None:
        """Register the callbacks of the Backend.

        - `on_recovery` is called when an endpoint that was down responds again, or when an endpoint's models have
          changed.
        - `on_outage` is called when a connection attempt to an endpoint fails or a connection breaks.
        - `on_disconnect` is called when no open connection to an endpoint is left, if the protocol has server types.
        - `on_other_models` is called when the response to MODELS might have changed for another reason.
        """
        self._on_recovery, self._on_outage = on_recovery, on_outage
        self._on_disconnect, self._on_other_models = on_disconnect, on_other_models

    def lists_others(self) -> None:
        """Notify the Backend that the response to MODELS might have changed."""
        self._on_other_models()

    @property
    def serving(self) -> tuple[Endpoint, ...]:
        """The endpoints that are not drained."""
        return self.choice.endpoints

    @property
    def waiting(self) -> int:
        """The number of waiting calls. If the backend has no endpoints, the number includes calls that wait for the
        response to another call."""
        return self.calls.number if self.serving else self.calls.number + self.joined

    def count_joined(self, change: int) -> None:
        """Add `change` to the number of calls that wait for the response to another call. `change` is negative when
        calls stop waiting."""
        self.joined += change
        if change > 0 and not self.endpoints:
            self.calls.on_wait()

    def is_busy(self, endpoint: Endpoint) -> bool:
        """Return whether the endpoint is running a call and cannot respond to other requests until the call ends. Only
        a server that accepts one call at a time, or that runs each call to its end, can be busy."""
        return self._one_at_a_time and endpoint.in_flight > 0

    # --- slots ---

    def free(
        self, request: Request, tried: Sequence[Endpoint] = (), choice: EndpointChoice | None = None
    ) -> Endpoint | None:
        """See `Slots.free`. If `choice` is set, choose among its endpoints."""
        if choice is None:
            choice = self.choice
        if request.tries is not None and (request.tries.avoided or request.tries.elsewhere):
            return self._preferred(request, tried, choice)
        if request.operation not in self.with_slot:
            if not choice.endpoints:
                if self.calls.waits_for_endpoint(request):
                    return None
                raise choice.none_there()
            return choice.choose(0, tried) or choice.endpoints[0]
        if request.unread is None and request.parameters and (sequence := sequence_of(request)) is not None:
            return self.sequences.take(request, sequence, choice, self.calls, tried)
        endpoint = choice.choose(self.max_in_flight, tried)
        if endpoint is not None:
            endpoint.take()
        return endpoint

    def _preferred(self, request: Request, tried: Sequence[Endpoint], choice: EndpointChoice) -> Endpoint | None:
        """Return the endpoint for a request whose `tries` avoid some endpoints, preferably a free endpoint that is not
        left out. A sequence stays on the endpoint with its state."""
        tries, able, plain = request.tries, choice.endpoints, replace(request, tries=None)
        assert tries is not None
        if tries.avoided:
            avoided = tuple(each for each in able if each.address in tries.avoided)
            others = (each for each in able if each not in avoided and each not in tried)
            if any(not each.health.is_left_out for each in others) and sequence_of(request) is None:
                endpoint = self.free(plain, (*tried, *avoided), choice)
                if endpoint is not None and endpoint not in avoided:
                    return endpoint
        if tries.elsewhere:
            raise self.no_other_is_free()
        return self.free(plain, tried, choice)

    def no_other_is_free(self) -> GatewayError:
        """Return the error for a request that can use only untried endpoints, none of which is free."""
        return refusal(Reason.OVERLOADED, f"backend {self.name!r}: no other endpoint is free; try again later")

    async def wait(self, request: Request, tried: Sequence[Endpoint] = ()) -> Endpoint:
        """See `Slots.wait`. Each waiting call gets a slot; a call that does not need the slot returns it
        immediately."""
        needs_endpoint = not self.serving and not self.keeps_waiting
        if needs_endpoint and not self.calls.waits_for_endpoint(request):
            raise self.choice.none_there()
        endpoint = await self.calls.wait(request)
        if request.operation not in self.with_slot:
            endpoint.give_back()
        elif needs_endpoint:
            self.note_sequence(request, endpoint)
        return endpoint

    def note_sequence(self, request: Request, endpoint: Endpoint) -> None:
        """Record that a request has waited for a slot and got a slot of `endpoint`. If the request belongs to a
        sequence, that endpoint now has the sequence's state."""
        if (sequence := sequence_of(request)) is not None:
            self.sequences.note(request, sequence, endpoint)

    def began(self, request: Request, endpoint: Endpoint) -> Ended:
        """See `Slots.began`."""
        if request.operation not in self.with_slot:
            endpoint.enter()
            return endpoint.leave
        return partial(self._ended, endpoint, self.clock()) if self.max_in_flight else endpoint.give_back

    def _ended(self, endpoint: Endpoint, began: float, answered: bool) -> None:
        if answered:
            self.calls.times.add(self.clock() - began)
        endpoint.give_back()

    async def again(
        self, request: Request, error: GatewayError, tried: Sequence[Endpoint], rounds: int
    ) -> Request | None:
        """See `Slots.again`. Use another endpoint if the request was not sent to this one."""
        if may_try_another(error, tried, self.serving):
            return None
        raise error

    async def is_ready(self) -> bool | None:
        """See `Slots.is_ready`."""
        return None

    def hand_over(self, endpoint: Endpoint) -> bool:
        """Give a free slot of `endpoint` to the next waiting call. Return whether such a call existed."""
        return self.calls.hand_over(endpoint)

    # --- added and removed endpoints ---

    def add(self, endpoint: Endpoint) -> None:
        """Add `endpoint` and offer its slots. Waiting calls get them immediately.

        If the backend had no endpoints, the new endpoint counts as recovered, because it might have different models
        than the previous one."""
        for watcher in self.on_join:
            watcher(endpoint)
        endpoint.health.used_by(self.name)
        self._set_endpoints((*self.endpoints, endpoint))
        endpoint.watch(*self._watches)
        if endpoint.takes_calls:
            self._offer_all(endpoint)

    def remove(self, endpoint: Endpoint) -> None:
        """Remove `endpoint` and stop offering its slots. Calls in flight continue; the endpoint's sequences lose their
        state. If this was the last endpoint, calls in the queue fail unless the backend waits for endpoints."""
        self._set_endpoints(tuple(each for each in self.endpoints if each is not endpoint))
        endpoint.unwatch(*self._watches)
        self.sequences.forget(endpoint)
        if endpoint.takes_calls:
            self._go_on_without_one()
        for watcher in self.on_leave:
            watcher(endpoint)

    def replace(self, previous: "Slots") -> None:
        """See `Slots.replace`. Sequences continue on endpoints that both backends have."""
        self.sequences.adopt(previous.local.sequences, self.endpoints)
        adopt_drains(self.endpoints, previous.local.endpoints)

    def close(self) -> None:
        """See `Slots.close`."""
        for endpoint in self.endpoints:
            endpoint.unwatch(*self._watches)

    def _set_endpoints(self, endpoints: tuple[Endpoint, ...]) -> None:
        self.endpoints = endpoints
        self.choice.among(endpoints)

    def _offer_all(self, endpoint: Endpoint) -> None:
        """Offer the slots of an endpoint that now receives calls."""
        endpoint.since = self.clock()
        if len(self.serving) == 1:
            self.calls.emptied_or_filled()
            self._recovered(endpoint)
        while endpoint.offer() if self.max_in_flight else self.hand_over(endpoint):
            pass

    def _go_on_without_one(self) -> None:
        """Handle an endpoint that stops receiving calls."""
        if not self.serving:
            self.calls.emptied_or_filled()
            if self.calls.patience is None and not self.keeps_waiting:
                self.queue.fail(self.choice.none_there)
        for each in self.serving:  # slots might have been kept free because the lost endpoint was only busy
            while each.offer():
                pass

    def _drain_changed(self, endpoint: Endpoint) -> None:
        """Stop sending calls to a drained endpoint, or resume after its drain has ended."""
        for watcher in self.on_drain:
            watcher(endpoint)
        if endpoint.takes_calls == (endpoint in self.serving):
            return
        self._set_endpoints(self.endpoints)
        if endpoint.takes_calls:
            self._recovered(endpoint)  # its server might have restarted with different models
            self._offer_all(endpoint)
        else:
            self._go_on_without_one()

    def _recovered(self, endpoint: Endpoint) -> None:
        self._on_recovery(endpoint)

    def _lost(self, endpoint: Endpoint) -> None:
        self._on_outage(endpoint)

    def _disconnected(self, endpoint: Endpoint) -> None:
        self._on_disconnect(endpoint)


def may_try_another(error: GatewayError, tried: Sequence[Endpoint], able: Sequence[Endpoint]) -> bool:
    """Return True if a request that failed with `error` can go to another endpoint in `able`.

    Another endpoint is possible only if the request was not sent to the failed endpoint, and an endpoint in `able` is
    not in `tried`."""
    return isinstance(error, TransportError) and not error.sent and not all(each in tried for each in able)


def _nobody(*_: object) -> None:
    """Do nothing (the default callback)."""
