"""Facing backends: what they are asked, and the replies of both real servers."""

import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.models import ModelEntry, Signature
from gateway.core.operations import Operation
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import Tensor
from gateway.protocols.grps import GRPS_REST
from tests.protocols.grps.rest.wire import JSON, OCTETS, OK_STATUS, PREDICT, TARGET, X_JSON, X, reply
from tests.protocols.grps.values import inference, numbers, texts

STR = b'{"str_data":"hello grps"}'


def answer(message: Message, operation: Operation = Operation.INFER) -> Answer:
    return GRPS_REST.decode_response(message, Request(operation, "m"), TARGET)


def outputs(message: Message, operation: Operation = Operation.INFER) -> tuple[Tensor, ...]:
    found = answer(message, operation)
    assert isinstance(found, Response)
    return found.outputs


# --- Requests ---


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
        (inference(texts("t", "a"), model="", payload="str_data"), ("POST", PREDICT, "", JSON, b'{"str_data":"a"}')),
        (inference(X, model="", payload="ndarray"), ("POST", PREDICT, "", JSON, b'{"ndarray":[1.0,2.0]}')),
        (Request(Operation.METADATA, "m", "1"), ("POST", "/grps/v1/metadata/model", "", JSON, b'{"str_data":"m"}')),
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
def test_operations_that_are_not_forwarded(operation: Operation) -> None:
    with pytest.raises(GatewayError, match=f"grps has no method for '{operation.value}'") as refused:
        GRPS_REST.encode_request(Request(operation, "m"), TARGET)
    assert refused.value.reason is Reason.UNSUPPORTED


# --- Replies ---

PYTHON = (
    b'{\n "status": {\n  "code": 200,\n  "msg": "OK",\n  "status": "SUCCESS"\n },\n "gtensors": {\n  "tensors": [\n'
    b'   {\n    "dtype": "DT_INT64",\n    "shape": [\n     2\n    ],\n'
    b'    "flat_int64": [\n     "3",\n     "-4"\n    ]\n   },\n'
    b'   {\n    "name": "y",\n    "dtype": "DT_FLOAT32",\n    "shape": [\n     2\n    ],\n'
    b'    "flat_float32": [\n     6.2,\n     3.0\n    ]\n   }\n  ]\n }\n}'
)
CPP = PYTHON.replace(b"3.0", b"3") + b"\n"


@pytest.mark.parametrize(("body", "content_type"), [(PYTHON, "application/json;charset=utf-8"), (CPP, JSON), (CPP, "")])
def test_replies_of_both_servers(body: bytes, content_type: str) -> None:
    first, second = outputs(reply(body, content_type))
    assert (first.name, first.array.tolist()) == ("", [3, -4])
    assert bytes(second.data) == bytes(numbers("y", Datatype.FP32, 6.2, 3).data)


def test_bytes_have_no_status() -> None:
    for raw in (b"{\x00", STR, b'{"status":1}', b'{"status":{"status":"SUCCESS"}}', b"{" + b" " * 2**20 + b"}"):
        assert outputs(reply(raw, OCTETS)) == (texts("", raw),)


@pytest.mark.parametrize(("text", "raw"), [(b"", b""), (b"AP8=", b"\x00\xff")])
def test_bytes_in_json_are_base64(text: bytes, raw: bytes) -> None:
    """The Python server writes them so where there are none."""
    body = b'{\n "status": {\n  "code": 200,\n  "msg": "OK",\n  "status": "SUCCESS"\n },\n "bin_data": "%b"\n}' % text
    assert outputs(reply(body, "application/json;charset=utf-8")) == (texts("", raw),)
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
    assert len(outputs(reply(b'{"status":%b,"str_data":"a"}' % OK_STATUS, JSON, 500))) == 1


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (reply(b"<html>", "text/html"), "not JSON"),
        (reply(b"{}"), "no data"),
        (reply(b"", "", 302), "HTTP status 302, expected 200"),
        (reply(b"hello", "text/plain"), "not JSON"),
    ],
)
def test_invalid_replies(message: Message, expected: str) -> None:
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
    assert answer(model, Operation.METADATA) == Signature(name="echo", versions=("1.0.0",), further={"device": "cpu"})
    server = reply(b'{"status":%b,"str_data":"models:\\n- name: echo\\n  version: 1.0.0\\n"}' % OK_STATUS)
    assert answer(server, Operation.MODELS) == (ModelEntry("echo", "1.0.0"),)


def streamed(body: bytes) -> tuple[Tensor, ...]:
    return outputs(reply(body, OCTETS), Operation.STREAM)


def test_json_and_bytes_in_streams_are_told_apart_by_content() -> None:
    [text] = streamed(b'{\n  "status": {\n    "code": 200\n  },\n  "str_data": "a"\n}')
    assert (bytes(text.data)[4:], text.content_type) == (b"a", "text")
    for raw in (b"\xff\xd8", b"{not json", b'{"choices":[]}', b"[1]", b'{"status":"done"}', b'{"model":1}'):
        assert streamed(raw) == (texts("", raw),)
    with pytest.raises(GatewayError, match="late"):
        streamed(FAILED % (500, b"late"))
    with pytest.raises(DecodeError, match="dtype"):
        streamed(b'{"gtensors":{"tensors":[{}]}}')
    with pytest.raises(DecodeError, match=r"limits\.json_values"):
        streamed(b'{"choices":[' + b"[]," * 2**19 + b"[]]}")
