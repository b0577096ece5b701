"""The policy `turnstile: {most: 2}`: so many calls pass, in all processes together, and no more."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Annotated

from pydantic import ConfigDict, Field

from gateway.core.documented import Documented
from gateway.core.errors import Reason, refusal
from gateway.core.requests import Answer, Request, Response
from gateway.core.transport import Handler, StreamHandler
from gateway.policies.places import Shared, SharedState, ShownStates, StateMetric


class Settings(Documented):
    """Lets some calls pass, and no more."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    most: Annotated[int, Field(ge=0)]
    """The number of calls that pass."""


class Turnstile(SharedState):
    """What passed one entry of `policies:`."""

    def __init__(self, settings: Settings) -> None:
        self.place = "turnstile"
        self.settings: Settings = settings
        self._left = settings.most
        self._shared: Shared | None = None
        self._passed = self._refused = 0

    def take(self, client: str) -> float:
        """As in SharedState: one call passes, or has to wait for an hour."""
        self._left -= 1
        return 0 if self._left >= 0 else 3600

    def share(self, shared: Shared) -> None:
        """As in SharedState."""
        self._shared = shared

    async def enter(self) -> None:
        """Return if a call passes. Raises GatewayError: RESOURCE_EXHAUSTED (rate-limited)."""
        wait = None if self._shared is None else await self._shared.take("")
        if self.take("") if wait is None else wait:
            self._refused += 1
            raise refusal(Reason.RATE_LIMITED, f"{self.settings.most} calls have passed")
        self._passed += 1

    def status(self) -> Mapping[str, object]:
        """As JSON."""
        return {"passed": self._passed, "refused": self._refused}


state = ShownStates(Turnstile)
METRICS = (
    StateMetric(
        "gateway_turnstile_calls_total", "counter", ("owner", "outcome"), "Calls that came to a turnstile.",
        {"passed": "passed", "refused": "refused"},
    ),
)  # fmt: skip


def wrap(handler: Handler, settings: Settings) -> Handler:
    """`handler`, for as many calls as may pass."""
    turnstile = state(settings)

    async def entered(request: Request) -> Answer:
        await turnstile.enter()
        return await handler(request)

    return entered


def wrap_stream(handler: StreamHandler, settings: Settings) -> StreamHandler:
    """As `wrap`, for streams."""
    turnstile = state(settings)

    async def entered(request: Request) -> AsyncGenerator[Response, None]:
        await turnstile.enter()
        async with aclosing(handler(request)) as responses:
            async for response in responses:
                yield response

    return entered
