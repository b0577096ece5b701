"""The data that all connections of one HTTP listener share, and the rejections of requests that depend on this data."""

from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.frozen import frozen, replace
from gateway.core.messages import Headers, Message
from gateway.core.patterns import PathTable
from gateway.core.record import UNRECORDED, Record
from gateway.core.transport import Admit, Exchange, ExchangeStream, Refuse, StartRecord, begun, is_admitted
from gateway.transports.http.server.cross_origin import CrossOriginReplies
from gateway.transports.http.server.dispatch import Dispatch, allow_header, check_length, worth_receiving
from gateway.transports.http.server.request_head import RequestHead, UnknownExpectationError
from gateway.transports.http.server.whole_heads import WholeHeads
from gateway.transports.lifecycle import ConnectionContext


@frozen
class HttpContext(ConnectionContext):
    """The data that all connections of one HTTP listener share."""

    table: PathTable
    heads: WholeHeads
    scratch: memoryview
    """The buffer for received bytes. Connections copy the bytes before they return to the event loop."""
    exchange: Exchange
    stream: ExchangeStream
    refuse: Refuse
    record: StartRecord | None
    admit: Admit | None = None
    cross_origin: CrossOriginReplies | None = None

    def spoken_to(self, request: Message) -> str:
        """Return the listener's protocols as text. The text is empty if the client of `request` is not allowed to see
        them."""
        is_told = is_admitted(self.admit, request.headers, request.identity, request.peer)
        return self.table.spoken if is_told else ""

    def check_early(self, head: RequestHead, dispatch: Dispatch, identity: str, peer: str) -> None:
        """Check a request before its body arrives. `identity` and `peer` identify the client.

        Raises:
            GatewayError: the request's body is too large, or the gateway rejects the request without reading the body.
        """
        check_length(head, self.limits.message)
        if dispatch.refused is not None and not worth_receiving(head):
            raise dispatch.refused
        if self.admit is not None and dispatch.admits_first:
            self.admit(head.headers, identity, peer)  # for other requests, the exchange does this with the body

    def error_reply(
        self, error: GatewayError, request: Message, head: RequestHead | None, dispatch: Dispatch | None
    ) -> tuple[Message, Record]:
        """Return the reply that reports `error`, in the format of the protocol to which the request's path belongs.

        Also return the record of the request, which this method creates if requests are observed and the record is
        missing. `request` contains the data about the client, and the existing record, if any. `head` and `dispatch`
        are None if the request's head is unreadable."""
        if head is not None:
            request = replace(request, method=head.method, path=head.path, query=head.query, headers=head.headers)
        protocol = self.table.protocol_for_error(request.path) if dispatch is None else dispatch.protocol
        if request.record is UNRECORDED:
            begun(self.record, request, protocol, 0)
        if error.reason is Reason.PATH_NOT_FOUND and (spoken := self.spoken_to(request)):
            error = refusal(error.reason, f"{error.message}; this listener speaks {spoken}")
        reply = self.refuse(error, protocol, request)
        if dispatch is not None and dispatch.allow:
            reply = replace(reply, headers=Headers((*reply.headers.raw, allow_header(dispatch.allow))))
        if isinstance(error, UnknownExpectationError):
            reply = replace(reply, status=417)
        return reply, request.record

    def note_refused(self, request: Message, error: GatewayError, status: int) -> None:
        """Record an HTTP/2 request that the gateway rejected with this HTTP `status`."""
        record = begun(self.record, request, self.table.protocol_for_error(request.path), 0)
        record.failed(error)
        record.end(status, 0)
