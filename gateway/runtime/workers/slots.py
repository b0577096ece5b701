"""Requests slots from the supervisor, in workers, for backends whose state all workers share.

A worker sends its calls itself. It requests the endpoint from the supervisor if the backend's slots are limited, if the
backend's servers have different models, or if the call belongs to a sequence. The supervisor's Backend of the same name
decides by its queue, sequences, strategy, table of models and endpoint health (`owner`). The worker reports endpoint
events, such as failures, to the supervisor (`RelayedEndpoint`).
"""

import asyncio
import pickle
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

from gateway.core.errors import GatewayError, Reason, Status, TransportError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.queue_wait import LATER, begin_wait, queue_wait
from gateway.core.record import UNRECORDED
from gateway.core.requests import Answer, Request, Tries
from gateway.routing.endpoint import Drain, Endpoint
from gateway.routing.placement.questions import OWN
from gateway.routing.sequences import sequence_of
from gateway.routing.slots import Ended, LocalSlots, OwnAnswer, Slots
from gateway.routing.waiting import note_waiting
from gateway.runtime.workers.channel import Channel, ChannelClosedError, read_error, written_error

SEQUENCE_KEYS = ("sequence_id", "sequence_start", "sequence_end")
"""The parameters of a request that determine its destination."""

RequestValues: TypeAlias = tuple[str, str, str, str, dict[str, Any], tuple[list[str], bool] | None]


def request_values(request: Request) -> RequestValues:
    """Return the values that determine a request's destination."""
    tries = request.tries
    given = {} if request.unread is not None else request.parameters
    return (
        request.operation.value,
        request.client,
        request.model,
        request.version,
        {key: given[key] for key in SEQUENCE_KEYS if key in given},
        None if tries is None else (list(tries.avoided), tries.elsewhere),
    )


def request_from_values(values: RequestValues) -> Request:
    """Return a request with these values."""
    operation, client, model, version, parameters, avoided = values
    tries = None if avoided is None else Tries(avoided=frozenset(avoided[0]), elsewhere=avoided[1])
    return Request(Operation(operation), model, version, parameters=parameters, peer=f"{client}:0", tries=tries)


def pickled_request(request: Request) -> bytes:
    """Return the pickled bytes of a request for which the supervisor queries servers. The bytes omit data that only
    this process can use."""
    plain = replace(request, deadline=None, origin=None, record=UNRECORDED, span=None, tries=None, calls_left=None)
    return pickle.dumps(plain)


def unpickled_request(data: bytes) -> Request:
    """Return the request in bytes from `pickled_request` in another process of this gateway."""
    request: Request = pickle.loads(data)
    return request


def pickled_answer(answer: Answer | None) -> bytes:
    """Return the pickled bytes of an answer, or of None if the supervisor itself has no answer."""
    return pickle.dumps(answer)


def unpickled_answer(data: bytes) -> Answer | None:
    """Return the answer in bytes from `pickled_answer`."""
    answer: Answer | None = pickle.loads(data)
    return answer


def error_values(error: GatewayError) -> tuple[object, ...]:
    """Return the values that represent an error, including the endpoint where the error occurred."""
    return *written_error(error), error.endpoint


def error_from_values(values: tuple[Any, ...]) -> GatewayError:
    """Return the error with these values."""
    *written, endpoint = values
    error = read_error(tuple(written))
    error.endpoint = endpoint
    return error


Relay: TypeAlias = Callable[..., None]
"""A function that reports an endpoint event to other processes.

Its arguments are the backend, the address, the name of a method of RelayedEndpoint, and that method's arguments.
"""


