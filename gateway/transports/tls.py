"""TLS on a connection: the handshake, and the transport that the connection's protocol uses after it.

The event loop implements TLS (`loop.start_tls`). However, its TLS transport differs from a plain socket's transport in
ways that matter to the protocols. Therefore, a TlsTransport between the protocol and the loop handles these
differences:

- The loop encrypts all data immediately, even 64 MiB for a client that does not read. TlsTransport passes PIECE bytes
  at a time to the loop, as fast as the peer reads. `get_write_buffer_size` includes all unread data.
- Data that a peer sends directly after its handshake reaches the loop's protocol before `connection_made`. TlsTransport
  keeps this data until the protocol is set.
- The loop's TLS connections cannot be half-closed. `write_eof` sends the written data and then close_notify. Data that
  still arrives is dropped until the peer also closes the connection, or until `abort`.
- The loop waits 30 s for the peer's close_notify, but idle clients respond only when they use the connection again.
  `close` sends the gateway's own close_notify, and then closes the socket, which RFC 8446, section 6.1, allows.

    accepted ── ServerHandshake ──→ TlsTransport ── connection_made ──→ the listener's protocol
    connected ─ connect ──────────→ TlsTransport ── connection_made ──→ the connector's protocol
"""

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar, cast

from gateway.core.address import peer_address
from gateway.core.alarm import Alarm
from gateway.core.certificates import identity
from gateway.core.frozen import frozen
from gateway.core.messages import Buffer
from gateway.core.protocol import ListenerSettings
from gateway.core.tasks import spawn
from gateway.transports.certificates import client_context, refusal_text
from gateway.transports.listener_connections import Admission, ListenerConnections
from gateway.transports.memory import PROCESS_MEMORY
from gateway.transports.timeouts import Timeouts

log = logging.getLogger(__name__)

PIECE = 64 * 2**10
"""The number of bytes to pass to the loop in one step."""
SCRATCH_BYTES = 64 * 2**10
_RECORD_BYTES = 16 * 2**10
"""The maximum size of one TLS record, in bytes."""
_MOST_EARLY = 2 * _RECORD_BYTES
"""The maximum number of bytes that a client can send before the handshake begins. One record is enough, because the
client's first message is one record."""
HANDSHAKE_BYTES = 100 * 2**10
"""The approximate memory, in bytes, that a handshake takes. A TLS connection takes about the same after the
handshake."""

IDENTITY = "identity"
"""The name of a TlsTransport's extra info that contains the identity in the client certificate."""

HELLO = b"\x16"
"""The first byte that a TLS client sends, which is the record type for handshakes.

No other supported protocol begins with this byte."""

_HTTP_TEXT = b"This port is served over TLS: use https\n"
_HTTP_REPLY = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
    % (len(_HTTP_TEXT), _HTTP_TEXT)
)

CLIENT_HELLO_TEXT = "the client began a TLS handshake at a port without TLS; use http:// or a plaintext channel"


@frozen
class ClientTls:
    """The TLS settings for an endpoint.

    `context` returns the context for the next handshake, with the current content of the files. `server_name` is the
    required name in the endpoint's certificate, if it differs from the endpoint's host."""

    context: Callable[[], ssl.SSLContext]
    server_name: str = ""


@frozen
class Secured:
    """The TLS settings for the endpoint with the name `host`. Unless `alpn` is empty, the endpoint must support this
    protocol over TLS."""

    tls: ClientTls
    host: str
    alpn: str = ""

    @property
    def server_name(self) -> str:
        """The required name in the endpoint's certificate."""
        return self.tls.server_name or self.host


