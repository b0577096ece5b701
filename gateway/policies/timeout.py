"""`timeout: {seconds: 2}`: a call that takes longer fails with DEADLINE_EXCEEDED."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gateway.core.errors import Reason, refusal
from gateway.core.frozen import replace
from gateway.core.transport import Handler, StreamHandler
from gateway.core.types import Answer, Request, Response


class Settings(BaseModel):
    """Bounds how long a call may take."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """The longest that a call may take, waiting in queues included; of a stream, the longest wait for each response."""


def wrap_stream(handler: StreamHandler, settings: Settings) -> StreamHandler:
    """`handler`, given up when a response keeps its consumer waiting for `settings.seconds`."""
    seconds = settings.seconds

    async def within(request: Request) -> AsyncGenerator[Response, None]:
        async with aclosing(handler(replace(request, time_limit=_shorter(request.time_limit, seconds)))) as responses:
            while True:
                try:
                    async with asyncio.timeout(seconds) as limit:
                        response = await anext(responses)
                except StopAsyncIteration:
                    return
                except TimeoutError as error:
                    if not limit.expired():  # one that `handler` itself ran into
                        raise
                    text = f"no response within {seconds:g} s, the limit that the policy timeout sets (timeout.seconds)"
                    raise refusal(Reason.TIMEOUT, text) from error
                yield response

    return within


def wrap(handler: Handler, settings: Settings) -> Handler:
    """`handler`, given up after `settings.seconds`. The next hop learns of it: the deadline of what it gets is no
    later."""
    seconds = settings.seconds

    async def within(request: Request) -> Answer:
        deadline = asyncio.get_running_loop().time() + seconds
        earlier = _shorter(request.deadline, deadline)
        request = replace(request, deadline=earlier, time_limit=_shorter(request.time_limit, seconds))
        try:
            async with asyncio.timeout_at(deadline) as limit:
                return await handler(request)
        except TimeoutError as error:
            if not limit.expired():  # one that `handler` itself ran into
                raise
            text = f"no answer within {seconds:g} s, the limit that the policy timeout sets (timeout.seconds)"
            raise refusal(Reason.TIMEOUT, text) from error

    return within


def _shorter(given: float | None, own: float) -> float:
    return own if given is None or own < given else given
