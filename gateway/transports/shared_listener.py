"""A listener for several transports at one address. The first bytes of a connection identify the client's transport:

    first bytes                        transport
    PRI * HTTP/2.0 CR LF CR LF SM ...  gRPC: the preface of HTTP/2 (RFC 9113, section 3.4)
    the magic of a Framing             byte streams: `PRPC` of baidu_std, a zero byte of MIP
    a character of an HTTP method      HTTP/1.1 (RFC 9112, section 3.1), also after an empty line
    anything else                      none: the connection is refused

Over TLS, the client and the gateway can agree on HTTP/1.1 or HTTP/2 in the handshake (ALPN). In this case, the gateway
does not wait for bytes. SharedListener creates a FirstBytes for each client. When the transport is known, the
transport's listener creates a connection object that replaces the FirstBytes.

The transports' listeners are the parts of the SharedListener, and bind no address. They share one set of connections,
so limits, counters and the end of connections work as in a single listener.

A connection takes about 15 us more than at an address with one transport, but its requests take the same time.
"""

import asyncio
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.frozen import frozen, replace
from gateway.core.protocol import ListenerSettings, Protocol, StreamBinding
from gateway.core.transport import Exchanges, Listener
from gateway.transports.base_listener import BaseListener
from gateway.transports.lifecycle import ConnectionContext, Lifecycle, Phase
from gateway.transports.listener_connections import AcceptedConnection, ListenerConnections
from gateway.transports.timeouts import DEFAULT_TIMEOUTS, Timeouts

SCRATCH_BYTES = 64 * 2**10
"""The number of bytes to receive in one step. The transports' own buffers are at least as large."""

# The characters of methods (`tchar` in RFC 9110, section 5.6.2), and the empty line that can precede the method.
_HTTP1 = frozenset(b"!#$%&'*+-.^_`|~\r\n") | frozenset(range(0x30, 0x3A)) | frozenset(range(0x41, 0x5B))
_HTTP1 |= frozenset(range(0x61, 0x7B))
_LONGEST = 24
"""The length, in bytes, of the longest magic, which is the HTTP/2 preface."""


@frozen
class Opening:
    """The first bytes of a transport's connections.

    `magic` is empty for HTTP/1.1, because a request can begin with any method. `alpn` is the name that client and
    gateway announce over TLS, or empty if they announce none."""

    magic: bytes = b""
    alpn: str = ""


def recognised(data: bytes, openings: Sequence[Opening]) -> int | None:
    """Return the index of the opening with which `data` begins.

    `data` contains all bytes that the client has sent. The result is None if more bytes are needed.

    Raises:
        DecodeError: `data` begins with none of the openings.
    """
    for at, opening in enumerate(openings):
        if opening.magic and data.startswith(opening.magic):
            return at
    if not data or any(opening.magic.startswith(data) for opening in openings):
        return None
    if data[0] in _HTTP1:
        for at, opening in enumerate(openings):
            if not opening.magic:
                return at
    raise DecodeError(f"its first bytes are {data[:_LONGEST]!r}, unknown to the protocols of this port")


class Served(AcceptedConnection, typing.Protocol):
    """The connection of a transport that replaces a FirstBytes. This is an asyncio.Protocol or an
    asyncio.BufferedProtocol."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle the new connection, as in every asyncio protocol."""


@frozen
class SharedContext(ConnectionContext):
    """The data that all connections of one shared address use until they are recognized."""

    openings: Sequence[Opening]
    serve: Sequence[Callable[[], Served]]
    """For each opening, the function that creates the connection object that takes over."""
    names: str
    """The protocols at this address, for error messages, such as `v2-rest, v2-grpc`."""
    scratch: memoryview


