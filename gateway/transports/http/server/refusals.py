"""The listener's own errors as replies."""

from gateway.core.errors import GatewayError
from gateway.core.frozen import replace
from gateway.core.patterns import PathTable
from gateway.core.transport import Refuse
from gateway.core.types import Headers, Message
from gateway.transports.http.server.admission import Admission, allow_header
from gateway.transports.http.server.request_head import Head, UnknownExpectationError


def refused(
    error: GatewayError, head: Head | None, admission: Admission | None, peer: str, refuse: Refuse, table: PathTable
) -> Message:
    """The reply that tells `error`, in the form of the protocol that the path belongs to. `head` and `admission` are
    None where the request did not get that far."""
    message = Message(peer=peer)
    if head is not None:
        message = replace(message, method=head.method, path=head.path, query=head.query, headers=head.headers)
    protocol = table.protocol_for_error(message.path) if admission is None else admission.protocol
    reply = refuse(error, protocol, message)
    if admission is not None and admission.allow:
        reply = replace(reply, headers=Headers((*reply.headers.raw, allow_header(admission.allow))))
    return replace(reply, status=417) if isinstance(error, UnknownExpectationError) else reply
