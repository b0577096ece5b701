"""The side of a declared form that faces clients."""

import numpy as np
import pytest

from gateway.core.errors import DecodeError, GatewayError, Reason, invalid_input, not_found, refusal
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.models import ModelEntry, NotReady
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings, Protocol
from gateway.core.requests import Request, Response, Translate
from gateway.core.tensors import tensor
from tests.protocols.json.declared import answered, declared, message, read, response, without_origin, written
from tests.protocols.json.forms.test_exchanges import PROTOCOLS

PREDICT = "POST /predict"
MODELS = declared("""
infer:
  path: ["/models/{model}/{version}", "/models/{model}", /default]
  request: {x: $x, "model?": $model, "id?": $id}
  response: {y: $y, model: $model, "version?": $version, "id?": $id}
ready: {path: [/health, "/models/{model}/health"]}
live: {path: /ping, response: {status: up, "uptime?": $_}}
models:
  path: /models
  response: {data: [{id: $model, object: model, "version?": $version}, ...]}
  one: {path: "/models/{model}", response: {id: $model, object: model, created: $_=0}}
error: {error: {message: $message, code: $code, status: $code|grpc, "id?": $id}}
""")


def test_a_path_names_the_model_and_its_version() -> None:
    captures = {"model": "iris", "version": "3"}
    request = read(MODELS, "POST /models/{model}/{version}", b'{"x":[1]}', captures=captures)
    assert (request.operation, request.model, request.version) == (Operation.INFER, "iris", "3")
    assert read(MODELS, "POST /default", b'{"x":[1],"model":"iris"}').model == "iris"
    assert read(MODELS, "POST /default", b'{"x":[1]}').model == ""


def test_a_model_in_the_path_and_another_in_the_body_contradict_each_other() -> None:
    with pytest.raises(DecodeError, match="'iris' in one part of the request and 'rose' in another; send it once"):
        read(MODELS, "POST /models/{model}", b'{"x":[1],"model":"rose"}', captures={"model": "iris"})


def test_a_reply_has_the_model_and_the_id_of_its_request() -> None:
    request = read(MODELS, "POST /models/{model}", b'{"x":[1],"id":"7"}', captures={"model": "iris"})
    answer = Response(request.inputs, "other", "2", "8")
    reply = MODELS.encode_response(answer, request, Translate())
    assert (reply.status, reply.headers.get("content-type")) == (200, "application/json")
    assert reply.body == b'{"y":[1],"model":"iris","version":"2","id":"7"}'


def test_probes() -> None:
    assert read(MODELS, "GET /health").operation is Operation.READY
    assert read(MODELS, "GET /ping").operation is Operation.LIVE
    asked = read(MODELS, "GET /models/{model}/health", captures={"model": "iris"})
    assert (asked.operation, asked.model) == (Operation.MODEL_READY, "iris")
    ready = MODELS.encode_response(True, asked, Translate())
    assert (ready.status, ready.body) == (200, b"")
    live = MODELS.encode_response(True, read(MODELS, "GET /ping"), Translate())
    assert (live.status, live.body) == (200, b'{"status":"up"}')
    for answer in (False, NotReady("why")):
        assert MODELS.encode_response(answer, asked, Translate()).status == 503


def test_the_list_of_models() -> None:
    request = read(MODELS, "GET /models")
    assert request.operation is Operation.MODELS
    listed = MODELS.encode_response((ModelEntry("a", "1"), ModelEntry("a", "2")), request, Translate())
    assert listed.body == (
        b'{"data":[{"id":"a","object":"model","version":"1"},{"id":"a","object":"model","version":"2"}]}'
    )
    listed = MODELS.encode_response((ModelEntry("a"), ModelEntry("a"), ModelEntry("b")), request, Translate())
    assert listed.body == b'{"data":[{"id":"a","object":"model"},{"id":"b","object":"model"}]}'
    assert MODELS.encode_response((), request, Translate()).body == b'{"data":[]}'


def test_one_model_of_the_list() -> None:
    request = read(MODELS, "GET /models/{model}", captures={"model": "a"})
    assert (request.operation, request.model) == (Operation.MODELS, "")
    found = MODELS.encode_response((ModelEntry("b"), ModelEntry("a", "1")), request, Translate())
    assert (found.status, found.body) == (200, b'{"id":"a","object":"model","created":0}')
    with pytest.raises(GatewayError, match="the list does not have model 'a'") as raised:
        MODELS.encode_response((ModelEntry("b"),), request, Translate())
    assert raised.value.reason is Reason.MODEL_NOT_FOUND


