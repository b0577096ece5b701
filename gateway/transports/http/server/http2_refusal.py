"""A client that uses HTTP/2 on an HTTP/1.1 port.

The gateway rejects the client's requests in HTTP/2. It resets each request with HTTP_1_1_REQUIRED (RFC 9113, section
7), so clients such as curl repeat the request over HTTP/1.1. A gRPC client, which cannot use HTTP/1.1, receives
UNIMPLEMENTED with a message.
"""

import asyncio
from http import HTTPStatus

from gateway.core.errors import GatewayError, Reason, Status, refusal
from gateway.core.frozen import replace
from gateway.core.http2.connection import Stream
from gateway.core.http2.frames import ErrorCode
from gateway.core.http2.heads import ByName, RequestHeads
from gateway.core.http2.hpack import Field, write
from gateway.core.http2.server import Http2Server, RequestReceived, RequestStarted
from gateway.core.messages import Headers, Message
from gateway.transports.http.server.context import HttpContext
from gateway.transports.lifecycle import Lifecycle, Phase

FIRST_LINE = b"PRI * HTTP/2.0\r\n\r\n"
"""The beginning of the HTTP/2 preface, which HTTP/1.1 parsers read as a head."""

_MOST_REQUESTS = 100
"""The maximum number of rejected requests on one connection. After this number, the client receives a GOAWAY."""

_GRPC = b"application/grpc"
_REFUSED = "this port speaks HTTP/1.1, not HTTP/2; use another port for HTTP/2"
_NO_GRPC = "this port speaks HTTP/1.1, not gRPC; use a port with a gRPC protocol"


class Http2Refusal(Lifecycle, asyncio.BufferedProtocol):
    """The connection of an HTTP/2 client after the client's preface.

    All limits for HTTP/2 connections apply. The idle timeout ends the connection if no complete request arrives."""

    HEAD_NAME = "the request's head"

    _context: HttpContext

    def __init__(self, context: HttpContext) -> None:
        super().__init__(context)
        self._http2: Http2Server[Message] = Http2Server(_heads(context.limits.headers), self._loop.time())
        self._http2.ping_interval = context.limits.ping_interval
        self._rest = b""
        """An incomplete frame."""
        self._left = _MOST_REQUESTS

    def take_over(self, transport: asyncio.Transport, data: bytes) -> None:
        """Serve a client that has already sent `data`."""
        transport.set_protocol(self)
        self.connection_made(transport)
        if not transport.is_closing():
            self._received(data)

    @property
    def unanswered(self) -> int:
        """The number of unanswered requests, which is 0 because the gateway rejects requests immediately."""
        return 0

    def renew(self, context: HttpContext) -> None:
        """Use `context` from now on."""
        self._context = context

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes."""
        return self._context.scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Handle bytes from the client."""
        self._received(self._context.scratch[:nbytes].tobytes())

    def _received(self, data: bytes) -> None:
        if self._phase is not Phase.IDLE:
            self._drop(len(data))
            return
        http2, received, at = self._http2, memoryview(self._rest + data), 0
        while True:
            at += http2.receive(received[at:], self._loop.time())
            while http2.events:
                event = http2.events.popleft()
                if isinstance(event, RequestReceived | RequestStarted):
                    self._refuse(event.stream, event.head)
            if not http2.has_more or http2.is_closed:
                break
        self._rest = received[at:].tobytes()
        self._flush()

    def _refuse(self, stream: Stream, head: Message) -> None:
        self._alarm.set(self._idle_seconds)
        self._left -= 1
        if self._left < 0:
            self._http2.close(ErrorCode.HTTP_1_1_REQUIRED, _REFUSED)
            return
        request = replace(head, peer=self._peer, identity=self._identity, received=self._loop.time())
        error = refusal(Reason.VERSION_NOT_SUPPORTED, _REFUSED)
        self._context.note_refused(request, error, HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        if head.headers.get("content-type", "").startswith(_GRPC.decode()):
            self._http2.send_end(stream, _unimplemented(self._context.spoken_to(request)))
        else:
            self._http2.reset(stream, ErrorCode.HTTP_1_1_REQUIRED)

    def _flush(self) -> None:
        self._transport.write(b"".join(self._http2.data_to_send()))
        if self._http2.is_closed:
            self.linger()

    def pause_writing(self) -> None:
        """Pause writing, because the client reads too slowly. Also pause reading."""
        super().pause_writing()
        self._http2.is_paused = True
        self._transport.pause_reading()

    def proceed(self) -> None:
        self._http2.is_paused = False
        self._transport.resume_reading()

    def reject(self, error: GatewayError) -> None:
        self._http2.close(ErrorCode.ENHANCE_YOUR_CALM, error.message)
        self._flush()


def _unimplemented(spoken: str) -> bytes:
    """Return the header block of a complete gRPC reply."""
    text = f"{_NO_GRPC}; this listener speaks {spoken}" if spoken else _NO_GRPC
    told = ((b"content-type", _GRPC), (b"grpc-status", b"%d" % Status.UNIMPLEMENTED), (b"grpc-message", text.encode()))
    return b"\x88" + write(told)


def _heads(limit: int) -> RequestHeads[Message]:
    """Return a reader for the parts of heads that the gateway logs."""
    return RequestHeads(limit, _message, Message())


def _message(fields: list[Field], by_name: ByName) -> Message:
    method, target = by_name[b":method"].decode("latin-1"), by_name[b":path"].decode("latin-1")
    path, _, query = target.partition("?")
    headers = Headers(tuple(field for field in fields if not field[0].startswith(b":")))
    return Message(method=method, path=path, query=query, headers=headers)
