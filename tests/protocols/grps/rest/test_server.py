"""Facing clients: paths, queries, content types and replies."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.exchange import decoded
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import DEFAULT_TRANSLATE, Request, Response, Translate
from gateway.core.tensors import tensor
from gateway.protocols.grps import GRPS_REST
from tests.protocols.grps.rest.wire import JSON, LISTENER, OCTETS, OK_STATUS, TABLE, TARGET, X_JSON, X, call, reply
from tests.protocols.grps.values import CODES, numbers, texts

STR = b'{"str_data":"hello grps"}'


def decode(message: Message, listener: ListenerSettings = LISTENER) -> Request:
    return decoded(message, GRPS_REST, listener)


def respond(request: Request, *outputs: object, translate: Translate = DEFAULT_TRANSLATE) -> Message:
    return GRPS_REST.encode_response(Response(outputs), request, translate)  # type: ignore[arg-type]


# --- Requests ---


@pytest.mark.parametrize(
    "content_type", [JSON, "application/json; charset=utf-8", "APPLICATION/JSON", "", "text/plain"]
)
def test_json_is_read_under_any_type(content_type: str) -> None:
    # as `curl -d` sends it, too; real servers refuse all but the first
    request = decode(call(STR, content_type))
    assert request.operation is Operation.INFER
    assert request.inputs == (replace(texts("", "hello grps"), content_type="text"),)


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
        (b'{"strdata": "a"}', JSON, "there is no member 'strdata', expected one of model, status, str_data"),
    ],
)
def test_invalid_bodies(body: bytes, content_type: str, expected: str) -> None:
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
def test_invalid_queries(query: str) -> None:
    message = call(STR, query=query + "&streaming=true")
    assert GRPS_REST.http.wants_stream is not None
    assert not GRPS_REST.http.wants_stream(message)
    with pytest.raises(DecodeError, match="expected percent-encoded UTF-8 with at most"):
        decode(message)


def test_what_returns_an_ndarray_is_true_or_false() -> None:
    # ignored, it would be answered with something else than was asked for
    with pytest.raises(DecodeError, match=r"in the query is 'on', expected true or false"):
        decode(call(STR, query="return-ndarray=on"))


def test_a_stream_has_the_type_of_the_backends_stream() -> None:
    request = decode(call(STR, query="streaming=true"))
    for body in (b'{"status":%b,"str_data":"a"}' % OK_STATUS, b"data: a\n\n"):
        answer = GRPS_REST.decode_response(reply(body, "text/event-stream"), request, TARGET)
        found = GRPS_REST.encode_response(answer, request, DEFAULT_TRANSLATE)
        assert (found.headers.get("content-type"), bytes(found.body)) == ("text/event-stream", body)


def test_streaming_is_of_inferences_alone() -> None:
    assert GRPS_REST.http.wants_stream is not None
    assert not GRPS_REST.http.wants_stream(call(query="streaming=true", path="/grps/v1/health/live"))
    assert GRPS_REST.http.wants_stream(call(STR, query="streaming=true", path="/customized"))


def test_a_stream_of_ndarrays_is_refused_in_the_words_of_the_servers() -> None:
    told = r"^Bad Request, err: Streaming and ret ndarray are not supported at the same time\.$"
    with pytest.raises(DecodeError, match=told):
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
def test_other_operations(path: str, methods: tuple[str, ...], operation: Operation) -> None:
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


# --- Replies ---


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


@pytest.mark.parametrize(("reason", "code"), CODES.items())
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
    assert no.status == 503
    assert bytes(no.body) == b'{"status":{"code":503,"msg":"Service Unavailable","status":"FAILURE"}}'


@pytest.mark.parametrize(
    ("status", "http"),
    [
        (b'{"code":206,"msg":"partial","status":"SUCCESS"}', 206),
        (b'{"code":200,"msg":"fine","status":"SUCCESS"}', 200),
        (b'{"code":7,"msg":"own code","status":"SUCCESS"}', 200),  # which HTTP does not have
    ],
)
def test_the_code_and_text_of_a_success_go_on(status: bytes, http: int) -> None:
    request = decode(call(STR))
    answer = GRPS_REST.decode_response(reply(b'{"status":%b,"str_data":"a"}' % status), request, TARGET)
    found = GRPS_REST.encode_response(answer, request, DEFAULT_TRANSLATE)
    assert (found.status, bytes(found.body)) == (http, b'{"status":%b,"str_data":"a"}' % status)
