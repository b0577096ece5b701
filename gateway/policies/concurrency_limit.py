"""The policy `concurrency_limit: {calls: 64}`: the gateway immediately rejects calls that exceed the maximum number of
calls in flight."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from math import sqrt
from time import monotonic
from typing import Annotated, ClassVar, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from gateway.core.documented import Documented
from gateway.core.errors import GatewayError, Reason, Status, refusal
from gateway.core.log_limit import LogLimit
from gateway.core.operations import CALLS
from gateway.core.requests import Answer, Request, Response
from gateway.core.transport import Handler, StreamHandler
from gateway.policies.places import PolicyState, ShownStates

log = logging.getLogger(__name__)

_DURATION_SMOOTHING = 0.1
"""The weight of each new call in the average duration."""


class Settings(Documented):
    """Rejects calls above a maximum number of calls in flight. A stream counts as in flight while it runs."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    passes_unread: ClassVar[bool] = True

    calls: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of calls in flight."""
    adaptive: Literal["gradient"] | None = None
    """`gradient`: derive the limit from the latency of the calls, instead of setting `calls`. The limit grows while
    calls take as long as usual, and shrinks if they take longer."""
    min_calls: Annotated[int, Field(ge=1)] = 1
    """Minimum value of the adaptive limit."""
    max_calls: Annotated[int, Field(ge=1)] = 1000
    """Maximum value of the adaptive limit."""

    @property
    def not_shared(self) -> bool:
        """True if the limit is adaptive. Each worker would otherwise derive its own limit from its own calls."""
        return self.calls is not None

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.calls is None) == (self.adaptive is None):
            raise PydanticCustomError("refused", "expected either calls: NUMBER or adaptive: gradient")
        if self.calls is not None and self.model_fields_set & {"min_calls", "max_calls"}:
            raise PydanticCustomError(
                "refused", "min_calls and max_calls need adaptive: gradient; remove them, or remove calls"
            )
        if self.min_calls > self.max_calls:
            raise PydanticCustomError("refused", "min_calls must be at most `max_calls`")
        return self


class Concurrency(PolicyState):
    """The calls in flight of one `concurrency_limit` entry under `policies:`."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = monotonic) -> None:
        self.place = "concurrency_limit"
        self._clock = clock
        self._calls = settings.calls or 0
        self._gradient = Gradient(settings.min_calls, settings.max_calls) if settings.adaptive else None
        self.unmeasured = self._calls // 2
        """Half of a fixed limit. If fewer calls than this number are in flight, durations are not measured."""
        self.in_flight = 0
        self._refused = 0
        self._duration = 0.0
        """The average duration, in seconds, of calls that began while at least `unmeasured` calls were in flight."""
        self._lines = LogLimit(log)

    async def call(self, handler: Handler, request: Request) -> Answer:
        """Return the response of `handler`, unless too many calls are in flight."""
        began = self._enter()
        try:
            answer = await handler(request)
            self._answered(began)
        except BaseException as error:
            self._failed(began, error)
            raise
        finally:
            self.in_flight -= 1
        return answer

    async def stream(self, handler: StreamHandler, request: Request) -> AsyncGenerator[Response, None]:
        """Yield the responses of `handler`, unless too many calls are in flight. The latency of a stream is the time
        until its first response, because its total duration also depends on the client."""
        began = self._enter()
        is_first = True
        try:
            async with aclosing(handler(request)) as responses:
                async for response in responses:
                    if is_first:
                        self._answered(began)
                        is_first = False
                    yield response
        except BaseException as error:
            if is_first:
                self._failed(began, error)
            raise
        finally:
            self.in_flight -= 1

    def _enter(self) -> float:
        """Count a call that begins now. Return the current time.

        Raises:
            GatewayError: RESOURCE_EXHAUSTED (overloaded) if too many calls are in flight.
        """
        if self.in_flight >= self._limit:
            raise self._refusal()
        self.in_flight += 1
        return self._clock()

    @property
    def _limit(self) -> int:
        return self._gradient.limit if self._gradient else self._calls

    def _refusal(self) -> GatewayError:
        self._refused += 1
        text = f"{self._limit} calls are running, which is the limit (concurrency_limit)"
        self._lines.write("full", logging.WARNING, "%s: %s; refusing calls", self.place, text)
        return refusal(Reason.OVERLOADED, f"{text}; try again later", retry_after=self._duration or 1.0)

    def _answered(self, began: float) -> None:
        """Record a call that has just received its response."""
        now = self._clock()
        self._duration += (now - began - self._duration) * (_DURATION_SMOOTHING if self._duration else 1)
        if self._gradient:
            self._gradient.ended(began, now, self.in_flight)

    def _failed(self, began: float, error: BaseException) -> None:
        """Record a call that failed with `error`. Its duration counts only if the call timed out or the client
        disconnected, because other calls fail immediately."""
        is_timeout = isinstance(error, GatewayError) and error.status is Status.DEADLINE_EXCEEDED
        if self._gradient and (is_timeout or isinstance(error, asyncio.CancelledError)):
            self._gradient.given_up(began, self._clock(), self.in_flight)

    def status(self) -> Mapping[str, object]:
        """Return the number of calls in flight and the limit."""
        return {"in_flight": self.in_flight, "limit": self._limit, "refused": self._refused}