def test_an_id_in_the_path() -> None:
    form = declared('infer: {method: [PUT, POST], path: "/p/{id}", request: {x: $x, "id?": $id}, response: $y}')
    request = read(form, "POST /p/{id}", b'{"x":[1]}', captures={"id": "a/b"})
    assert request.id == "a/b"
    for asked, method in ((request, "POST"), (without_origin(request), "PUT")):
        assert (written(form, asked).method, written(form, asked).path) == (method, "/p/a%2Fb")
    assert read(form, "PUT /p/{id}", b'{"x":[1],"id":"7"}', captures={"id": "7"}).id == "7"
    with pytest.raises(DecodeError, match="the id is '7' in one part of the request and '8' in another; send it once"):
        read(form, "PUT /p/{id}", b'{"x":[1],"id":"8"}', captures={"id": "7"})
    with pytest.raises(GatewayError, match="no path of the form can be filled"):
        written(form, replace(request, id=None))


def test_an_error_has_the_status_that_servers_of_the_form_give() -> None:
    form = declared(FAILURES)
    for reason, status, body in (
        (Reason.OVERLOADED, 409, b'{"error":"no"}'),
        (Reason.MODEL_ERROR, 503, b'{"type":"Internal","error":"no"}'),
        (Reason.UNREACHABLE, 503, b'{"error":"no"}'),
    ):
        told = form.encode_error(refusal(reason, "no"), None, Message())
        assert (told.status, told.body) == (status, body)


FAILURES = """
infer: {path: /predict, request: $x, response: {y: $y}}
error: {error: $message}
failures:
- {status: 409, reason: overloaded}
- {status: 503, reason: model-error, error: {type: Internal, error: $message}}
- {status: 200, reason: not-ready}
"""


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (409, b'{"error":"no"}', Reason.OVERLOADED),
        (409, b"", Reason.OVERLOADED),
        (503, b'{"error":"no","type":"Internal"}', Reason.MODEL_ERROR),
        (503, b'{"error":"no","type":"Unavailable"}', Reason.UNREACHABLE),
        (503, b"", Reason.UNREACHABLE),
        (200, b'{"error":"no"}', Reason.NOT_READY),
        (500, b'{"error":"no"}', Reason.MODEL_ERROR),
    ],
)
def test_a_status_means_what_the_form_says(status: int, body: bytes, reason: Reason) -> None:
    form = declared(FAILURES)
    request = read(form, PREDICT, b"[1]")
    with pytest.raises(GatewayError) as raised:
        answered(form, request, body, status)
    assert raised.value.reason is reason


def test_errors_are_in_the_template_of_the_form_and_else_an_object() -> None:
    request = read(MODELS, "POST /default", b'{"x":[1],"id":"7"}')
    error = MODELS.encode_error(not_found('no "m"'), request, Message())
    assert (error.status, error.headers.get("gateway-reason")) == (404, "model-not-found")
    assert error.body == b'{"error":{"message":"no \\"m\\"","code":404,"status":"NOT_FOUND","id":"7"}}'
    plain = declared("infer: {path: /predict, request: $x, response: $y}\nerror: $message\nerror_type: text/plain")
    error = plain.encode_error(invalid_input("wrong"), None, Message())
    assert (error.headers.get("content-type"), error.body) == ("text/plain", b"wrong")
    with_id = declared("infer: {path: /predict, request: $x, response: $y}\nerror: {why: $message, id: $id}")
    assert with_id.encode_error(invalid_input("wrong"), None, Message()).body == b'{"error":"wrong"}'
    other = declared("infer: {path: /predict, request: $x, response: $y}")
    assert other.encode_error(invalid_input("wrong"), None, Message()).body == b'{"error":"wrong"}'


TYPES = declared("""
infer:
- {path: /predict, request: {x: $x}, response: {y: $y}}
- {path: /predict, media_type: text/csv, request: $x, response_type: text/csv, response: $y}
- {path: /predict, media_type: "text/csv; header=present", request: [{"$*": $*}, ...], response: {y: $y}}
- {path: /predict, media_type: "image/*", request: $x, response_type: text/plain, response: $y}
""")


