"""Determines the readiness that listeners report.

A listener is ready while the gateway accepts requests, no client has taken the listener offline, and the required
backends are ready.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping

from gateway.core.errors import GatewayError, Reason, TransportError, refusal
from gateway.core.exchange import ask
from gateway.core.models import NotReady
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Target
from gateway.core.requests import Answer, Request
from gateway.core.tasks import spawn
from gateway.core.transport import Connector
from gateway.routing.endpoint import Endpoint

SECONDS_WAITED = 2.0
SECONDS_KEPT = 1.0


async def is_ready(protocol: Protocol, connector: Connector, target: Target) -> bool:
    """Return whether a server reports that it is ready. If the protocol has no readiness request, return whether the
    server responds to a metadata request."""
    try:
        await probe(Operation.READY, protocol, connector, target)
    except GatewayError:
        return False
    return True


async def is_any_ready(protocol: Protocol, endpoints: Iterable[Endpoint], target: Callable[[Endpoint], Target]) -> bool:
    """Return whether at least one of the endpoints is ready.

    Query all endpoints in parallel. The responses do not affect the endpoints' health."""
    asking = [spawn(is_endpoint_ready(protocol, each, target(each))) for each in endpoints]
    try:
        for each in asyncio.as_completed(asking):
            if await each:
                return True
        return False
    finally:
        for each in asking:
            each.cancel()


async def is_endpoint_ready(protocol: Protocol, endpoint: Endpoint, target: Target) -> bool:
    """Return whether the server at `endpoint` reports that it is ready. If the server is busy with a call that can take
    hours and therefore cannot respond, return the result of its health instead."""
    servers = protocol.traits.servers
    if endpoint.in_flight and (servers.one_connection or servers.runs_to_the_end):
        return endpoint.health.is_up
    enter, leave = endpoint.enter, endpoint.leave
    if servers.one_connection:
        enter, leave = endpoint.take, endpoint.give_back
    enter()
    try:
        return await is_ready(protocol, endpoint.connector, target)
    finally:
        leave()


async def probe(operation: Operation, protocol: Protocol, connector: Connector, target: Target) -> None:
    """Query whether a server is live or ready (`operation` is LIVE or READY).

    If the protocol has no such request, send a metadata request instead; any response to it counts as success.

    Raises:
        TransportError: the server is unreachable, closed the connection, or did not respond in its protocol.
        GatewayError: INTERNAL (invalid output) if the reply is malformed; UNAVAILABLE (not ready) if the server
            responded with an error, or reported that it is not live or not ready.
    """
    try:
        answer = await ask(Request(operation), protocol, connector, target)
    except GatewayError as error:
        if error.reason is Reason.UNSUPPORTED:
            await _ask_metadata(protocol, connector, target)
            return
        if _is_no_answer(error):
            raise
        text = f"the server's response to the {operation.value} query is {error.status.name}"
        raise refusal(Reason.NOT_READY, text) from error
    if answer is not True:
        raise refusal(Reason.NOT_READY, f"the server reports that it is not {operation.value}")


async def _ask_metadata(protocol: Protocol, connector: Connector, target: Target) -> None:
    try:
        await ask(Request(Operation.METADATA), protocol, connector, target)
    except GatewayError as error:
        if _is_no_answer(error):
            raise


def _is_no_answer(error: GatewayError) -> bool:
    return isinstance(error, TransportError) or error.reason is Reason.INVALID_OUTPUT


class BackendReadiness:
    """The readiness of backends.

    `questions` contains a query function for each backend. The gateway calls these functions on demand, all in
    parallel, and at most once a second, regardless of the number of callers. A backend that does not respond within
    `wait` seconds is not ready."""

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
        """Return the reason why the backends are not ready, or an empty string if they are ready. `rule` states whether
        `any`, `all` or `none` of the backends must be ready."""
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
    """The readiness of listeners. A listener is online at the start. Clients can take it offline for all its protocols
    together.

    - `ready`: True while the gateway accepts requests.
    - `switchable`: The listeners whose clients can take them offline and online. An offline listener still handles
      requests, like a real grps server.
    - `backends`: Returns the reason why the required backends are not ready, or an empty string; None if listeners do
      not depend on backends.
    """

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
        self.on_switch: Callable[[str, bool], None] | None = None
        """A callback that runs after a client has taken a listener online (True) or offline (False), with the
        listener's name."""

    def switch(self, listener: str, *, is_online: bool) -> None:
        """Take a listener online or offline, because another process of this gateway has done the same."""
        (self._offline.discard if is_online else self._offline.add)(listener)

    def adopt(self, other: "Readiness") -> None:
        """Take over the offline listeners of `other` whose clients can still switch them."""
        self._offline |= {name for name in other._offline if name in self._switchable}

    def of(self, request: Request) -> bool:
        """Return whether the listener that received `request` is ready, regardless of backends."""
        return self._ready() and request.listener not in self._offline

    async def with_backends(self, request: Request) -> Answer:
        """Return whether both the listener and the required backends are ready.

        If they are not ready, return a NotReady with the reason."""
        if not self.of(request):
            return False
        why = await self._backends() if self._backends else ""
        return NotReady(why) if why else True

    def online(self, request: Request) -> bool:
        """Take the listener online. Raises GatewayError (PERMISSION_DENIED) if this listener's clients have no
        permission to switch it."""
        self._check(request)
        self._switched(request.listener, is_online=True)
        return True

    def offline(self, request: Request) -> bool:
        """Take the listener offline. Raises GatewayError (PERMISSION_DENIED) if this listener's clients have no
        permission to switch it."""
        self._check(request)
        self._switched(request.listener, is_online=False)
        return True

    def _switched(self, listener: str, *, is_online: bool) -> None:
        self.switch(listener, is_online=is_online)
        if self.on_switch is not None:
            self.on_switch(listener, is_online)

    def _check(self, request: Request) -> None:
        if request.listener not in self._switchable:
            text = f"listener {request.listener!r} does not allow {request.operation.value}"
            raise refusal(Reason.PERMISSION_DENIED, f"{text}; set `allow_offline: true` on it")
