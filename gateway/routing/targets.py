"""What the codecs may know of each endpoint of a backend, and how it is learnt which flavor of server answers there."""

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

_QUESTION = Request(Operation.SERVER_METADATA)
_FOR_NOW = frozenset({Status.UNAVAILABLE, Status.RESOURCE_EXHAUSTED, Status.DEADLINE_EXCEEDED, Status.CANCELLED})
"""Answers of a server, or of a proxy before it, that do not tell what it will be once it works."""


class Targets:
    """The Target of each endpoint. Where the protocol has flavors and none is configured, the server is asked once,
    before the first call to it, and again after it was gone."""

    def __init__(
        self, target: Target, protocol: Protocol, endpoints: Sequence[Endpoint], seconds: float = SECONDS_WAITED
    ) -> None:
        self._seconds = seconds
        self._protocol = protocol
        self._flavors = None if target.flavor else protocol.traits.flavors
        self._unflavored = {endpoint: replace(target, address=endpoint.address) for endpoint in endpoints}
        self._asking: dict[Endpoint, asyncio.Task[Target]] = {}
        self.known: dict[Endpoint, Target] = {}
        """Those that need not be asked for."""
        self.forget()

    def forget(self) -> None:
        """An endpoint came back, perhaps as another server."""
        self.known = {} if self._flavors else dict(self._unflavored)

    def of(self, endpoint: Endpoint) -> Target:
        """The Target as far as it is known: enough for questions that all flavors take alike."""
        return self.known.get(endpoint) or self._unflavored[endpoint]

    async def find(self, endpoint: Endpoint, deadline: float | None = None) -> Target:
        """The Target of an endpoint that is not known; one question at a time for each. It is waited for until half of
        the time to the `deadline` is over, so that another endpoint can be asked in the rest.

        Raises:
            GatewayError: UNAVAILABLE or such, naming the backend; nothing else was sent to it.
        """
        asking = self._asking.get(endpoint)
        if asking is None:
            assert self._flavors is not None
            asking = self._asking[endpoint] = spawn(self._find(endpoint, self._flavors))
            asking.add_done_callback(lambda _: self._asking.pop(endpoint, None))
        seconds = None if deadline is None else max(deadline - asyncio.get_running_loop().time(), 0.0) / 2
        try:
            async with asyncio.timeout(seconds):
                return await outlived_by(asking)
        except TimeoutError as error:
            raise self._untold(endpoint, seconds or 0.0, Reason.TIMEOUT) from error

    def _untold(self, endpoint: Endpoint, seconds: float, reason: Reason) -> TransportError:
        target = self._unflavored[endpoint]
        text = (
            f"backend {target.backend!r} at {target.address} did not tell within {seconds:.3g} s what server it is;"
            " `flavor` on the backend saves the question"
        )
        return TransportError(reason.status, reason, text, sent=False)

    async def _find(self, endpoint: Endpoint, flavors: Flavors) -> Target:
        target = self._unflavored[endpoint]
        info = await self._ask(endpoint, target)
        extensions = frozenset(info.extensions) if info else frozenset()
        found = replace(target, flavor=flavors.detect(info), extensions=extensions)
        self.known[endpoint] = found
        return found

    async def _ask(self, endpoint: Endpoint, target: Target) -> ServerInfo | None:
        """What the server tells of itself; None if it has no answer to that."""
        try:
            async with asyncio.timeout(self._seconds):
                info = await ask(_QUESTION, self._protocol, endpoint, target)
        except TimeoutError as error:
            raise self._untold(endpoint, self._seconds, Reason.UNREACHABLE) from error
        except TransportError as error:
            raise TransportError(error.status, error.reason, error.message, sent=False) from error
        except GatewayError as error:
            if error.status in _FOR_NOW:
                raise
            return None
        assert isinstance(info, ServerInfo)
        return info
