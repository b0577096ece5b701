"""The connector for one gRPC endpoint, which is one address or all addresses to which a host name resolves."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from functools import partial

from gateway.core.address import Address, is_ip
from gateway.core.frozen import replace
from gateway.core.http2.hpack import write_repeated
from gateway.core.messages import Buffer, Message
from gateway.core.protocol import Limits
from gateway.core.transport import FixedFields
from gateway.transports.errors import deadline_passed, not_resolved
from gateway.transports.grpc.address import ALPN, TLS, parse_address
from gateway.transports.grpc.client.call import ClientCall
from gateway.transports.grpc.client.connection import GrpcClientConnection
from gateway.transports.grpc.client.heads import RequestHeadWriter
from gateway.transports.grpc.client.pool import GrpcPool, Resolve
from gateway.transports.grpc.inflating import Compressed, inflate
from gateway.transports.grpc.messages import Received
from gateway.transports.timeouts import GRPC_TIMEOUTS, GrpcEndpointTimeouts
from gateway.transports.tls import ClientTls, Secured, default_tls

_GRACE = 0.01
"""Time added to the endpoint's timeout, in seconds.

The gateway itself ends the call at the deadline. Without this extra time, the endpoint could end the call first, and
the client would receive the endpoint's error message instead of the gateway's."""


class GrpcConnector:
    """The connector of one endpoint.

    - `address`: The address, in a format that `parse_address` reads.
    - `resolve`: A function that replaces the resolution of the host name.
    - `ip`: The only IP address to which to connect. The gateway still sends the host name to the endpoint.
    - `headers`: Headers to add to the metadata of every call.

    The connector keeps connections open, and replaces them when they break. It never sends a call twice.

    The connector uses TLS if `tls` is set or the scheme is `grpcs://`. In this case, the endpoint must support HTTP/2
    (ALPN). If `tls` is missing, the system's CAs verify the endpoint.

    A Message's `path` is the method, and its `headers` are the metadata. A reply's `status` is the gRPC status code. If
    the status is not 0, the body is the status message.

    Raises:
        ValueError: the address is invalid.
    """

    def __init__(
        self,
        address: str,
        *,
        connection_per_call: bool,
        limits: Limits,
        ip: str = "",
        timeouts: GrpcEndpointTimeouts = GRPC_TIMEOUTS,
        resolve: Resolve | None = None,
        tls: ClientTls | None = None,
        headers: FixedFields = (),
    ) -> None:
        del connection_per_call  # HTTP/2 connections carry any number of calls
        parsed = parse_address(address)
        self._limits = limits
        parsed, is_tls = replace(parsed, scheme=""), parsed.scheme == TLS or (tls is not None and not parsed.path)
        authority = "localhost" if parsed.path else str(parsed)
        self._heads = RequestHeadWriter(authority, secure=is_tls, headers=headers)
        place = replace(parsed, host=ip) if ip else parsed
        secured = Secured(tls or default_tls(ALPN), parsed.host, ALPN) if is_tls else None
        self._pool = GrpcPool(resolve or partial(resolved, place), limits, timeouts, secured)

    async def exchange(self, message: Message) -> Message:
        """Send `message`, and wait for its reply. Cancellation resets the stream, so the endpoint stops processing the
        call.

        Raises:
            TransportError: UNAVAILABLE if the endpoint is unreachable or the connection broke. INTERNAL if the reply is
                invalid. DEADLINE_EXCEEDED if the deadline passed before the gateway sent the request. If the deadline
                passes later, the caller cancels the exchange. The request contains the deadline.
        """
        connection = self._pool.take() or await self._pool.wait(message.deadline)
        call = ClientCall(self._limits, streamed=False)
        self._begin(call, connection, message)
        try:
            whole = await call.news(connection.loop)
        finally:
            if call.stream.handler is not None:
                connection.give_up(call)
        if whole is not None:
            return whole
        body = call.pull()
        if isinstance(body, Compressed):
            body = await inflate(body, call.encoding, self._limits)
        return call.result(body)

    async def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        """Send `message` as the only message of the stream, and yield each reply as the caller pulls it.

        If the endpoint ends the stream with an error status, the last reply contains this status. Codecs then read the
        status in the same way as after `exchange`.

        Raises:
            TransportError: same as `exchange`, even after some replies.
        """
        connection = self._pool.take() or await self._pool.wait(message.deadline)
        call = ClientCall(self._limits, streamed=True)
        self._begin(call, connection, message)
        try:
            while call.replies or not call.is_over:
                reply = call.pull()
                connection.pulled(call)
                if reply is None:
                    await call.news(connection.loop)
                else:
                    yield Message(parts=(await self._inflated(reply, call),))
        finally:
            connection.give_up(call)
        end = call.result(None)
        if end.status:
            yield end

    def on_disconnect(self, watcher: Callable[[], None]) -> None:
        """See `KeepsConnections.on_disconnect`. Retired connections do not count as open."""
        self._pool.on_disconnect = watcher

    async def close(self) -> None:
        """Close every connection. Exchanges in progress fail."""
        await self._pool.close()

    def _begin(self, call: ClientCall, connection: GrpcClientConnection, message: Message) -> None:
        timeout = None
        if message.deadline is not None:
            left = message.deadline - connection.loop.time()
            if left <= 0:
                raise deadline_passed(sent=False)
            timeout = left + _GRACE
        head = self._heads.write(message.path, message.headers, timeout)
        if message.further:
            head += write_repeated(message.further)
        connection.begin(call, head, message.parts, message.deadline)

    async def _inflated(self, reply: Received, call: ClientCall) -> Buffer:
        return await inflate(reply, call.encoding, self._limits) if isinstance(reply, Compressed) else reply


async def resolved(address: Address) -> list[Address]:
    """Return all addresses of a host name, without duplicates. IP addresses and Unix sockets are returned unchanged.

    Raises:
        TransportError: the host name has no address.
    """
    if address.path or is_ip(address.host):
        return [address]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise not_resolved(address.host, error) from error
    return list(dict.fromkeys(Address(str(place[0]), int(place[1])) for *_, place in found))
