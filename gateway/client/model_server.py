"""A model server from the client's point of view: a connector, the codecs of the server's protocol, and bridges.
AsyncClient calls it.

For the bridges, the client takes the role of a listener's protocol. This protocol, PYTHON, has no messages, and can
represent every tensor name and datatype. Therefore, if the server reports a reliable signature, the client adapts all
requests to the signature, which it fetches once a minute.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from http import HTTPStatus
from types import TracebackType

from gateway.assembly.connecting import connect
from gateway.bridge.backend import ROWS_AT_ONCE, BackendSide
from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import Cast, RouteSettings
from gateway.bridge.signature_cache import SignatureCache
from gateway.client.batches import Batched, can_join_rows
from gateway.client.credentials import FixedHeaders
from gateway.client.errors import SERVER, Refused
from gateway.client.settings import MOST_AT_ONCE, ClientSettings
from gateway.core.errors import GatewayError, Reason, TransportError
from gateway.core.exchange import ask
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.models import are_rows_apart, max_batch_size
from gateway.core.operations import Operation, split_companion
from gateway.core.protocol import (
    ConcurrencyQuery,
    Models,
    Protocol,
    Rows,
    StreamBinding,
    Target,
    Traits,
    Wire,
    resolve_traits,
    without_codec,
)
from gateway.core.requests import Answer, Request, Response
from gateway.core.transport import Connector, Handler
from gateway.routing.backend import local_backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.queue import QueueSettings
from gateway.routing.readiness import is_ready

PYTHON = without_codec(
    "python",
    traits=Traits(
        # Python numbers have no datatype, and callers can pass inputs by position.
        wire=Wire(untyped=True, derivatives=True, streams=True),
        # Show the user the server's metadata even if it is unreliable.
        models=Models(versions=bool, trusted_metadata=False),
    ),
)
"""The protocol of the Python client, for the bridge."""


def connected(settings: ClientSettings) -> Connector:
    """Return a connector to the server that sends the client's headers with every message. The connector connects on
    the first message."""
    protocol, place, headers = settings.protocol, settings.place, settings.headers
    if headers and isinstance(protocol.binding, StreamBinding):
        return FixedHeaders(connect(place.address, protocol, settings.limits, tls=settings.tls), protocol, headers)
    return connect(place.address, protocol, settings.limits, tls=settings.tls, headers=headers)


async def opened(settings: ClientSettings) -> "ModelServer":
    """Return a ModelServer with these settings.

    For MIP, first send a ping to check whether the server is a gateway, because a gateway accepts more concurrent calls
    than other MIP servers. A server that closes the connection, or does not respond within QUESTION_SECONDS, counts as
    an ordinary MIP server.

    Raises:
        GatewayError: the server is unreachable, or requests a later attempt.
    """
    protocol = settings.protocol
    servers = protocol.traits.servers
    if servers.takes_many is None or not await _takes_many(settings, servers.takes_many):
        return ModelServer(settings)
    # The server is a gateway: it keeps connections open, accepts several of them, and cancels a call when the client
    # disconnects.
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
"""Maximum wait for the response, in seconds. A gateway responds immediately; a handwritten MIP server might ignore
pings."""

_LATER = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
"""Statuses of a gateway that is busy or starting. A response with one of these statuses does not identify the server as
a gateway."""


class ModelServer:
    """A client's connection to one model server. Create, use and close it in one event loop.

    Raises:
        ValueError: the protocol does not support the server type or the batch setting, or its messages cannot carry the
        headers.
    """

    def __init__(self, settings: ClientSettings) -> None:
        protocol, address, limits = settings.protocol, settings.place.address, settings.limits
        self.protocol = protocol
        self.address = address
        kind = settings.kind
        batch, traits = resolve_traits(protocol, kind.batch, [address], trust_metadata=kind.trust_metadata)
        connector = connected(settings)
        self._endpoint = Endpoint(address, connector)
        self._target = Target(SERVER, address=address, flavor=kind.flavor, batch=batch, limits=limits)
        most, wanted = traits.servers.max_in_flight, settings.calls.max_in_flight
        if wanted is not None:
            most = wanted
        # Batched rows wait here for a slot, up to the number that the client's limits allow.
        queue = QueueSettings(length=sys.maxsize)
        self._backend = local_backend(self._target, protocol, [self._endpoint], most, queue=queue)
        self.turns = Turns(MOST_AT_ONCE if not most and wanted is None else most, settings.calls.max_waiting, address)
        """The queue of calls whose time limit has not started yet. Users of this class enter the queue; the class
        itself does not."""
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
        """Return the server's response, adapted for clients of the protocol `client`. Operations on the entire server
        (`models`, ...) stay unchanged; operations on a model go through the bridge.

        Raises:
            DecodeError: the tensors do not match the model.
            GatewayError: a server or connection error.
        """
        return await self._handler(request, cast, client)(request)

    async def batched(self, model: str, version: str, *, are_independent: bool) -> Batched | None:
        """Return the signature and the maximum batch size of a model that takes batches; None for other models.

        A first dimension of -1 alone does not prove that the rows of a batch are independent. The server must declare a
        `max_batch_size`, or the caller must declare that the rows `are_independent`.

        Raises:
            GatewayError: the server's error in response to the metadata request.
        """
        if self._side.traits.wire.rows is Rows.ONE:
            return None
        signature = await self._side.signatures.get((model, version, ""))
        if not can_join_rows(signature):
            return None
        config: Answer = {}
        if Operation.CONFIG in self._side.traits.servers.extensions:
            with suppress(GatewayError):
                config = await self._side.handler(Request(Operation.CONFIG, model, version))  # unchanged by the bridge
        most = max_batch_size(config) if isinstance(config, Mapping) else None
        if are_rows_apart(signature, most):
            return Batched(signature, most)
        return Batched(signature, most or None, is_declared=False) if are_independent else None

    async def exchange(self, message: Message) -> Message:
        """Send a message of the server's own protocol unchanged, and return the response.

        Raises:
            TransportError: the server is unreachable, or the connection breaks.
        """
        return await self._endpoint.connector.exchange(message)

    async def stream(self, request: Request, cast: Cast = "refuse") -> AsyncGenerator[Response, None]:
        """Yield the server's responses. If the server does not stream, yield its single response. Raises the same
        errors as `ask`, possibly after some responses."""
        async with aclosing(self._bridge(cast, PYTHON).stream(request)) as responses:
            async for each in responses:
                yield each

    async def is_ready(self) -> bool:
        """Return True if the server reports that it is ready; False if it does not, or if it is unreachable."""
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


class Turns:
    """The client's limit on calls in flight: a context manager, which calls enter in the order of their arrival.

    At most `most` calls run concurrently (0: no limit), and at most `most_waiting` calls wait (None: no limit).
    `address` is the server's address, for the error message."""

    def __init__(self, most: int, most_waiting: int | None, address: str) -> None:
        self.most = most
        self._address = address
        self._free = asyncio.Semaphore(most) if most else None
        self._most_waiting = most_waiting
        self._waiting = 0

    async def __aenter__(self) -> None:
        """Wait for the call's turn.

        Raises:
            Refused: the maximum number of waiting calls is reached.
        """
        if self._free is None:
            return
        if not self._free.locked():
            await self._free.acquire()  # returns immediately, because a slot is free
            return
        if self._most_waiting is not None and self._waiting >= self._most_waiting:
            text = f"{self._waiting} calls of this client wait for their turn, the most that `max_waiting` allows"
            text = f"{self._address}: {text}, while {self.most} are in flight (`max_in_flight`)"
            raise Refused(text, Reason.OVERLOADED.status, Reason.OVERLOADED, self._address)
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._free is not None:
            self._free.release()
