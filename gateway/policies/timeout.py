"""`timeout: {seconds: 2}`: a call that takes longer fails with DEADLINE_EXCEEDED."""

import asyncio
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gateway.core.errors import Reason, refusal
from gateway.core.transport import Handler
from gateway.core.types import Answer, Request
from gateway.core.values import replace


class Settings(BaseModel):
    """Bounds how long a call may take."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)

    seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """The longest that a call may take, waiting in queues included."""


def wrap(handler: Handler, settings: Settings) -> Handler:
    """`handler`, given up after `settings.seconds`. The next hop learns of it: the deadline of what it gets is no
    later."""
    seconds = settings.seconds

    async def within(request: Request) -> Answer:
        deadline = asyncio.get_running_loop().time() + seconds
        if request.deadline is None or request.deadline > deadline:
            request = replace(request, deadline=deadline)
        try:
            async with asyncio.timeout_at(deadline) as limit:
                return await handler(request)
        except TimeoutError as error:
            if not limit.expired():  # one that `handler` itself ran into
                raise
            text = f"no answer within {seconds:g} s, the limit that the policy timeout sets (timeout.seconds)"
            raise refusal(Reason.TIMEOUT, text) from error

    return within
