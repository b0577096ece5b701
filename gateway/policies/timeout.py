"""The policy `timeout: {seconds: 2}`: a call that takes longer fails with DEADLINE_EXCEEDED."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gateway.core.deadlines import DeadlinePassedError, call_until
from gateway.core.errors import Reason, refusal
from gateway.core.frozen import replace
from gateway.core.transport import Handler, StreamHandler
from gateway.core.types import Answer, Request, Response


class Settings(BaseModel):
    """Bounds how long a call may take."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """The longest that a call may take, waiting in queues included; for a stream, the longest wait for each
    response."""


def wrap_stream(handler: StreamHandler, settings: Settings) -> StreamHandler:
    """`handler`, cancelled when the wait for one response exceeds `settings.seconds`.

    The stream raises:
        GatewayError: DEADLINE_EXCEEDED (timeout).
    """
    seconds = settings.seconds

    async def with_timeout(request: Request) -> AsyncGenerator[Response, None]:
        async with aclosing(handler(replace(request, time_limit=_smaller(request.time_limit, seconds)))) as responses:
            while True:
                try:
                    async with asyncio.timeout(seconds) as limit:
                        response = await anext(responses)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    if not limit.expired():  # a TimeoutError of `handler` itself
                        raise
                    text = f"no response within {seconds:g} s, the limit that the policy timeout sets (timeout.seconds)"
                    raise refusal(Reason.TIMEOUT, text) from error
                yield response

    return with_timeout


def wrap(handler: Handler, settings: Settings) -> Handler:
    """`handler`, cancelled after `settings.seconds`. The deadline of the request that it gets is no later than that, so
    that the next server knows the limit.

    The Handler raises:
        GatewayError: DEADLINE_EXCEEDED (timeout).
    """
    seconds = settings.seconds

    async def with_timeout(request: Request) -> Answer:
        deadline = asyncio.get_running_loop().time() + seconds
        earliest = _smaller(request.deadline, deadline)
        request = replace(request, deadline=earliest, time_limit=_smaller(request.time_limit, seconds))
        try:
            return await call_until(deadline, handler, request)
        except DeadlinePassedError as error:
            text = f"no answer within {seconds:g} s, the limit that the policy timeout sets (timeout.seconds)"
            raise refusal(Reason.TIMEOUT, text) from error

    return with_timeout


def _smaller(given: float | None, limit: float) -> float:
    return limit if given is None or limit < given else given
