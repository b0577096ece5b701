"""The port of KEDA's external scaler, with gRPC's health and reflection services."""

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

from gateway.admin.scaler import schema
from gateway.admin.scaler.service import METHODS, STREAM_IS_ACTIVE, ExternalScaler
from gateway.core.address import Address
from gateway.core.errors import GatewayError, error_fields
from gateway.core.exchange import as_gateway_error
from gateway.core.messages import Headers, Message
from gateway.core.protocol import GrpcBinding, Limits, ListenerSettings, Protocol, without_codec
from gateway.core.transport import Exchanges
from gateway.routing.activity import Activity
from gateway.routing.backend import Backend
from gateway.transports.grpc.server.listener import GrpcListener
from gateway.transports.listener_connections import PORT_CONNECTIONS, ConnectionLimit, ListenerConnections
from gateway.transports.timeouts import PORT_TIMEOUTS

_LIMITS = Limits(message=64 * 2**10, headers=16 * 2**10)
"""Limits for messages, in bytes. The metadata of a ScaledObject is far smaller."""


class ScalerServer:
    """Serves ExternalScaler. `tls` is the same as in ListenerSettings."""

    address: str
    """`host:port`; set by `start`."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        activities: Mapping[str, Activity],
        tls: Callable[[], ssl.SSLContext | None] | None = None,
    ) -> None:
        self._service = service = ExternalScaler(backends, activities)

        def answer(message: Message, protocol: Protocol) -> Message:
            try:
                return service.answer(message)
            except Exception as error:
                return _refused(as_gateway_error(error))

        def stream(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
            return service.stream(messages)

        self._listener = GrpcListener(
            ListenerSettings("scaler", _LIMITS, tls=tls),
            [(_PROTOCOL, "")],
            Exchanges(answer, stream, lambda error, protocol, message: _refused(error)),
            connections=ListenerConnections("scaler", shared_limit=ConnectionLimit(PORT_CONNECTIONS, makes_room=True)),
            timeouts=PORT_TIMEOUTS,
        )

    def renew(self, backends: Mapping[str, Backend], activities: Mapping[str, Activity]) -> None:
        """Switch to another configuration."""
        self._service.renew(backends, activities)

    async def start(self, address: Address) -> None:
        """Bind and accept connections. Raises OSError if the address cannot be bound."""
        await self._listener.start(address)
        self.address = self._listener.address

    async def stop(self) -> None:
        """Close the port. Streams end with UNAVAILABLE, so KEDA reopens them at a running gateway."""
        await self._listener.drain(0)


def _refused(error: GatewayError) -> Message:
    text = error.message.encode("utf-8", "replace")
    return Message(headers=Headers(error_fields(error)), parts=(text,), status=error.status)


_PROTOCOL = without_codec("scaler", GrpcBinding(frozenset({STREAM_IS_ACTIVE}), schema.DESCRIPTORS), METHODS)
