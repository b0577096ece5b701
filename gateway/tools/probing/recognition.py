"""The queries that show whether a server uses a protocol, and the interpretation of the responses. `asking` sends the
queries.

A query is a metadata request, which runs no model. Because plain web servers answer every request, a response shows the
protocol only if it is a success in that protocol, or an error that no other server sends.
"""

from collections.abc import Iterator

from gateway.core.errors import DecodeError, GatewayError, Reason, Status
from gateway.core.frozen import frozen
from gateway.core.messages import Message
from gateway.core.models import ServerInfo
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, StreamBinding, Target
from gateway.core.requests import Answer, Request

NO_MODEL = "no-such-model"
"""The model name in queries to a server that cannot list its models. The response shows the server type."""

_SUCCESS = 400
"""HTTP responses with this status or above are errors. Other transports use lower status numbers."""


@frozen
class ProbeQuestion:
    """A request and its encoded message."""

    request: Request
    message: Message


@frozen
class Evidence:
    """The evidence in a response. `speaks` is True if the server uses the protocol, and `refused` if it requires other
    credentials. `text` describes an unexpected response."""

    speaks: bool = False
    refused: bool = False
    text: str = ""


def questions(protocol: Protocol, target: Target, model: str = "") -> Iterator[ProbeQuestion]:
    """Yield the queries for a protocol, the most informative first. `model` is the name of a model that the server
    might have."""
    for request in _requests(protocol, model):
        try:
            yield ProbeQuestion(request, protocol.encode_request(request, target))
        except GatewayError:
            continue  # the protocol does not have the operation


def _requests(protocol: Protocol, model: str) -> Iterator[Request]:
    yield Request(Operation.SERVER_METADATA)
    yield Request(Operation.MODELS)
    part = next(iter(protocol.traits.models.metadata_parts), "")
    if model:
        yield Request(Operation.METADATA, model, part=part)
    if not protocol.traits.models.named:
        yield Request(Operation.METADATA, part=part)
    if isinstance(protocol.binding, StreamBinding):
        # In other protocols, the response has no distinctive content: any web server returns a page with status 200.
        yield Request(Operation.LIVE)
    if protocol.traits.servers.lacks_model is not None:
        yield Request(Operation.MODEL_READY, model or NO_MODEL)


def judge(protocol: Protocol, question: ProbeQuestion, reply: Message, target: Target) -> Evidence:
    """Return the evidence in the response to a query."""
    lacks_model = protocol.traits.servers.lacks_model
    is_guess = question.request.operation is Operation.MODEL_READY  # any web server might send this response
    if is_guess and lacks_model is not None and lacks_model(reply, question.request.model):
        return Evidence(speaks=True)
    try:
        answer = protocol.decode_response(reply, question.request, target)
    except GatewayError as error:
        is_refused = error.status in (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED)
        return Evidence(refused=is_refused, text=error.message)
    except DecodeError as error:
        return Evidence(text=str(error))
    if reply.status >= _SUCCESS or is_guess or not _tells_something(answer):
        return Evidence(text=f"a response with status {reply.status}")
    return Evidence(speaks=True)


def _tells_something(answer: Answer) -> bool:
    """Return whether a response is distinctive. Any server could send an empty list, or metadata without a name."""
    return bool(answer.name if isinstance(answer, ServerInfo) else answer)


def is_silence(error: GatewayError) -> bool:
    """Return whether a transport error means that the server did not respond."""
    return error.reason is Reason.TIMEOUT
