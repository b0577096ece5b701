"""Routes: each client protocol with the Destination that its requests have."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

from gateway.bridge.bridge import Bridge
from gateway.core.frozen import replace
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.protocol import Protocol
from gateway.core.transport import Destination, Handler, StreamHandler
from gateway.core.types import Request, Response
from gateway.routing.conditions import Conditions
from gateway.routing.router import Route


def route(
    when: Conditions,
    bridges: Mapping[str, Bridge],
    policed: Callable[[Handler, StreamHandler], Destination],
    *,
    joins_versions: bool = False,
) -> Route:
    """A Route to `bridges`, one for each client protocol, and to the companions of their models."""
    whole = {name: policed(bridge, bridge.stream) for name, bridge in bridges.items()}
    companions = {
        (name, operation): policed(companion, one_response(companion))
        for name, bridge in bridges.items()
        for operation in DERIVATIVES
        for companion in [bridge.companion(operation)]
    }
    return Route(when, whole, companions, joins_versions)


def any_model(bridge: Bridge, client: Protocol) -> Route:
    """A Route that takes every model's requests, and companions as their operations."""
    return route(Conditions(), {client.name: bridge}, unpoliced)


def unpoliced(handler: Handler, stream: StreamHandler) -> Destination:
    return Destination(handler, stream=stream)


def one_response(handler: Handler) -> StreamHandler:
    """A StreamHandler that answers each request with the one response of `handler`."""

    async def stream(request: Request) -> AsyncGenerator[Response, None]:
        answer = await handler(replace(request, operation=Operation.INFER))
        assert isinstance(answer, Response)
        yield answer

    return stream


def joined_versions(protocols: Iterable[Protocol]) -> frozenset[str]:
    """The protocols whose clients write a model and its version as one name."""
    return frozenset(protocol.name for protocol in protocols if protocol.traits.joined_versions)
