"""A model server as the client reaches it: a connector, the codecs of its protocol, and bridges to them.

The client stands where a listener's protocol stands in the gateway. It is a protocol without a wire (PYTHON), which can
name and type every tensor; so requests are always fitted to the model's signature where the server tells a signature
that can be relied on. It is asked for once a minute.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from http import HTTPStatus

from gateway.assembly.connecting import connect
from gateway.bridge.backend import ROWS_AT_ONCE, BackendSide
from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import Cast, RouteSettings
from gateway.bridge.signature_cache import SignatureCache
from gateway.client.credentials import FixedHeaders
from gateway.client.errors import SERVER
from gateway.client.settings import MOST_AT_ONCE, ClientSettings
from gateway.client.turns import Turns
from gateway.core.errors import TransportError
from gateway.core.exchange import ask
from gateway.core.frozen import replace
from gateway.core.operations import Operation, split_companion
from gateway.core.protocol import (
    ConcurrencyQuery,
    Models,
    Protocol,
    StreamForm,
    Target,
    Traits,
    Wire,
    resolve_batch,
    traits_at_endpoints,
    without_codec,
)
from gateway.core.transport import Connector, Handler
from gateway.core.types import Answer, Message, Request, Response
from gateway.routing.backend import local_backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.queue import QueueSettings
from gateway.routing.readiness import is_ready

PYTHON = without_codec(
    "python",
    traits=Traits(
        # Numbers of Python are untyped, and inputs may be given by position.
        wire=Wire(untyped=True, derivatives=True, streams=True),
        # Where the server's metadata cannot be relied on, the user sees it all the same.
        models=Models(versions=bool, trusted_metadata=False),
    ),
)
"""The client's side of the bridge."""


def connected(settings: ClientSettings) -> Connector:
    """A connector to the server that sends the client's headers with every message. It connects with the first one."""
    protocol, place, headers = settings.protocol, settings.place, settings.headers
    if headers and isinstance(protocol.carrier, StreamForm):
        return FixedHeaders(connect(place.address, protocol, settings.limits, tls=settings.tls), protocol, headers)
    return connect(place.address, protocol, settings.limits, tls=settings.tls, headers=headers)


async def opened(settings: ClientSettings) -> "ModelServer":
    """The server, asked whether it takes more calls at once than others of its protocol do. One that closes the
    connection, or does not answer in QUESTION_SECONDS, does not know the question.

    Raises:
        GatewayError: it cannot be reached, or says to try again later.
    """
    protocol = settings.protocol
    servers = protocol.traits.servers
    if servers.takes_many is None or not await _takes_many(settings, servers.takes_many):
        return ModelServer(settings)
    # A gateway: it keeps connections, takes several, and gives a call up whose client has left.
    servers = replace(servers, max_in_flight=0, connection_per_call=False, one_connection=False, runs_to_the_end=False)
    batches = {name: replace(each, servers=servers) for name, each in protocol.batches.items()}
    protocol = replace(protocol, traits=replace(protocol.traits, servers=servers), batches=batches)
    return ModelServer(replace(settings, protocol=protocol))


async def _takes_many(settings: ClientSettings, asked: ConcurrencyQuery) -> bool:
    protocol, target = settings.protocol, Target(SERVER, settings.place.address, limits=settings.limits)

    def encode_request(request: Request, target: Target) -> Message:
        return asked.question()

    def decode_response(reply: Message, request: Request, target: Target) -> Answer:
        if reply.status in _LATER:
            return protocol.decode_response(reply, request, target)
        return asked.says_so(reply)

    connector = connected(settings)
    try:
        asking = replace(protocol, encode_request=encode_request, decode_response=decode_response)
        async with asyncio.timeout(QUESTION_SECONDS):
            return bool(await ask(Request(Operation.MODELS), asking, connector, target))
    except TimeoutError:
        return False
    except TransportError as error:
        if not error.sent:
            raise
        return False
    finally:
        await connector.close()


