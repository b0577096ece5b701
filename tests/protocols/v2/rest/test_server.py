import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Status
from gateway.core.exchange import decoded
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.types import Headers, Message, Request
from tests.protocols.v2.rest.wire import LISTENER, TARGET, V2_REST, reply

MODEL = {"model": "a/b"}
VERSION = {"model": "a/b", "version": "v10"}


@pytest.mark.parametrize(
    ("pattern", "captures", "operation"),
    [
        ("GET /v2", {}, Operation.SERVER_METADATA),
        ("GET /v2/health/live", {}, Operation.LIVE),
        ("GET /v2/health/ready", {}, Operation.READY),
        ("GET /v2/models/{model}", MODEL, Operation.METADATA),
        ("GET /v2/models/{model}/versions/{version}", VERSION, Operation.METADATA),
        ("GET /v2/models/{model}/ready", MODEL, Operation.MODEL_READY),
        ("GET /v2/models/{model}/versions/{version}/ready", VERSION, Operation.MODEL_READY),
        ("GET /v2/models/{model}/config", MODEL, Operation.CONFIG),
        ("GET /v2/models/{model}/versions/{version}/config", VERSION, Operation.CONFIG),
    ],
)
def test_reads_questions_from_their_paths(pattern: str, captures: dict[str, str], operation: Operation) -> None:
    assert pattern in V2_REST.patterns
    headers = Headers(((b"x-tenant", b"t"),))
    message = Message("GET", headers=headers, pattern=pattern, captures=captures, peer="10.0.0.1:5", deadline=7.0)
    request = decoded(message, V2_REST, LISTENER)
    assert request.operation is operation
    assert (request.model, request.version) == (captures.get("model", ""), captures.get("version", ""))
    assert (request.listener, request.protocol, request.peer, request.deadline) == (
        "http",
        "v2-rest",
        "10.0.0.1:5",
        7.0,
    )
    assert (request.headers, request.origin) == (headers, message)


def test_every_pattern_has_a_reader() -> None:
    for pattern in V2_REST.patterns:
        if "sharedmemory" in pattern:
            continue
        body = b"{}" if pattern.endswith(("setting", "logging", "load")) else b'{"inputs":[]}'
        message = Message(pattern=pattern, captures=VERSION, parts=(body,))
        assert decoded(message, V2_REST, LISTENER).operation in Operation


@pytest.mark.parametrize(
    ("request_", "method", "path"),
    [
        (Request(Operation.LIVE), "GET", "/v2/health/live"),
        (Request(Operation.READY), "GET", "/v2/health/ready"),
        (Request(Operation.SERVER_METADATA), "GET", "/v2"),
        (Request(Operation.METADATA, "m"), "GET", "/v2/models/m"),
        (Request(Operation.METADATA, "m", "3"), "GET", "/v2/models/m/versions/3"),
        (Request(Operation.MODEL_READY, "a b/ü"), "GET", "/v2/models/a%20b%2F%C3%BC/ready"),
        (Request(Operation.MODEL_READY, "m", "v/1"), "GET", "/v2/models/m/versions/v%2F1/ready"),
        (Request(Operation.CONFIG, "m"), "GET", "/v2/models/m/config"),
        (Request(Operation.MODELS), "POST", "/v2/repository/index"),
        (Request(Operation.INFER, "M.gradient"), "POST", "/v2/models/M.gradient/infer"),
    ],
)
def test_asks_at_the_right_path(request_: Request, method: str, path: str) -> None:
    message = V2_REST.encode_request(request_, TARGET)
    assert (message.method, message.path) == (method, path)


def test_mlserver_needs_a_body_for_the_index() -> None:
    message = V2_REST.encode_request(Request(Operation.MODELS), TARGET)
    assert (message.body, list(message.headers)) == (b"{}", [("content-type", "application/json")])


@pytest.mark.parametrize("operation", DERIVATIVES)
def test_has_no_words_for_derivatives(operation: Operation) -> None:
    with pytest.raises(GatewayError, match=operation.value) as raised:
        V2_REST.encode_request(Request(operation, "m"), TARGET)
    assert raised.value.status is Status.UNIMPLEMENTED


@pytest.mark.parametrize("status", [100, 201, 204, 301, 307])
def test_only_200_is_success(status: int) -> None:
    with pytest.raises(DecodeError, match=f"status {status}, expected 200"):
        V2_REST.decode_response(reply(b'{"outputs":[]}', status=status), Request(Operation.INFER, "m"), TARGET)


def test_traits() -> None:
    traits = V2_REST.traits
    assert traits.wire.datatypes == frozenset(Datatype)
    assert traits.wire.nan == "error"
    assert traits.models.versions is not None
    assert traits.models.versions("v10")
    assert not traits.models.versions("")
