"""Determines the Target of each endpoint in a backend, for `sending`.

A Target contains the data about an endpoint that codecs require, including its server type.

If the protocol has several server types and the configuration does not set one, the gateway queries the server's
metadata before the first call. A different server can take over the address, for example in a new version of a
deployment. Therefore, the gateway repeats the query before the first call after an outage, and before the first call on
a new connection if no other connection is open. It also repeats the query when the server rejects a call, because the
gateway might not notice an outage between two calls.
"""

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from time import monotonic

from gateway.core.errors import GatewayError, Reason, Status, TransportError
from gateway.core.exchange import ask
from gateway.core.frozen import replace
from gateway.core.models import ServerInfo
from gateway.core.operations import CALLS, CONTROL_OPERATIONS, Operation
from gateway.core.protocol import Protocol, ServerTypes, Target
from gateway.core.requests import Request
from gateway.core.tasks import outlived_by, spawn
from gateway.routing.endpoint import Endpoint

SECONDS_WAITED = 10.0
"""The time limit for the metadata query, in seconds."""
SECONDS_CONFIRMED = 1.0
"""The minimum time between two queries that rejected calls cause, in seconds. It prevents clients that send invalid
requests from doubling the server's work. It is also the maximum time that a rejected call, or the first call on a new
connection, waits for the response to a query."""

SECONDS_TRUSTED = 60.0
"""The time for which a reported server type stays valid even if every connection to the server closes, in seconds. Some
servers close the connection after each response; without this time, such servers would receive two requests for each
call."""

_METADATA_REQUEST = Request(Operation.SERVER_METADATA)
_TEMPORARY = frozenset({Status.UNAVAILABLE, Status.RESOURCE_EXHAUSTED, Status.DEADLINE_EXCEEDED, Status.CANCELLED})
"""Errors from a server, or from a proxy in front of it, that do not depend on the server type.

The gateway queries the server again later."""

_NOTHING_TOLD = frozenset({Status.UNAUTHENTICATED, Status.PERMISSION_DENIED, Status.INTERNAL, Status.UNKNOWN})
"""Errors that do not reveal the server type. The first two come from a server or proxy that requires credentials.
Clients might have these credentials, but the query does not."""

_REFUSED = frozenset({Status.INVALID_ARGUMENT, Status.NOT_FOUND, Status.UNIMPLEMENTED})
"""Errors that a server or its codec can return for a message for a different server type. The model has not run."""
_BROKEN = frozenset({Status.INTERNAL, Status.UNKNOWN})
"""Other errors that a message for a different server type, or the decoding of its reply, can cause. The model might
have run."""
_CHANGING = CALLS | CONTROL_OPERATIONS
"""The operations that must not be repeated after an error in `_BROKEN`."""


class _NothingReportedError(Exception):
    """The server's response does not reveal its server type."""


