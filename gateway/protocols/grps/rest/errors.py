"""The reply of grps-rest that tells an error of the gateway, on grps' own paths and where messages pass through."""

from gateway.core.errors import GatewayError
from gateway.core.types import Headers, Message, Request
from gateway.protocols.grps import errors
from gateway.protocols.grps.json import message as json_message
from gateway.protocols.grps.rest.bodies import JSON


def encode_error(error: GatewayError, request: Request | None, message: Message) -> Message:
    """The reply that tells `error`, or a stream's last message. HTTP's status is the body's code, as the Python server
    has it; clients of the C++ server, which has 200 for all, look at the body."""
    grps = errors.failure(error)
    assert grps.status is not None
    headers = Headers((*JSON.raw, errors.reason_header(error)))
    return Message(headers=headers, parts=json_message.write(grps, "output", ""), status=grps.status.code)
