"""One server without a configuration: how `gateway call` reaches the server that it asks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.assembly.connecting import connect
from gateway.assembly.routes import any_model
from gateway.bridge.backend import BackendSide
from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signature_cache import SignatureCache
from gateway.core.protocol import DEFAULT_LIMITS, Protocol, Target, resolve_batch, traits_at_endpoints
from gateway.core.transport import Handler
from gateway.core.types import Answer, Request
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.router import Router


@asynccontextmanager
async def one_backend(protocol: Protocol, address: str, client: Protocol) -> AsyncIterator[Handler]:
    """A Handler that converts requests of the protocol `client` and sends them to the server at `address`. The
    companion models (`M.gradient`) stand for the derivatives of a server that has them.

    Raises:
        ValueError: `address` is not a valid address for the protocol's transport.
    """
    connector = connect(address, protocol, DEFAULT_LIMITS)
    batch, traits = resolve_batch(protocol, "")
    traits = traits_at_endpoints(traits, [address])
    target = Target("server", batch=batch)
    backend = Backend(target, protocol, [Endpoint(address, connector)], traits.servers.max_in_flight)
    signatures = SignatureCache(backend, traits, asyncio.get_running_loop().time)
    upstream = BackendSide("server", protocol.name, traits, backend, signatures, backend.capacity + 1)
    try:
        router = Router([any_model(Bridge(RouteSettings(), client, upstream), client)], {})

        async def handle(request: Request) -> Answer:
            handler = router.select(request).handler
            assert handler is not None
            return await handler(request)

        yield handle
    finally:
        await connector.close()
