"""Who gives the slots of a backend: the interface, and the slots that a process gives by itself.

A call that runs a model (`CALLS`) holds a slot of its endpoint until it ends. Where servers take one connection only,
every request holds one. A Backend knows nothing of how an endpoint is chosen, nor where calls wait. It asks its Slots:

| Slots | who gives them |
|---|---|
| `LocalSlots` | this process, with the fair queue and the sequences |
| `placement.slots.PlacedSlots` | the same, among the endpoints that hold the model of a request |
| `on_demand.StartedSlots` | the same, of servers that are started when calls wait for them |
| `runtime.workers.slots.SupervisedSlots` | the supervisor, for all workers together |

The last three have LocalSlots for what a process knows of its endpoints in any case (`Slots.local`).

The endpoint is chosen so:

1. A request of a sequence goes to the endpoint that has the sequence's state, and is refused if that is full.
2. Others go to the endpoint that the backend's strategy chooses (`balancing`): by default the one with the fewest calls
   in flight.
3. If all are full, the call waits in the queue. When a call gives its slot back, the endpoint hands it to the next
   waiter.

Endpoints can be added and removed at any time. Without any, calls fail at once: nobody knows when one will come. But
calls wait in the queue for the first one where servers are started for calls that wait: by somebody else
(`queue.wait_for_endpoints`), or by the gateway (`on_demand`).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Protocol, TypeAlias

from gateway.core.errors import GatewayError, Reason, TransportError, refusal
from gateway.core.frozen import replace
from gateway.core.operations import CALLS, Operation
from gateway.core.protocol import Servers
from gateway.core.types import Answer, Request
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Endpoint, adopt_drains
from gateway.routing.queue import QueueSettings
from gateway.routing.sequences import Sequences, sequence_of
from gateway.routing.waiting import WaitingCalls

Ended: TypeAlias = Callable[[bool], None]
"""Called once when a request has ended, with whether it was answered: its slot, if it has one, is given back."""

OwnAnswer: TypeAlias = Callable[[Request], Awaitable[Answer | None]]
"""The answer to a request that is not simply sent to one endpoint; None if it is to be sent to one after all."""


class Slots(Protocol):
    """Gives the slots of one backend."""

    @property
    def local(self) -> "LocalSlots":
        """The backend's endpoints as this process knows them, and the queue of the calls that wait here."""

    @property
    def answers(self) -> Mapping[Operation, OwnAnswer]:
        """The operations that are not simply sent to one endpoint, beside CONTROL_OPERATIONS, which go to all."""

    def free(self, request: Request, tried: Sequence[Endpoint] = ()) -> Endpoint | None:
        """The endpoint for this request, none of `tried`; None if it has to wait. If the request takes a slot, it is
        taken already. One that `request.tries` avoids is only chosen if there is no other.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), the endpoint of its sequence is full, or `tries` allows no
                other one; UNAVAILABLE, there is no endpoint, or all are down.
        """

    def wait(self, request: Request, tried: Sequence[Endpoint] = ()) -> Awaitable[Endpoint]:
        """As `free`, when the turn of the request comes.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded), the queue has no place, or `queue.timeout` is over;
                UNAVAILABLE, there is no endpoint.
        """

    def began(self, request: Request, endpoint: Endpoint) -> Ended:
        """The request is about to be sent to the endpoint that it was given. The result is called at its end."""

    async def again(
        self, request: Request, error: GatewayError, tried: Sequence[Endpoint], rounds: int
    ) -> Request | None:
        """A request failed with `error` at the last one of `tried`. None: another endpoint is tried. A request: this
        one is sent, to any endpoint, and `rounds` is how often that happened before.

        Raises:
            GatewayError: `error`, or another one that says more of it: the request is not tried again.
        """

    async def is_ready(self) -> bool | None:
        """Whether the backend is ready; None if its servers have to be asked."""

    def replace(self, previous: Any) -> None:
        """Take over from the Slots that the backend of this name had before."""

    def close(self) -> None:
        """Leave the endpoints. No request may be in flight."""


