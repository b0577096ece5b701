"""The queries that show whether a server uses a protocol or a built-in JSON form, and the interpretation of responses.
`asking` sends the queries.

A query is a metadata request, which runs no model. Because plain web servers respond to every request, a response
identifies the protocol only if it is a success in this protocol, or an error that no other server sends. Responses to
GET requests identify a form if no other server sends such responses.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import orjson

from gateway.core.errors import DecodeError, GatewayError, Reason, Status
from gateway.core.frozen import frozen
from gateway.core.messages import Message
from gateway.core.models import ServerInfo
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, StreamBinding, Target
from gateway.core.requests import Answer, Request

NO_MODEL = "no-such-model"
"""The model name in queries to a server that cannot list its models. The response identifies the server type."""

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


NOWHERE = "/no-such-path"
"""A path that no model server has."""

Shows: TypeAlias = Callable[[Message], bool]


@frozen
class FormEvidence:
    """A path, and a function that returns whether the response to a GET request for this path identifies a server of
    the form."""

    path: str
    shows: Shows


def _text(pattern: str) -> Shows:
    """Return a function that checks whether the entire body matches this pattern."""
    return lambda reply: re.fullmatch(pattern.encode(), bytes(reply.body)[:1000]) is not None


def _json(shows: Callable[[Any], bool]) -> Shows:
    """Return a function that checks whether the body is JSON for which `shows` returns True."""

    def judged(reply: Message) -> bool:
        try:
            return shows(orjson.loads(reply.body))
        except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
            return False

    return judged


def _titled(title: str) -> Shows:
    """Return a function that checks whether the body is an API description with this title."""
    return _json(lambda body: body["info"]["title"] == title)


_MODEL_SERVER = FormEvidence("/ping", _json(lambda body: body["status"] in ("Healthy", "Partial Healthy", "Unhealthy")))
_RAY = FormEvidence("/-/healthz", _text("success"))
_COG_STATES = ("UNKNOWN", "STARTING", "READY", "BUSY", "SETUP_FAILED", "DEFUNCT", "UNHEALTHY")

EVIDENCE: Mapping[str, tuple[FormEvidence, ...]] = {
    "json:torchserve": (_MODEL_SERVER, FormEvidence("/api-description", _titled("TorchServe APIs"))),
    # AWS's multi-model-server, which SageMaker containers contain, and on which TorchServe is based.
    "json:sagemaker": (_MODEL_SERVER, FormEvidence("/api-description", _titled("Model Server APIs"))),
    # /version returns the MLflow version in plain text, and /ping an empty line.
    "json:mlflow": (FormEvidence("/ping", _text("\n")), FormEvidence("/version", _text(r"[0-9]+(\.[0-9a-z]+)+\n?"))),
    # A model without a health check has the status "not implemented - assuming healthy".
    "json:seldon": (
        FormEvidence("/health/ping", _text("pong")),
        FormEvidence("/health/status", _json(lambda body: "meta" in body)),
    ),
    "json:cog": (FormEvidence("/health-check", _json(lambda body: body["status"] in _COG_STATES)),),
    "json:litserve": (FormEvidence("/info", _json(lambda body: "workers_per_device" in body["server"])),),
    "json:bentoml": (
        FormEvidence("/readyz", _text("")),
        FormEvidence("/schema.json", _json(lambda body: isinstance(body["routes"], list))),
    ),
    "json:ray": (_RAY, FormEvidence("/-/routes", _json(lambda routes: "/" in routes))),
    "json:ray-applications": (
        _RAY,
        FormEvidence("/-/routes", _json(lambda routes: any(len(prefix) > 1 for prefix in dict(routes)))),
    ),
    "json:infinity": (FormEvidence("/models", _json(lambda body: body["data"][0]["owned_by"] == "infinity")),),
    "json:openai-embeddings": (
        FormEvidence(
            "/v1/models", _json(lambda body: body["object"] == "list" and body["data"][0]["object"] == "model")
        ),
    ),
}
"""The responses that servers of each recognizable form send, by form name. A server must send all of them.

The probe cannot recognize forms whose servers send no distinctive responses. A Vertex AI or Hugging Face container
responds with 200 at its health path, like any web server. A SageMaker container does the same, unless it contains AWS's
multi-model-server."""
SILENT_TOO = frozenset({"json:sagemaker"})
"""Forms for which only some servers are recognizable."""
