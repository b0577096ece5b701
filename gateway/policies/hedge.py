"""The policy `hedge: {percentile: 95}`: the gateway makes a second attempt of a slow call at another endpoint, uses the
first response, and cancels the other attempt.

The policy requires `safe: true` on the backend, because both endpoints might run the call. Streams, metadata queries,
and calls that belong to a sequence are not hedged. A call is also not hedged if

- fewer than `LEAST_KNOWN` durations of the model's calls are known,
- no other endpoint is free, or
- the budget (`SHARE`) is spent.
"""

import asyncio
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from gateway.core.documented import Documented
from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.queue_wait import PartWaits
from gateway.core.requests import Answer, Request, Tries
from gateway.core.transport import Handler, StreamHandler
from gateway.policies.budget import Budget
from gateway.policies.context import PolicyContext

SHARE = 0.1
"""Maximum ratio of second attempts to calls."""
LEAST_KNOWN = 20
"""Minimum number of known durations of a model's calls before the policy hedges them."""
MOST_KNOWN = 1000
"""Maximum number of durations stored for one model."""
MOST_MODELS = 1000
"""Maximum number of models with stored durations. The policy keeps the most recently called models."""

_HEDGED = frozenset({Operation.INFER, Operation.EXPLAIN, *DERIVATIVES})


class Settings(Documented):
    """Sends a slow call to a second endpoint, and uses the first response. Requires `safe: true` on the backend."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    passes_unread: ClassVar[bool] = True
    repeats: ClassVar[str] = "sent"

    percentile: Annotated[float, Field(gt=0, lt=100)] = 95
    """Delay before the second attempt, as a percentile of the durations of the model's last 1000 calls."""
    min_delay: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01
    """Minimum delay before the second attempt, in seconds."""


class Durations:
    """The last MOST_KNOWN durations of one model's calls, in seconds."""

    __slots__ = ("_in_order", "_last")

    def __init__(self) -> None:
        self._last: deque[float] = deque()
        self._in_order: list[float] = []

    def add(self, seconds: float) -> None:
        """Add a duration, and drop the oldest one if necessary."""
        if len(self._last) == MOST_KNOWN:
            del self._in_order[bisect_left(self._in_order, self._last.popleft())]
        self._last.append(seconds)
        insort(self._in_order, seconds)

    def percentile(self, percent: float) -> float | None:
        """Return the duration that `percent` percent of the calls did not exceed, or None if too few durations are
        known."""
        count = len(self._in_order)
        return None if count < LEAST_KNOWN else self._in_order[min(int(count * percent / 100), count - 1)]


class Hedges:
    """Decides on second attempts, for all Handlers of one item under `policies:`."""

    def __init__(self, settings: Settings, context: PolicyContext) -> None:
        self.budget = Budget(SHARE, 0, context.clock)
        self._settings = settings
        self._context = context
        self._models: OrderedDict[tuple[str, Operation], Durations] = OrderedDict()

    def is_possible(self, request: Request) -> bool:
        """Return True if a second attempt of `request` is possible and useful."""
        return request.operation in _HEDGED and self._context.may_repeat(request) and self._context.endpoints() > 1

    def wait(self, request: Request) -> float | None:
        """Return the time after which a second attempt begins, in seconds, or None if no second attempt is allowed."""
        known = self._models.get((request.model, request.operation))
        seconds = known.percentile(self._settings.percentile) if known else None
        return None if seconds is None else max(seconds, self._settings.min_delay)

    def note(self, request: Request, seconds: float) -> None:
        """Record that `request` received its response after `seconds` seconds."""
        key = request.model, request.operation
        if key not in self._models:
            self._models[key] = Durations()
            if len(self._models) > MOST_MODELS:
                self._models.popitem(last=False)
        self._models.move_to_end(key)
        self._models[key].add(seconds)


def wrap_stream(handler: StreamHandler, settings: Settings, context: PolicyContext) -> StreamHandler:
    """Return `handler` itself, because streams are not hedged."""
    return handler


def wrap(handler: Handler, settings: Settings, context: PolicyContext) -> Handler:
    """Wrap `handler` to start a second attempt for slow calls.

    The Handler raises:
        GatewayError: the first attempt failed, and the second attempt, if any, also failed; this is the error of the
            first attempt.
    """
    hedges = context.hidden_state(settings, lambda: Hedges(settings, context))

    async def with_hedges(request: Request) -> Answer:
        if not hedges.is_possible(request):
            return await handler(request)
        hedges.budget.add_call()
        wait, begin = hedges.wait(request), context.clock()
        answer = await (handler(request) if wait is None else _first_answer(handler, request, wait, hedges.budget))
        hedges.note(request, context.clock() - begin)
        return answer

    return with_hedges


async def _first_answer(handler: Handler, request: Request, wait: float, budget: Budget) -> Answer:
    """Return the response of the first attempt, or of a second attempt that begins after `wait` seconds."""
    given = request.tries or Tries()
    places: list[str] = []
    waits = PartWaits()
    first = waits.spawn(_call(handler, replace(request, tries=replace(given, places=places))))
    tries = [first]
    try:
        await asyncio.wait(tries, timeout=wait)
        if not first.done() and budget.spend():
            avoided = given.avoided.union(places)
            request.record.retried()
            second = replace(given, avoided=avoided, elsewhere=True, places=places)
            tries.append(waits.spawn(_call(handler, replace(request, tries=second))))
        pending = set(tries)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                if not isinstance(answer := each.result(), GatewayError):
                    return answer
        error = first.result()
        assert isinstance(error, GatewayError)
        raise error
    finally:
        for each in tries:
            each.cancel()
        waits.note()
        if given.places is not None:
            given.places.extend(places)


async def _call(handler: Handler, request: Request) -> Answer | GatewayError:
    """Return the response, or the error as a value, because the slower attempt's exception would never be retrieved if
    the caller has disconnected."""
    try:
        return await handler(request)
    except GatewayError as error:
        return error
