"""The reason that an error keeps if its receiver is not a gateway, and so ignores the header that gateways add."""

from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.requests import Request
from tests.contract.flavors import Dialect
from tests.contract.wire import arrived, or_error, returned

LEFT_OUT = """\
Between two gateways, every error keeps its reason: the gateways send it in the header or trailer `gateway-reason`, or
in the error message. Other clients and servers see only the error code of the protocol. The table shows the reason that
this code stands for. It is **kept** if the protocol has a code for the original reason.
"""


def left_of(reason: Reason, dialect: Dialect) -> str:
    """Return the reason that a peer reads from an error if it ignores the gateway's own name for the reason."""
    request = Request(Operation.INFER, "m")
    protocol = dialect.protocol
    question = arrived(protocol.encode_request(request, dialect.target), protocol)
    reply = _without(reason, returned(protocol.encode_error(refusal(reason, "why"), None, question), protocol))
    found = or_error(lambda: protocol.decode_response(reply, request, dialect.target))
    assert isinstance(found, GatewayError)
    return "kept" if found.reason is reason else found.reason.value


def _without(reason: Reason, reply: Message) -> Message:
    word = reason.value.encode()
    headers = [(name, text) for name, text in reply.headers.raw if text != word]
    parts = tuple(bytes(part).replace(word, b"x" * len(word)) for part in reply.parts)
    return replace(reply, headers=Headers(headers), parts=parts)