class FirstBytes(Lifecycle, asyncio.BufferedProtocol):
    """A connection whose transport has not been recognized yet.

    The connection counts against the listener's limits. The client has the same time to send the first byte as on any
    new connection, and then `Timeouts.head` seconds to identify its transport. If the connection exceeds the connection
    limit, both times are `Timeouts.grace` seconds, and the identified transport sends the error."""

    HEAD_NAME = "the first bytes"

    _context: SharedContext

    def __init__(self, context: SharedContext) -> None:
        super().__init__(context)
        self._early = b""
        """The bytes that have arrived. Their number is at most the length of the longest magic."""
        self._head_seconds = context.timeouts.head
        """The maximum time, in seconds, from the first byte until the transport is recognized."""

    @property
    def unanswered(self) -> int:
        """The number of requests that might have begun to arrive, which is 0 or 1."""
        return int(self._phase is Phase.HEAD)

    def renew(self, context: SharedContext) -> None:
        """Use `context` from now on, after a reload of the configuration."""
        self._context = context

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new client. If the listener uses TLS, the handshake is complete."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        agreed = None if tls is None else tls.selected_alpn_protocol()
        if agreed is None or self._transport.is_closing():
            return
        for at, opening in enumerate(self._context.openings):
            if opening.alpn == agreed:
                self._hand_over(at, b"")
                return

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes, after the bytes that have arrived."""
        scratch, early = self._context.scratch, self._early
        scratch[: len(early)] = early
        return scratch[len(early) :]

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes from the client."""
        if self._phase not in (Phase.IDLE, Phase.HEAD):
            self._drop(nbytes)
            return
        received = self._context.scratch[: len(self._early) + nbytes]
        try:
            at = recognised(bytes(received[:_LONGEST]), self._context.openings)
        except DecodeError as error:
            self._early = bytes(received[:_LONGEST])
            self._refuse_unknown(str(error))
            return
        if at is not None:
            self._hand_over(at, received)
            return
        self._early = bytes(received)
        if self._phase is Phase.IDLE:
            self._phase = Phase.HEAD
            self._alarm.set(self._head_seconds)

    def eof_received(self) -> None:
        """Close the connection, because the client has closed it or will send no more bytes."""
        self.close()

    def _hand_over(self, at: int, received: memoryview | bytes) -> None:
        """Replace this object with the connection of a transport, and pass on the bytes that have arrived."""
        transport, served = self._transport, self._context.serve[at]()
        self._hand_over_to(served)
        protocol = typing.cast(asyncio.BufferedProtocol, served)
        # uvloop reads differently for a BufferedProtocol, and checks the type when reading begins.
        transport.pause_reading()
        transport.set_protocol(protocol)
        transport.resume_reading()
        protocol.connection_made(transport)
        if not received or transport.is_closing():
            return
        memoryview(protocol.get_buffer(len(received)))[: len(received)] = received
        protocol.buffer_updated(len(received))

    def _refuse_unknown(self, why: str) -> None:
        connections = self._context.connections
        connections.unrecognised += 1
        mistake = self._tls_mistake(self._early)
        if not mistake:
            connections.log_unrecognised(self._peer, why)
        self.reject(refusal(Reason.INVALID_INPUT, f"this port speaks {self._context.names}"))

    def reject_connection(self, error: GatewayError) -> None:
        """Shorten the time limits of the connection. The protocol for the error is still unknown, and the gateway must
        not wait long for a silent client."""
        self._idle_seconds = self._head_seconds = self._context.timeouts.grace
        self._alarm.set(self._idle_seconds)

    def reject(self, error: GatewayError) -> None:
        """Send the error to a client that sends text, because the client might use HTTP. Close the connection of any
        other client without an error."""
        if self._early[:1].isalpha():
            self._transport.write(_http_reply(error))
        self.linger()

    def proceed(self) -> None:
        """Do nothing, because no response is waiting to be read."""


