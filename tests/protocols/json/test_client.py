"""The side of a declared form that faces backends."""

import numpy as np
import pytest

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.models import ModelEntry
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.core.tensors import Tensor, tensor
from tests.protocols.json.declared import answered, declared, response, written

INFER, READY, LIVE = Operation.INFER, Operation.READY, Operation.LIVE
X = tensor("x", np.array([1, 2]))
FORM = declared("""
infer:
  path: ["/models/{model}/versions/{version}", "/models/{model}", /default]
  request: {x: $x, "id?": $id}
  response: {y: $y, "id?": $id, "model?": $model, "version?": $version}
ready: {path: ["/models/{model}/health", /health], response: {status: up}}
error: {error: $message, "code?": $_}
""")


def infer(*inputs: Tensor, model: str = "", version: str = "", id: str | None = None, **parameters: str) -> Request:
    return Request(INFER, model, version, id, inputs or (X,), parameters=parameters)


@pytest.mark.parametrize(
    ("model", "version", "path"),
    [
        ("iris", "3", "/models/iris/versions/3"),
        ("iris", "", "/models/iris"),
        ("", "", "/default"),
        ("a/b c", "", "/models/a%2Fb%20c"),
    ],
)
def test_the_first_path_that_can_be_filled_is_written(model: str, version: str, path: str) -> None:
    message = written(FORM, infer(model=model, version=version, id="7"))
    assert (message.method, message.path, message.body) == ("POST", path, b'{"x":[1,2],"id":"7"}')
    assert message.headers.get("content-type") == message.headers.get("accept") == "application/json"


def test_a_model_that_would_change_the_path_and_a_version_without_a_place_are_refused() -> None:
    with pytest.raises(GatewayError, match="has no URL on a JSON server"):
        written(FORM, infer(model=".."))
    with pytest.raises(GatewayError, match="has no versions, got '2'") as raised:
        written(declared("infer: {path: /p, request: $x, response: $y}"), infer(version="2"))
    assert raised.value.reason is Reason.MODEL_NOT_FOUND
    with pytest.raises(GatewayError, match="no path of the form can be filled"):
        written(declared('infer: {path: "/{model}", request: $x, response: $y}'), infer())


def test_a_reply_names_its_model_and_has_the_id_of_its_request() -> None:
    answer = response(FORM, infer(id="7"), b'{"y":[1.5],"id":"7","model":"iris","version":"3"}')
    assert (answer.model, answer.version, answer.id) == ("iris", "3", "7")
    with pytest.raises(DecodeError, match="id '8', expected '7'"):
        response(FORM, infer(id="7"), b'{"y":[1.5],"id":"8"}')


@pytest.mark.parametrize(
    ("status", "body", "reason", "text"),
    [
        (400, b'{"error":"wrong","code":3}', Reason.INVALID_INPUT, "wrong"),
        (404, b'{"error":"no model"}', Reason.MODEL_NOT_FOUND, "no model"),
        (500, b'{"error":{"why":["a"]}}', Reason.MODEL_ERROR, '{"why":["a"]}'),
        (500, b"<html>\n  oops\x00 </html>\n", Reason.MODEL_ERROR, "<html>\n  oops  </html>"),
        (503, b"", Reason.UNREACHABLE, "status 503 without a body"),
        (429, b'{"error":"busy","more":1}', Reason.OVERLOADED, "busy"),
        # Cog answers so
        (200, b'{"error":"failed"}', Reason.MODEL_ERROR, "failed"),
    ],
)
def test_the_errors_of_servers(status: int, body: bytes, reason: Reason, text: str) -> None:
    with pytest.raises(GatewayError) as raised:
        answered(FORM, infer(), body, status)
    assert (raised.value.reason, raised.value.message) == (reason, text)


def test_the_reason_of_another_gateway_survives() -> None:
    with pytest.raises(GatewayError) as raised:
        answered(FORM, infer(), b'{"error":"slow"}', 504, gateway_reason="circuit-open")
    assert raised.value.reason is Reason.CIRCUIT_OPEN


@pytest.mark.parametrize("body", [b"{}", b"", b"nonsense", b'{"y":[[1],[1,2]]}', b'{"y":[1],"z":1}'])
def test_a_reply_that_is_not_as_the_form_has_it_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        answered(FORM, infer(), body)
    with pytest.raises(DecodeError, match="status 302"):
        answered(FORM, infer(), b"", 302)


