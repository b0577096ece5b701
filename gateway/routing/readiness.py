"""Whether the gateway calls itself ready: while it takes requests, no client has taken the listener offline, and those
backends are ready that have to be."""

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping

from gateway.core.errors import GatewayError, Reason, TransportError, refusal
from gateway.core.exchange import ask
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Target
from gateway.core.tasks import spawn
from gateway.core.transport import Connector
from gateway.core.types import Answer, NotReady, Request

SECONDS_WAITED = 2.0
SECONDS_KEPT = 1.0


async def is_ready(protocol: Protocol, connector: Connector, target: Target) -> bool:
    """Whether a server says in its protocol that it is ready; where the protocol has no words for it, whether the
    server answers at all when it is asked for its metadata."""
    try:
        return await ask(Request(Operation.READY), protocol, connector, target) is True
    except GatewayError as error:
        return error.reason is Reason.UNSUPPORTED and await _answers(protocol, connector, target)


async def _answers(protocol: Protocol, connector: Connector, target: Target) -> bool:
    try:
        await ask(Request(Operation.METADATA), protocol, connector, target)
    except TransportError:
        return False
    except GatewayError as error:
        return error.reason is not Reason.INVALID_OUTPUT
    return True


class BackendReadiness:
    """Which backends are ready, by the question that asks each. They are asked when somebody wants to know, all at once
    and at most once a second, however many want to know; who does not answer in time is not ready."""

    def __init__(
        self,
        questions: Mapping[str, Callable[[], Awaitable[bool]]],
        clock: Callable[[], float],
        wait: float = SECONDS_WAITED,
    ) -> None:
        self._questions = dict(questions)
        self._clock = clock
        self._wait = wait
        self._down: tuple[str, ...] = ()
        self._fresh_until = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def why_not(self, rule: str) -> str:
        """What is missing by `rule` (`any`, `all` or `none` of them has to be ready); empty if nothing is."""
        if rule == "none" or not self._questions:
            return ""
        down = await self._not_ready()
        if not down or (rule == "any" and len(down) < len(self._questions)):
            return ""
        names = ", ".join(map(repr, down))
        return f"not ready: backend {names}" if len(down) == 1 else f"not ready: backends {names}"

    async def _not_ready(self) -> tuple[str, ...]:
        if self._clock() >= self._fresh_until:
            if self._asking is None:
                self._asking = spawn(self._ask())
            await asyncio.shield(self._asking)
        return self._down

    async def _ask(self) -> None:
        try:
            found = await asyncio.gather(*(self._is_ready(each) for each in self._questions.values()))
        finally:
            self._asking = None
        self._down = tuple(name for name, ready in zip(self._questions, found, strict=True) if not ready)
        self._fresh_until = self._clock() + SECONDS_KEPT

    async def _is_ready(self, question: Callable[[], Awaitable[bool]]) -> bool:
        try:
            async with asyncio.timeout(self._wait):
                return await question()
        except TimeoutError:
            return False


class Readiness:
    """One flag for each listener, which all its protocols share. `switchable` are the listeners whose clients may
    change it; all begin online. Offline ones answer all the same, as a real grps server does. `backends` tells what is
    missing of them; without it nothing is."""

    def __init__(
        self,
        ready: Callable[[], bool],
        switchable: Container[str] = (),
        backends: Callable[[], Awaitable[str]] | None = None,
    ) -> None:
        self._ready = ready
        self._switchable = switchable
        self._backends = backends
        self._offline: set[str] = set()

    def of(self, request: Request) -> bool:
        """Whether the listener where `request` arrived is ready, as far as the gateway itself is concerned."""
        return self._ready() and request.listener not in self._offline

    async def with_backends(self, request: Request) -> Answer:
        """The same, and whether its backends are."""
        if not self.of(request):
            return False
        why = await self._backends() if self._backends else ""
        return NotReady(why) if why else True

    def online(self, request: Request) -> bool:
        """Take the listener online. Raises GatewayError, PERMISSION_DENIED, where that is not allowed."""
        self._check(request)
        self._offline.discard(request.listener)
        return True

    def offline(self, request: Request) -> bool:
        """Take the listener offline. Raises GatewayError, PERMISSION_DENIED, where that is not allowed."""
        self._check(request)
        self._offline.add(request.listener)
        return True

    def _check(self, request: Request) -> None:
        if request.listener not in self._switchable:
            text = f"clients of listener {request.listener!r} may not take it {request.operation.value}"
            raise refusal(Reason.PERMISSION_DENIED, f"{text}; `allow_offline: true` on the listener would let them")