class SupervisedSlots:
    """The slots that a worker receives from the supervisor, in one `generation` of the supervisor's Backends (see
    `owner`).

    - `is_limited`: True if all workers share one limit on slots. If False, the worker requests slots only for calls of
      sequences.
    - `is_placed`: True if the servers have different models. The supervisor tracks the models on each server.
    - `is_drained`: Returns whether the supervisor has drained the endpoint at an address.
    """

    def __init__(
        self,
        local: LocalSlots,
        channel: Channel,
        generation: int,
        is_drained: Callable[[str], bool],
        *,
        is_limited: bool,
        is_placed: bool,
    ) -> None:
        self.local = local
        self.answers: Mapping[Operation, OwnAnswer] = dict.fromkeys(OWN, self._ask_for_answer) if is_placed else {}
        self._channel = channel
        self._generation = generation
        self._is_drained = is_drained
        self._is_limited = is_limited
        self._is_placed = is_placed
        self._numbers: dict[Endpoint, deque[int]] = {}
        """The slot numbers of calls that are about to begin. Slot numbers of the same endpoint are interchangeable."""
        local.on_join.append(self._joins)
        for each in local.endpoints:
            self._joins(each)

    def free(self, request: Request, tried: Sequence[Endpoint] = ()) -> Endpoint | None:
        """See `Slots.free`. Also return None if the worker must request the slot from the supervisor."""
        return None if self._asks(request) else self.local.free(request, tried)

    async def wait(self, request: Request, tried: Sequence[Endpoint] = ()) -> Endpoint:
        """See `Slots.wait`."""
        if not self._asks(request):
            return await self.local.wait(request, tried)
        began = monotonic()
        found = self._channel.ask(
            "take", self._generation, str(self.local.name), request_values(request), [each.address for each in tried],
            self._is_limited, unclaimed=self._return_unclaimed,
        )  # fmt: skip
        place, retry_after = 0, None
        waiting = begin_wait(1)
        try:
            slot, address, place = await found
        except ChannelClosedError:
            raise self._cannot("the process that owns its slots has ended") from None
        except asyncio.CancelledError:
            if found.done() and not found.cancelled() and found.exception() is None:
                self._return_unclaimed(found.result())
            retry_after = LATER
            raise
        finally:
            if place or not found.done() or found.cancelled():
                note_waiting(request, self.local.name, place or 1, monotonic() - began, retry_after)
            else:
                queue_wait.reset(waiting)
        endpoint = next((each for each in self.local.endpoints if each.address == address), None)
        if endpoint is None:
            self._return_unclaimed((slot, address, place))
            raise self._cannot(f"this worker does not know its endpoint {address} yet")
        if slot:
            self._numbers.setdefault(endpoint, deque()).append(slot)
        if request.operation in self.local.with_slot:
            endpoint.take()
        return endpoint

    def began(self, request: Request, endpoint: Endpoint) -> Ended:
        """See Slots."""
        ended = self.local.began(request, endpoint)
        if not (numbers := self._numbers.get(endpoint)):
            return ended
        number = numbers.popleft()
        if not numbers:
            del self._numbers[endpoint]
        return partial(self._ended, number, ended)

    def _ended(self, number: int, ended: Ended, answered: bool) -> None:
        self._channel.tell("give_back", number, answered)
        ended(answered)

    async def again(
        self, request: Request, error: GatewayError, tried: Sequence[Endpoint], rounds: int
    ) -> Request | None:
        """See Slots. The supervisor decides, because only it tracks which endpoints have the request's model."""
        if not self._is_placed or not request.model:
            return await self.local.again(request, error, tried, rounds)
        places = [each.address for each in tried]
        try:
            found = await self._channel.ask(
                "again",
                self._generation,
                str(self.local.name),
                request_values(request),
                error_values(error),
                places,
                rounds,
            )
        except ChannelClosedError:
            found = None
        if found is None:
            raise error
        is_anew, avoided = found
        if avoided is not None:
            return replace(request, tries=Tries(avoided=frozenset(avoided)))
        return request if is_anew else None

    async def is_ready(self) -> bool | None:
        """See Slots. The supervisor decides, because only it tracks calls from other workers."""
        try:
            return bool(await self._channel.ask("is_backend_ready", self.local.name))
        except ChannelClosedError:
            return False

    def replace(self, previous: Slots) -> None:
        """See Slots."""
        self.local.replace(previous)

    def close(self) -> None:
        """See Slots. The worker closes all Backends of a generation together."""
        self.local.close()
        self._channel.tell("leave", self._generation)

    def _joins(self, endpoint: Endpoint) -> None:
        apply_drain(endpoint, is_drained=self._is_drained(endpoint.address))

    def _asks(self, request: Request) -> bool:
        if request.operation not in self.local.with_slot:
            return self._is_placed and bool(request.model)
        return self._is_limited or sequence_of(request) is not None

    async def _ask_for_answer(self, request: Request) -> Answer | None:
        try:
            found = await self._channel.ask("answer", self._generation, str(self.local.name), pickled_request(request))
        except ChannelClosedError:
            raise self._cannot("the process that knows which server has which model has ended") from None
        return unpickled_answer(found)

    def _cannot(self, why: str) -> TransportError:
        text = f"backend {self.local.name!r}: {why}; try again later"
        return TransportError(Status.UNAVAILABLE, Reason.NOT_READY, text, sent=False)

    def _return_unclaimed(self, found: tuple[int, str, int]) -> None:
        """Give back a slot that arrived after its call had ended."""
        if found[0]:
            self._channel.tell("give_back", found[0], False)


