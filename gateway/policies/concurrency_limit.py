"""The policy `concurrency_limit: {calls: 64}`: the gateway immediately rejects calls that exceed a number of calls in
flight."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
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
from gateway.policies.gradient import Gradient
from gateway.policies.places import PolicyState, ShownStates

log = logging.getLogger(__name__)

_SMOOTHING = 0.1
"""The weight of each new call in the average duration."""


class Settings(Documented):
    """Refuses calls above a number of calls in flight. A stream counts as in flight while it runs."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    passes_unread: ClassVar[bool] = True

    calls: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of calls in flight."""
    adaptive: Literal["gradient"] | None = None
    """`gradient`: derive the limit from the latency of the calls, instead of setting `calls`. The limit grows while
    calls take as long as usual, and shrinks if they take longer."""
    min_calls: Annotated[int, Field(ge=1)] = 1
    """Minimum of an adaptive limit."""
    max_calls: Annotated[int, Field(ge=1)] = 1000
    """Maximum of an adaptive limit."""

    @property
    def not_shared(self) -> bool:
        """True if the limit is adaptive, because each worker would derive its own limit from its own calls."""
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
        """If fewer calls than this (half of a fixed limit) are in flight, durations are not measured."""
        self.in_flight = 0
        self._refused = 0
        self._duration = 0.0
        """Average duration, in seconds, of calls that began while at least half of the limit was in flight."""
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
        """Record a call that has just got its response."""
        now = self._clock()
        self._duration += (now - began - self._duration) * (_SMOOTHING if self._duration else 1)
        if self._gradient:
            self._gradient.ended(began, now, self.in_flight)

    def _failed(self, began: float, error: BaseException) -> None:
        """Record a call that failed with `error`. Its duration counts only if it timed out or the client disconnected,
        because other calls fail immediately."""
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
