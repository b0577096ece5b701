"""One client's connection: requests in, one at a time and in order; replies out."""

from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.exchange import as_gateway_error
from gateway.core.protocol import HttpForm
from gateway.core.tasks import spawn
from gateway.core.transport import EventualReply
from gateway.core.types import Buffer, Message
from gateway.transports.http.server import writing
from gateway.transports.http.server.admission import Admission, check_length, worth_receiving
from gateway.transports.http.server.answering import alone, answer
from gateway.transports.http.server.bodies import ChunkedBody, SizedBody
from gateway.transports.http.server.reading import HeadReader
from gateway.transports.http.server.replying import Replying, Site
from gateway.transports.http.server.request_head import Head
from gateway.transports.http.server.streamed import Stream
from gateway.transports.lifecycle import Phase

# What a client may send ahead while its request is answered; more stays in the kernel, which holds the client back.
_AHEAD = 64 * 2**10

REQUESTS_A_TURN = 32
"""Requests that one connection may have received before others have their turn: many are answered at once, in 0.1 ms
each, and a client may send thousands together."""

_RECEIVING = frozenset({Phase.IDLE, Phase.HEAD, Phase.BODY})


class Connection(Replying):
    """Receives requests, hands each to the exchange, and writes its reply before it looks at the next."""

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._reader = HeadReader(site.limits.headers)
        self._ahead = bytearray()
        self._body: SizedBody | ChunkedBody | None = None
        """What is arriving."""

    def data_received(self, data: bytes) -> None:
        """The client sent something."""
        if self._phase in _RECEIVING and not self._ahead:
            self._receive(data)
        elif self._phase is Phase.LINGERING:
            self._drop(len(data))
        else:
            self._hold(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Closed by either side."""
        super().connection_lost(error)
        self._reader.stop()
        self._body = None
        self._ahead.clear()

    # Receiving.

    def _receive(self, data: bytes) -> None:
        at, end = 0, len(data)
        steps = 2 * REQUESTS_A_TURN  # a head, and a body
        try:
            while at < end and steps and self._phase in _RECEIVING:
                steps -= 1
                at = self._receive_body(data, at) if self._phase is Phase.BODY else self._receive_head(data, at)
        except DecodeError as error:
            self._give_up(refusal(Reason.INVALID_INPUT, str(error)))
        except GatewayError as error:
            self._give_up(error)
        else:
            if at < end:
                self._hold(data[at:])
                if not steps:
                    self._loop.call_soon(self._receive_ahead)
            elif self._phase is Phase.BODY and self._body_begun is None:
                self._await_body(0)

    def _receive_head(self, data: bytes, at: int) -> int:
        reader = self._reader
        known = self._site.heads.find(data, at) if self._phase is Phase.IDLE else None
        if known is not None:
            self._head, self._admission, size = known
            self._begin(self._head, self._admission)
            return at + size
        at = reader.feed(data, at)
        if reader.complete:
            self._head = Head(reader)
            self._head.check()
            self._admission = Admission(self._head, self._site.table)
            self._begin(self._head, self._admission)
        elif reader.size and self._phase is Phase.IDLE:
            self._phase = Phase.HEAD
            self._alarm.set(self._site.timeouts.head)
        return at

    def _receive_body(self, data: bytes, at: int) -> int:
        arriving = self._body
        assert arriving is not None
        end = arriving.feed(data, at)
        if arriving.complete:
            self._body = None  # a connection that is kept is not to keep it
            self._complete(arriving.body)
        else:
            self._await_body(end - at)
        return end

    def _hold(self, data: bytes) -> None:
        """Keep what came before its turn."""
        self._ahead += data
        if len(self._ahead) > _AHEAD:
            self._transport.pause_reading()

    def _receive_ahead(self) -> None:
        if self._ahead and self._phase in _RECEIVING:
            data, self._ahead = bytes(self._ahead), bytearray()
            self._transport.resume_reading()
            self._receive(data)

    # One request.

    def _await_request(self) -> None:
        self._phase = Phase.IDLE
        self._keep_alive = False
        self._head = None
        self._admission = None
        self._reader.start()
        self._alarm.set(self._patience)

    def _begin(self, head: Head, admission: Admission) -> None:
        """The head is there: refuse the request, answer it, or wait for its body."""
        site = self._site
        check_length(head, site.limits.message)
        if admission.refused is not None and not worth_receiving(head):
            raise admission.refused
        self._keep_alive = head.keep_alive
        if head.length == 0:
            self._complete(b"")
            return
        if head.expects_continue:
            self._transport.write(writing.CONTINUE)
        limits = site.limits
        self._body = ChunkedBody(limits.message, limits.headers) if head.length is None else SizedBody(head.length)
        self._phase = Phase.BODY
        self._body_begun = None

    def _complete(self, body: Buffer) -> None:
        """The whole request is there."""
        self._phase = Phase.ANSWERING
        self._alarm.silence()
        reply = self._answer(body)
        if isinstance(reply, Message) and not self._coding(reply):
            self._send(reply)
        elif isinstance(reply, Stream):
            self._task = spawn(self._send_stream(reply))
        else:
            self._task = spawn(self._send_later(reply))

    def _answer(self, body: Buffer) -> EventualReply | Stream:
        head, admission, site = self._head, self._admission, self._site
        assert head is not None
        assert admission is not None
        if admission.refused is not None:
            return self._refusal(admission.refused)
        message = admission.message(head, body, self._peer, self._loop.time())
        coding, limits, protocol = admission.coding, site.limits, admission.protocol
        form = protocol.carrier
        assert isinstance(form, HttpForm)
        try:
            wants_stream = form.wants_stream
            if wants_stream is not None and wants_stream(message):
                return Stream(alone(message, coding, limits), site.stream, protocol, head)
            return answer(message, coding, limits, site.exchange, protocol)
        except Exception as error:
            return self._refusal(as_gateway_error(error))