state = ShownStates(Concurrency)


def wrap(handler: Handler, settings: Settings) -> Handler:
    """Wrap `handler` to limit the number of calls in flight.

    The Handler raises:
        GatewayError: RESOURCE_EXHAUSTED (overloaded)."""
    concurrency = state(settings)

    async def with_limit(request: Request) -> Answer:
        if request.operation not in CALLS:
            return await handler(request)
        if concurrency.in_flight >= concurrency.unmeasured:
            return await concurrency.call(handler, request)
        concurrency.in_flight += 1
        try:
            return await handler(request)
        finally:
            concurrency.in_flight -= 1

    return with_limit


def wrap_stream(handler: StreamHandler, settings: Settings) -> StreamHandler:
    """Wrap `handler`, for streams. See `wrap`."""
    concurrency = state(settings)

    def with_limit(request: Request) -> AsyncGenerator[Response, None]:
        return concurrency.stream(handler, request)

    return with_limit


TOLERANCE = 1.5
"""The maximum ratio to the usual latency at which a latency counts as usual."""
SMOOTHING = 0.2
"""The weight of each new limit in the smoothed limit."""
WINDOW = 10
"""The number of calls in a window. The current latency is the mean over one window."""
LONG = 100
"""The number of windows over which the usual latency is averaged."""
TO_REST = 200
"""The number of windows with queueing after which a rest begins."""
AT_REST = 3
"""Maximum number of calls in flight during a rest."""
FIRST = 20
"""The initial limit."""


class Gradient:
    """An adaptive limit on the calls in flight, between `least` and `most`, derived from the gradient of their latency.

    A server queues calls that it cannot run in parallel, and their latency grows. `Gradient` compares the current
    latency with the latency of the server when it is not busy (`usual`), and lowers the limit in the same proportion:

        gradient = TOLERANCE * usual / now, between 1/2 and 1
        limit = limit * gradient + sqrt(limit), smoothed

    The square root is the allowed queue length, and lets the limit grow. The algorithm is Netflix's concurrency-limits
    (`Gradient2Limit`), with one difference. In Netflix's algorithm, the usual latency is an average over all calls. If
    a server stays overloaded, this average rises with the latency, and the limit grows without bound. In `Gradient`,
    the usual latency is the average over calls that did not queue, because they began while few calls were in flight.
    If the server stays busy, the limit drops for a moment (a rest), and the latency of the few calls during the rest
    becomes the usual latency."""

    __slots__ = ("_begin", "_count", "_least", "_limit", "_most", "_queued", "_rests", "_sum", "_usual")

    def __init__(self, least: int, most: int) -> None:
        self._least = least
        self._most = most
        self._limit = float(min(max(FIRST, least), most))
        self._usual = 0.0
        """The usual latency in seconds; 0 until the first window is full."""
        self._queued = 0
        """The number of windows with queueing since the usual latency was measured."""
        self._rests = False
        self._begin = 0.0
        """The time from which calls count. Calls that began earlier are ignored, because more calls ran in parallel
        with them than during a rest."""
        self._count = 0
        self._sum = 0.0

    @property
    def limit(self) -> int:
        """The current maximum number of calls in flight."""
        limit = int(self._limit)
        return min(limit, max(AT_REST, self._least)) if self._rests else limit

    def ended(self, began: float, now: float, in_flight: int) -> None:
        """Record a call that has just received its response. `in_flight` is the number of calls in flight, including
        this call."""
        if began < self._begin:
            return
        self._count += 1
        self._sum += now - began
        if self._count == WINDOW:
            latency = max(self._sum / WINDOW, 1e-9)
            self._count, self._sum = 0, 0.0
            self._window(latency, now, in_flight)

    def given_up(self, began: float, now: float, in_flight: int) -> None:
        """Record a call that was cancelled because no client is waiting for it. The time until now is a lower bound of
        the call's duration. The bound counts if it exceeds the usual latency, but never changes the usual latency
        itself."""
        if self._usual and not self._rests and now - began > self._usual:
            self.ended(began, now, in_flight)

    def _window(self, latency: float, now: float, in_flight: int) -> None:
        if self._rests or not self._usual:
            is_first = not self._rests
            self._usual, self._queued, self._rests = latency, 0, False
            if is_first and in_flight > AT_REST:  # these calls might have queued
                self._rest(now)
            return
        has_queue = latency > TOLERANCE * self._usual
        if has_queue:
            self._queued += 1
            if self._queued >= TO_REST:
                self._rest(now)
                return
        elif in_flight < self._limit / 2:
            self._usual += (latency - self._usual) / LONG
            self._queued = 0
            return  # so few calls do not justify a higher limit
        gradient = max(0.5, min(1.0, TOLERANCE * self._usual / latency))
        wanted = self._limit * gradient + sqrt(self._limit)
        smoothed = self._limit + (wanted - self._limit) * SMOOTHING
        self._limit = min(max(smoothed, self._least), self._most)

    def _rest(self, now: float) -> None:
        self._rests, self._begin = True, now