UNDECLARED = declared("infer: {path: /p, request: {x: $x}, response: {y: $y}}")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"error":"no model"}', 'the member `error`, "no model"; if it is an error, add `error: {error: $mess'),
        (b'{"error":{"code":7}}', 'the member `error`, {"code":7}; if'),
        (b'{"ok":false,"detail":"no"}', 'the member `detail`, "no"; if it is an error, add `error: {detail: $mess'),
        (b'{"message":"no","error":null}', 'the member `message`, "no"; if'),
        (b'{"y":[1],"error":"no"}', 'otherwise `"error?": $_` to its response'),
        (b'{"error":"Traceback (most recent call last):\\n File"}', 'the member `error`, "; if'),
        (b'{"z":1}', "member `z` is not in the form"),
        (b'{"y":[1],"error":null}', "member `error` is not in the form"),
        (b'[{"error":"no"}]', "Expected `object`"),
        (b'{"error":' + b'"' + b"a" * 300 + b'"}', "a" * 199 + "; if"),
    ],
)
def test_an_error_with_status_200_that_the_form_does_not_have_is_told_as_one(body: bytes, told: str) -> None:
    with pytest.raises(DecodeError) as raised:
        answered(UNDECLARED, infer(), body)
    assert told in str(raised.value)


def test_health() -> None:
    assert written(FORM, Request(READY)).path == "/health"
    assert written(FORM, Request(LIVE)).path == "/health"
    assert written(FORM, Request(Operation.MODEL_READY, "iris")).path == "/models/iris/health"
    assert answered(FORM, Request(READY), b'{"status":"up"}') is True
    for body, status in ((b'{"status":"down"}', 200), (b"", 200), (b'{"status":"up"}', 503)):
        assert answered(FORM, Request(READY), body, status) is False
    models = declared('{infer: {path: /p, request: $x, response: $y}, ready: {path: "/models/{model}/health"}}')
    assert written(models, Request(Operation.MODEL_READY, "iris")).path == "/models/iris/health"
    with pytest.raises(GatewayError, match="the form 'test' checks only the health of single models: ") as raised:
        written(models, Request(READY))
    assert raised.value.reason is Reason.UNSUPPORTED


@pytest.mark.parametrize(
    ("paths", "method", "model", "path"),
    [
        ("/p", "POST", "", "/p"),
        ('"/models/{model}"', "POST", "iris", "/models/iris"),
        ('"/models/{model}"', "POST", "", "/"),
        ("/p", "GET", "", "/"),
    ],
)
def test_a_server_without_a_probe_is_ready_if_it_answers_what_runs_no_model(
    paths: str, method: str, model: str, path: str
) -> None:
    silent = declared(f"infer: {{path: {paths}, method: {method}, response: $y}}")
    for operation in (READY, LIVE, Operation.MODEL_READY):
        asked = written(silent, Request(operation, model))
        assert (asked.method, asked.path) == ("GET", path)
    for status, ready in ((200, True), (404, True), (405, True), (500, False), (503, False)):
        assert answered(silent, Request(READY), b"", status) is ready


def test_the_list_of_models() -> None:
    listing = declared("""
infer: {path: /p, request: $x, response: $y}
models: {path: /models, response: {models: [{name: $model, "version?": $version, "more?": $_}, ...]}}
""")
    asked = Request(Operation.MODELS)
    assert (written(listing, asked).method, written(listing, asked).path) == ("GET", "/models")
    body = b'{"models":[{"name":"a","version":"1","more":{"x":[1]}},{"name":"b","version":"2"}]}'
    assert answered(listing, asked, body) == (ModelEntry("a", "1"), ModelEntry("b", "2"))
    assert answered(listing, asked, b'{"models":[{"name":"a"}]}') == (ModelEntry("a"),)
    assert answered(listing, asked, b'{"models":[]}') == ()
    with pytest.raises(DecodeError, match="holds no strings"):
        answered(listing, asked, b'{"models":[{"name":1}]}')


def test_the_first_exchange_that_can_carry_a_request_is_written() -> None:
    form = declared("""
infer:
- {path: /one, request: {x: $x}, response: {y: $y}}
- {path: /many, request: {"$*": $*}, response: {"$*": $*}}
- {path: /more, request: {rows: [{"$*": $*}, ...], "params?": {k: $param.k}}, response: {"$*": $*}}
""")
    two = tensor("z", np.array([3, 4]))
    assert written(form, infer()).path == "/one"
    assert written(form, infer(X, two)).body == b'{"x":[1,2],"z":[3,4]}'
    assert written(form, infer(X, two, k="v")).body == b'{"rows":[{"x":1,"z":3},{"x":2,"z":4}],"params":{"k":"v"}}'
    with pytest.raises(GatewayError, match="parameter 'other' has no place"):
        written(form, infer(X, other="v"))


BYTES_AND_JSON = """
infer:
- {path: /p, request: REQUEST, response: {y: $y}}
- {path: /p, media_type: "*/*", request: $x, response: {y: $y}}
"""


def test_a_server_is_asked_for_the_type_of_the_request_where_it_has_two() -> None:
    form = declared("""
infer:
- {path: /p, request: {x: $x}, response: {y: $y}}
- {path: /p, media_type: application/x-npy, request: $x, response: {y: $y}}
- {path: /p, media_type: application/x-npy, request: $x, response_type: application/x-npy, response: $y}
""")
    sent = written(form, infer(tensor("x", np.array([np.nan]))))
    assert (sent.headers.get("content-type"), sent.headers.get("accept")) == ("application/x-npy", "application/x-npy")


