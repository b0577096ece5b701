"""The wait of a call for a free slot of a backend: its place in the queue, the maximum time, and the error after that
time.

While a backend has no endpoints, calls wait for the first endpoint for up to `queue.wait_for_endpoints`.
"""

import asyncio
import math
from collections.abc import Callable, Hashable
from functools import partial

from gateway.core.frozen import frozen
from gateway.core.operations import WAKING
from gateway.core.queue_wait import LATER, begin_wait, note_wait
from gateway.core.types import Request
from gateway.routing.choice import EndpointChoice
from gateway.routing.endpoint import Endpoint
from gateway.routing.queue import FairQueue, QueueSettings, SlotTimes, Waiter, overloaded


def _model(request: Request) -> Hashable:
    return request.model


def _free_endpoint(request: Request) -> str:
    return "no endpoint was free"


@frozen
class Lines:
    """The lines in which a client's calls wait.

    - `of`: Returns a request's line, which similar requests share.
    - `fit`: Returns True if the calls in a line can use a slot of an endpoint.
    - `awaited`: Returns the sentence for a request that has waited too long, which names the event that did not happen.
    """

    of: Callable[[Request], Hashable] = _model
    fit: Callable[[Endpoint, Hashable], bool] | None = None
    awaited: Callable[[Request], str] = _free_endpoint


class WaitingCalls:
    """The waiting calls of one backend.

    `slots` is the maximum number of parallel calls on each endpoint (0 means no limit)."""

    def __init__(self, settings: QueueSettings, choice: EndpointChoice, slots: int, clock: Callable[[], float]) -> None:
        self._name = choice.name
        self._choice = choice
        self.slots = slots
        self._clock = clock
        self._timeout = settings.timeout
        self.patience = settings.wait_for_endpoints
        """Maximum time that a call waits for the first endpoint, in seconds; None means that it fails immediately."""
        self.queue: FairQueue[Endpoint] = FairQueue(self._name, settings.length, self.seconds_until)
        self.times = SlotTimes()
        self.lines = Lines()
        self.on_wait: Callable[[], None] = _nobody
        """A callback that is called when a call begins to wait."""
        self.without_place = 0
        """The number of calls that wait for an endpoint outside the queue."""
        self._emptied_or_filled = -math.inf

    @property
    def number(self) -> int:
        """The number of waiting calls."""
        return len(self.queue) + self.without_place

    def emptied_or_filled(self) -> None:
        """Record the removal of the last endpoint, or the first new endpoint."""
        self._emptied_or_filled = self._clock()

    def seconds_until(self, place: int) -> float | None:
        """Return the estimated seconds until the call at this place of the queue (1 is the next one) gets a slot.

        Return None before the first call has ended, and if the number of slots is not limited."""
        return self.times.until(place, self.slots * len(self._choice.endpoints))

    def waits_for_endpoint(self, request: Request) -> bool:
        """Return True if the request waits for the first endpoint. Readiness queries do not wait, because they would
        start servers."""
        return self.patience is not None and request.operation in WAKING

    def is_full(self, endpoint: Endpoint) -> bool:
        """Return whether an endpoint has no free slot."""
        return 0 < self.slots <= endpoint.in_flight

    def hand_over(self, endpoint: Endpoint) -> bool:
        """Give a free slot of `endpoint` to the call whose turn it is among the calls that can use it. Return whether
        there was a call.

        An endpoint that is left out gets no call while another endpoint is only busy and will return its slot, because
        it would fail all waiting calls one by one."""
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
        """Return the endpoint whose slot the request gets when it is its turn. The slot is taken.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if the queue is full, or after `queue.timeout`; UNAVAILABLE if
                no endpoint came in time.
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
        """Wait until `waiter` is done: up to `seconds` for the first endpoint, and up to `queue.timeout` with
        endpoints.

        Raises:
            TimeoutError: after one of these times.
        """
        joined = self._clock()
        queue_timeout = math.inf if self._timeout is None else self._timeout
        while not waiter.done():
            limit = queue_timeout if self._choice.endpoints else seconds
            left = max(joined, self._emptied_or_filled) + limit - self._clock()
            if left <= 0:
                raise TimeoutError
            # Endpoints can come and go during this time, and the limit changes with them.
            await asyncio.wait((waiter,), timeout=min(left, seconds, queue_timeout))


def note_waiting(request: Request, backend: str, place: int, seconds: float, retry_after: float | None = None) -> None:
    """Record that the request has waited for `seconds` seconds, beginning at this place of the backend's queue.

    `retry_after` is set if the request got no slot."""
    note_wait(place, seconds, retry_after)
    request.record.waited(seconds, backend, place)


def _nobody() -> None:
    """Do nothing (the default callback)."""
