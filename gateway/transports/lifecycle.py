"""The phases of a client's connection, their time limits, and the end of the connection. The server connections of all
transports extend Lifecycle.

            first byte         head read            body read            reply being read by the client
      IDLE ────────────→ HEAD ───────────→ BODY ───────────→ ANSWERING ────────────────→ FLUSHING
       ↑                                                         │                           │
       └───────── the reply is written, the connection kept ─────┴───────────────────────────┘
      any phase ── last reply, or error reply ──→ LINGERING ──→ CLOSED
      any phase ── the client closed ───────────→ CLOSED

After a message without a body, the phase changes from HEAD to ANSWERING. After a message that arrives in one piece, it
changes from IDLE to ANSWERING.

    phase      waits for                         at most (Timeouts)                          then
    IDLE       the first byte of a message       `first_byte`, later `idle`; `grace` while   close
                                                 the listener drains
    HEAD       the end of the message's head     `head`                                      error reply, LINGERING
    BODY       the rest of the message           `body` between two pieces, `rate` on        error reply, LINGERING
                                                 average, `message` in all
    ANSWERING  the gateway's reply               no limit: deadlines and policies bound it   -
               the client to read a streamed     as FLUSHING                                 abort
               reply
    FLUSHING   the client to read its replies    `write` without reading a byte, `rate` on   abort
                                                 average, `message` in all
    LINGERING  the client to close               `linger`, and `limits.message` bytes        abort, or close
    CLOSED     the last bytes to be sent         `write`                                     abort

gRPC multiplexes requests, so gRPC connections use only HEAD, IDLE, ANSWERING, LINGERING and CLOSED, and check each
stream separately.
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from random import uniform

from gateway.core.address import peer_address
from gateway.core.alarm import Alarm
from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.frozen import frozen
from gateway.core.messages import Buffer
from gateway.core.protocol import Limits
from gateway.transports.listener_connections import AcceptedConnection, Admission, ListenerConnections
from gateway.transports.memory import PROCESS_MEMORY, ConnectionMemory, Memory
from gateway.transports.sockets import has_unread
from gateway.transports.timeouts import ReplyProgress, Timeouts
from gateway.transports.tls import CLIENT_HELLO_TEXT, HELLO, IDENTITY


class Phase(Enum):
    """The phase of a connection, which depends on the events for which the connection waits. The module docstring shows
    the order of the phases."""

    IDLE = "waiting for the next message"
    HEAD = "receiving a message's head"
    BODY = "receiving the rest of the message"
    ANSWERING = "requests are in flight, or a reply is being streamed"
    FLUSHING = "waiting for the client to read its replies"
    LINGERING = "after the last reply; dropping data that the client still sends"
    CLOSED = "closed, or closing after the last reply"

    # Members are singletons, so hashing by identity is correct.
    __hash__ = object.__hash__


@frozen
class ConnectionContext:
    """The data that all connections of one listener share."""

    limits: Limits
    timeouts: Timeouts
    connections: ListenerConnections


class Lifecycle(asyncio.BaseProtocol, ABC):
    """The part of a client connection that is the same in all transports: admission, timeouts, memory of unread
    replies, and closing.

    A subclass receives messages and sends replies. It sets `_phase`, and sets `_alarm` to the time limit of the new
    phase. The subclass implements `reject` and `proceed`, and can extend the other public methods. This class, the
    listener and the event loop call these methods in the situations that the methods' docstrings describe."""

    HEAD_NAME = "the message's head"
    BODY_NAME = "the message"
    """The names of the two parts of a message in error messages."""

    _transport: asyncio.Transport
    _peer: str
    """The client's `host:port`; empty on a unix socket."""
    _identity: str = ""
    """The identity in the client certificate; empty without a certificate."""

    memory: Memory
    """Counts the memory of the client's messages and of unread replies."""

    connection_memory: ConnectionMemory
    """Counts the connection's memory except bodies."""

    def __init__(self, context: ConnectionContext) -> None:
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._loop, self.expire)
        self._phase = Phase.IDLE
        self._idle_seconds = context.timeouts.idle
        """The maximum time that the connection can stay IDLE, in seconds."""
        self._body_begun: float | None = None
        """The time when the connection began to wait for the rest of a message; None if it does not wait."""
        self._body_bytes = 0
        """The number of bytes of the rest of the message that have arrived."""
        self._writable = True
        self._progress: ReplyProgress | None = None
        """The client's progress in reading the written data since the gateway began to wait for the client."""
        self._read: asyncio.Future[None] | None = None
        """The future for which `_until_read` waits."""
        self._counted = 0
        """The number of bytes of unread replies that `memory` counts."""
        self._is_yielding = False
        """True if this connection waits until other connections have had their turn."""
        self._has_peer_ended = False
        """True if the client has half-closed the connection and only reads."""

    @property
    def awaits_client(self) -> bool:
        """True if the gateway waits for the client to send or read."""
        return self._phase is not Phase.ANSWERING

    # Subclasses implement these.

    @property
    @abstractmethod
    def unanswered(self) -> int:
        """The number of requests that have begun to arrive and whose replies have not been completely passed to the
        operating system."""

    @abstractmethod
    def reject(self, error: GatewayError) -> None:
        """Reject the arriving message, because its end is unknown or not worth waiting for.

        Write an error reply, and then linger."""

    @abstractmethod
    def proceed(self) -> None:
        """Continue after the client has read most of its replies."""

    def take_turn(self) -> None:
        """Continue to receive after `_yield`."""
        self._is_yielding = False

    def reject_connection(self, error: GatewayError) -> None:
        """Reject the connection, because it exceeds a limit. Write an error reply, and then linger."""
        self.reject(error)

    # The listener calls these.

    def drain(self) -> None:
        """Close the connection after its last reply. Close an idle connection after `Timeouts.grace`."""
        self._idle_seconds = self._context.timeouts.grace
        if self._phase is Phase.IDLE:
            self._alarm.set(self._idle_seconds)

    def terminate(self) -> None:
        """End all requests in flight, and close the connection."""
        self.abort()

    def abort(self) -> None:
        """Close the connection immediately, without sending the remaining data."""
        self._transport.abort()

    # Callbacks of the event loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Handle a new client."""
        self._transport = transport  # type: ignore[assignment]
        self._peer = peer_address(transport.get_extra_info("peername"))
        self._identity = transport.get_extra_info(IDENTITY) or ""
        self.memory = PROCESS_MEMORY.of_client(self._peer)
        self.connection_memory = ConnectionMemory(self.memory)
        self._alarm.set(min(self._context.timeouts.first_byte, self._idle_seconds))
        connections = self._context.connections
        match connections.admit(self, self._peer):
            case Admission.REFUSED:
                self.reject_connection(connections.why_refused(self))
            case Admission.DROPPED:
                transport.abort()  # type: ignore[attr-defined]
            case _:
                pass

    def connection_lost(self, error: Exception | None) -> None:
        """Handle a connection that either side has closed."""
        self._phase = Phase.CLOSED
        self._context.connections.discard(self)
        self._alarm.stop()
        self._writable = True
        self._count(0)
        self.connection_memory.clear()

    def pause_writing(self) -> None:
        """Pause writing, because the client reads too slowly."""
        self._writable = False
        self._count_unread()
        self._loop.call_soon(self._count_unread)  # this turn of the loop can write more of the reply

    def resume_writing(self) -> None:
        """Resume writing after the client has read most of the written data."""
        self._writable = True
        self._count_unread()
        if self._read is not None and not self._read.done():
            self._read.set_result(None)
        self.proceed()

    def _tls_mistake(self, received: Buffer) -> str:
        """Return the error message for a client that began a TLS handshake on a listener without TLS. For any other
        client, the result is empty."""
        if bytes(received[: len(HELLO)]) != HELLO:
            return ""
        self._context.connections.log_mistake("hello", self._peer, CLIENT_HELLO_TEXT)
        return CLIENT_HELLO_TEXT

    def _yield(self) -> None:
        """Stop receiving until other connections have had their turn."""
        if not self._is_yielding:
            self._is_yielding = True
            self._transport.pause_reading()
            self._loop.call_soon(self.take_turn)

    # Time limits.

    def _await_body(self, received: int) -> None:
        """Wait for more bytes of the message, of which `received` bytes have just arrived."""
        now, timeouts = self._loop.time(), self._context.timeouts
        if self._body_begun is None:
            self._body_begun, self._body_bytes = now, 0
        self._body_bytes += received
        self._body_last_received = now
        seconds = min(timeouts.message, timeouts.body + self._body_bytes / timeouts.rate)
        self._alarm.set(min(timeouts.body, self._body_begun + seconds - now))

    def _too_slow_body(self) -> GatewayError:
        assert self._body_begun is not None
        timeouts, waited = self._context.timeouts, self._body_last_received - self._body_begun
        at_least_rate = timeouts.body + self._body_bytes / timeouts.rate
        if waited + timeouts.body <= min(at_least_rate, timeouts.message):
            return _too_slow(f"nothing of {self.BODY_NAME} came for {timeouts.body:g} s")
        if timeouts.message < at_least_rate:
            return _too_slow(f"{self.BODY_NAME} did not arrive within {timeouts.message:g} s")
        return _too_slow(f"{self.BODY_NAME} came at less than {timeouts.rate:g} bytes a second")

    def _await_progress(self) -> None:
        """Wait for the client to read the written data."""
        self._count_unread()
        self._progress = ReplyProgress(self._transport.get_write_buffer_size(), self._loop.time())
        self._alarm.set(self._context.timeouts.write)

    async def _until_read(self) -> None:
        """Give the loop's other tasks a turn, and then wait until the client has read most of the written data."""
        await asyncio.sleep(0)
        if not self._writable:
            self._read = self._loop.create_future()
            self._await_progress()
            await self._read
            self._alarm.silence()

    def _is_read_in_time(self) -> bool:
        if self._progress is None:
            return False
        unread, timeouts = self._transport.get_write_buffer_size(), self._context.timeouts
        return not self._progress.is_too_slow(unread, self._loop.time(), timeouts)

    def expire(self) -> None:
        """Handle the expiry of the phase's time limit."""
        match self._phase:
            case Phase.IDLE:
                self.close_idle()
            case Phase.HEAD:
                self.reject(_too_slow(f"{self.HEAD_NAME} did not arrive within {self._context.timeouts.head:g} s"))
            case Phase.BODY:
                self.reject(self._too_slow_body())
            case Phase.FLUSHING | Phase.ANSWERING if self._is_read_in_time():
                self._count_unread()
                self._alarm.set(self._context.timeouts.write / 2)
            case _:
                self._transport.abort()

    # Memory.

    @property
    def unread_bytes(self) -> int:
        """The number of reply bytes that are waiting because the client reads too slowly.

        While the client reads fast enough, only a few bytes are waiting, and the result is 0."""
        return 0 if self._writable else self._transport.get_write_buffer_size()

    def _count_unread(self) -> None:
        self._count(self.unread_bytes)

    def _count(self, size: int) -> None:
        before, self._counted = self._counted, size
        if size > before:
            self.memory.count(size - before)
        elif size < before:
            self.memory.free(before - size)

    # Ends.

    def _hand_over_to(self, after: AcceptedConnection) -> None:
        """Hand over the client to the connection `after`."""
        self._alarm.stop()
        self._phase = Phase.CLOSED
        self._context.connections.hand_over(self, after)

    def linger(self) -> None:
        """Half-close the connection.

        Drop the data that the client still sends until it also closes the connection, for at most `Timeouts.linger`. If
        the gateway closed the connection immediately, the operating system would send a reset, and a client that is
        still sending would lose the reply (RFC 9112, section 9.6). TLS connections cannot be half-closed, so the loop
        drops their remaining data. If the client has already closed its side, close the connection."""
        if self._has_peer_ended:
            self.close()
            return
        self._phase = Phase.LINGERING
        self._droppable_bytes = self._context.limits.message
        self._alarm.set(self._context.timeouts.linger)
        if self._transport.is_closing():
            return
        try:
            self._transport.write_eof()
        except OSError:  # raised by asyncio's own loop if the client has reset the connection
            self._transport.abort()
        else:
            self._transport.resume_reading()

    def _drop(self, size: int) -> None:
        """Handle `size` bytes that arrived in the phase LINGERING."""
        self._droppable_bytes -= size
        if self._droppable_bytes < 0:
            self.close()

    def close_idle(self) -> None:
        """Close the connection, unless the next message has arrived but has not been read. A busy loop can run this
        timer before it reads the message."""
        sock = self._transport.get_extra_info("socket")
        if sock is None or sock.fileno() < 0:  # uvloop has not reported its end (`LOST_SECONDS`)
            self._context.connections.discard(self)
        elif has_unread(sock):
            self._alarm.set(self._idle_seconds)
        else:
            self.close()

    def close(self) -> None:
        self._phase = Phase.CLOSED
        self._alarm.set(self._context.timeouts.write)
        self._transport.close()


