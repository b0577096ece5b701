"""Tensors in the query of requests: `GET /q?x=5.1`."""

import json
from urllib.parse import parse_qs, urlencode

import numpy as np
import pytest

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.requests import Request
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.json.form import FormError
from tests.protocols.json.declared import declared, read, without_origin, written
from tests.wires import Wires, replying

GET = declared("""
infer:
  path: /q
  method: [GET, POST]
  query: {x: $x|scalar, "n?": $n|text, "xs?": $xs|commas, "m?": $m, fmt: json, "k?": $param.k}
  response: {y: $y|scalar}
tensors: {x: "FP64 [1]", n: "BYTES [1]", xs: "FP64 [-1]", m: "INT64 [-1, 2]", y: "FP64 [1]"}
""")
POST = declared("""
infer: {path: /q, query: {x: $x|scalar}, request: {z: $z}, response: {y: $y}}
tensors: {x: "FP64 [1]", z: "FP64 [-1]", y: "FP64 [-1]"}
""")


def values(request: Request) -> dict[str, object]:
    return {each.name: each.array.tolist() for each in request.inputs}


@pytest.mark.parametrize("pattern", ["GET /q", "POST /q"])
def test_query_parameters_are_tensors(pattern: str) -> None:
    request = read(GET, pattern, query="x=5.1&fmt=json&n=a%20b+%C3%A9&xs=1,2.5&m=%5B%5B1,2%5D%5D&k=3")
    assert values(request) == {"x": [5.1], "n": ["a b é".encode()], "xs": [1, 2.5], "m": [[1, 2]]}
    assert request.parameters == {"k": "3"}


def test_unknown_parameters_may_be_there_twice_if_they_are_ignored() -> None:
    form = declared("""
ignore_unknown: true
infer: {path: /q, method: GET, query: {x: $x|scalar}, response: {y: $y|scalar}}
tensors: {x: "FP64 [1]", y: "FP64 [1]"}
""")
    assert values(read(form, "GET /q", query="u=1&x=5.1&u=2&%75=3")) == {"x": [5.1]}
    with pytest.raises(DecodeError, match="'x'"):
        read(form, "GET /q", query="x=1&%78=2")


def test_exchanges_that_differ_in_their_query_alone_are_both_asked_for() -> None:
    form = declared("""
infer:
  - {path: /q, method: GET, query: {x: $x|scalar}, response: {y: $y|scalar}}
  - {path: /q, method: GET, query: {x: $x|scalar, w: $w|scalar}, response_type: text/plain, response: $y}
tensors: {x: "FP64 [1]", w: "FP64 [1]", y: "FP64 [1]"}
""")
    one, other = tensor("x", np.array([1.0])), tensor("w", np.array([2.0]))
    assert written(form, inputs(one)).query == "x=1.0"
    assert written(form, inputs(one, other)).query == "x=1.0&w=2.0"


def test_tensors_are_written_to_the_query() -> None:
    sent = written(GET, without_origin(read(GET, "GET /q", query="x=5.1&fmt=json&n=a%20b+%26&xs=1,2.5&k=3")))
    assert (sent.method, sent.path, bytes(sent.body)) == ("GET", "/q", b"")
    assert sent.query == "fmt=json&k=3&x=5.1&n=a+b+%26&xs=1.0%2C2.5"
    assert sent.headers.get("content-type") == ""


OBJECT = declared("""
infer:
  path: /q
  query: {o: {x: $x, "id?": $id, "k?": $param.k, "rest?": $params}, "h?": $param.h}
  request: {"b?": $param.b}
  response: {y: $y}
""")