@cache
def default_tls(alpn: str = "") -> ClientTls:
    """Return TLS settings with the system's CAs. The settings are created only once, because reading the certificates
    takes 10 ms."""
    context = client_context(alpn=(alpn,) if alpn else ())
    return ClientTls(lambda: context)


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """The TLS transport for a gateway protocol. For the loop, this object is the protocol of the connection `raw`.

    `scratch` is the buffer for protocols that take `bytes`. All connections of a loop can share it."""

    def __init__(self, raw: asyncio.Transport, scratch: memoryview) -> None:
        super().__init__()
        self.identity = ""
        """The identity in the client certificate, if the gateway requested and verified a certificate."""
        self._raw = raw
        self._tls: asyncio.Transport | None = None
        self._protocol: Any = None
        self._takes_bytes = False
        self._scratch = scratch
        self._early = bytearray()
        """Bytes that arrived before the protocol was set, or while it had paused reading."""
        self._early_end = False
        self._is_reading = True
        self._is_closing = False
        self._ends_raw = False
        """True if the socket closes as soon as it has sent all data, without waiting for the peer."""
        self._is_lost = False
        self._unwritten: deque[memoryview] = deque()
        self._unwritten_bytes = 0
        self._is_full = False
        """True if the loop accepts no more bytes for now."""
        self._is_paused = False
        """True if the protocol has been notified (`pause_writing`) that the loop or this object has unwritten data."""

    def open(self, tls: asyncio.Transport, protocol: asyncio.BaseProtocol) -> None:
        """Serve `protocol` after the handshake. `tls` is the loop's transport."""
        if self._is_lost:
            return
        tls.set_write_buffer_limits(high=PIECE)
        self._tls, self._protocol = tls, protocol
        self._takes_bytes = not isinstance(protocol, asyncio.BufferedProtocol)
        self.identity = identity(tls.get_extra_info("peercert"))
        protocol.connection_made(self)
        self._deliver_early()

    # Callbacks of the event loop.

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        if self._takes_bytes or self._early or self._tls is None:
            return self._scratch
        buffer: memoryview = self._protocol.get_buffer(sizehint)
        return buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes from the peer."""
        if self._early or self._tls is None:
            self._early += self._scratch[:nbytes]
            self._deliver_early()
        elif self._takes_bytes:
            self._protocol.data_received(bytes(self._scratch[:nbytes]))
        else:
            self._protocol.buffer_updated(nbytes)

    def eof_received(self) -> None:
        """Handle the end of the peer's stream. The loop closes the connection."""
        self._early_end = True
        self._deliver_end()

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle a closed connection."""
        self._is_lost = self._is_closing = True
        PROCESS_MEMORY.freed_uncounted(HANDSHAKE_BYTES)
        self._early.clear()
        self._unwritten.clear()
        self._unwritten_bytes = 0
        if self._protocol is not None:
            self._protocol.connection_lost(exc)
            self._protocol = None
        # The loop's objects refer to this object. Without this step, this cycle would stay until garbage collection.
        self._tls = None

    def pause_writing(self) -> None:
        """Pause writing, because the peer reads too slowly."""
        self._is_full = True
        self._tell_protocol()

    def resume_writing(self) -> None:
        """Resume writing after the peer has read most of the written data."""
        self._is_full = False
        self._write_on()
        self._end_raw()

    # Calls of the protocol.

    def write(self, data: Buffer) -> None:
        """Send `data` without copying it. The caller must not change `data` until it is sent."""
        if self._is_closing or not len(data):
            return
        view = memoryview(data)
        if view.ndim != 1 or view.itemsize != 1:
            view = view.cast("B")
        self._unwritten.append(view)
        self._unwritten_bytes += len(view)
        if not self._is_full:
            self._write_on()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Send the pieces in order. Small pieces share a record."""
        pieces = list(list_of_data)
        if sum(map(len, pieces)) <= PIECE:
            self.write(b"".join(pieces))
            return
        for each in pieces:
            self.write(each)

    def write_eof(self) -> None:
        """End the stream, and close the connection when the peer has closed it. The loop's TLS connections cannot be
        half-closed."""
        if not self._is_closing:
            self._is_closing = True
            if not self._unwritten and self._tls is not None:
                self._tls.close()

    def can_write_eof(self) -> bool:
        """Return False, like the loop's transport."""
        return False

    def close(self) -> None:
        """Close the connection after all data has been sent. This call is allowed even after `write_eof`."""
        self._ends_raw = True
        self.write_eof()
        self._end_raw()

    def abort(self) -> None:
        """Close immediately."""
        self._is_closing = True
        self._unwritten.clear()
        self._unwritten_bytes = 0
        (self._tls or self._raw).abort()

    def is_closing(self) -> bool:
        """Return True if the transport is closed, or will be closed when all data has been sent."""
        return self._is_closing or self._tls is None or self._tls.is_closing()

    def pause_reading(self) -> None:
        """Stop receiving until `resume_reading`."""
        self._is_reading = False
        if self._tls is not None:
            self._tls.pause_reading()

    def resume_reading(self) -> None:
        """Resume receiving."""
        if self._is_reading or self._tls is None:
            return
        self._is_reading = True
        if self._early or self._early_end:
            asyncio.get_running_loop().call_soon(self._deliver_early)
        self._tls.resume_reading()

    def is_reading(self) -> bool:
        """Return whether the transport is receiving."""
        return self._is_reading

    def get_write_buffer_size(self) -> int:
        """Return the number of written bytes that the operating system has not accepted. These bytes are in this
        object, in the loop's TLS, and at the socket."""
        if self._tls is None:
            return 0
        return self._unwritten_bytes + self._tls.get_write_buffer_size() + self._raw.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return the identity for the name IDENTITY, otherwise the extra info of the loop's transport."""
        if name == IDENTITY:
            return self.identity
        return (self._tls or self._raw).get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand over to another protocol. The caller must call the protocol's `connection_made`."""
        self._protocol = protocol
        self._takes_bytes = not isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the current protocol."""
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    # Bytes.

    def _write_on(self) -> None:
        """Pass pieces to the loop until it accepts no more."""
        tls, unwritten = self._tls, self._unwritten
        if tls is None:
            return
        while unwritten and not self._is_full:
            view = unwritten[0]
            if len(view) > PIECE:
                unwritten[0], view = view[PIECE:], view[:PIECE]
            else:
                unwritten.popleft()
            self._unwritten_bytes -= len(view)
            if (
                tls.is_closing()
            ):  # the peer has disconnected, and the protocol is notified later; the loop would log the written data
                continue
            tls.write(view)
        if self._is_closing and not unwritten and not self._is_lost:
            tls.close()
        self._tell_protocol()

    def _end_raw(self) -> None:
        """Close the socket if the protocol has closed the connection and all written data is encrypted. The socket
        closes in the loop's next turn, because the loop writes close_notify in the current turn."""
        tls = self._tls
        if not self._ends_raw or self._unwritten or self._is_lost or tls is None:
            return
        if tls.get_write_buffer_size():
            tls.set_write_buffer_limits(high=0)  # `resume_writing` is called when nothing is left
        else:
            asyncio.get_running_loop().call_soon(self._raw.close)

    def _tell_protocol(self) -> None:
        is_full = self._is_full or bool(self._unwritten)
        if is_full == self._is_paused or self._protocol is None:
            return
        self._is_paused = is_full
        if is_full:
            self._protocol.pause_writing()
        else:
            self._protocol.resume_writing()

    def _deliver_early(self) -> None:
        """Pass the early data to the protocol while the protocol reads."""
        early = self._early
        while early and self._is_reading and self._protocol is not None and not self._is_closing:
            if self._takes_bytes:
                data = bytes(early)
                early.clear()
                self._protocol.data_received(data)
                continue
            buffer = self._protocol.get_buffer(-1)
            size = min(len(buffer), len(early))
            buffer[:size] = early[:size]
            del early[:size]
            self._protocol.buffer_updated(size)
        self._deliver_end()

    def _deliver_end(self) -> None:
        if self._early_end and not self._early and self._protocol is not None:
            self._early_end = False
            self._protocol.eof_received()