@pytest.mark.parametrize(
    ("content_type", "body", "shape"),
    [
        ("application/json", b'{"x":[1,2]}', (2,)),
        ("application/json; charset=UTF-8", b'{"x":[1,2]}', (2,)),
        ("application/vnd.api+json", b'{"x":[1,2]}', (2,)),
        (f"text/csv; of={'a' * 300}", b"1,2\n", (1, 2)),
        ("", b'{"x":[1,2]}', (2,)),
        ("nonsense", b'{"x":[1,2]}', (2,)),
        ("text/csv", b"1,2\n", (1, 2)),
        ("text/csv;charset=utf-8", b"1,2\n", (1, 2)),
        ("text/csv; header=present", b"a\n1\n", (1,)),
        ("image/png", b"\x89PNG", (1,)),
    ],
)
def test_the_content_type_chooses_the_exchange(content_type: str, body: bytes, shape: tuple[int, ...]) -> None:
    [x] = read(TYPES, PREDICT, body, content_type=content_type).inputs
    assert x.shape == shape


@pytest.mark.parametrize(
    ("content_type", "body", "why"),
    [
        ("application/json", b"1,2\n", "Expected `object`"),
        ("text/csv", b'{"x":[1]}\n1', "line"),
        ("application/json; charset=latin-1", b'{"x":[1]}', "charset"),
    ],
)
def test_a_content_type_that_is_unknown_or_lies_is_refused(content_type: str, body: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        read(TYPES, PREDICT, body, content_type=content_type)


FACE = PROTOCOLS["huggingface"]


@pytest.mark.parametrize(
    ("form", "content_type", "why"),
    [
        (TYPES, "application/xml", "'application/xml' is unknown to the form; expected application/json, text/csv"),
        (FACE, "application/x-www-form-urlencoded", "application/json, the type of your bytes, .*curl"),
        (FACE, "Application/X-WWW-Form-Urlencoded; a=b", "application/json, the type of your bytes"),
    ],
)
def test_a_content_type_that_no_exchange_has_is_told_with_those_that_it_has(
    form: Protocol, content_type: str, why: str
) -> None:
    pattern = next(each for each in form.patterns if each.startswith("POST /pred"))
    with pytest.raises(GatewayError, match=why) as refused:
        read(form, pattern, b'{"inputs": "hello"}', content_type=content_type)
    assert form.encode_error(refused.value, None, Message()).status == 415


@pytest.mark.parametrize("body", [b"[1, 2]", b'{"inputs": [1, 2]}'])
def test_json_that_is_called_a_web_form_is_told_from_a_web_form(body: bytes) -> None:
    asked = {"captures": {"model": "m"}, "content_type": "application/x-www-form-urlencoded"}
    with pytest.raises(DecodeError, match=r"the body is JSON, but .* send -H 'Content-Type: application/json'"):
        read(PROTOCOLS["torchserve"], "POST /predictions/{model}", body, **asked)


@pytest.mark.parametrize(
    ("content_type", "accept", "reply"),
    [
        ("application/json", "", b'{"y":[1,2]}'),
        ("application/json", "*/*", b'{"y":[1,2]}'),
        ("application/json", "application/json, text/csv", b'{"y":[1,2]}'),
        ("application/json", "text/csv", b"1\r\n2\r\n"),
        ("application/json", "application/json;q=0, text/*", b"1\r\n2\r\n"),
        ("application/json", "application/xml", b'{"y":[1,2]}'),
        ("text/csv", "", b"1\r\n2\r\n"),
        ("text/csv", "application/json", b'{"y":[1,2]}'),
        ("text/csv", "text/html, application/*;q=0.5", b'{"y":[1,2]}'),
        ("image/png", "text/csv", b"1\r\n2\r\n"),
    ],
)
def test_a_reply_has_a_type_that_the_client_accepts(content_type: str, accept: str, reply: bytes) -> None:
    body = b'{"x":[0]}' if content_type == "application/json" else b"0"
    request = read(TYPES, PREDICT, body, content_type=content_type, accept=accept)
    answer = Response((tensor("y", np.array([1, 2])),))
    assert TYPES.encode_response(answer, request, Translate()).body == reply


ONE = "{path: /predict, request: {x: $x}, response: $y}"
BOTH = f"[{ONE}, {{path: /predict, request: {{z: $x}}, response: $y}}]"


@pytest.mark.parametrize(("infer", "body"), [(ONE, b'{"x":[1]}'), (BOTH, b'{"x":[1]}'), (BOTH, b'{"z":[1]}')])
@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_exchanges_of_one_type_read_every_content_type(infer: str, body: bytes, content_type: str) -> None:
    """`curl -d` says that a body is a web form's."""
    [x] = read(declared(f"infer: {infer}"), PREDICT, body, content_type=content_type).inputs
    assert x.shape == (1,)


HEADS = declared("""
infer:
  path: /predict
  headers: {"x-key": $param.key, "x-id?": $id, "x-kind?": fixed, "x-model?": $model}
  query: {top: $param.top, "mode?": $_}
  request: {x: $x, "params?": $params}
  response: {y: $y}
""")


KEY = {"x_key": "k"}


def test_headers_and_query_parameters_are_words_and_parameters() -> None:
    request = read(
        HEADS, PREDICT, b'{"x":[1]}', query="top=5&mode=a%20b", x_key="k", x_id="7", x_kind="fixed", x_model="m"
    )
    assert (request.parameters, request.id, request.model) == ({"key": "k", "top": "5"}, "7", "m")


@pytest.mark.parametrize(
    ("body", "query", "fields", "why"),
    [
        (b'{"x":[1]}', "top=5", {}, "header 'x-key' is missing"),
        (b'{"x":[1]}', "", KEY, "query parameter 'top' is missing"),
        (b'{"x":[1]}', "top=5&top=6", KEY, "'top' occurs 2 times"),
        (b'{"x":[1]}', "top=5&more=6", KEY, "unknown query parameter 'more'"),
        (b'{"x":[1]}', "top=5", {**KEY, "x_kind": "other"}, "'other', expected 'fixed'"),
        (b'{"x":[1],"params":{"top":1}}', "top=5", KEY, "'top' is in the request's head and in its body; send it once"),
        (b'{"x":[1]}', "top=%ff", KEY, "query is malformed"),
    ],
)
def test_a_head_that_is_not_as_the_form_has_it_is_refused(
    body: bytes, query: str, fields: dict[str, str], why: str
) -> None:
    with pytest.raises(DecodeError, match=why):
        read(HEADS, PREDICT, body, query=query, **fields)


TWICE = declared("""
infer:
  path: /predict
  headers: {"x-model?": $model, "x-id?": $id, "x-top?": $param.top}
  query: {"model?": $model, "id?": $id, "top?": $param.top}
  request: {x: $x}
  response: {y: $y}
""")


@pytest.mark.parametrize(
    ("query", "fields", "why"),
    [
        ("model=iris", {"x_model": "rose"}, r"\$model is 'rose' and 'iris' in the head of the request"),
        ("id=2", {"x_id": "1"}, r"\$id is '1' and '2' in the head of the request"),
        ("top=2", {"x_top": "1"}, "parameter 'top' is '1' and '2' in the head of the request"),
    ],
)
def test_what_is_said_twice_in_a_head_is_the_same(query: str, fields: dict[str, str], why: str) -> None:
    """Who judges by the header must not let another model pass."""
    with pytest.raises(DecodeError, match=why):
        read(TWICE, PREDICT, b'{"x":[1]}', query=query, **fields)
    one = read(TWICE, PREDICT, b'{"x":[1]}', query="model=m&id=1&top=5", x_model="m", x_id="1", x_top="5")
    assert (one.model, one.id, one.parameters) == ("m", "1", {"top": "5"})


STREAMS = declared("""
infer:
- {path: /stream, request: {x: $x}, response: {y: $y}, stream: openai}
- {path: /both, request: {x: $x, stream: true}, response: {y: $y}, stream: openai}
- {path: /both, request: {x: $x, "stream?": false}, response: {y: $y}}
""")


def test_an_exchange_may_reply_by_a_stream() -> None:
    form = STREAMS.http
    assert form.wants_stream is not None
    assert form.wants_stream(message("POST /stream"))
    assert not form.wants_stream(message("POST /both"))
    assert form.body_wants_stream is not None
    assert form.body_wants_stream(message("POST /both", b'{"x":[1],"stream":true}'))
    assert not form.body_wants_stream(message("POST /both", b'{"x":[1]}'))
    assert form.body_wants_stream(message("POST /both", b'{"x":[null,1.5],"stream":true}'))
    assert not form.body_wants_stream(message("POST /both", b'{"x":[null,1.5]}'))
    assert not form.body_wants_stream(message("POST /both", b"nonsense"))
    assert not form.body_wants_stream(message("POST /stream", b'{"x":[1],"stream":true}'))
    assert STREAMS.traits.wire.streams
    assert read(STREAMS, "POST /stream", b'{"x":[1]}').operation is Operation.STREAM
    assert read(STREAMS, "POST /both", b'{"x":[1]}').operation is Operation.INFER


def test_a_list_among_the_parameters_comes_back_as_a_list() -> None:
    form = declared('infer: {path: /predict, request: {x: $x, "p?": $params}, response: {y: $y, "p?": $params}}')
    request = read(form, PREDICT, b'{"x":[1],"p":{"l":[1,2],"s":"[1,2]"}}')
    assert request.parameters == {"l": "[1,2]", "s": "[1,2]"}
    answer = response(form, request, b'{"y":[1],"p":{"l":{"a":1}}}')
    assert form.encode_response(answer, request, Translate()).body == b'{"y":[1],"p":{"l":{"a":1}}}'


def test_a_web_form_has_texts_and_documents() -> None:
    form = declared(
        "infer: {path: /predict, media_type: application/x-www-form-urlencoded,"
        ' request: {data: {x: $x}, "prompt?": $prompt|text, "id?": $id}, response: {y: $y}}'
    )
    fields = b"data=%7B%22x%22%3A+%5B1%2C2%5D%7D&prompt=a%26b+%C3%A4&id=7"
    request = read(form, PREDICT, fields, content_type="application/x-www-form-urlencoded; charset=UTF-8")
    assert (request.id, [each.array.tolist() for each in request.inputs]) == ("7", [[1, 2], ["a&b ä".encode()]])
    sent = written(form, without_origin(request))
    assert sent.headers.get("content-type") == "application/x-www-form-urlencoded"
    assert sent.body == b"data=%7B%22x%22%3A%5B1%2C2%5D%7D&prompt=a%26b+%C3%A4&id=7"


def test_other_variables_of_a_path_mean_nothing() -> None:
    form = declared('infer: {path: ["/v1/{project}/{model}:predict", /p], request: $x, response: $y}')
    pattern = "POST /v1/{project}/{model}:predict"
    assert pattern in form.patterns
    assert read(form, pattern, b"[1]", captures={"project": "p", "model": "m"}).model == "m"
    inputs = read(form, "POST /p", b"[1]").inputs
    assert written(form, Request(Operation.INFER, "m", inputs=inputs)).path == "/p"


def test_null_beside_rows_of_unequal_length_is_refused_as_null() -> None:
    form = declared("infer: {path: /predict, request: {x: $x, z: $z}, response: {y: $y}}")
    with pytest.raises(DecodeError, match="input 'x': element 0: null is not a number"):
        read(form, PREDICT, b'{"x":[null,1.5],"z":[[1],[2,3]]}')


def test_too_much_is_refused_as_too_large() -> None:
    form = declared("infer: {path: /predict, request: $x, response: $y}")
    with pytest.raises(GatewayError, match=r"limits\.message"):
        form.decode_request(message(PREDICT, b"[%b1]" % (b"1," * 3000)), ListenerSettings(limits=Limits(message=1000)))


@pytest.mark.parametrize("form", ["openai-embeddings", "infinity"])
@pytest.mark.parametrize("encoding", ["", ', "encoding_format": "base64"'])
def test_a_client_that_asks_for_dimensions_gets_no_others(form: str, encoding: str) -> None:
    openai, asked = PROTOCOLS[form], '{"model": "m", "input": "hi", "dimensions": %d%s}'
    rows = Response((tensor("e", np.array([[1, 2, 3]], np.float32)),))
    request = read(openai, "POST /v1/embeddings", (asked % (3, encoding)).encode())
    assert openai.encode_response(rows, request, Translate()).status == 200
    with pytest.raises(GatewayError, match=r"shape \[1, 3\], expected 2 columns, because the request has 'dimensions'"):
        openai.encode_response(rows, read(openai, "POST /v1/embeddings", (asked % (2, encoding)).encode()), Translate())
