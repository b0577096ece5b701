"""The first bytes of a connection to an address that several transports share. They tell which one the client speaks:

    first bytes                        transport
    PRI * HTTP/2.0 CR LF CR LF SM ...  gRPC: the preface of HTTP/2 (RFC 9113, section 3.4)
    the magic of a Framing             byte streams: `PRPC` of baidu_std, a zero byte of MIP
    a character of an HTTP method      HTTP/1.1 (RFC 9112, section 3.1), also after an empty line
    anything else                      none: the connection is refused

Over TLS the client and the gateway may have agreed on HTTP/1.1 or HTTP/2 in the handshake (ALPN); then no byte is
waited for. Once it is known, the transport's own connection takes over, and nothing is left of this one.
"""

import asyncio
import typing
from collections.abc import Callable, Sequence
from http import HTTPStatus

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.frozen import frozen
from gateway.transports.lifecycle import ConnectionContext, Lifecycle, Phase
from gateway.transports.listener_connections import AcceptedConnection

SCRATCH_BYTES = 64 * 2**10
"""Bytes received at a time. Every transport's own buffer holds as many."""

# RFC 9110 section 5.6.2: `tchar`, which methods consist of; and an empty line, which may come before.
_HTTP1 = frozenset(b"!#$%&'*+-.^_`|~\r\n") | frozenset(range(0x30, 0x3A)) | frozenset(range(0x41, 0x5B))
_HTTP1 |= frozenset(range(0x61, 0x7B))
_LONGEST = 24
"""Bytes of the longest magic, which is HTTP/2's preface."""


@frozen
class Opening:
    """How connections of one transport begin. `magic` is empty for HTTP/1.1, which begins with any method; `alpn` is
    what both sides announce over TLS, empty if nothing."""

    magic: bytes = b""
    alpn: str = ""


def recognised(data: bytes, openings: Sequence[Opening]) -> int | None:
    """The index of the opening that `data`, all that the client has sent, begins with; None if more bytes are needed.

    Raises:
        DecodeError: it is none of them.
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
    raise DecodeError(f"it begins with {data[:_LONGEST]!r}, which is no protocol of this port")


class Served(AcceptedConnection, typing.Protocol):
    """The connection of a transport, which takes over. It is an asyncio.Protocol or an asyncio.BufferedProtocol."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """As of every asyncio protocol."""


@frozen
class SharedContext(ConnectionContext):
    """The data that all connections of one shared address use until they are recognised."""

    openings: Sequence[Opening]
    serve: Sequence[Callable[[], Served]]
    """For each opening what makes the connection that takes over."""
    names: str
    """The protocols that are served, for error texts: `v2-rest, v2-grpc`."""
    scratch: memoryview


class FirstBytes(Lifecycle, asyncio.BufferedProtocol):
    """A connection that is not recognised yet. It counts as a connection of the listener, may be silent for as long as
    an idle one, and has `Timeouts.head` seconds from its first byte on. A connection that is one too many is told so by
    the transport that it turns out to speak; for that it has `Timeouts.grace` seconds in place of both."""

    HEAD_NAME = "the bytes that tell the protocol"

    _context: SharedContext

    def __init__(self, context: SharedContext) -> None:
        super().__init__(context)
        self._early = b""
        """Bytes that have arrived: not more than the longest magic."""
        self._head_seconds = context.timeouts.head
        """The time from the first byte until it is recognised."""

    @property
    def unanswered(self) -> int:
        """1 while a request may have begun to arrive."""
        return int(self._phase is Phase.HEAD)

    def renew(self, context: SharedContext) -> None:
        """Recognise with `context` from now on."""
        self._context = context

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected, and the TLS handshake, if there is one, is over."""
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
        """Where to receive the next bytes: behind those that have arrived."""
        scratch, early = self._context.scratch, self._early
        scratch[: len(early)] = early
        return scratch[len(early) :]

    def buffer_updated(self, nbytes: int) -> None:
        """The client sent something."""
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
        """The client has closed, or will send nothing more: the connection is closed."""
        self._close()

    def _hand_over(self, at: int, received: memoryview | bytes) -> None:
        """Let the connection of a transport take over, with the bytes that have arrived."""
        transport, served = self._transport, self._context.serve[at]()
        self._hand_over_to(served)
        protocol = typing.cast(asyncio.BaseProtocol, served)
        # uvloop reads in another way for a BufferedProtocol, and asks which one it is when reading begins.
        transport.pause_reading()
        transport.set_protocol(protocol)
        transport.resume_reading()
        protocol.connection_made(transport)
        if not received or transport.is_closing():
            return
        if isinstance(protocol, asyncio.BufferedProtocol):
            memoryview(protocol.get_buffer(len(received)))[: len(received)] = received
            protocol.buffer_updated(len(received))
        else:
            typing.cast(asyncio.Protocol, protocol).data_received(bytes(received))

    def _refuse_unknown(self, why: str) -> None:
        connections = self._context.connections
        connections.unrecognised += 1
        mistake = self._tls_mistake(self._early)
        if not mistake:
            connections.log_unrecognised(self._peer, why)
        self._reject(refusal(Reason.INVALID_INPUT, f"this port speaks {self._context.names}"))

    def _reject_connection(self, error: GatewayError) -> None:
        """Nobody knows yet in which words to refuse it. A client that says nothing is not waited for."""
        self._idle_seconds = self._head_seconds = self._context.timeouts.grace
        self._alarm.set(self._idle_seconds)

    def _reject(self, error: GatewayError) -> None:
        """Tell it to a client that sends text, which may be HTTP; close the connection of any other."""
        if self._early[:1].isalpha():
            self._transport.write(_http_reply(error))
        self._linger()

    def _proceed(self) -> None:
        """Nothing waits for the client to read."""


def _http_reply(error: GatewayError) -> bytes:
    status = HTTPStatus.REQUEST_TIMEOUT if error.reason is Reason.REQUEST_TIMEOUT else HTTPStatus.BAD_REQUEST
    text = f"{error.message}\n".encode()
    return b"HTTP/1.1 %d %b\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (
        status,
        status.phrase.encode(),
        len(text),
        text,
    )