class ServerHandshake(asyncio.Protocol):
    """An accepted connection until the end of its TLS handshake.

    After the handshake, the result of `protocol()` serves the connection. The connection counts against the listener's
    limits from the beginning. If the connection exceeds the limits, the gateway closes it before the handshake, because
    a handshake costs far more than a rejection."""

    unanswered = 0
    awaits_client = True

    def __init__(
        self,
        context: ssl.SSLContext,
        protocol: Callable[[], asyncio.BaseProtocol],
        connections: ListenerConnections,
        timeouts: Timeouts,
        scratch: memoryview,
    ) -> None:
        self._context = context
        self._make_protocol = protocol
        self._connections = connections
        self._timeouts = timeouts
        self._scratch = scratch
        self._raw: asyncio.Transport
        self._early = bytearray()
        self._has_begun = False
        self._alarm = Alarm(asyncio.get_running_loop(), self._too_late)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new client."""
        self._raw = cast(asyncio.Transport, transport)  # uvloop's has the interface, but is no subclass
        self._peer = peer_address(transport.get_extra_info("peername"))
        if self._connections.admit(self, self._peer) is Admission.ACCEPTED:
            self._alarm.set(self._timeouts.handshake)
        else:
            self._raw.abort()

    def data_received(self, data: bytes) -> None:
        """Handle the client's first bytes, which are a handshake or, by mistake, something else."""
        if self._has_begun:
            return
        self._has_begun = True
        if data[:1] == HELLO and len(data) <= _MOST_EARLY:
            self._raw.pause_reading()
            self._early += data
            self._connections.handshakes.enter(self._begin)
            return
        self._failed("the client sent plaintext to a TLS port; use https:// or a secure channel")
        self._alarm.set(self._timeouts.linger)
        if data[:1].isalpha():
            self._raw.write(_HTTP_REPLY)
        self._raw.write_eof()

    def _begin(self) -> None:
        """Begin the handshake, whose turn has come."""
        spawn(self._run())

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle a connection that closed before the handshake began."""
        self._connections.handshakes.leave(self._begin)
        self._ended()

    def drain(self) -> None:
        """Limit the wait for a silent client, because the listener is stopping."""
        self._alarm.set(self._timeouts.grace)

    def terminate(self) -> None:
        """Close immediately."""
        self._raw.abort()

    async def _run(self) -> None:
        transport = TlsTransport(self._raw, self._scratch)
        try:
            tls = await _start(self._raw, transport, self._early, self._context, server_side=True)
        except ssl.SSLError as error:
            self._failed(refusal_text(error))
            return
        except OSError:  # The client has disconnected, or was too late.
            return
        finally:
            self._ended()
            self._connections.handshakes.end()
            PROCESS_MEMORY.freed_uncounted(HANDSHAKE_BYTES)
        transport.open(tls, self._make_protocol())

    def _too_late(self) -> None:
        if self._has_begun:
            self._failed(f"the handshake did not end within {self._timeouts.handshake:g} s")
        self._raw.abort()

    def _failed(self, why: str) -> None:
        self._connections.log_mistake("handshake", self._peer, why)

    def _ended(self) -> None:
        self._connections.discard(self)
        self._alarm.stop()


def accepting(
    settings: ListenerSettings,
    protocol: Callable[[], asyncio.BaseProtocol],
    connections: ListenerConnections,
    timeouts: Timeouts,
) -> Callable[[], asyncio.BaseProtocol]:
    """Return a factory that the event loop calls for each accepted connection.

    The factory returns the result of `protocol` or, if the listener uses TLS, the handshake that comes first."""
    tls = settings.tls
    if tls is None:
        return protocol
    scratch = memoryview(bytearray(SCRATCH_BYTES))

    def accept() -> asyncio.BaseProtocol:
        context = tls()
        return protocol() if context is None else ServerHandshake(context, protocol, connections, timeouts, scratch)

    return accept


P = TypeVar("P", bound=asyncio.BaseProtocol)


class Connecting(asyncio.Protocol):
    """The protocol of a connection to an endpoint before the handshake begins."""

    def __init__(self) -> None:
        self.early = bytearray()
        """Bytes that the endpoint has sent. A TLS endpoint sends no bytes at this time."""

    def data_received(self, data: bytes) -> None:
        """Handle bytes from the endpoint."""
        self.early += data


async def connect(protocol: P, host: str, port: int, secured: Secured) -> P:
    """Connect to an endpoint, and perform the handshake. After the handshake, `protocol` uses the connection. The
    caller limits the time.

    Raises:
        ssl.SSLError: the peer's certificate is unacceptable, or the peer does not use TLS or does not support the
            `alpn`.
        OSError: the connection attempt failed, or the connection broke.
    """
    raw, connecting = await asyncio.get_running_loop().create_connection(Connecting, host, port)
    transport = TlsTransport(raw, memoryview(bytearray(_RECORD_BYTES)))
    name, alpn = secured.tls.server_name or secured.host.removesuffix("."), secured.alpn
    try:
        context = secured.tls.context()
        opened = await _start(raw, transport, connecting.early, context, server_hostname=name)
        agreed = opened.get_extra_info("ssl_object").selected_alpn_protocol()
        if alpn and agreed != alpn:
            raise ssl.SSLError(1, f"it does not offer {alpn} (ALPN)")
    except BaseException:
        raw.abort()
        raise
    transport.open(opened, protocol)
    return protocol


async def _start(
    raw: asyncio.Transport, transport: TlsTransport, early: bytearray, context: ssl.SSLContext, **side: Any
) -> asyncio.Transport:
    """Perform the handshake on `raw`. `early` is the data that the peer has already sent. Raises the same errors as
    `connect`.

    `start_tls` has no parameter for `early`, so `_feed` passes the data to the protocol that the loop sets on `raw`.
    The order of the calls ensures that `early` precedes all data that is still to arrive. `start_tls` begins first, and
    schedules two steps: connecting its protocol, and resuming reading on `raw`. `_feed` is scheduled after these steps,
    for the same turn of the loop.

    `start_tls` would wait forever if the connection was lost before it begins, so this function checks first."""
    if raw.is_closing():
        raise ConnectionResetError
    loop = asyncio.get_running_loop()
    handshake = spawn(loop.start_tls(raw, transport, context, **side))
    loop.call_soon(loop.call_soon, _feed, raw, early)
    secured = await handshake
    if secured is None or raw.is_closing():  # uvloop raises nothing if the connection is lost during a handshake
        raise ConnectionResetError
    return secured


def _feed(raw: asyncio.Transport, early: bytearray) -> None:
    protocol: Any = raw.get_protocol()  # a BufferedProtocol, although uvloop's has another type
    while early and not raw.is_closing():
        buffer = protocol.get_buffer(len(early))
        size = min(len(buffer), len(early))
        buffer[:size] = early[:size]
        del early[:size]
        protocol.buffer_updated(size)