def _http_reply(error: GatewayError) -> bytes:
    status = HTTPStatus.REQUEST_TIMEOUT if error.reason is Reason.REQUEST_TIMEOUT else HTTPStatus.BAD_REQUEST
    text = f"{error.message}\n".encode()
    return b"HTTP/1.1 %d %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (
        status,
        status.phrase.encode(),
        len(text),
        text,
    )


# --- The listener ---

Rows: typing.TypeAlias = Sequence[tuple[Protocol, str]]


class Part(Listener, typing.Protocol):
    """The listener of one transport as a part of a SharedListener. The SharedListener never starts its parts."""

    @property
    def opening(self) -> Opening:
        """The first bytes of the part's connections."""

    def serve(self) -> Served:
        """Return the connection object for a client, after the TLS handshake."""


def parts(rows: Rows) -> dict[str, Rows]:
    """Return the rows for each part, by the part's name.

    The name is the transport. For byte streams, the name is the protocol, because a byte stream does not identify its
    protocol."""
    found: dict[str, list[tuple[Protocol, str]]] = {}
    for protocol, prefix in rows:
        name = protocol.name if isinstance(protocol.binding, StreamBinding) else protocol.transport
        found.setdefault(name, []).append((protocol, prefix))
    return {name: tuple(each) for name, each in found.items()}


def settings_of_parts(settings: ListenerSettings, names: Collection[str]) -> ListenerSettings:
    """Return the settings for parts with these names. The parts do not use TLS, because the handshake is complete when
    a part takes over."""
    return replace(settings, tls=None, shares_http1="http" in names)


class SharedListener(BaseListener):
    """Accepts the clients of `listeners`, which contains this listener's parts by name.

    The parts have the settings of `settings_of_parts`, because this listener performs the TLS handshake before the
    first bytes. All parts share `connections`."""

    def __init__(
        self,
        settings: ListenerSettings,
        rows: Rows,
        listeners: Mapping[str, Part],
        connections: ListenerConnections,
        *,
        timeouts: Timeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        super().__init__(settings, connections, timeouts)
        self._listeners = listeners
        self._context = SharedContext(
            settings.limits,
            timeouts,
            connections,
            [each.opening for each in listeners.values()],
            [each.serve for each in listeners.values()],
            _names(rows),
            memoryview(bytearray(SCRATCH_BYTES)),
        )

    def why_not_renewed(self, protocols: Rows) -> str:
        """See `Listener.why_not_renewed`.

        The set of parts cannot change, because open connections belong to the parts. The protocols of the parts can
        change."""
        wanted, own = parts(protocols), self._listeners
        if set(wanted) != set(own):
            return f"the parts of the address cannot change from {', '.join(own)} to {', '.join(wanted)}"
        return next((why for name, each in own.items() if (why := each.why_not_renewed(wanted[name]))), "")

    def renew(self, settings: ListenerSettings, protocols: Rows, exchanges: Exchanges) -> list[asyncio.Task[None]]:
        """See `Listener.renew`."""
        wanted, inner = parts(protocols), settings_of_parts(settings, self._listeners)
        tasks = [task for name, each in self._listeners.items() for task in each.renew(inner, wanted[name], exchanges)]
        self._context = context = replace(self._context, limits=settings.limits, names=_names(protocols))
        self._accept_with(settings)
        for connection in self._connections.renew(settings):
            if isinstance(connection, FirstBytes):
                connection.renew(context)
        return tasks

    def announce_end(self) -> None:
        """Announce the end to the clients of each part, in the part's protocol."""
        for each in self._listeners.values():
            each.announce_end()

    async def stop_accepting(self) -> None:
        """See `Listener.stop_accepting`."""
        for each in self._listeners.values():
            await each.stop_accepting()
        await super().stop_accepting()

    def serve(self) -> FirstBytes:
        """Return the connection object that serves a new client until the client's transport is known."""
        return FirstBytes(self._context)


def _names(rows: Rows) -> str:
    return ", ".join(dict.fromkeys(protocol.name for protocol, _ in rows))