def test_objects_of_a_query_have_tensors_words_and_parameters() -> None:
    query = urlencode({"o": '{"x":[1,2],"id":"r1","k":3,"rest":{"z":[4]}}', "h": "5"})
    request = read(OBJECT, "POST /q", b'{"b": 6}', query=query)
    assert [each.array.tolist() for each in request.inputs] == [[1, 2]]
    assert (request.id, request.parameters) == ("r1", {"h": "5", "k": 3, "z": "[4]", "b": 6})
    sent = written(OBJECT, request)
    assert parse_qs(sent.query) == parse_qs(query)
    assert bytes(sent.body) == b'{"b":6}'


def test_an_object_of_a_query_is_checked_like_a_body() -> None:
    with pytest.raises(DecodeError, match="the query: member `w` is not in the form"):
        read(OBJECT, "POST /q", b"{}", query="o=%7B%22x%22%3A1%2C%22w%22%3A2%7D")
    with pytest.raises(DecodeError, match="parameter 'b' is in the request's head and in its body"):
        read(OBJECT, "POST /q", b'{"b": 6}', query="o=%7B%22x%22%3A1%2C%22rest%22%3A%7B%22b%22%3A2%7D%7D")


def test_rows_of_unequal_length_in_a_query_are_refused() -> None:
    form = declared("""
infer: {path: /q, method: GET, query: {x: $x}, response: {y: $y}}
tensors: {x: "INT64 [-1, -1]", y: "FP64 [1]"}
""")
    with pytest.raises(DecodeError, match="input 'x': ragged"):
        read(form, "GET /q", query="x=[[1,2],[3]]")


def test_other_tensors_stand_in_the_body() -> None:
    request = read(POST, "POST /q", b'{"z":[1,2]}', query="x=7")
    assert values(request) == {"x": [7], "z": [1, 2]}
    sent = written(POST, without_origin(request))
    assert (sent.query, bytes(sent.body)) == ("x=7.0", b'{"z":[1.0,2.0]}')


def inputs(*tensors: Tensor) -> Request:
    return replace(without_origin(read(POST, "POST /q", b'{"z":[1]}', query="x=7")), inputs=tensors)


def test_tensors_without_names_go_to_the_query_first() -> None:
    sent = written(POST, inputs(tensor("", np.array([1.0])), tensor("", np.array([2.0, 3.0]))))
    assert (sent.query, bytes(sent.body)) == ("x=1.0", b'{"z":[2.0,3.0]}')


def test_what_has_no_place_or_is_missing_is_refused_by_name() -> None:
    x, z = tensor("x", np.array([1.0])), tensor("z", np.array([1.0]))
    with pytest.raises(GatewayError, match="input 'x' is missing"):
        written(POST, inputs(z))
    with pytest.raises(GatewayError, match="input 'z' is missing"):
        written(POST, inputs(x))
    with pytest.raises(GatewayError, match=r"input 'w' has no place in the form, which has 'x', 'z'"):
        written(POST, inputs(x, z, tensor("w", np.array([1.0]))))
    with pytest.raises(GatewayError, match=r"input 'x' has the shape \[2\]"):
        written(POST, inputs(tensor("x", np.array([1.0, 2.0])), z))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", "the query parameter 'x' is missing"),
        ("x=1&x=2&fmt=json", "the query parameter 'x' occurs 2 times"),
        ("x=1&z=2&fmt=json", "unknown query parameter 'z'; remove it"),
        ("x=a&fmt=json", "the query: "),
        ("x=[1,2]&fmt=json", "input 'x'"),
        ("x=1&fmt=json&xs=1,a", "input 'xs'"),
        ("x=&fmt=json", "the query: "),
        ("x=%22%&fmt=json", "the query: "),
    ],
)
def test_a_query_that_is_not_as_the_form_has_it_is_refused(query: str, expected: str) -> None:
    with pytest.raises(DecodeError, match=expected):
        read(GET, "GET /q", query=query)