class Targets:
    """The Targets of one backend's endpoints. `seconds` limits the wait for a server's metadata."""

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
        """The Targets whose server type is known or not required, by endpoint."""
        self._last: dict[Endpoint, Target] = {}
        """The last known Target of each server. `forget` does not remove it."""
        self._asked_at: dict[Endpoint, float] = {}
        """For each endpoint, the time at which its server was last queried because it had rejected a call."""
        self._reported_at: dict[Endpoint, float] = {}
        """For each endpoint, the time at which its server last responded to the query."""
        self._doubted: set[Endpoint] = set()
        """The endpoints whose `known` Target was removed because no connection was left."""
        self.changes: dict[Endpoint, int] = {}
        """For each endpoint, the number of times that the gateway has detected a different server at its address.
        Endpoints with the number 0 are omitted.
        """
        for endpoint in endpoints:
            self.add(endpoint)

    def add(self, endpoint: Endpoint) -> None:
        """Add an endpoint if it is new."""
        if endpoint not in self._unflavored:
            target = self._unflavored[endpoint] = replace(self._target, address=endpoint.address)
            if self._flavors is None:
                self.known[endpoint] = target

    def remove(self, endpoint: Endpoint) -> None:
        """Remove an endpoint. Its remaining calls can still use its Target."""
        for each in (self._unflavored, self.known, self._last, self._asked_at, self._reported_at, self.changes):
            each.pop(endpoint, None)
        self._doubted.discard(endpoint)

    def forget(self, endpoint: Endpoint) -> None:
        """Forget the server type of an endpoint that is unreachable or has recovered, because a different server might
        respond to the next call."""
        if self._flavors:
            self.known.pop(endpoint, None)
            self._doubted.discard(endpoint)

    def doubt(self, endpoint: Endpoint) -> None:
        """Schedule a check of an endpoint's server type before its next call. No open connection to the endpoint is
        left, and another server might accept the next connection."""
        if self._flavors and self.known.pop(endpoint, None) is not None:
            self._doubted.add(endpoint)

    async def has_changed(self, endpoint: Endpoint, request: Request, error: GatewayError, changes: int) -> bool:
        """Return whether to repeat `request`, which failed with `error`, because a different server has taken over the
        address. If a different server type could explain the error, query the server. `changes` is the value of the
        endpoint's `changes` before the call. A request is never repeated if the model might have run and a second run
        could do harm (`_CHANGING`)."""
        if self._flavors is None or not (error.status in _REFUSED or error.status in _BROKEN):
            return False
        if endpoint not in self._unflavored or isinstance(error, TransportError):
            return False
        if self.changes.get(endpoint, 0) == changes and (endpoint in self.known or endpoint in self._doubted):
            if endpoint not in self._asking:
                if self._clock() < self._asked_at.get(endpoint, -inf) + SECONDS_CONFIRMED:
                    return False
                self._asked_at[endpoint] = self._clock()
            try:
                async with asyncio.timeout(SECONDS_CONFIRMED):  # the client's call has already failed
                    await self._asked(endpoint, self._flavors, request.deadline)
            except (GatewayError, TimeoutError):
                return False
            if self.changes.get(endpoint, 0) == changes:
                return False
        return error.status in _REFUSED or request.operation not in _CHANGING

    def of(self, endpoint: Endpoint) -> Target:
        """Return the Target of an endpoint, without the server type if the type is unknown. A Target without a server
        type is sufficient for requests that are the same for all types."""
        if endpoint in self._doubted:
            return self._last[endpoint]
        return self.known.get(endpoint) or self._without_flavor(endpoint)

    async def find(self, endpoint: Endpoint, deadline: float | None = None) -> Target:
        """Return the Target of an endpoint. Query its server if the Target is not in `known`.

        The gateway queries the server once, regardless of the number of waiting calls. It reserves half of the time
        until `deadline` for another endpoint.

        Raises:
            GatewayError: UNAVAILABLE or DEADLINE_EXCEEDED; the message contains the backend's name. The server received
                no other request.
        """
        if self._flavors is None:
            return self.of(endpoint)
        if endpoint in self._doubted:
            return await self._confirmed(endpoint, self._flavors, deadline)
        return await self._asked(endpoint, self._flavors, deadline)

    async def _confirmed(self, endpoint: Endpoint, flavors: ServerTypes, deadline: float | None) -> Target:
        """Return the Target of a doubted endpoint: the last one, unless the server now reports another type."""
        last = self._last[endpoint]
        if self._clock() >= self._reported_at[endpoint] + SECONDS_TRUSTED:
            try:
                async with asyncio.timeout(SECONDS_CONFIRMED):  # a busy server might respond later: send it the call
                    return await self._asked(endpoint, flavors, deadline)
            except (GatewayError, TimeoutError):
                pass  # the call has its own error
        if endpoint in self._doubted:
            self._doubted.discard(endpoint)
            self.known[endpoint] = last
        return self.known.get(endpoint, last)

    async def _asked(self, endpoint: Endpoint, flavors: ServerTypes, deadline: float | None) -> Target:
        """Query the server's metadata even if the endpoint is in `known`. See `find`."""
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
            f"backend {target.backend!r} at {target.address} did not report its server type within {seconds:.3g} s;"
            " `flavor` on the backend makes this query unnecessary"
        )
        return TransportError(reason.status, reason, text, sent=False)

    async def _find(self, endpoint: Endpoint, flavors: ServerTypes) -> Target:
        target = self._without_flavor(endpoint)
        try:
            info = await self._ask(endpoint, target)
        except _NothingReportedError:
            if (last := self._last.get(endpoint)) is not None:
                self._reported(endpoint, last)
                return last
            info = None
        extensions = frozenset(info.extensions) if info else frozenset()
        found = replace(target, flavor=flavors.detect(info), extensions=extensions)
        if endpoint in self._unflavored:
            if self._last.get(endpoint, found) != found:
                self.changes[endpoint] = self.changes.get(endpoint, 0) + 1
                endpoint.changed()  # the known models were models of the previous server
            self._last[endpoint] = found
            self._reported(endpoint, found)
        return found

    def _reported(self, endpoint: Endpoint, target: Target) -> None:
        self.known[endpoint] = target
        self._reported_at[endpoint] = self._clock()
        self._doubted.discard(endpoint)

    async def _ask(self, endpoint: Endpoint, target: Target) -> ServerInfo | None:
        """Query the server's metadata. Return None if the server responds with an error instead.

        Raises GatewayError (UNAVAILABLE or DEADLINE_EXCEEDED) or _NothingReportedError."""
        try:
            async with asyncio.timeout(self._seconds):
                info = await ask(_METADATA_REQUEST, self._protocol, endpoint, target)
        except TimeoutError as error:
            raise self._no_answer(endpoint, self._seconds, Reason.UNREACHABLE) from error
        except GatewayError as error:
            if error.status in _NOTHING_TOLD:
                raise _NothingReportedError from error
            if isinstance(error, TransportError):
                raise TransportError(
                    error.status, error.reason, error.message, sent=False, retry_after=error.retry_after
                ) from error
            if error.status in _TEMPORARY:
                raise
            return None
        assert isinstance(info, ServerInfo)
        return info
