"""Which questions show that a server speaks a wire form, and what its replies show. Nothing here sends anything.

A question is a request for metadata; none runs a model. A reply shows that the wire form is spoken only if it is a
success of that wire form, or an error that no other server gives: a plain web server has an answer to everything.
"""

from collections.abc import Iterator

from gateway.core.errors import DecodeError, GatewayError, Reason, Status
from gateway.core.frozen import frozen
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, StreamForm, Target
from gateway.core.types import Answer, Message, Request, ServerInfo

NO_MODEL = "no-such-model"
"""The model that a server is asked about which cannot list its models; what it answers shows what server it is."""

_SUCCESS = 400
"""HTTP replies of this status and above are errors. On other transports the status is below it."""


@frozen
class ProbeQuestion:
    """A request, and its bytes."""

    request: Request
    message: Message


@frozen
class Evidence:
    """The evidence in a reply. `speaks`: the server speaks the wire form. `refused`: it wants other credentials before
    it answers. `text` says what came in place of an answer."""

    speaks: bool = False
    refused: bool = False
    text: str = ""


def questions(protocol: Protocol, target: Target, model: str = "") -> Iterator[ProbeQuestion]:
    """The questions for a wire form, the most telling one first. `model` is a model that the server may have."""
    for request in _requests(protocol, model):
        try:
            yield ProbeQuestion(request, protocol.encode_request(request, target))
        except GatewayError:
            continue  # the wire form does not have the operation


def _requests(protocol: Protocol, model: str) -> Iterator[Request]:
    yield Request(Operation.SERVER_METADATA)
    yield Request(Operation.MODELS)
    part = next(iter(protocol.traits.models.metadata_parts), "")
    if model:
        yield Request(Operation.METADATA, model, part=part)
    if not protocol.traits.models.named:
        yield Request(Operation.METADATA, part=part)
    if isinstance(protocol.carrier, StreamForm):
        # Elsewhere the answer has no content of its own: any web server has a page with status 200.
        yield Request(Operation.LIVE)
    if protocol.traits.servers.lacks_model is not None:
        yield Request(Operation.MODEL_READY, model or NO_MODEL)


def judge(protocol: Protocol, question: ProbeQuestion, reply: Message, target: Target) -> Evidence:
    """The evidence in the reply to a question."""
    lacks_model = protocol.traits.servers.lacks_model
    is_guess = question.request.operation is Operation.MODEL_READY  # any web server has some answer
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
        return Evidence(text=f"a reply of status {reply.status}")
    return Evidence(speaks=True)


def _tells_something(answer: Answer) -> bool:
    """Whether an answer has content: an empty list, or metadata without a name, may be anybody's."""
    return bool(answer.name if isinstance(answer, ServerInfo) else answer)


def is_silence(error: GatewayError) -> bool:
    """Whether an error of a transport means that nothing came."""
    return error.reason is Reason.TIMEOUT