def _too_slow(text: str) -> GatewayError:
    return refusal(Reason.REQUEST_TIMEOUT, text)


# --- The planned end of a working connection, after which the client connects again ---

_JITTER = 0.1
"""The fraction by which maximum ages differ randomly. Because of this jitter, clients that connected at the same time
do not reconnect at the same time."""


class Lifespan:
    """The lifespan of one connection, which begins at `now` and is limited by `limits.requests_per_connection` and
    `limits.connection_age`."""

    __slots__ = ("_requests_left", "_timer", "ends_at")

    def __init__(self, limits: Limits, now: float) -> None:
        requests, age = limits.requests_per_connection, limits.connection_age
        self._requests_left = math.inf if requests is None else requests
        self.ends_at = math.inf if age is None else now + age * uniform(1 - _JITTER, 1 + _JITTER)
        """The time when the connection reaches its maximum age; infinite without a limit."""
        self._timer: asyncio.TimerHandle | None = None

    def is_last(self, now: float) -> bool:
        """Return True if the current request is the connection's last. Call this method once for each request."""
        self._requests_left -= 1
        return self._requests_left <= 0 or now >= self.ends_at

    def call_at(self, loop: asyncio.AbstractEventLoop, when: float, end: Callable[[], None]) -> None:
        """Call `end` at the time `when`, unless this time is infinite. This call replaces a previously scheduled
        call."""
        self.stop()
        self._timer = loop.call_at(when, end) if when < math.inf else None

    def stop(self) -> None:
        """Cancel the scheduled call."""
        if self._timer is not None:
            self._timer.cancel()
