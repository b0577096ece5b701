"""A client's connection in time: its phases, how long each may last, and how it ends."""

import asyncio
from enum import Enum

from gateway.core.address import peer_address
from gateway.core.alarm import Alarm
from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.frozen import frozen
from gateway.core.protocol import Limits
from gateway.transports.connections import Admission, Connections
from gateway.transports.memory import PROCESS
from gateway.transports.sockets import has_unread
from gateway.transports.timeouts import Timeouts


class Phase(Enum):
    """What is waited for."""

    IDLE = "the next message is awaited"
    HEAD = "its head is arriving"
    BODY = "the rest of it is arriving"
    ANSWERING = "requests are in flight, or a reply is streamed"
    FLUSHING = "the client reads its replies more slowly than they come"
    LINGERING = "the reply was the last; what the client still sends is dropped"
    CLOSED = "closed, or closing once the reply is flushed"

    # Members are singletons: identity is equality.
    __hash__ = object.__hash__


@frozen
class Terms:
    """On what all connections of one listener are kept, and which they are."""

    limits: Limits
    timeouts: Timeouts
    connections: Connections


class Lifecycle(asyncio.BaseProtocol):
    """What the event loop tells of a connection, but for what the client sends. Whoever makes a Connection of it moves
    `_phase` on, and says how to give up what is arriving, and how to go on."""

    HEAD = "the message's head"
    BODY = "the message"
    """What their parts are called."""

    _transport: asyncio.Transport
    _peer: str
    """`host:port`; empty on a unix socket."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._loop = asyncio.get_running_loop()
        self._alarm = Alarm(self._loop, self._expire)
        self._phase = Phase.IDLE
        self._body_begun: float | None = None
        """When the rest of the message that is arriving was first waited for."""
        self._body_bytes = 0
        """How much of it has come."""
        self._patience = terms.timeouts.idle
        """Seconds that it may be idle."""
        self._writable = True
        self._counted = 0
        """Bytes of replies that the client has not read, as they are counted against the process' memory."""

    def _give_up(self, error: GatewayError) -> None:
        """Refuse what is arriving, whose end cannot be found or is not worth waiting for: reply, then linger."""
        raise NotImplementedError

    def _turn_away(self, error: GatewayError) -> None:
        """The connection is one too many: say so, then linger."""
        self._give_up(error)

    def _proceed(self) -> None:
        """The client has read most of what there was: turn to what comes next."""
        raise NotImplementedError

    @property
    def unanswered(self) -> int:
        """Requests that have begun to arrive and whose replies are not handed to the system in full."""
        raise NotImplementedError

    def drain(self) -> None:
        """Close after the last reply; where nothing is in flight or arriving, once that has been so for a while."""
        self._patience = self._terms.timeouts.grace
        if self._phase is Phase.IDLE:
            self._alarm.set(self._patience)

    def give_up(self) -> None:
        """Close now, whatever is in flight."""
        self.abort()

    def abort(self) -> None:
        """Close now, whatever is in flight."""
        self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted."""
        self._transport = transport  # type: ignore[assignment]
        self._peer = peer_address(transport.get_extra_info("peername"))
        self._alarm.set(self._patience)
        connections = self._terms.connections
        match connections.admit(self):
            case Admission.REFUSED:
                self._turn_away(connections.why_refused())
            case Admission.DROPPED:
                transport.abort()  # type: ignore[attr-defined]
            case _:
                pass

    def connection_lost(self, error: Exception | None) -> None:
        """Closed by either side."""
        self._phase = Phase.CLOSED
        self._terms.connections.discard(self)
        self._alarm.stop()
        self._writable = True
        self._count(0)

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._writable = False
        self._count_unread()
        self._loop.call_soon(self._count_unread)  # more of the reply may follow at once

    def resume_writing(self) -> None:
        """The client has read most of what there was."""
        self._writable = True
        self._count_unread()
        self._proceed()

    # Waiting.

    def _await_body(self, received: int) -> None:
        """Wait for more of the message that is arriving, `received` bytes of which came just now."""
        now, timeouts = self._loop.time(), self._terms.timeouts
        if self._body_begun is None:
            self._body_begun, self._body_bytes = now, 0
        self._body_bytes += received
        self._body_came = now
        whole = min(timeouts.message, timeouts.body + self._body_bytes / timeouts.rate)
        self._alarm.set(min(timeouts.body, self._body_begun + whole - now))

    def _too_slow_body(self) -> GatewayError:
        assert self._body_begun is not None
        timeouts, waited = self._terms.timeouts, self._body_came - self._body_begun
        least = timeouts.body + self._body_bytes / timeouts.rate
        if waited + timeouts.body <= min(least, timeouts.message):
            return _too_slow(f"nothing of {self.BODY} came for {timeouts.body:g} s")
        if timeouts.message < least:
            return _too_slow(f"{self.BODY} did not arrive within {timeouts.message:g} s")
        return _too_slow(f"{self.BODY} came at less than {timeouts.rate:g} bytes a second")

    @property
    def _unread_bytes(self) -> int:
        """Of replies that wait for the client to read; the little that waits while it does is not worth counting."""
        return 0 if self._writable else self._transport.get_write_buffer_size()

    def _count_unread(self) -> None:
        self._count(self._unread_bytes)

    def _count(self, size: int) -> None:
        before, self._counted = self._counted, size
        if size > before:
            PROCESS.count(size - before)
        elif size < before:
            PROCESS.free(before - size)

    def _await_progress(self) -> None:
        self._count_unread()
        self._unread = self._transport.get_write_buffer_size()
        self._alarm.set(self._terms.timeouts.write)

    def _expire(self) -> None:
        timeouts = self._terms.timeouts
        match self._phase:
            case Phase.IDLE:
                self._close_idle()
            case Phase.HEAD:
                self._give_up(_too_slow(f"{self.HEAD} did not arrive within {timeouts.head:g} s"))
            case Phase.BODY:
                self._give_up(self._too_slow_body())
            case Phase.FLUSHING | Phase.ANSWERING if self._transport.get_write_buffer_size() < self._unread:
                self._await_progress()
            case _:
                self._transport.abort()

    # Closing.

    def _linger(self) -> None:
        """Close without a reset, which would take the reply from a client that is still sending (RFC 9112 section 9.6):
        no more is written, and what comes is dropped until the client closes too, or for a while."""
        self._phase = Phase.LINGERING
        self._may_drop = self._terms.limits.message
        self._alarm.set(self._terms.timeouts.linger)
        if self._transport.is_closing():
            return
        try:
            self._transport.write_eof()
        except OSError:  # asyncio's own loop, where the client has reset the connection
            self._transport.abort()
        else:
            self._transport.resume_reading()

    def _close_idle(self) -> None:
        """Close, unless the next message is there and only not read yet: a busy loop reads after its timers."""
        if has_unread(self._transport.get_extra_info("socket")):
            self._alarm.set(self._patience)
        else:
            self._close()

    def _drop(self, size: int) -> None:
        self._may_drop -= size
        if self._may_drop < 0:
            self._close()

    def _close(self) -> None:
        self._phase = Phase.CLOSED
        self._alarm.set(self._terms.timeouts.write)
        self._transport.close()


def _too_slow(text: str) -> GatewayError:
    return refusal(Reason.REQUEST_TIMEOUT, text)