class LocalSlots:
    """The slots that this process gives: at most `max_in_flight` calls run at once on each endpoint (0: any number).
    `servers` are the traits of the backend's protocol."""

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
        # A busy server can still answer what does not run a model, unless it serves one connection at a time.
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
        """How many calls wait for the answer to another call, such as that for the metadata of their model."""
        self.keeps_waiting = False
        """Calls wait while there is no endpoint: one is started for them."""
        self._on_recovery: Callable[[], None] = _nobody
        self._on_outage: Callable[[Endpoint], None] = _nobody
        self._on_other_models: Callable[[], None] = _nobody
        self.on_join: list[Callable[[Endpoint], None]] = []
        """Called with an endpoint that is about to be added."""
        self.on_leave: list[Callable[[Endpoint], None]] = []
        """Called with an endpoint that was removed."""
        self.on_drain: list[Callable[[Endpoint], None]] = []
        """Called with an endpoint that is about to get no more calls, or calls again."""
        on_free = self.hand_over if max_in_flight else None
        self._watches = on_free, self._recovered, self._drain_changed, self._lost
        self.endpoints: tuple[Endpoint, ...] = tuple(endpoints)
        self.choice.among(self.endpoints)
        for endpoint in self.endpoints:
            endpoint.health.used_by(name)
            endpoint.watch(*self._watches)

    @property
    def local(self) -> "LocalSlots":
        """As Slots'."""
        return self

    def watch(
        self,
        on_recovery: Callable[[], None],
        on_outage: Callable[[Endpoint], None],
        on_other_models: Callable[[], None],
    ) -> None:
        """Tell the Backend: `on_recovery` is called when an endpoint that was down answers again, and when its models
        have changed, `on_outage` when there was no connection to one, or it broke off, `on_other_models` when the
        answer to MODELS may have changed for another reason."""
        self._on_recovery, self._on_outage, self._on_other_models = on_recovery, on_outage, on_other_models

    def lists_others(self) -> None:
        """The answer to MODELS may have changed."""
        self._on_other_models()

    @property
    def serving(self) -> tuple[Endpoint, ...]:
        """The endpoints that are not drained."""
        return self.choice.endpoints

    @property
    def waiting(self) -> int:
        """How many calls wait; while there is no endpoint, also those that wait for the answer to one of them."""
        return self.calls.number if self.serving else self.calls.number + self.joined

    def count_joined(self, change: int) -> None:
        """So many more calls wait for the answer to another one; `change` is negative when they do not any more."""
        self.joined += change
        if change > 0 and not self.endpoints:
            self.calls.on_wait()

    def is_busy(self, endpoint: Endpoint) -> bool:
        """Whether the endpoint runs a call and cannot answer anything else meanwhile: servers that take one call at a
        time, or compute each call to its end."""
        return self._one_at_a_time and endpoint.in_flight > 0

    # --- slots ---

    def free(
        self, request: Request, tried: Sequence[Endpoint] = (), choice: EndpointChoice | None = None
    ) -> Endpoint | None:
        """As Slots'. With `choice` it decides among its endpoints."""
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
        """The endpoint for a request whose `tries` avoid some, if one is free that is not left out. A sequence stays
        where its state is."""
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
        """The error of a request that may only be sent to other endpoints than those that it has tried."""
        return refusal(Reason.OVERLOADED, f"backend {self.name!r}: no other endpoint is free")

    async def wait(self, request: Request, tried: Sequence[Endpoint] = ()) -> Endpoint:
        """As Slots'. Each waiting call is given a slot; one that takes no slot gives it back immediately."""
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
        """A request has waited and got a slot of `endpoint`: if it belongs to a sequence, the state is there now."""
        if (sequence := sequence_of(request)) is not None:
            self.sequences.note(request, sequence, endpoint)

    def began(self, request: Request, endpoint: Endpoint) -> Ended:
        """As Slots'."""
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
        """As Slots': another endpoint is tried if nothing was sent to this one."""
        if may_try_another(error, tried, self.serving):
            return None
        raise error

    async def is_ready(self) -> bool | None:
        """As Slots'."""
        return None

    def hand_over(self, endpoint: Endpoint) -> bool:
        """Give a free slot of `endpoint` to the next waiter. Returns whether there was one."""
        return self.calls.hand_over(endpoint)

    # --- endpoints that come and go ---

    def add(self, endpoint: Endpoint) -> None:
        """Give slots of `endpoint` as well, to waiting calls at once.

        The first endpoint of a backend that had none may have other models than the last one: it counts as an endpoint
        that came back.
        """
        for watcher in self.on_join:
            watcher(endpoint)
        endpoint.health.used_by(self.name)
        self._set_endpoints((*self.endpoints, endpoint))
        endpoint.watch(*self._watches)
        if endpoint.takes_calls:
            self._offer_all(endpoint)

    def remove(self, endpoint: Endpoint) -> None:
        """Give no more slots of `endpoint`. Calls in flight go on, and its sequences lose their state. If it was the
        last endpoint, the calls that wait in the queue fail, unless the backend waits for endpoints."""
        self._set_endpoints(tuple(each for each in self.endpoints if each is not endpoint))
        endpoint.unwatch(*self._watches)
        self.sequences.forget(endpoint)
        if endpoint.takes_calls:
            self._go_on_without_one()
        for watcher in self.on_leave:
            watcher(endpoint)

    def replace(self, previous: "Slots") -> None:
        """As Slots': the sequences at endpoints that both have go on."""
        self.sequences.adopt(previous.local.sequences, self.endpoints)
        adopt_drains(self.endpoints, previous.local.endpoints)

    def close(self) -> None:
        """As Slots'."""
        for endpoint in self.endpoints:
            endpoint.unwatch(*self._watches)

    def _set_endpoints(self, endpoints: tuple[Endpoint, ...]) -> None:
        self.endpoints = endpoints
        self.choice.among(endpoints)

    def _offer_all(self, endpoint: Endpoint) -> None:
        """Offer the slots of an endpoint that gets calls from now on."""
        endpoint.since = self.clock()
        if len(self.serving) == 1:
            self.calls.emptied_or_filled()
            self._recovered()
        while endpoint.offer() if self.max_in_flight else self.hand_over(endpoint):
            pass

    def _go_on_without_one(self) -> None:
        """An endpoint gets no more calls."""
        if not self.serving:
            self.calls.emptied_or_filled()
            if self.calls.patience is None and not self.keeps_waiting:
                self.queue.fail(self.choice.none_there)
        for each in self.serving:  # a slot may have been kept free because that endpoint was only busy
            while each.offer():
                pass

    def _drain_changed(self, endpoint: Endpoint) -> None:
        """Send no more calls to an endpoint that is drained, or calls again to one that is not any more."""
        for watcher in self.on_drain:
            watcher(endpoint)
        if endpoint.takes_calls == (endpoint in self.serving):
            return
        self._set_endpoints(self.endpoints)
        if endpoint.takes_calls:
            self._recovered()  # its server may have been restarted, with other models
            self._offer_all(endpoint)
        else:
            self._go_on_without_one()

    def _recovered(self) -> None:
        self._on_recovery()

    def _lost(self, endpoint: Endpoint) -> None:
        self._on_outage(endpoint)


def may_try_another(error: GatewayError, tried: Sequence[Endpoint], able: Sequence[Endpoint]) -> bool:
    """Whether a request that failed with `error` may be sent to another one of the endpoints that are `able` to answer
    it: nothing of it was sent, and there is one that was not `tried`."""
    return isinstance(error, TransportError) and not error.sent and not all(each in tried for each in able)


def _nobody(*_: object) -> None:
    """Nobody is told."""
