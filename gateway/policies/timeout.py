"""The policy `timeout: {seconds: 30, per_try: 10}`: a call that takes longer than `seconds`, or an attempt at an
endpoint that takes longer than `per_try`, fails with DEADLINE_EXCEEDED. The Backend enforces `per_try`
(`Tries.seconds`), because only the Backend starts attempts."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field, ValidationInfo, field_validator
from pydantic_core import PydanticCustomError

from gateway.core.deadlines import TimeLimit
from gateway.core.documented import Documented
from gateway.core.errors import GatewayError
from gateway.core.frozen import replace, replace_struct
from gateway.core.queue_wait import out_of_time
from gateway.core.requests import Answer, Request, Response, Tries
from gateway.core.transport import Handler, StreamHandler


class Settings(Documented):
    """Limits the duration of a call."""

    bounds_time: ClassVar[bool] = True
    passes_unread: ClassVar[bool] = True

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """Maximum duration of a call, in seconds, including the wait in queues. For a stream: the maximum wait for each
    response."""
    per_try: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """Maximum duration of one attempt at an endpoint, in seconds; at most `seconds`. For a stream: the maximum wait for
    the first response. If an attempt takes longer, the `retry` policy can make another attempt."""

    @field_validator("per_try")
    @classmethod
    def _within_call(cls, per_try: float | None, info: ValidationInfo) -> float | None:
        seconds = info.data.get("seconds")
        if per_try is not None and seconds is not None and per_try > seconds:
            raise PydanticCustomError("refused", f"must be at most seconds, {seconds:g}, got {{value}}")
        return per_try


def wrap_stream(handler: StreamHandler, settings: Settings) -> StreamHandler:
    """Return a StreamHandler that cancels `handler` if the wait for one response exceeds `settings.seconds`.

    The stream raises:
        GatewayError: DEADLINE_EXCEEDED (timeout)."""
    seconds, per_try = settings.seconds, settings.per_try

    async def with_timeout(request: Request) -> AsyncGenerator[Response, None]:
        request = replace(request, time_limit=_smaller(request.time_limit, seconds), tries=_tries(request, per_try))
        async with aclosing(handler(request)) as responses:
            while True:
                try:
                    async with asyncio.timeout(seconds) as limit:
                        response = await anext(responses)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    if not limit.expired():  # a TimeoutError of `handler` itself
                        raise
                    raise _out_of_time("response", seconds) from error
                yield response

    return with_timeout


def wrap(handler: Handler, settings: Settings) -> Handler:
    """Return a Handler that cancels `handler` after `settings.seconds`. The Handler also limits the request's deadline
    to this time, because servers receive the deadline.

    The Handler raises:
        GatewayError: DEADLINE_EXCEEDED (timeout)."""
    seconds, per_try = settings.seconds, settings.per_try

    limit = TimeLimit()

    async def with_timeout(request: Request) -> Answer:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        limited = replace_struct(
            request,
            deadline=_smaller(request.deadline, deadline),
            time_limit=_smaller(request.time_limit, seconds),
            tries=request.tries if per_try is None else _tries(request, per_try),
        )
        call = limit.begin(deadline, loop)
        try:
            return await handler(limited)
        except asyncio.CancelledError as error:
            if call.was_ended():
                raise _out_of_time("answer", seconds) from error
            raise
        finally:
            limit.end(call)

    return with_timeout


def _out_of_time(what: str, seconds: float) -> GatewayError:
    """Return the error for a call, or a wait for the next response of a stream, that has taken `seconds`."""
    since = asyncio.get_running_loop().time() - seconds
    limit = ", the limit that the policy timeout sets (timeout.seconds); raise it for slow models"
    return out_of_time(f"no {what} within {seconds:g} s", limit, since)


def _smaller(given: float | None, limit: float) -> float:
    return limit if given is None or limit < given else given


def _tries(request: Request, per_try: float | None) -> Tries | None:
    """Return the settings for attempts of `request`, with the limit `per_try` if this limit is shorter than the current
    one."""
    if per_try is None:
        return request.tries
    if request.tries is None:
        return Tries(per_try)
    return replace(request.tries, seconds=_smaller(request.tries.seconds, per_try))
