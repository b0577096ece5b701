"""The Target of each endpoint of a backend: what codecs know about it, including the flavor of its server.

If the protocol has flavors and none is configured, the server is asked for its metadata before the first call. Another
server may take the address over, such as a new version of a deployment. So the server is asked again before the next
call after an outage, and when it refuses a call: an outage that no call met leaves no other trace.
"""

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic

from gateway.core.errors import GatewayError, Reason, Status, TransportError
from gateway.core.exchange import ask
from gateway.core.frozen import replace
from gateway.core.operations import CALLS, CONTROL_OPERATIONS, Operation
from gateway.core.protocol import Protocol, ServerTypes, Target
from gateway.core.tasks import outlived_by, spawn
from gateway.core.types import Request, ServerInfo
from gateway.routing.endpoint import Endpoint

SECONDS_WAITED = 10.0
"""How long a server may take to answer that question."""
SECONDS_CONFIRMED = 1.0
"""Minimum time between two questions to a server because of refused calls, whatever it answers, and the maximum time
that a refused call waits for the answer: clients that send wrong requests must not double the server's work."""

_METADATA_REQUEST = Request(Operation.SERVER_METADATA)
_TEMPORARY = frozenset({Status.UNAVAILABLE, Status.RESOURCE_EXHAUSTED, Status.DEADLINE_EXCEEDED, Status.CANCELLED})
"""Errors of a server, or of a proxy in front of it, that say nothing about its flavor: it is asked again later."""

_NOTHING_TOLD = frozenset({Status.UNAUTHENTICATED, Status.PERMISSION_DENIED, Status.INTERNAL, Status.UNKNOWN})
"""Errors that are no answer to the question what server it is. The first two are of a server, or of a proxy in front of
it, that wants credentials: clients may have them, this question has none."""

_REFUSED = frozenset({Status.INVALID_ARGUMENT, Status.NOT_FOUND, Status.UNIMPLEMENTED})
"""Errors that a message for another flavor gets, from the server or from its own codec. Nothing was computed."""
_BROKEN = frozenset({Status.INTERNAL, Status.UNKNOWN})
"""Errors that such a message may get as well, or the reply to it. The model may have run."""
_CHANGING = CALLS | CONTROL_OPERATIONS
"""The operations that must not be repeated after one of `_BROKEN`."""


class _NothingToldError(Exception):
    """A server answers, but not what it is."""


