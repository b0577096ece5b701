"""The HTTP connector, which exchanges messages with one endpoint. It uses persistent connections if the endpoint allows
them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from gateway.core.deadlines import TimeLimit, wait_until
from gateway.core.errors import DecodeError, GatewayError, Reason, Status, TransportError
from gateway.core.frozen import replace
from gateway.core.messages import Buffer, Headers, Message
from gateway.core.protocol import Limits, StreamFraming
from gateway.core.transport import FixedFields
from gateway.transports.errors import connector_closed, not_connected, seconds_left, unreachable
from gateway.transports.http import compression
from gateway.transports.http.address import ALPN, parse_address, with_scheme
from gateway.transports.http.client.connection import SCRATCH_BYTES, HttpClientConnection
from gateway.transports.http.client.pool import HttpPool
from gateway.transports.http.client.reply import ReplyReader, StreamedReplyReader, unreadable
from gateway.transports.http.client.reply_heads import ReplyHeadCache
from gateway.transports.http.client.request_head import WITH_BODY, HeadWriter
from gateway.transports.inflate import inflate_anywhere
from gateway.transports.protocol_hints import foreign
from gateway.transports.timeouts import HTTP_TIMEOUTS, HttpEndpointTimeouts, connect_seconds
from gateway.transports.tls import ClientTls, Secured, connect, default_tls


class HttpConnector:
    """The connector of one endpoint. Any number of exchanges can run in parallel, each on its own connection.

    The connector never sends a request twice. It uses an idle connection only if the peer has neither closed it nor
    sent any bytes. If the connection closes after the gateway sent the request, the exchange fails with `sent=True`,
    because the endpoint might have started to process the request.

    - `address`: The address, in a format that `parse_address` reads. If `tls` is set, an address without a scheme means
      https. For https without `tls`, the system's CAs verify the endpoint.
    - `ip`: The IP address to which to connect. If this is empty, the connector tries all addresses of the host name. In
      both cases, the Host header and the TLS server name contain the host name.
    - `headers`: Headers to send with every message.

    Raises:
        ValueError: `address` is invalid.
    """

    def __init__(
        self,
        address: str,
        *,
        connection_per_call: bool,
        limits: Limits,
        stream_framing: StreamFraming | None = None,
        ip: str = "",
        tls: ClientTls | None = None,
        headers: FixedFields = (),
        timeouts: HttpEndpointTimeouts = HTTP_TIMEOUTS,
    ) -> None:
        self._address = parse_address(address if tls is None else with_scheme(address, "https"))
        self._host = ip or self._address.host
        self._secured = Secured(tls or default_tls(ALPN), self._address.host) if self._address.tls else None
        closing = self._closing_heads = HeadWriter(self._address, close=True, headers=headers)
        self._heads = closing if connection_per_call else HeadWriter(self._address, close=False, headers=headers)
        self._limits = limits
        self._stream_framing = stream_framing
        self._connect_seconds = timeouts.connect
        self._connect_limit = TimeLimit()
        self._reusable = not connection_per_call
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._pool = HttpPool(timeouts.idle)
        self._reply_heads = ReplyHeadCache()

    async def exchange(self, message: Message) -> Message:
        """Send `message`, and return the decompressed reply. Cancellation closes the connection.

        Raises:
            TransportError: UNAVAILABLE if the endpoint is unreachable or the connection broke. INTERNAL if the reply is
                malformed or too large. DEADLINE_EXCEEDED if the deadline passed before the gateway sent the request.
            ValueError: HTTP cannot represent the message.
        """
        parts, pool, deadline = message.parts, self._pool, message.deadline
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        heads = self._closing_heads if pool.is_cautious and not pool.keeps else self._heads
        head = heads.write(message, size, None if deadline is None else _seconds_left(deadline))
        connection = pool.take() or await self._fresh_connection(deadline)
        reply = ReplyReader(self._limits, message.method == "HEAD", connection.abort, self._reply_heads)
        waiter = connection.send(head, message, size, reply)
        try:
            await waiter
        except asyncio.CancelledError:
            connection.abandon(waiter)
            raise
        finally:
            del waiter  # its error refers to this frame: a cycle until garbage collection
        if reply.coding:
            return await self._inflated_reply(reply)
        assert reply.message is not None
        return reply.message

    async def stream(self, message: Message) -> AsyncGenerator[Message, None]:
        """Send `message`, and yield each message of its reply when the caller pulls it.

        `stream_framing` splits the body of a reply with status 200 into messages. Any other reply is a single message,
        as from `exchange`. Closing the iterator early closes the connection, so the endpoint stops sending. The time
        until the next message is not limited.

        On a `passthrough` route, a client can send a body with a method for which RFC 9110 defines no body (GET,
        DELETE, ...). After a request of this kind, the connector closes the connection. Otherwise, a server that
        ignores the body would read it as the next request.

        Raises:
            TransportError: same as `exchange`, even after some messages; also UNIMPLEMENTED without `stream_framing`.
            ValueError: HTTP cannot represent the message.
        """
        if self._stream_framing is None:
            text = "this protocol does not stream replies"
            raise TransportError(Status.UNIMPLEMENTED, Reason.UNSUPPORTED, text, sent=False)
        size = sum(map(len, message.parts))
        is_last = size > 0 and message.method not in WITH_BODY
        heads = self._heads if self._pool.keeps and not is_last else self._closing_heads
        deadline = message.deadline
        head = heads.write(message, size, None if deadline is None else _seconds_left(deadline))
        connection = self._pool.take() or await self._fresh_connection(deadline)
        reply = StreamedReplyReader(self._limits, self._stream_framing, to_head=message.method == "HEAD")
        end = (connection.send_last if is_last else connection.send)(head, message, size, reply)
        end.add_done_callback(reply.ended)
        try:
            while (each := reply.pop()) is not None or not end.done():
                if each is not None:
                    yield each
                else:
                    connection.resume_reading()
                    await reply.news.wait()
            whole = end.result()
        finally:
            connection.abandon(end)
            del end  # as in `exchange`
        if not reply.is_cut:
            assert whole.message is not None
            yield await self._inflated_reply(whole) if whole.coding else whole.message

    def on_disconnect(self, watcher: Callable[[], None]) -> None:
        """See `KeepsConnections.on_disconnect`."""
        self._pool.on_disconnect = watcher

    async def close(self) -> None:
        """Close every connection. Exchanges in progress fail."""
        await self._pool.close()

    async def _fresh_connection(self, deadline: float | None) -> HttpClientConnection:
        """Return a new connection on which the endpoint has not sent any bytes. The caller must send the request
        immediately."""
        if self._pool.is_closed:
            raise connector_closed()
        loop = asyncio.get_running_loop()
        now = loop.time()
        seconds = connect_seconds(self._connect_seconds, deadline, now)
        connection = HttpClientConnection(loop, self._scratch, self._pool, reusable=self._reusable)
        opening = self._open(loop, connection)
        try:
            if seconds == self._connect_seconds:  # true for most calls; `TimeLimit` costs less
                await self._connect_limit.wait(now + seconds, loop, opening, TimeoutError)
            else:
                await wait_until(now + seconds, opening, TimeoutError)
        except BaseException as error:
            self._pool.lost(connection)
            if isinstance(error, OSError):
                name = self._address.host if self._secured is None else self._secured.server_name
                found = not_connected(error, self._host, seconds, self._connect_seconds, name)
                if isinstance(error, ConnectionRefusedError) and self._address.has_usual_port:
                    found.message += f" at port {self._address.port}"
                raise found from error
            raise
        if not connection.is_fresh():
            raise _spoiled(connection)
        return connection

    def _open(self, loop: asyncio.AbstractEventLoop, connection: HttpClientConnection) -> Awaitable[object]:
        if self._secured is not None:
            return connect(connection, self._host, self._address.port, self._secured)
        return loop.create_connection(lambda: connection, self._host, self._address.port)

    async def _inflated_reply(self, reply: ReplyReader) -> Message:
        assert reply.message is not None
        assert reply.coding is not None
        coding = reply.coding.decode("latin-1").strip().lower()
        if coding == "identity" or not reply.message.body:
            return reply.message
        try:
            body = await self._inflated_body(reply.message.body, coding)
        except (DecodeError, GatewayError) as error:
            raise unreadable(error) from error
        return replace(reply.message, headers=_without_coding(reply.message.headers), parts=(body,))

    async def _inflated_body(self, body: Buffer, coding: str) -> Buffer:
        if coding not in compression.CODINGS:
            raise DecodeError(f"Content-Encoding {coding!r}, expected one of {', '.join(compression.CODINGS)}")
        return await inflate_anywhere(body, compression.CODINGS[coding], self._limits, "the body")


def _spoiled(connection: HttpClientConnection) -> TransportError:
    """Close a new connection that is not quiet, and return the error."""
    connection.drop()
    how = "sent something on" if connection.unrequested else "closed"
    hint = foreign(connection.unrequested, "http")
    return unreachable(f"it {how} the new connection before it got the request{hint}")


def _seconds_left(deadline: float) -> float | None:
    return seconds_left(deadline, asyncio.get_running_loop().time())


def _without_coding(headers: Headers) -> Headers:
    return Headers([field for field in headers.raw if field[0] not in (b"content-encoding", b"content-length")])
