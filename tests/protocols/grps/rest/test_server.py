"""grps-rest as clients and servers speak it: paths, queries, content types, and the replies of both real servers."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.exchange import decoded
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings
from gateway.core.types import (
    DEFAULT_TRANSLATE,
    Answer,
    Message,
    ModelEntry,
    Request,
    Response,
    Signature,
    Translate,
    tensor,
)
from gateway.protocols.grps import GRPS_REST
from tests.protocols.grps.rest.wire import JSON, LISTENER, OCTETS, OK_STATUS, PREDICT, TABLE, TARGET, call, reply
from tests.protocols.grps.values import inference, numbers, texts

X = numbers("x", Datatype.FP32, 1, 2)
X_JSON = b'{"gtensors":{"tensors":[{"name":"x","dtype":"DT_FLOAT32","shape":[2],"flat_float32":[1.0,2.0]}]}}'
STR = b'{"str_data":"hello grps"}'


def decode(message: Message, listener: ListenerSettings = LISTENER) -> Request:
    return decoded(message, GRPS_REST, listener)


def respond(request: Request, *outputs: object, translate: Translate = DEFAULT_TRANSLATE) -> Message:
    return GRPS_REST.encode_response(Response(outputs), request, translate)  # type: ignore[arg-type]


def answer(message: Message, operation: Operation = Operation.INFER) -> Answer:
    return GRPS_REST.decode_response(message, Request(operation, "m"), TARGET)


# --- What clients ask ---


@pytest.mark.parametrize(
    "content_type", [JSON, "application/json; charset=utf-8", "APPLICATION/JSON", "", "text/plain"]
)
def test_json_is_read_under_any_type(content_type: str) -> None:
    # as `curl -d` sends it, too; real servers refuse all but the first
    request = decode(call(STR, content_type))
    assert (request.operation, request.inputs) == (
        Operation.INFER,
        (replace(texts("", "hello grps"), content_type="text"),),
    )


@pytest.mark.parametrize("content_type", [OCTETS, "Application/Octet-Stream; x=y"])
@pytest.mark.parametrize("body", [b"\x00\xff{", STR, b""])
def test_octets_are_bytes_whatever_they_look_like(content_type: str, body: bytes) -> None:
    request = decode(call(body, content_type, "model=your_model-1.0.0"))
    assert request.model == "your_model-1.0.0"
    assert request.inputs == (texts("", body),)


@pytest.mark.parametrize(
    ("body", "content_type", "expected"),
    [
        (b"hello", "text/plain", "Content-Type 'text/plain' is not supported, expected application/json or"),
        (b"hello", "", "a body without Content-Type is not supported"),
        (b"", JSON, "empty body"),
        (b"[1]", JSON, "expected a JSON object"),
        (b'{"strData": "a"}', JSON, "holds no data, expected str_data"),
    ],
)
def test_bodies_that_are_none(body: bytes, content_type: str, expected: str) -> None:
    with pytest.raises(DecodeError, match=expected):
        decode(call(body, content_type))


@pytest.mark.parametrize(
    ("query", "body", "model"),
    [
        ("model=q-1", b'{"model":"p-1","str_data":""}', "p-1"),
        ("model=q-1", b'{"model":"","str_data":""}', "q-1"),
        ("a=b&model=%C3%A9+1", b'{"str_data":""}', "é 1"),
        ("", b'{"str_data":""}', "of the listener"),
    ],
)
def test_the_payload_names_the_model_before_the_query(query: str, body: bytes, model: str) -> None:
    assert decode(call(body, query=query), ListenerSettings(model="of the listener")).model == model


@pytest.mark.parametrize("query", ["model=%ff", "&".join(["a=b"] * 200)])
def test_queries_that_are_none(query: str) -> None:
    message = call(STR, query=query + "&streaming=true")
    assert GRPS_REST.http.wants_stream is not None
    assert not GRPS_REST.http.wants_stream(message)
    with pytest.raises(DecodeError, match="is not percent-encoded UTF-8"):
        decode(message)


@pytest.mark.parametrize(
    ("query", "streams"),
    [
        ("streaming=true", True),
        ("model=m&streaming=TRUE", True),
        ("streaming=false", False),
        ("streaming", False),
        ("", False),
    ],
)
def test_streaming_is_a_word_of_the_query(query: str, streams: bool) -> None:
    message = call(STR, query=query)
    assert GRPS_REST.http.wants_stream is not None
    assert GRPS_REST.http.wants_stream(message) is streams
    assert decode(message).operation is (Operation.STREAM if streams else Operation.INFER)


def test_streaming_is_of_inferences_alone() -> None:
    assert GRPS_REST.http.wants_stream is not None
    assert not GRPS_REST.http.wants_stream(call(query="streaming=true", path="/grps/v1/health/live"))
    assert GRPS_REST.http.wants_stream(call(STR, query="streaming=true", path="/customized"))


def test_a_stream_of_ndarrays_is_refused_in_the_words_of_the_servers() -> None:
    with pytest.raises(
        DecodeError, match=r"^Bad Request, err: Streaming and ret ndarray are not supported at the same time\.$"
    ):
        decode(call(STR, query="streaming=true&return-ndarray=True"))


@pytest.mark.parametrize(
    ("path", "methods", "operation"),
    [
        ("/health/online", ("GET", "POST", "HEAD"), Operation.ONLINE),
        ("/health/offline", ("GET", "POST", "HEAD"), Operation.OFFLINE),
        ("/health/live", ("GET", "POST", "HEAD"), Operation.LIVE),
        ("/health/ready", ("GET", "POST", "HEAD"), Operation.READY),
        ("/metadata/server", ("GET", "POST", "HEAD"), Operation.MODELS),
        ("/metadata/model", ("GET", "POST"), Operation.METADATA),
    ],
)
def test_other_questions(path: str, methods: tuple[str, ...], operation: Operation) -> None:
    for method in methods:
        match = TABLE.match(method, f"/grps/v1{path}")
        assert not isinstance(match, tuple)
        assert decode(Message(method, pattern=match.pattern)).operation is operation


def test_the_model_whose_metadata_are_asked_for() -> None:
    def asked(body: bytes, query: str = "") -> str:
        return decode(call(body, query=query, path="/grps/v1/metadata/model")).model

    assert asked(b'{"str_data": "echo"}', "model=other") == "echo"
    assert asked(b"", "model=echo-1.0.0") == "echo-1.0.0"
    assert asked(b"{}") == ""


def test_a_customized_path_has_the_same_body() -> None:
    request = decode(call(STR, path="/v1/chat", query="model=m"))
    assert (request.operation, request.model) == (Operation.INFER, "m")


# --- What clients are answered ---


def test_a_tensor() -> None:
    found = respond(decode(call(X_JSON)), X)
    assert found.status == 200
    assert found.headers.get("content-type") == JSON
    assert bytes(found.body) == b'{"status":%b,%b' % (OK_STATUS, X_JSON[1:])


def test_an_ndarray() -> None:
    request = decode(call(b'{"ndarray": [[1, 2]]}', query="return-ndarray=TRUE"))
    found = respond(request, tensor("y", request.inputs[0].array.astype("f4")))
    assert bytes(found.body) == b'{"status":%b,"ndarray":[[1.0,2.0]]}' % OK_STATUS


@pytest.mark.parametrize("body", [b"\x00\xff", b"text", b""])
def test_bytes_come_back_bare(body: bytes) -> None:
    found = respond(decode(call(body, OCTETS)), texts("y", body))
    assert (bytes(found.body), found.status) == (body, 200)
    assert found.headers.get("content-type") == OCTETS


def test_what_is_not_finite_is_a_string_unless_the_route_says_otherwise() -> None:
    nan = numbers("y", Datatype.FP32, float("nan"))
    assert b'"flat_float32":["NaN"]' in bytes(respond(decode(call(X_JSON)), nan).body)
    assert b'"flat_float32":[NaN]' in bytes(respond(decode(call(X_JSON)), nan, translate=Translate(nan="literal")).body)


def test_messages_of_a_stream() -> None:
    request = decode(call(STR, query="streaming=true"))
    messages = [respond(request, texts("y", each)) for each in ("a", b"\xff", "")]
    assert [bytes(each.body) for each in messages] == [
        b'{"status":%b,"str_data":"a"}' % OK_STATUS,
        b"\xff",
        b'{"status":%b,"str_data":""}' % OK_STATUS,
    ]
    # "default `application/octet-stream`", and one type for all
    assert {each.headers.get("content-type") for each in messages} == {OCTETS}


def test_a_stream_of_no_messages_has_their_head() -> None:
    assert GRPS_REST.encode_end is not None
    head = GRPS_REST.encode_end(decode(call(STR, query="streaming=true")))
    assert head is not None
    assert (head.status, head.headers.get("content-type"), head.parts) == (200, OCTETS, ())


def test_an_empty_message_of_bytes_does_not_end_a_stream() -> None:
    request = decode(call(b"\xff", OCTETS, "streaming=true"))
    assert bytes(respond(request, texts("y", b"")).body) == b'{"status":%b,"str_data":""}' % OK_STATUS


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.INVALID_INPUT, 400),
        (Reason.MODEL_NOT_FOUND, 404),
        (Reason.TOO_LARGE, 413),
        (Reason.OVERLOADED, 429),
        (Reason.MODEL_ERROR, 500),
        (Reason.UNSUPPORTED, 501),
        (Reason.INVALID_OUTPUT, 502),
        (Reason.UNREACHABLE, 503),
        (Reason.TIMEOUT, 504),
    ],
)
def test_errors_have_their_number_twice(reason: Reason, code: int) -> None:
    found = GRPS_REST.encode_error(refusal(reason, 'why "é" \ud800'), None, call())
    text = '{"status":{"code":%d,"msg":"why \\"é\\" ?","status":"FAILURE"}}' % code  # noqa: UP031
    assert (found.status, bytes(found.body).decode()) == (code, text)
    assert found.headers.get("content-type") == JSON
    assert found.headers.get("gateway-reason") == reason.value


def test_readiness_is_the_status_too() -> None:
    request = decode(call(path="/grps/v1/health/ready"))
    yes, no = (GRPS_REST.encode_response(each, request, DEFAULT_TRANSLATE) for each in (True, False))
    assert (yes.status, bytes(yes.body)) == (200, b'{"status":%b}' % OK_STATUS)
    assert (no.status, bytes(no.body)) == (
        503,
        b'{"status":{"code":503,"msg":"Service Unavailable","status":"FAILURE"}}',
    )


# --- What backends are asked ---


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (inference(X, model=""), ("POST", PREDICT, "", JSON, X_JSON)),
        (replace(inference(X), version="1.0.0"), ("POST", PREDICT, "", JSON, b'{"model":"m-1.0.0",%b' % X_JSON[1:])),
        (
            replace(inference(X, model=""), operation=Operation.STREAM),
            ("POST", PREDICT, "streaming=true", JSON, X_JSON),
        ),
        (
            inference(texts("t", b"\xff"), model="é&", payload="bin_data"),
            ("POST", PREDICT, "model=%C3%A9%26", OCTETS, b"\xff"),
        ),
        (
            replace(inference(texts("t", b""), payload="bin_data"), operation=Operation.STREAM),
            ("POST", PREDICT, "model=m&streaming=true", OCTETS, b""),
        ),
        (
            inference(texts("t", "a"), model="", payload="str_data"),
            ("POST", PREDICT, "", JSON, b'{"str_data":"a"}'),
        ),
        (inference(X, model="", payload="ndarray"), ("POST", PREDICT, "", JSON, b'{"ndarray":[1.0,2.0]}')),
        (
            Request(Operation.METADATA, "m", "1"),
            ("POST", "/grps/v1/metadata/model", "", JSON, b'{"str_data":"m"}'),
        ),
        (Request(Operation.MODELS), ("GET", "/grps/v1/metadata/server", "", "", b"")),
        (Request(Operation.LIVE), ("GET", "/grps/v1/health/live", "", "", b"")),
        (Request(Operation.READY), ("GET", "/grps/v1/health/ready", "", "", b"")),
        (Request(Operation.MODEL_READY, "m"), ("GET", "/grps/v1/health/ready", "", "", b"")),
    ],
)
def test_what_backends_are_asked(request_: Request, expected: tuple[str, str, str, str, bytes]) -> None:
    found = GRPS_REST.encode_request(request_, TARGET)
    headers = [each for each in found.headers if each[0] != "content-type"]
    assert (found.method, found.path, found.query, found.headers.get("content-type"), bytes(found.body)) == expected
    assert headers == []


def test_a_model_in_the_query_is_utf8() -> None:
    with pytest.raises(GatewayError, match="is not UTF-8"):
        GRPS_REST.encode_request(inference(texts("t", b"\xff"), model="\ud800", payload="bin_data"), TARGET)


@pytest.mark.parametrize("operation", [Operation.ONLINE, Operation.OFFLINE, Operation.CONFIG, Operation.GRADIENT])
def test_questions_that_are_not_forwarded(operation: Operation) -> None:
    with pytest.raises(GatewayError, match=f"grps has no method for '{operation.value}'") as refused:
        GRPS_REST.encode_request(Request(operation, "m"), TARGET)
    assert refused.value.reason is Reason.UNSUPPORTED


# --- What backends answer ---

PYTHON = (
    b'{\n "status": {\n  "code": 200,\n  "msg": "OK",\n  "status": "SUCCESS"\n },\n "gtensors": {\n  "tensors": [\n'
    b'   {\n    "dtype": "DT_INT64",\n    "shape": [\n     2\n    ],\n'
    b'    "flat_int64": [\n     "3",\n     "-4"\n    ]\n   },\n'
    b'   {\n    "name": "y",\n    "dtype": "DT_FLOAT32",\n    "shape": [\n     2\n    ],\n'
    b'    "flat_float32": [\n     6.2,\n     3.0\n    ]\n   }\n  ]\n }\n}'
)
CPP = PYTHON.replace(b"3.0", b"3") + b"\n"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(PYTHON, "application/json;charset=utf-8"), (CPP, JSON), (CPP, "")],
)
def test_replies_of_both_servers(body: bytes, content_type: str) -> None:
    found = answer(reply(body, content_type))
    assert isinstance(found, Response)
    first, second = found.outputs
    assert (first.name, first.array.tolist()) == ("", [3, -4])
    assert bytes(second.data) == bytes(numbers("y", Datatype.FP32, 6.2, 3).data)


def test_bytes_have_no_status() -> None:
    found = answer(reply(b"{\x00", OCTETS))
    assert isinstance(found, Response)
    assert found.outputs == (texts("", b"{\x00"),)
    for raw in (STR, b'{"status":1}', b'{"status":{"status":"SUCCESS"}}', b"{" + b" " * 2**20 + b"}"):
        found = answer(reply(raw, OCTETS))
        assert isinstance(found, Response)
        assert found.outputs == (texts("", raw),)


@pytest.mark.parametrize(("text", "raw"), [(b"", b""), (b"AP8=", b"\x00\xff")])
def test_bytes_in_json_are_base64(text: bytes, raw: bytes) -> None:
    """The Python server writes them so where there are none."""
    body = b'{\n "status": {\n  "code": 200,\n  "msg": "OK",\n  "status": "SUCCESS"\n },\n "bin_data": "%b"\n}' % text
    found = answer(reply(body, "application/json;charset=utf-8"))
    assert isinstance(found, Response)
    assert found.outputs == (texts("", raw),)
    with pytest.raises(DecodeError, match="bin_data is not base64"):
        answer(reply(b'{"status":%b,"bin_data":"A"}' % OK_STATUS))


FAILED = b'{\n "status": {\n  "code": %d,\n  "msg": "%b",\n  "status": "FAILURE"\n }\n}\n'


@pytest.mark.parametrize(
    ("message", "reason", "text"),
    [
        # C++: HTTP says 200 to everything, in the type of the request
        (reply(FAILED % (500, b"[ExecutorException] x")), Reason.MODEL_ERROR, "[ExecutorException] x"),
        (reply(FAILED % (500, b"[ExecutorException] Not found model: x")), Reason.MODEL_NOT_FOUND, "[Executor"),
        (reply(FAILED % (400, b"Bad Request, err: x"), OCTETS), Reason.INVALID_INPUT, "Bad Request, err: x"),
        (reply(FAILED % (400, b"Bad Request, err: x"), ""), Reason.INVALID_INPUT, "Bad Request, err: x"),
        # Python: HTTP says it, too
        (reply(FAILED % (404, b"Model not found."), JSON, 404), Reason.MODEL_NOT_FOUND, "Model not found."),
        (reply(FAILED % (0, b"why"), JSON, 500), Reason.MODEL_ERROR, "why"),
        # none of grps'
        (
            reply(b"<!doctype html>\n<title>405</title>\n<h1>Not <b>Allowed</h1>", "text/html", 405),
            Reason.UNSUPPORTED,
            "405 Not Allowed",
        ),
        (
            reply(b"Fail to find method on `/x'", "text/plain", 404),
            Reason.MODEL_NOT_FOUND,
            "Fail to find method on `/x'",
        ),
        (reply(b'{"error": "busy"}', JSON, 429), Reason.OVERLOADED, '{"error": "busy"}'),
        (reply(b"", "", 503), Reason.UNREACHABLE, "HTTP status 503 without a text"),
        (reply(b"\xff", OCTETS, 500), Reason.MODEL_ERROR, "\ufffd"),
    ],
)
def test_errors_of_servers(message: Message, reason: Reason, text: str) -> None:
    with pytest.raises(GatewayError) as told:
        answer(message)
    assert told.value.reason is reason
    assert told.value.message.startswith(text)


def test_the_status_decides_and_not_the_code_of_http() -> None:
    found = answer(reply(b'{"status":%b,"str_data":"a"}' % OK_STATUS, JSON, 500))
    assert isinstance(found, Response)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (reply(b"<html>", "text/html"), "not JSON"),
        (reply(b"{}"), "no data"),
        (reply(b"", "", 302), "HTTP status 302, expected 200"),
        (reply(b"hello", "text/plain"), "not JSON"),
    ],
)
def test_replies_that_are_none(message: Message, expected: str) -> None:
    with pytest.raises(DecodeError, match=expected):
        answer(message)


@pytest.mark.parametrize(
    ("message", "ready"),
    [
        (reply(b'{"status":%b}' % OK_STATUS), True),
        (reply(FAILED % (503, b"Service Unavailable")), False),
        (reply(FAILED % (503, b"Service Unavailable"), JSON, 503), False),
    ],
)
def test_readiness_of_both_servers(message: Message, ready: bool) -> None:
    assert answer(message, Operation.READY) is ready


def test_metadata_of_servers() -> None:
    model = reply(b'{"status":%b,"str_data":"device: cpu\\nname: echo\\nversion: 1.0.0\\n"}' % OK_STATUS)
    assert answer(model, Operation.METADATA) == Signature(name="echo", versions=("1.0.0",))
    server = reply(b'{"status":%b,"str_data":"models:\\n- name: echo\\n  version: 1.0.0\\n"}' % OK_STATUS)
    assert answer(server, Operation.MODELS) == (ModelEntry("echo", "1.0.0"),)


def streamed(body: bytes) -> Answer:
    return answer(reply(body, OCTETS), Operation.STREAM)


def test_messages_of_streams_are_known_by_what_they_hold() -> None:
    found = streamed(b'{\n  "status": {\n    "code": 200\n  },\n  "str_data": "a"\n}')
    assert isinstance(found, Response)
    assert bytes(found.outputs[0].data)[4:] == b"a"
    assert found.outputs[0].content_type == "text"
    for raw in (b"\xff\xd8", b"{not json", b'{"choices":[]}', b"[1]", b'{"status":"done"}', b'{"model":1}'):
        found = streamed(raw)
        assert isinstance(found, Response)
        assert found.outputs == (texts("", raw),)
    with pytest.raises(GatewayError, match="late"):
        streamed(FAILED % (500, b"late"))
    with pytest.raises(DecodeError, match="dtype"):
        streamed(b'{"gtensors":{"tensors":[{}]}}')
    with pytest.raises(DecodeError, match=r"limits\.json_values"):
        streamed(b'{"choices":[' + b"[]," * 2**19 + b"[]]}")
