"""Makes calls wait for a free slot of a backend, and fail after a maximum time. `LocalSlots` uses this module.

While a backend has no endpoints, calls wait for the first endpoint for up to `queue.wait_for_endpoints`.
"""

import asyncio
import math
from collections.abc import Callable, Hashable
from functools import partial

from gateway.core.frozen import frozen
from gateway.core.operations import WAKING
from gateway.core.queue_wait import LATER, begin_wait, note_wait
from gateway.core.requests import Request
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Endpoint
from gateway.routing.queue import FairQueue, QueueSettings, SlotTimes, Waiter, overloaded


def _model(request: Request) -> Hashable:
    return request.model


def _free_endpoint(request: Request) -> str:
    return "no endpoint was free"


@frozen
class Lines:
    """The functions that group a client's calls into lines.

    - `of`: Returns the line of a request. Similar requests share a line.
    - `fit`: Returns True if the calls in a line can use the slots of an endpoint.
    - `awaited`: Returns, for a request that has waited too long, a sentence about the missing event.
    """

    of: Callable[[Request], Hashable] = _model
    fit: Callable[[Endpoint, Hashable], bool] | None = None
    awaited: Callable[[Request], str] = _free_endpoint


class WaitingCalls:
    """The waiting calls of one backend.

    `slots` is the maximum number of parallel calls to each endpoint (0: no limit)."""

    def __init__(self, settings: QueueSettings, choice: EndpointChoice, slots: int, clock: Callable[[], float]) -> None:
        self._name = choice.name
        self._choice = choice
        self.slots = slots
        self._clock = clock
        self._timeout = settings.timeout
        self.patience = settings.wait_for_endpoints
        """The maximum time that a call waits for the first endpoint, in seconds. None means that calls fail
        immediately."""
        self.queue: FairQueue[Endpoint] = FairQueue(self._name, settings.length, self.seconds_until)
        self.times = SlotTimes()
        self.lines = Lines()
        self.on_wait: Callable[[], None] = _nobody
        """A callback that runs when a call begins to wait."""
        self.without_place = 0
        """The number of calls that wait outside the queue for an endpoint."""
        self._emptied_or_filled = -math.inf

    @property
    def number(self) -> int:
        """The number of waiting calls."""
        return len(self.queue) + self.without_place

    def emptied_or_filled(self) -> None:
        """Record that the last endpoint was removed, or that the first one was added."""
        self._emptied_or_filled = self._clock()

    def seconds_until(self, place: int) -> float | None:
        """Estimate the time until the call at this queue position (1 is the next one) gets a slot, in seconds.

        Return None before the first call has ended, or if the number of slots is not limited."""
        return self.times.until(place, self.slots * len(self._choice.endpoints))

    def waits_for_endpoint(self, request: Request) -> bool:
        """Return True if the request waits for the first endpoint. Readiness queries do not wait, because they would
        start servers."""
        return self.patience is not None and request.operation in WAKING

    def is_full(self, endpoint: Endpoint) -> bool:
        """Return whether an endpoint has no free slot."""
        return 0 < self.slots <= endpoint.in_flight

    def hand_over(self, endpoint: Endpoint) -> bool:
        """Give a free slot of `endpoint` to the next call, in fair order, that can use it. Return whether such a call
        existed.

        An endpoint that is left out gets no call while another endpoint is only busy, because the other endpoint will
        free a slot. Otherwise, the failing endpoint would make all waiting calls fail one by one."""
        if not self.queue or self.is_full(endpoint) or not endpoint.takes_calls:
            return False
        if not endpoint.health.is_up:
            left_out = self._choice.left_out()
            if endpoint in left_out and any(
                each not in left_out and self.is_full(each) for each in self._choice.endpoints
            ):
                return False
        fit = self.lines.fit
        waiter = self.queue.next(None if fit is None else partial(fit, endpoint))
        if waiter is None:
            return False
        if not endpoint.health.is_up:
            endpoint.health.try_again()
        endpoint.take()
        waiter.set_result(endpoint)
        return True

    async def wait(self, request: Request) -> Endpoint:
        """Wait for the request's turn. Return the endpoint whose slot the request has taken.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if the queue is full, or after `queue.timeout`; UNAVAILABLE if
                no endpoint was added in time.
        """
        self.on_wait()
        client, line = request.client, self.lines.of(request)
        place = self.queue.place(client, line)
        waiter, joined = self.queue.join(client, line), self._clock()
        begin_wait(place)
        retry_after: float | None = None
        try:
            if self.patience is not None:
                await self._wait_patiently(waiter, self.patience)
                return await waiter
            if self._timeout is None:
                return await waiter
            async with asyncio.timeout(self._timeout):
                return await waiter
        except (asyncio.CancelledError, TimeoutError) as error:
            if waiter.done() and not waiter.cancelled():
                if waiter.exception() is None:
                    waiter.result().give_back()
            else:
                self.queue.leave(client, line, waiter)
            if isinstance(error, asyncio.CancelledError):
                retry_after = self.seconds_until(len(self.queue) + 1) or LATER
                raise
            if not self._choice.endpoints and self.patience is not None:
                raise self._choice.none_there(self.patience) from error
            text = f"{self.lines.awaited(request)} within {self._timeout:g} s (queue.timeout); try again later"
            raise overloaded(f"backend {self._name!r}: {text}", self.seconds_until(len(self.queue) + 1)) from error
        finally:
            note_waiting(request, self._name, place, self._clock() - joined, retry_after)

    async def _wait_patiently(self, waiter: Waiter[Endpoint], seconds: float) -> None:
        """Wait until `waiter` is done: at most `seconds` for the first endpoint, and at most `queue.timeout` after an
        endpoint exists.

        Raises:
            TimeoutError: a time limit has expired.
        """
        joined = self._clock()
        queue_timeout = math.inf if self._timeout is None else self._timeout
        while not waiter.done():
            limit = queue_timeout if self._choice.endpoints else seconds
            left = max(joined, self._emptied_or_filled) + limit - self._clock()
            if left <= 0:
                raise TimeoutError
            # Endpoints can be added and removed in the meantime, which changes the limit.
            await asyncio.wait((waiter,), timeout=min(left, seconds, queue_timeout))


def note_waiting(request: Request, backend: str, place: int, seconds: float, retry_after: float | None = None) -> None:
    """Record that the request has waited for `seconds` seconds, starting at position `place` in the backend's queue.

    `retry_after` is not None if the request got no slot."""
    note_wait(place, seconds, retry_after)
    request.record.waited(seconds, backend, place)


def _nobody() -> None:
    """Do nothing (the default callback)."""