ONE = '\ntensors: {x: "FP64 [1]", y: "FP64 [1]"}'
MANY = '\ntensors: {x: "FP64 [-1]", y: "FP64 [-1]"}'
WRONG = [
    ("query: {x: $x}, request: $z", "", "declare the form's tensors in `tensors`"),
    ("query: {o: {k: $params, x: $x}}, request: {k: $params}", "", "$params stands in the query and in the body"),
    ("query: {x: {$any: [$x, {x: $x}]}}", "", "a tensor such as $x|scalar"),
    ("query: {x: $x}, request: {x: $x}", ONE, "$x is in the query and in the body"),
    ("query: {x: $x, z: $x}", ONE, "$x occurs 2 times"),
    ("query: {x: [$x]}", "", "a tensor such as $x|scalar"),
    ("headers: {x: $x}, request: $z", "", "a header has no tensors"),
    ("query: {x: $x|scalar}", MANY, "batch: each"),
]


@pytest.mark.parametrize(("parts", "tensors", "expected"), WRONG)
def test_forms_with_wrong_queries_are_refused(parts: str, tensors: str, expected: str) -> None:
    with pytest.raises(FormError) as caught:
        declared(f"infer: {{path: /q, {parts}, response: $y}}{tensors}")
    assert expected in caught.value.message


def test_the_document_has_the_parameters() -> None:
    assert GET.describer is not None
    operation = GET.describer()("GET /q", None, "")
    assert operation is not None
    schemas = {each.name: each.schema for each in operation.parameters}
    assert schemas["x"]["type"] == "number"
    assert schemas["fmt"] == {"const": "json"}


CONFIG = """
forms:
  query:
    infer: {path: /q, method: [GET, POST], query: {x: $x|scalar}, response: {y: $y|scalar}}
    tensors: {x: "FP64 [1]", y: "FP64 [1]"}
  rows:
    batch: each
    infer: {path: /r, method: GET, query: {x: $x|scalar}, response: {y: $y|scalar}}
    tensors: {x: "FP64 [-1]", y: "FP64 [-1]"}
listeners: [{name: in, bind: "127.0.0.1:0", model: m, protocols: [v2-rest, "json:query"]}]
backends:
  lab: {protocol: json, form: query, endpoints: ["lab:1"]}
  each: {protocol: json, form: rows, endpoints: ["lab:1"]}
routes: [{match: {model: m}, backend: lab}, {match: {model: r}, backend: each}]
"""


def wires() -> Wires:
    return Wires(CONFIG, lab=replying(b'{"y": 2.5}', headers=((b"content-type", b"application/json"),)))


async def test_clients_of_v2_reach_a_server_by_its_query() -> None:
    gateway = wires()
    body = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1], "data": [5]}]}
    reply = await gateway.post("v2-rest", "/v2/models/m/infer", json.dumps(body).encode())
    assert json.loads(bytes(reply.body))["outputs"][0]["data"] == [2.5]
    [sent] = gateway.sent["lab"]
    assert (sent.method, sent.path, sent.query) == ("GET", "/q", "x=5.0")


async def test_rows_are_queries() -> None:
    gateway = wires()
    body = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [2], "data": [5, 6]}]}
    reply = await gateway.post("v2-rest", "/v2/models/r/infer", json.dumps(body).encode())
    told = {"name": "y", "datatype": "FP64", "shape": [2], "data": [2.5, 2.5]}
    assert json.loads(bytes(reply.body))["outputs"] == [told]
    assert sorted(each.query for each in gateway.sent["lab"]) == ["x=5.0", "x=6.0"]


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_the_same_form_on_both_sides_keeps_the_query(method: str) -> None:
    gateway = wires()
    reply = await gateway.send("json:query", Message(method, "/q", Headers(), (b"",), query="x=5"))
    assert (reply.status, json.loads(bytes(reply.body))) == (200, {"y": 2.5})
    assert [(each.method, each.query) for each in gateway.sent["lab"]] == [(method, "x=5")]
    refused = await gateway.send("json:query", Message(method, "/q", Headers(), (b"",), query="z=5"))
    assert refused.status == 400
