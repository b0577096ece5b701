"""The policy `retry: {attempts: 3}`: the gateway repeats a failed call, at another endpoint if possible.

The gateway makes another attempt if all these conditions hold:

- The call was not sent to a server, or it can be repeated (`PolicyContext.may_repeat`) and either the error has one of
  the `statuses` or the attempt took longer than `timeout.per_try`.
- The call has had fewer than `attempts` attempts.
- The delay before the attempt ends before the call's deadline. If the error has a `retry_after`, it is at most
  `max_backoff`, and the delay is at least this long.
- The budget allows another attempt.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from random import random
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from gateway.core.documented import Documented
from gateway.core.errors import GatewayError, Status, TransportError
from gateway.core.frozen import replace
from gateway.core.log_limit import LogLimit
from gateway.core.requests import Answer, Request, Response, Tries
from gateway.core.transport import Handler, StreamHandler
from gateway.policies.budget import Budget
from gateway.policies.context import PolicyContext

log = logging.getLogger(__name__)
_lines = LogLimit(log)

_NONE: frozenset[str] = frozenset()

LEAST_RETRIES = 10
"""Number of retries that the budget always allows."""

StatusName = Literal[
    "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED",
]  # fmt: skip
_Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Settings(Documented):
    """Repeats failed calls."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    passes_unread: ClassVar[bool] = True
    repeats: ClassVar[str] = "unsent"

    attempts: Annotated[int, Field(ge=2)] = 3
    """Maximum number of attempts per call, including the first."""
    statuses: Annotated[tuple[StatusName, ...], Field(min_length=1, strict=False)] = ("UNAVAILABLE",)
    """gRPC status names of the errors after which the gateway repeats a call that a server might have received. This
    requires `safe: true` on the backend. The gateway always repeats calls that it did not send to a server."""
    backoff: _Seconds = 0.05
    """Delay before the second attempt, in seconds. The delay doubles with each additional attempt."""
    max_backoff: _Seconds = 1.0
    """Maximum delay before an attempt, in seconds."""
    jitter: Literal["full", "none"] = "full"
    """`full`: each delay is random, from 0 to the full delay, which spreads the retries of calls that failed together.
    `none`: each delay is the full delay."""
    budget: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.2
    """Maximum ratio of retries to calls in the last 10 to 20 s, to limit the additional load on a failing backend. 10
    retries are always allowed."""


class Retries:
    """Decides on additional attempts, for all Handlers of one item under `policies:`. `random` returns numbers in [0,
    1)."""

    def __init__(self, settings: Settings, context: PolicyContext, random: Callable[[], float] = random) -> None:
        self.budget = Budget(settings.budget, LEAST_RETRIES, context.clock)
        self._settings = settings
        self._context = context
        self._statuses = frozenset(Status[name] for name in settings.statuses)
        self._random = random

    def wait_after(self, error: GatewayError, request: Request, attempt: int, now: float) -> float | None:
        """After attempt number `attempt` (counted from 1) of `request` has failed, return the time until the next
        attempt, in seconds, or None if no more attempts are allowed."""
        settings = self._settings
        if attempt >= settings.attempts or not self._is_retryable(error, request):
            return None
        wait = min(settings.max_backoff, settings.backoff * 2.0 ** min(attempt - 1, 32))
        if settings.jitter == "full":
            wait *= self._random()
        wanted: float | None = getattr(error, "retry_after", None)
        if wanted is not None and wanted > wait:
            if wanted > settings.max_backoff:
                return None
            wait = wanted
        if request.deadline is not None and now + wait >= request.deadline:
            return None
        if not self.budget.spend():
            text = "%s: the retry budget is empty, so the gateway does not retry errors (retry.budget): %s"
            _lines.write(self._context.owner, logging.WARNING, text, self._context.owner, error.message)
            return None
        return wait

    def _is_retryable(self, error: GatewayError, request: Request) -> bool:
        if isinstance(error, TransportError) and not error.sent:
            return True
        is_retried = error.status in self._statuses or _is_end_of_try(error, request)
        return is_retried and self._context.may_repeat(request)


def _is_end_of_try(error: GatewayError, request: Request) -> bool:
    """Return True if the attempt, and not the call, might have timed out. A server that received the attempt's time
    limit can report the timeout shortly before the gateway does."""
    has_limit = request.tries is not None and request.tries.seconds is not None
    return error.status is Status.DEADLINE_EXCEEDED and (has_limit or isinstance(error, TransportError))


def wrap_stream(handler: StreamHandler, settings: Settings, context: PolicyContext) -> StreamHandler:
    """Wrap `handler` to repeat streams that fail before their first response.

    The stream raises:
        GatewayError: the error of the last attempt."""
    retries = context.hidden_state(settings, lambda: Retries(settings, context))

    async def with_retries(request: Request) -> AsyncGenerator[Response, None]:
        retries.budget.add_call()
        now = asyncio.get_running_loop().time
        places: list[str] = []
        attempt, has_begun = 1, False
        while True:
            try:
                async with aclosing(handler(_one_try(request, places))) as responses:
                    async for response in responses:
                        has_begun = True
                        yield response
                return
            except GatewayError as error:
                wait = None if has_begun else retries.wait_after(error, request, attempt, now())
                if wait is None:
                    if attempt == 1:
                        raise
                    raise _with_attempts(error, attempt) from error
            await asyncio.sleep(wait)
            request.record.retried()
            attempt += 1

    return with_retries


def wrap(handler: Handler, settings: Settings, context: PolicyContext) -> Handler:
    """Wrap `handler` to repeat calls that fail.

    The Handler raises:
        GatewayError: the error of the last attempt."""
    retries = context.hidden_state(settings, lambda: Retries(settings, context))

    async def with_retries(request: Request) -> Answer:
        retries.budget.add_call()
        one_try, failed, attempt = request, _NONE, 1
        while True:
            try:
                return await handler(one_try)
            except GatewayError as error:
                wait = retries.wait_after(error, request, attempt, asyncio.get_running_loop().time())
                if wait is None:
                    if attempt == 1:
                        raise
                    raise _with_attempts(error, attempt) from error
                failed |= {error.endpoint}
            await asyncio.sleep(wait)
            request.record.retried()
            tries = request.tries or Tries()
            one_try = replace(request, tries=replace(tries, avoided=tries.avoided | failed))
            attempt += 1

    return with_retries


def _one_try(request: Request, places: list[str]) -> Request:
    """Return a copy of `request` whose attempt avoids the endpoints in `places`, and adds the chosen endpoint to
    `places`."""
    tries = request.tries
    if tries is None:
        return replace(request, tries=Tries(None, frozenset(places), False, places))
    return replace(request, tries=replace(tries, avoided=tries.avoided.union(places), places=places))


def _with_attempts(error: GatewayError, attempts: int) -> GatewayError:
    """Return a copy of `error` whose message contains the number of attempts. The copy is necessary because calls that
    waited for the same connection share their error."""
    copy = error.__class__.__new__(error.__class__)
    copy.__dict__.update(error.__dict__)
    copy.message = f"{error.message} (after {attempts} attempts)"
    copy.args = (copy.message,)
    return copy
