"""What is left of an error behind a wire, where nobody knows the words that gateways add."""

from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.types import Headers, Message, Request
from tests.contract.flavors import Dialect
from tests.contract.wire import arrived, or_error, returned

LEFT_OUT = """\
Between two gateways, every error keeps its reason, because the gateways send the reason in the header or trailer
`gateway-reason`, or in the error's text. Other clients and servers see only the protocol's own error. This error has
the same reason (**kept**), or the reason in the table if the protocol has no code for the original reason.
"""


def left_of(reason: Reason, dialect: Dialect) -> str:
    """What a peer makes of an error that does not know the gateway's word for it."""
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
