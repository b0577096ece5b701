"""Backends whose state holds for all workers: the worker's side.

A `WorkerBackend` sends its calls itself, but asks the supervisor for the endpoint where the backend's slots are limited
or the call belongs to a sequence. The supervisor has a Backend of the same name, with the queue, the sequences, the
strategy and the health that decide. What a worker learns of an endpoint it passes on (`RelayedEndpoint`).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, TypeAlias

from gateway.core.errors import Reason, Status, TransportError
from gateway.core.queue_wait import LATER
from gateway.core.types import Answer, Request
from gateway.routing.backend import Backend
from gateway.routing.draining import Drain
from gateway.routing.endpoint import Endpoint
from gateway.routing.health import EndpointHealth
from gateway.routing.sequences import sequence_of
from gateway.routing.waiting import note_waiting
from gateway.runtime.workers.channel import Channel, ChannelClosedError

Relay: TypeAlias = Callable[..., None]
"""Passes on what happened to an endpoint: its backend and address, the name of a method below, its arguments."""

SEQUENCE_KEYS = ("sequence_id", "sequence_start", "sequence_end")
"""The parameters of a request that the supervisor needs."""


class WorkerBackend(Backend):
    """A worker's Backend of a `generation` (see `owner`). `is_limited` says of a backend's name whether its slots are
    limited for all workers, `is_drained` of a protocol's name and an address whether the supervisor has drained the
    endpoint."""

    def __init__(
        self,
        channel: Channel,
        generation: int,
        is_limited: Callable[[str], bool],
        is_drained: Callable[[str, str], bool],
        *arguments: Any,
        **more: Any,
    ) -> None:
        super().__init__(*arguments, **more)
        self._is_drained = is_drained
        for each in self.endpoints:
            drain_as_told(each, is_drained=is_drained(self.protocol.name, each.address))
        self._channel = channel
        self._generation = generation
        self._is_limited = is_limited(self.name)
        self._numbers: dict[Endpoint, deque[int]] = {}
        """The numbers of the slots that calls hold now. Those of one endpoint stand for each other."""
        if self._is_limited:
            self._sender.in_slot, self._gives_back = self._in_numbered_slot, False
            if not self._servers.runs_to_the_end:
                self._send_in_slot = self._in_numbered_slot

    def add(self, endpoint: Endpoint) -> None:
        """As Backend's."""
        drain_as_told(endpoint, is_drained=self._is_drained(self.protocol.name, endpoint.address))
        super().add(endpoint)

    def close(self) -> None:
        """As Backend's. All Backends of a generation are closed together."""
        super().close()
        self._channel.tell("leave", self._generation)

    async def is_ready(self) -> bool:
        """As Backend's, by the supervisor: it knows which servers are busy with calls of other workers."""
        try:
            return bool(await self._channel.ask("is_backend_ready", self.name))
        except ChannelClosedError:
            return False

    def _asks(self, request: Request) -> bool:
        return request.operation in self._with_slot and (self._is_limited or sequence_of(request) is not None)

    def _free_endpoint(self, request: Request, tried: Sequence[Endpoint]) -> Endpoint | None:
        return None if self._asks(request) else super()._free_endpoint(request, tried)

    def _preferred_endpoint(self, request: Request, tried: tuple[Endpoint, ...]) -> Endpoint | None:
        return None if self._asks(request) else super()._preferred_endpoint(request, tried)

    async def _wait_for_slot(self, request: Request, tried: tuple[Endpoint, ...] = ()) -> Endpoint:
        if not self._asks(request):
            return await super()._wait_for_slot(request, tried)
        tries, began = request.tries, monotonic()
        avoided = None if tries is None else (list(tries.avoided), tries.elsewhere)
        given = {} if request.unread is not None else request.parameters
        parameters = {key: given[key] for key in SEQUENCE_KEYS if key in given}
        found = self._channel.ask(
            "take", self._generation, str(self.name), request.operation.value, request.client, request.model,
            parameters, [each.address for each in tried], avoided, self._is_limited, unclaimed=self._return_unclaimed,
        )  # fmt: skip
        place, retry_after = 0, None
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
                note_waiting(request, self.name, place or 1, monotonic() - began, retry_after)
        endpoint = next((each for each in self.endpoints if each.address == address), None)
        if endpoint is None:
            self._channel.tell("give_back", slot, False)
            raise self._cannot(f"this worker does not know its endpoint {address} yet")
        if slot:
            self._numbers.setdefault(endpoint, deque()).append(slot)
        endpoint.take()
        return endpoint

    def _cannot(self, why: str) -> TransportError:
        text = f"backend {self.name!r}: {why}; try again later"
        return TransportError(Status.UNAVAILABLE, Reason.NOT_READY, text, sent=False)

    def _return_unclaimed(self, found: tuple[int, str, int]) -> None:
        """Give back a slot that came when its call had gone."""
        if found[0]:
            self._channel.tell("give_back", found[0], False)

    async def _in_numbered_slot(self, request: Request, endpoint: Endpoint) -> Answer:
        answered = False
        try:
            answer = await self._sender.ask(request, endpoint)
            answered = True
            return answer
        finally:
            self._end_slot(endpoint, answered=answered)

    def _begin_stream(self, request: Request, endpoint: Endpoint) -> Callable[[], None]:
        return partial(self._end_slot, endpoint, answered=False)

    def _end_slot(self, endpoint: Endpoint, *, answered: bool) -> None:
        if slots := self._numbers.get(endpoint):
            self._channel.tell("give_back", slots.popleft(), answered)
            if not slots:
                del self._numbers[endpoint]
        endpoint.give_back()