class Targets:
    """The Targets of one backend's endpoints. `seconds` bounds the wait for a server's metadata."""

    def __init__(
        self,
        target: Target,
        protocol: Protocol,
        endpoints: Sequence[Endpoint],
        seconds: float = SECONDS_WAITED,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._seconds = seconds
        self._clock = clock
        self._target = target
        self._protocol = protocol
        self._flavors = None if target.flavor else protocol.traits.servers.flavors
        self._unflavored: dict[Endpoint, Target] = {}
        self._asking: dict[Endpoint, asyncio.Task[Target]] = {}
        self.known: dict[Endpoint, Target] = {}
        """The Targets whose flavor is known, or that need none."""
        self._last: dict[Endpoint, Target] = {}
        """What each server told last, also if it is forgotten."""
        self._asked_at: dict[Endpoint, float] = {}
        """When a server was asked last because it had refused a call."""
        self.changes = 0
        """How often a server told something else than before."""
        for endpoint in endpoints:
            self.add(endpoint)

    def add(self, endpoint: Endpoint) -> None:
        """Add an endpoint, if it is new."""
        if endpoint not in self._unflavored:
            target = self._unflavored[endpoint] = replace(self._target, address=endpoint.address)
            if self._flavors is None:
                self.known[endpoint] = target

    def remove(self, endpoint: Endpoint) -> None:
        """Remove an endpoint. Calls that it still has find its Target all the same."""
        for each in (self._unflavored, self.known, self._last, self._asked_at):
            each.pop(endpoint, None)

    def forget(self) -> None:
        """Forget the flavors found: an endpoint came back, perhaps as another server."""
        self.known = {} if self._flavors else dict(self._unflavored)

    def lost(self, endpoint: Endpoint) -> None:
        """Forget the flavor of an endpoint that cannot be reached: another server may answer the next call."""
        if self._flavors:
            self.known.pop(endpoint, None)

    async def has_changed(self, endpoint: Endpoint, request: Request, error: GatewayError, changes: int) -> bool:
        """Whether `request`, which ended with `error`, is to be repeated: another server has the address now. The
        server is asked for that if its flavor may explain the error. `changes` had this value before the call.

        It is never to be repeated if the model may have run.
        """
        if self._flavors is None or not (error.status in _REFUSED or error.status in _BROKEN):
            return False
        if endpoint not in self._unflavored or isinstance(error, TransportError):
            return False
        if self.changes == changes and endpoint in self.known:
            if endpoint not in self._asking:
                if self._clock() < self._asked_at.get(endpoint, -inf) + SECONDS_CONFIRMED:
                    return False
                self._asked_at[endpoint] = self._clock()
            try:
                async with asyncio.timeout(SECONDS_CONFIRMED):  # the client has an answer already
                    await self._asked(endpoint, self._flavors, request.deadline)
            except (GatewayError, TimeoutError):
                return False
            if self.changes == changes:
                return False
        return error.status in _REFUSED or request.operation not in _CHANGING

    def of(self, endpoint: Endpoint) -> Target:
        """The Target as far as it is known. Enough for requests that are the same for all flavors."""
        return self.known.get(endpoint) or self._without_flavor(endpoint)

    async def find(self, endpoint: Endpoint, deadline: float | None = None) -> Target:
        """The Target of an endpoint that is not in `known`. Its server is asked once, however many calls wait for it.

        Half of the time until `deadline` is left for another endpoint.

        Raises:
            GatewayError: UNAVAILABLE or DEADLINE_EXCEEDED, naming the backend. Nothing else was sent to it.
        """
        if self._flavors is None:
            return self.of(endpoint)
        return await self._asked(endpoint, self._flavors, deadline)

    async def _asked(self, endpoint: Endpoint, flavors: ServerTypes, deadline: float | None) -> Target:
        """As `find`, also for an endpoint that is in `known`."""
        asking = self._asking.get(endpoint)
        if asking is None:
            asking = self._asking[endpoint] = spawn(self._find(endpoint, flavors))
            asking.add_done_callback(lambda _: self._asking.pop(endpoint, None))
        seconds = None if deadline is None else max(deadline - asyncio.get_running_loop().time(), 0.0) / 2
        try:
            async with asyncio.timeout(seconds):
                return await outlived_by(asking)
        except TimeoutError as error:
            raise self._no_answer(endpoint, seconds or 0.0, Reason.TIMEOUT) from error

    def _without_flavor(self, endpoint: Endpoint) -> Target:
        return self._unflavored.get(endpoint) or replace(self._target, address=endpoint.address)

    def _no_answer(self, endpoint: Endpoint, seconds: float, reason: Reason) -> TransportError:
        target = self._without_flavor(endpoint)
        text = (
            f"backend {target.backend!r} at {target.address} did not tell within {seconds:.3g} s what server it is;"
            " `flavor` on the backend saves the question"
        )
        return TransportError(reason.status, reason, text, sent=False)

    async def _find(self, endpoint: Endpoint, flavors: ServerTypes) -> Target:
        target = self._without_flavor(endpoint)
        try:
            info = await self._ask(endpoint, target)
        except _NothingToldError:
            if (last := self._last.get(endpoint)) is not None:
                self.known[endpoint] = last
                return last
            info = None
        extensions = frozenset(info.extensions) if info else frozenset()
        found = replace(target, flavor=flavors.detect(info), extensions=extensions)
        if endpoint in self._unflavored:
            if self._last.get(endpoint, found) != found:
                self.changes += 1
                endpoint.changed()  # what is known of its models belongs to the other server
            self.known[endpoint] = self._last[endpoint] = found
        return found

    async def _ask(self, endpoint: Endpoint, target: Target) -> ServerInfo | None:
        """The server's metadata; None if it has none. Raises GatewayError, UNAVAILABLE or DEADLINE_EXCEEDED; and
        _NothingToldError."""
        try:
            async with asyncio.timeout(self._seconds):
                info = await ask(_METADATA_REQUEST, self._protocol, endpoint, target)
        except TimeoutError as error:
            raise self._no_answer(endpoint, self._seconds, Reason.UNREACHABLE) from error
        except GatewayError as error:
            if error.status in _NOTHING_TOLD:
                raise _NothingToldError from error
            if isinstance(error, TransportError):
                raise TransportError(
                    error.status, error.reason, error.message, sent=False, retry_after=error.retry_after
                ) from error
            if error.status in _TEMPORARY:
                raise
            return None
        assert isinstance(info, ServerInfo)
        return info