@pytest.mark.parametrize("element", [b"hello", b"\xff\xd8\xff", b"[1]", b"[[1, 2]]", b""])
def test_bytes_have_one_form_whatever_they_are(element: bytes) -> None:
    form = declared(BYTES_AND_JSON.replace("REQUEST", "$x"))
    sent = written(form, infer(tensor("x", np.array([element], object))))
    assert (sent.headers.get("content-type"), sent.body) == ("application/octet-stream", element)
    several = tensor("x", np.array([b"hello", b"you"], object))
    assert written(form, infer(several)).body == b'["hello","you"]'
    assert written(form, infer(X)).body == b"[1,2]"


def test_texts_go_to_the_place_that_a_form_has_for_texts() -> None:
    form = declared(BYTES_AND_JSON.replace("REQUEST", "{inputs: $x|texts}"))
    assert written(form, infer(tensor("x", np.array([b"hello"], object)))).body == b'{"inputs":["hello"]}'
    assert written(form, infer(tensor("x", np.array([b"\xff"], object)))).body == b"\xff"


def test_a_reply_is_read_by_its_content_type() -> None:
    form = declared("""
infer:
- {path: /p, request: $x, response: $y}
- {path: /p, request: $x, response_type: text/plain, response: $y}
- {path: /p, request: $x, response_type: text/csv, response: $y}
""")
    for content_type, body, elements in (
        ("application/json", b"[1]", [1]),
        ("text/plain; charset=utf-8", b"[1]", [b"[1]"]),
        ("text/csv", b"1\r\n", [[1]]),
        ("", b"[1]", [1]),
        ("application/octet-stream", b"[1]", [1]),
    ):
        [y] = response(form, infer(), body, content_type=content_type).outputs
        assert y.array.tolist() == elements


def test_headers_and_the_query_are_written() -> None:
    form = declared("""
infer:
  path: /p
  method: put
  headers: {x-key: $param.key, "x-id?": $id, x-kind: fixed, "x-more?": $_}
  query: {top: $param.top, "model?": $model}
  request: {x: $x, "params?": $params}
  response: $y
""")
    message = written(form, infer(model="a b", id="7", key="k", top="5&", other="o"))
    assert (message.method, message.query) == ("PUT", "top=5%26&model=a+b")
    assert [*message.headers][2:] == [("x-key", "k"), ("x-id", "7"), ("x-kind", "fixed")]
    assert message.body == b'{"x":[1,2],"params":{"other":"o"}}'
    with pytest.raises(GatewayError, match="'x-key'"):
        written(form, infer(key="a\r\nb: c", top="5"))
    with pytest.raises(GatewayError, match="the header 'x-key' cannot hold 'ключ'; use Latin-1 characters"):
        written(form, infer(key="ключ", top="5"))
    with pytest.raises(GatewayError, match="query parameter 'top'"):
        written(form, infer(key="k"))


def test_streams_are_asked_for_and_their_messages_read() -> None:
    form = declared("""
infer:
- {path: /p, request: {x: $x}, response: {y: $y}}
- {path: /p, request: {x: $x, stream: true}, response: {y: $y}, stream: sse}
error: {error: $message}
""")
    asked = Request(Operation.STREAM, inputs=(X,))
    message = written(form, asked)
    assert (message.body, message.headers.get("accept")) == (b'{"x":[1,2],"stream":true}', "text/event-stream")
    assert response(form, asked, b'{"y":[1]}').outputs[0].shape == (1,)
    with pytest.raises(GatewayError, match="broke"):
        answered(form, asked, b'{"error":"broke"}')
    assert written(form, infer()).body == b'{"x":[1,2]}'
    with pytest.raises(GatewayError, match="does not support"):
        written(declared("infer: {path: /p, request: $x, response: $y}"), asked)


COLUMNS = declared("""
infer:
  path: /p
  request: {x: $x, "dimensions?": $param.dimensions}
  columns: dimensions
  response: {y: $y}
""")


def test_a_reply_with_other_columns_than_a_parameter_asks_for_is_refused() -> None:
    asked = Request(INFER, "m", inputs=(X,), parameters={"dimensions": 2})
    assert response(COLUMNS, asked, b'{"y":[[1,2],[3,4]]}').outputs[0].shape == (2, 2)
    with pytest.raises(DecodeError, match=r"output 'output0' has the shape \[1, 3\], expected 2 columns"):
        response(COLUMNS, asked, b'{"y":[[1,2,3]]}')
    assert response(COLUMNS, infer(), b'{"y":[[1,2,3]]}').outputs[0].shape == (1, 3)
