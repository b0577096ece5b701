"""Sends one try of a call to an endpoint, and gives its slot back when the answer has come."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from gateway.core.errors import GatewayError
from gateway.core.exchange import ask
from gateway.core.protocol import Protocol
from gateway.core.tasks import outlived_by
from gateway.core.types import Answer, Request
from gateway.routing.endpoint import Endpoint
from gateway.routing.queue import SlotTimes
from gateway.routing.spans import with_spans
from gateway.routing.targets import Targets

Send: TypeAlias = Callable[[Request, Endpoint], Awaitable[Answer]]
SendInSlot: TypeAlias = Callable[[Request, Endpoint], Coroutine[Any, Any, Answer]]


class TrySender:
    """Sends tries in `protocol` to endpoints, whose Targets are known or found out first. `in_slot` gives the slot back
    that was taken; with `is_limited` it notes in `times` how long it was held."""

    def __init__(
        self, protocol: Protocol, targets: Targets, times: SlotTimes, clock: Callable[[], float], *, is_limited: bool
    ) -> None:
        self._protocol = protocol
        self._targets = targets
        self._times = times
        self._clock = clock
        self.in_slot: SendInSlot = self._in_timed_slot if is_limited else self._in_any_slot

    def ask(self, request: Request, endpoint: Endpoint) -> Awaitable[Answer]:
        """The answer; the slot stays taken."""
        target = self._targets.known.get(endpoint)
        if target is None:
            return self._ask_unknown(request, endpoint)
        if request.span is not None:
            return ask(request, self._protocol_for(request), endpoint, target)
        return ask(request, self._protocol, endpoint, target)

    def to_the_end(self, request: Request, endpoint: Endpoint) -> Awaitable[Answer]:
        """As `in_slot`, for a server that goes on computing even if the client leaves: its slot must stay taken. So
        the exchange is a task of its own that outlives the client's."""
        return outlived_by(asyncio.get_running_loop().create_task(self.in_slot(request, endpoint)))

    async def without_slot(self, request: Request, endpoint: Endpoint) -> Answer:
        """The answer to a request that takes no slot."""
        endpoint.enter()
        try:
            return await self.ask(request, endpoint)
        finally:
            endpoint.leave()

    async def to_each(self, request: Request, endpoint: Endpoint) -> Answer:
        """As `without_slot`, of a request that goes to all endpoints. If another server has taken this one over and
        refuses, it is asked once more in its own way."""
        changes = self._targets.changes
        try:
            return await self.without_slot(request, endpoint)
        except GatewayError as error:
            if not await self._targets.has_changed(endpoint, request, error, changes):
                raise
        return await self.without_slot(request, endpoint)

    async def _in_any_slot(self, request: Request, endpoint: Endpoint) -> Answer:
        try:
            return await self.ask(request, endpoint)
        finally:
            endpoint.give_back()

    async def _in_timed_slot(self, request: Request, endpoint: Endpoint) -> Answer:
        began = self._clock()
        try:
            answer = await self.ask(request, endpoint)
            self._times.add(self._clock() - began)
            return answer
        finally:
            endpoint.give_back()

    def _protocol_for(self, request: Request) -> Protocol:
        """The protocol; for a request whose spans are noted, one that notes those of its codec."""
        if request.span is None:
            return self._protocol
        return with_spans(self._protocol, request.record, request.span)

    async def _ask_unknown(self, request: Request, endpoint: Endpoint) -> Answer:
        target = await self._targets.find(endpoint, request.deadline)
        return await ask(request, self._protocol_for(request), endpoint, target)