def drain_as_told(endpoint: Endpoint, *, is_drained: bool) -> None:
    """Send a worker's calls to an endpoint, or no more, as the supervisor says, which also decides about sequences."""
    if endpoint.takes_calls is is_drained:
        endpoint.set_drain(Drain(0) if is_drained else None)


class _RelayedHealth(EndpointHealth):
    """Calls `on_answer` when an answer changes the state: after a failure, or as the first one."""

    __slots__ = ("on_answer",)

    on_answer: Callable[[], None]

    def _recover(self, why: str, *, by_probe: bool) -> bool:
        if not by_probe:
            self.on_answer()
        return super()._recover(why, by_probe=by_probe)


class RelayedEndpoint(Endpoint):
    """An Endpoint that passes on to the other processes what it learns of its server, with `relay`."""

    __slots__ = ("_is_told", "_relay")

    def __init__(self, relay: Relay, address: str, *arguments: Any, **more: Any) -> None:
        super().__init__(address, *arguments, **more)
        self._relay = relay
        self._is_told = False
        health = self.health
        self.health = relayed = _RelayedHealth(address, health._ejection, health._clock)
        relayed.on_answer = lambda: self._pass_on("note_answer")

    def learn(self, event: str, arguments: Sequence[Any], named: dict[str, Any]) -> None:
        """Do what another process did: call the method named `event`."""
        self._is_told = True
        try:
            getattr(self, event)(*arguments, **named)
        finally:
            self._is_told = False

    def news(self) -> tuple[str, list[Any], dict[str, Any]] | None:
        """The news for a process that has just started; None if nothing."""
        health = self.health
        if health.is_up or health.last is None:
            return None
        if health._is_probed_down:
            return "probe_failed", [health.last.text, 1], {"refused": health._is_refused}
        return "note_failure", [health.last.text], {"unreachable": True}

    def changed(self) -> None:
        """As Endpoint's, in all processes."""
        self._pass_on("changed")
        super().changed()

    def note_failure(self, why: str, *, unreachable: bool) -> None:
        """As Endpoint's, in all processes."""
        self._pass_on("note_failure", why, unreachable=unreachable)
        super().note_failure(why, unreachable=unreachable)

    def probe_passed(self, healthy: int) -> None:
        """As Endpoint's, in all processes."""
        self._pass_on("probe_passed", healthy)
        super().probe_passed(healthy)

    def probe_failed(self, why: str, unhealthy: int, *, refused: bool) -> None:
        """As Endpoint's, in all processes."""
        self._pass_on("probe_failed", why, unhealthy, refused=refused)
        super().probe_failed(why, unhealthy, refused=refused)

    def _pass_on(self, event: str, *arguments: object, **named: object) -> None:
        if not self._is_told and self.health._backends:
            self._relay(str(self.health._backends[0]), self.address, event, arguments, named)