def apply_drain(endpoint: Endpoint, *, is_drained: bool) -> None:
    """Stop or resume this worker's calls to an endpoint, as the supervisor has decided.

    The supervisor also applies the drain to sequences."""
    if endpoint.takes_calls is is_drained:
        endpoint.set_drain(Drain(0) if is_drained else None)


class RelayedEndpoint(Endpoint):
    """An Endpoint that uses `relay` to report its server's events, such as failures, to the other processes."""

    __slots__ = ("_has_learned", "_relay")

    def __init__(self, relay: Relay, address: str, *arguments: Any, **more: Any) -> None:
        super().__init__(address, *arguments, **more)
        self._relay = relay
        self._has_learned = False
        self.health.on_answer = lambda: self._pass_on("note_answer")

    def learn(self, event: str, arguments: Sequence[Any], named: dict[str, Any]) -> None:
        """Apply an event from another process by calling the method named `event`."""
        self._has_learned = True
        try:
            getattr(self, event)(*arguments, **named)
        finally:
            self._has_learned = False

    def news(self) -> tuple[str, list[Any], dict[str, Any]] | None:
        """Return the event that brings a newly started process up to date, or None."""
        health = self.health
        if health.is_up or health.last is None:
            return None
        if health.is_probed_down:
            return "probe_failed", [health.last.text, 1], {"refused": health.is_refused}
        return "note_failure", [health.last.text], {"unreachable": True}

    def changed(self) -> None:
        """See Endpoint. Applies to all processes."""
        self._pass_on("changed")
        super().changed()

    def note_failure(self, why: str, *, unreachable: bool) -> None:
        """See Endpoint. Applies to all processes."""
        self._pass_on("note_failure", why, unreachable=unreachable)
        super().note_failure(why, unreachable=unreachable)

    def probe_passed(self, healthy: int) -> None:
        """See Endpoint. Applies to all processes."""
        self._pass_on("probe_passed", healthy)
        super().probe_passed(healthy)

    def probe_failed(self, why: str, unhealthy: int, *, refused: bool) -> None:
        """See Endpoint. Applies to all processes."""
        self._pass_on("probe_failed", why, unhealthy, refused=refused)
        super().probe_failed(why, unhealthy, refused=refused)

    def _pass_on(self, event: str, *arguments: object, **named: object) -> None:
        if not self._has_learned and self.health.backends:
            self._relay(str(self.health.backends[0]), self.address, event, arguments, named)
