"""The Target of each endpoint of a backend: what codecs know about it, including the flavor of its server.

If the protocol has flavors and none is configured, the server is asked for its metadata before the first call, and
again after it was away, because another server may have come back.
"""

import asyncio
from collections.abc import Sequence

from gateway.core.errors import GatewayError, Reason, Status, TransportError
from gateway.core.exchange import ask
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Flavors, Protocol, Target
from gateway.core.tasks import outlived_by, spawn
from gateway.core.types import Request, ServerInfo
from gateway.routing.endpoint import Endpoint

SECONDS_WAITED = 10.0
"""How long a server may take to answer that question."""

_METADATA_REQUEST = Request(Operation.SERVER_METADATA)
_TEMPORARY = frozenset({Status.UNAVAILABLE, Status.RESOURCE_EXHAUSTED, Status.DEADLINE_EXCEEDED, Status.CANCELLED})
"""Errors of a server, or of a proxy in front of it, that say nothing about its flavor: it is asked again later."""

_DENIED = frozenset({Status.UNAUTHENTICATED, Status.PERMISSION_DENIED})
"""Errors of a server or of a proxy in front of it that wants credentials: clients may have them, this question has
none."""


class Targets:
    """The Targets of one backend's endpoints. `seconds` bounds the wait for a server's metadata."""

    def __init__(
        self, target: Target, protocol: Protocol, endpoints: Sequence[Endpoint], seconds: float = SECONDS_WAITED
    ) -> None:
        self._seconds = seconds
        self._target = target
        self._protocol = protocol
        self._flavors = None if target.flavor else protocol.traits.servers.flavors
        self._unflavored: dict[Endpoint, Target] = {}
        self._asking: dict[Endpoint, asyncio.Task[Target]] = {}
        self.known: dict[Endpoint, Target] = {}
        """The Targets whose flavor is known, or that need none."""
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
        self._unflavored.pop(endpoint, None)
        self.known.pop(endpoint, None)

    def forget(self) -> None:
        """Forget the flavors found: an endpoint came back, perhaps as another server."""
        self.known = {} if self._flavors else dict(self._unflavored)

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
        asking = self._asking.get(endpoint)
        if asking is None:
            asking = self._asking[endpoint] = spawn(self._find(endpoint, self._flavors))
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

    async def _find(self, endpoint: Endpoint, flavors: Flavors) -> Target:
        target = self._without_flavor(endpoint)
        info = await self._ask(endpoint, target)
        extensions = frozenset(info.extensions) if info else frozenset()
        found = replace(target, flavor=flavors.detect(info), extensions=extensions)
        if endpoint in self._unflavored:
            self.known[endpoint] = found
        return found

    async def _ask(self, endpoint: Endpoint, target: Target) -> ServerInfo | None:
        """The server's metadata; None if it answers with an error that is not temporary."""
        try:
            async with asyncio.timeout(self._seconds):
                info = await ask(_METADATA_REQUEST, self._protocol, endpoint, target)
        except TimeoutError as error:
            raise self._no_answer(endpoint, self._seconds, Reason.UNREACHABLE) from error
        except GatewayError as error:
            if error.status in _DENIED:
                return None
            if isinstance(error, TransportError):
                raise TransportError(
                    error.status, error.reason, error.message, sent=False, retry_after=error.retry_after
                ) from error
            if error.status in _TEMPORARY:
                raise
            return None
        assert isinstance(info, ServerInfo)
        return info
