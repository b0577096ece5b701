"""A client's connection in time: its phases, how long each may last, and how it ends."""

import asyncio
from enum import Enum

from gateway.core.address import of_peer
from gateway.core.alarm import Alarm
from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.protocol import Limits
from gateway.core.values import value
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


@value
class Terms:
    """On what all connections of one listener are kept, and which they are."""

    limits: Limits
    timeouts: Timeouts
    connections: "set[Lifecycle]"


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
        self._gone: asyncio.Future[None] | None = None
        self._writable = True
        self._draining = False

    def _give_up(self, error: GatewayError) -> None:
        """Refuse what is arriving, whose end cannot be found or is not worth waiting for: reply, then linger."""
        raise NotImplementedError

    def _proceed(self) -> None:
        """The client has read most of what there was: turn to what comes next."""
        raise NotImplementedError

    def drain(self) -> "asyncio.Future[None]":
        """Close once what is in flight or arriving is answered, at once if nothing is. The future is done when it is
        closed."""
        self._draining = True
        self._gone = self._loop.create_future()
        if self._phase is Phase.IDLE:
            self._close()
        return self._gone

    def abort(self) -> None:
        """Close now, whatever is in flight."""
        self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accepted."""
        self._transport = transport  # type: ignore[assignment]
        self._peer = of_peer(transport.get_extra_info("peername"))
        self._terms.connections.add(self)
        self._alarm.set(self._terms.timeouts.idle)

    def connection_lost(self, error: Exception | None) -> None:
        """Closed by either side."""
        self._phase = Phase.CLOSED
        self._terms.connections.discard(self)
        self._alarm.stop()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        """The client reads too slowly."""
        self._writable = False

    def resume_writing(self) -> None:
        """The client has read most of what there was."""
        self._writable = True
        self._proceed()

    # Waiting.

    def _await_progress(self) -> None:
        self._unread = self._transport.get_write_buffer_size()
        self._alarm.set(self._terms.timeouts.write)

    def _expire(self) -> None:
        timeouts = self._terms.timeouts
        match self._phase:
            case Phase.IDLE:
                self._close()
            case Phase.HEAD:
                self._give_up(_too_slow(f"{self.HEAD} did not arrive within {timeouts.head:g} s"))
            case Phase.BODY:
                self._give_up(_too_slow(f"nothing of {self.BODY} came for {timeouts.body:g} s"))
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