QUESTION_SECONDS = 2.0
"""The longest wait for the answer. A gateway answers at once; servers of MIP written by hand may ignore pings."""

_LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
"""With these a gateway that is busy, or that starts, does not say what it is."""


class ModelServer:
    """One server. Must be made, used and closed in one event loop.

    Raises:
        ValueError: the protocol has no such flavor or batch, or its messages have no place for the headers.
    """

    def __init__(self, settings: ClientSettings) -> None:
        protocol, address, limits = settings.protocol, settings.place.address, settings.limits
        self.protocol = protocol
        self.address = address
        batch, traits = resolve_batch(protocol, settings.kind.batch)
        traits = traits_at_endpoints(traits, [address])
        if settings.kind.trust_metadata:
            traits = replace(traits, models=replace(traits.models, trusted_metadata=True))
        connector = connected(settings)
        self._endpoint = Endpoint(address, connector)
        self._target = Target(SERVER, address=address, flavor=settings.kind.flavor, batch=batch, limits=limits)
        most, wanted = traits.servers.max_in_flight, settings.calls.max_in_flight
        if wanted is not None:
            most = wanted
        # Rows of batches wait for a slot here, as many as the client's own limits let through.
        queue = QueueSettings(length=sys.maxsize)
        self._backend = local_backend(self._target, protocol, [self._endpoint], most, queue=queue)
        self.turns = Turns(MOST_AT_ONCE if not most and wanted is None else most, settings.calls.max_waiting, address)
        """Where callers wait before a time limit begins; nothing here enters it."""
        signatures = SignatureCache(self._backend, traits, asyncio.get_running_loop().time)
        self._backend.on_recovery(signatures.drop_all)
        self._side = BackendSide(
            SERVER,
            protocol.name,
            traits,
            self._backend,
            signatures,
            most + 1 if most else ROWS_AT_ONCE,
            self._backend.stream if traits.wire.streams else None,
            limits,
        )
        self._bridges: dict[tuple[str, Cast], Bridge] = {}

    async def ask(self, request: Request, cast: Cast = "refuse", client: Protocol = PYTHON) -> Answer:
        """The server's answer, as clients of the protocol `client` get it. Operations on the server as a whole
        (`models`, ...) go to it unchanged, those on a model through the bridge.

        Raises:
            DecodeError: the tensors do not fit.
            GatewayError: that of the server, or of the way to it.
        """
        return await self._handler(request, cast, client)(request)

    async def exchange(self, message: Message) -> Message:
        """The server's reply to a message of its own protocol, which is sent as it is.

        Raises:
            TransportError: it cannot be reached, or breaks off.
        """
        return await self._endpoint.connector.exchange(message)

    async def stream(self, request: Request, cast: Cast = "refuse") -> AsyncGenerator[Response, None]:
        """The server's responses; one if it does not stream. Raises as `ask`, also after some responses."""
        async with aclosing(self._bridge(cast, PYTHON).stream(request)) as responses:
            async for each in responses:
                yield each

    async def is_ready(self) -> bool:
        """Whether the server says that it is ready; False if it cannot be reached."""
        return await is_ready(self.protocol, self._endpoint.connector, self._target)

    async def close(self) -> None:
        """Close every connection. Calls in flight fail."""
        await self._endpoint.close()

    def _handler(self, request: Request, cast: Cast, client: Protocol) -> Handler:
        if request.operation in _ON_THE_SERVER:
            return self._backend
        bridge = self._bridge(cast, client)
        companion = split_companion(request.model)
        if companion is not None and self._side.traits.wire.derivatives:
            return bridge.companion(companion[1])
        return bridge

    def _bridge(self, cast: Cast, client: Protocol) -> Bridge:
        key = client.name, cast
        bridge = self._bridges.get(key)
        if bridge is None:
            bridge = self._bridges[key] = Bridge(RouteSettings(cast=cast), client, self._side)
        return bridge


_ON_THE_SERVER = frozenset({Operation.MODELS, Operation.SERVER_METADATA, Operation.LIVE, Operation.READY})
