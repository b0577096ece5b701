"""Requests of clients, and what they are answered."""

import json
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.exchange import decoded
from gateway.core.frozen import replace
from gateway.core.messages import Headers
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.requests import Answer, MissingNumbers, Request, Response, Translate
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.umbridge.server import PATTERNS, decode_request
from tests.protocols.umbridge.wire import LISTENER, UMBRIDGE, asked, call, floats, index, integers, numbers, written

GRADIENT_BODY = {"name": "m", "outWrt": 0, "inWrt": 0, "input": [[1.5]], "sens": [2.5], "config": {}}


def gradient_body(**changes: object) -> str:
    """The body of /Gradient with some members changed; None leaves one out."""
    return json.dumps({key: item for key, item in {**GRADIENT_BODY, **changes}.items() if item is not None})


def test_every_path_of_the_interface_and_of_shared_memory_is_served() -> None:
    assert set(PATTERNS) == {
        "GET /Info",
        *(f"POST /{word}" for word in ("ModelInfo", "InputSizes", "OutputSizes", "TestShMem")),
        *(f"POST /{word}" for word in ("Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian")),
        *(f"POST /{word}ShMem" for word in ("Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian")),
    }


LENIENT: list[tuple[str, str, tuple[Tensor, ...]]] = [
    ("MATLAB's bare scalar for a vector of one", '{"name":"m","input":[[1,2],3.5]}', (integers(1, 2), floats(3.5))),
    ("nothing but integers", '{"name":"m","input":[[1,-2]]}', (integers(1, -2),)),
    ("one float makes floats of all", '{"name":"m","input":[[1,2.0]]}', (floats(1, 2),)),
    ("no config", '{"name":"m","input":[[1]]}', (integers(1),)),
    ("config null", '{"name":"m","input":[[1]],"config":null}', (integers(1),)),
    ("R's empty config", '{"name":"m","input":[[1]],"config":[]}', (integers(1),)),
    ("keys that are not known", '{"x":{"y":[1]},"name":"m","sens":"?","input":[[1]],"vec":{}}', (integers(1),)),
    ("the C++ client's order of keys", '{"config":{},"input":[[1]],"name":"m"}', (integers(1),)),
    ("no inputs", '{"name":"m","input":[]}', ()),
    ("an empty vector", '{"name":"m","input":[[],[1]]}', (integers(), integers(1))),
    ("a UTF-8 byte order mark", '\ufeff{"name":"m","input":[[1]]}', (integers(1),)),
]


@pytest.mark.parametrize(("body", "inputs"), [case[1:] for case in LENIENT], ids=[case[0] for case in LENIENT])
def test_variants_that_real_clients_send_are_read(body: str, inputs: tuple[Tensor, ...]) -> None:
    assert asked("/Evaluate", body) == Request(
        Operation.INFER, "m", inputs=inputs, listener="http", protocol="umbridge", path="/Evaluate"
    )


def test_literals_are_numbers() -> None:
    request = asked("/Evaluate", '{"name":"m","input":[[NaN,Infinity,-Infinity]]}')
    assert str(numbers(request.inputs[0])) == "[nan, inf, -inf]"


def test_integers_of_64_bits_are_exact() -> None:
    request = asked(
        "/Evaluate", '{"name":"m","input":[[9223372036854775807,-9223372036854775808],[18446744073709551615]]}'
    )
    assert [numbers(vector) for vector in request.inputs] == [[2**63 - 1, -(2**63)], [2**64 - 1]]
    assert [str(vector.datatype) for vector in request.inputs] == ["INT64", "UINT64"]


@pytest.mark.parametrize(
    ("body", "inputs"),
    [
        (gradient_body(), (floats(1.5), index("out_wrt", 0), index("in_wrt", 0), floats(2.5, name="sens"))),
        (gradient_body(inWrt=1.0), (floats(1.5), index("out_wrt", 0), index("in_wrt", 1), floats(2.5, name="sens"))),
        (gradient_body(outWrt=-1), (floats(1.5), index("out_wrt", -1), index("in_wrt", 0), floats(2.5, name="sens"))),
        (gradient_body(sens=3), (floats(1.5), index("out_wrt", 0), index("in_wrt", 0), integers(3, name="sens"))),
        (gradient_body(sens=[]), (floats(1.5), index("out_wrt", 0), index("in_wrt", 0), integers(name="sens"))),
        (gradient_body(input=None), (index("out_wrt", 0), index("in_wrt", 0), floats(2.5, name="sens"))),
    ],
    ids=["plain", "float index", "negative index", "scalar sens", "empty sens", "C++ without inputs"],
)
def test_a_derivative_has_its_own_tensors_after_the_inputs(body: str, inputs: tuple[Tensor, ...]) -> None:
    assert asked("/Gradient", body).inputs == inputs


REFUSED = [
    ("/Evaluate", "", "."),
    ("/Evaluate", "[]", "."),
    ("/Evaluate", "{}", 'no "name"'),
    ("/Evaluate", '{"input":[[1]]}', "no \"name\" in the request; it has 'input'"),
    ("/Evaluate", '{"name":"m","input":[[1]]} x', "."),
    ("/Evaluate", '{"name":7,"input":[[1]]}', '"name" is 7, expected a model name'),
    ("/Evaluate", '{"name":"","input":[[1]]}', "\"name\" is '', expected a model name"),
    ("/ModelInfo", "{}", 'no "name" in the request; it has no keys'),
    ("/InputSizes", '{"name":["m"]}', r"\"name\" is \['m'\], expected a model name"),
    ("/Gradient", '{"name":"m","outWrt":NaN,"inWrt":0,"input":[[1]],"sens":[1]}', "not JSON"),
]

FLAWED = [
    ("/Evaluate", '{"name":"m"}', 'no "input" in the request'),
    ("/Evaluate", '{"name":"m","input":null}', "input"),
    ("/Evaluate", '{"name":"m","input":{"a":1}}', "an object at byte 20, expected an array"),
    ("/Evaluate", '{"name":"m","input":"1"}', "input"),
    ("/Evaluate", '{"name":"m","input":[["1"]]}', "'input' at byte 20: a string is not a number"),
    ("/Evaluate", '{"name":"m","input":[[1],[true]]}', "input 1 holds booleans, expected a vector of numbers"),
    ("/Evaluate", '{"name":"m","input":[["a",null]]}', "."),
    ("/Evaluate", '{"name":"m","input":[[[1,2]]]}', "'input' at byte 20: nested deeper than a list of vectors"),
    ("/Evaluate", '{"name":"m","input":[[1,[2]]]}', "."),
    ("/Gradient", gradient_body(inWrt=None), 'no "inWrt" in the request'),
    ("/Gradient", gradient_body(sens=None), 'no "sens" in the request'),
    ("/Gradient", gradient_body(sens=["1"]), '"sens" holds strings'),
    ("/Gradient", gradient_body(sens=[[1]]), r'"sens" has shape \[1, 1\], expected a vector of numbers'),
    ("/Gradient", gradient_body(inWrt="0"), "\"inWrt\" is '0', expected the position of a vector, counted from 0"),
    ("/Gradient", gradient_body(inWrt=True), '"inWrt" is True, expected the position'),
    ("/Gradient", gradient_body(inWrt=0.5), r'"inWrt" is 0\.5, expected the position'),
    ("/Gradient", gradient_body(inWrt=[0]), r'"inWrt" is \[0\], expected the position'),
    ("/Gradient", gradient_body(inWrt=2**63), '"inWrt" is 9223372036854775808, expected the position'),
]


@pytest.mark.parametrize(("path", "body", "says"), REFUSED)
def test_a_body_that_names_no_model_is_refused(path: str, body: str, says: str) -> None:
    with pytest.raises(DecodeError, match=says):
        asked(path, body)


@pytest.mark.parametrize(("path", "body", "says"), FLAWED)
def test_other_errors_are_kept_as_a_flaw_until_the_model_is_known(path: str, body: str, says: str) -> None:
    request = asked(path, body)
    assert (request.model, request.inputs) == ("m", ())
    assert re.search(says, request.flaw)


def test_null_among_numbers_is_a_flaw_that_some_routes_take() -> None:
    request = asked("/Evaluate", '{"name":"m","input":[[1,null]]}')
    assert isinstance(request.flaw, MissingNumbers)
    assert np.isnan(request.inputs[0].array).tolist() == [False, True]
    assert "'input' at byte 20: vector 0: element 1: null is not a number" in request.flaw


@pytest.mark.parametrize("word", ["Evaluate", "Gradient", "ApplyJacobian", "ApplyHessian"])
def test_calls_through_shared_memory_are_refused(word: str) -> None:
    with pytest.raises(GatewayError, match="shared memory cannot cross the gateway") as caught:
        asked(f"/{word}ShMem", '{"name":"m","shmem_name":"/umbridge","shmem_num_inputs":1,"shmem_size_0":2}')
    assert caught.value.reason is Reason.UNSUPPORTED


def test_the_probe_of_shared_memory_is_not_about_a_model() -> None:
    request = asked("/TestShMem", "whatever")
    assert (request.operation, request.part, request.model) == (Operation.LIVE, "TestShMem", "")


CONFIGS = [
    ('{"a":1}', '{"a":1}'),
    ('{ "z" : 1.50 , "a" : [ 1, null, true, {} ] }', '{"z":1.5,"a":[1,null,true,{}]}'),
    (
        '{"input":{"file":"x"},"vec":["a",1],"sens":[[1],[2,3]]}',
        '{"input":{"file":"x"},"vec":["a",1],"sens":[[1],[2,3]]}',
    ),
    ('{"config":{"name":"m"}}', '{"config":{"name":"m"}}'),
    ("[1, 2.5]", "[1,2.5]"),
    ('"{}"', '"{}"'),
    ("7", "7"),
    ("false", "false"),
]


@pytest.mark.parametrize("path", ["/Evaluate", "/InputSizes", "/OutputSizes"])
@pytest.mark.parametrize(("config", "text"), CONFIGS)
def test_config_is_carried_as_text_with_its_values_and_order(path: str, config: str, text: str) -> None:
    request = asked(path, f'{{"name":"m","input":[[1]],"config":{config}}}')
    assert json.loads(str(request.parameters["config"]), object_pairs_hook=list) == json.loads(
        text, object_pairs_hook=list
    )
    assert " " not in str(request.parameters["config"])


def test_model_info_takes_no_config() -> None:
    assert asked("/ModelInfo", '{"name":"m","config":{"a":1}}').parameters == {}


def test_a_config_beyond_the_limit_is_refused_naming_the_setting() -> None:
    listener = ListenerSettings("http", Limits(config=20))
    fits, too_long = ('{"name":"m","input":[],"config":{"a":"' + "x" * size + '"}}' for size in (12, 13))
    assert decode_request(call("/Evaluate", fits), listener).parameters == {"config": '{"a":"xxxxxxxxxxxx"}'}
    with pytest.raises(GatewayError) as caught:
        decode_request(call("/Evaluate", too_long), listener)
    assert caught.value.reason is Reason.TOO_LARGE
    assert caught.value.message == "config of 21 bytes; `limits: {config: 20}` of listener 'http' allows no more"


def test_headers_peer_and_deadline_are_kept() -> None:
    headers = Headers([(b"x-user", b"a")])
    message = replace(call("/ModelInfo", '{"name":"m"}'), headers=headers, peer="p", deadline=2.5)
    request = decoded(message, UMBRIDGE, LISTENER)
    assert (request.headers, request.peer, request.deadline, request.protocol) == (headers, "p", 2.5, "umbridge")


# Replies

EVALUATE, GRADIENT = Request(Operation.INFER, "m"), Request(Operation.GRADIENT, "m")


ANSWERS: list[tuple[Request, Answer, bytes]] = [
    (EVALUATE, Response((floats(1.5, 2.0), integers(3))), b'{"output":[[1.5,2.0],[3]]}'),
    (EVALUATE, Response(), b'{"output":[]}'),
    (EVALUATE, Response((integers(),)), b'{"output":[[]]}'),
    (GRADIENT, Response((floats(0.1, 1e-300, name="output"),)), b'{"output":[0.1,1e-300]}'),
    (Request(Operation.APPLY_JACOBIAN), Response((integers(),)), b'{"output":[]}'),
    (Request(Operation.APPLY_HESSIAN), Response((floats(7.0, name="y"),)), b'{"output":[7.0]}'),
]


@pytest.mark.parametrize(("request_", "answer", "body"), ANSWERS)
def test_a_reply_has_the_members_of_the_interface_and_no_other(request_: Request, answer: Answer, body: bytes) -> None:
    assert written(answer, request_) == body


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([[1, 2], [3, 4]], np.int32), b"[1,2,3,4]"),
        (np.array(2.5), b"[2.5]"),
        (np.array([[]]), b"[]"),
        (np.array([0.1], np.float32), b"[0.10000000149011612]"),
        (np.array([0.1], np.float16), b"[0.0999755859375]"),
        (np.array([0.1], ml_dtypes.bfloat16), b"[0.10009765625]"),
        (np.array([2**64 - 1], np.uint64), b"[18446744073709551615]"),
        (np.array([True, False]), b"[1,0]"),
        (np.array([np.nan, -np.inf]), b"[NaN,-Infinity]"),
    ],
)
def test_every_output_is_one_vector_of_exact_numbers(array: "np.ndarray[Any, Any]", text: bytes) -> None:
    assert written(Response((tensor("y", array),)), EVALUATE) == b'{"output":[' + text + b"]}"


def test_the_route_says_how_nan_is_written() -> None:
    answer = Response((tensor("y", np.array([np.nan])),))
    assert written(answer, EVALUATE, Translate(nan="null")) == b'{"output":[[null]]}'
    with pytest.raises(GatewayError, match="output 'y'"):
        written(answer, EVALUATE, Translate(nan="error"))


def test_outputs_that_are_no_numbers_are_refused_by_name() -> None:
    with pytest.raises(GatewayError, match="output 'label' is BYTES, but UM-Bridge carries numbers only") as caught:
        written(Response((floats(1.0), tensor("label", np.array(["cat"])))), EVALUATE)
    assert caught.value.reason is Reason.UNSUPPORTED


@pytest.mark.parametrize("outputs", [(), (floats(1.0, name="a"), floats(2.0, name="b"))])
def test_a_derivative_is_one_vector(outputs: tuple[Any, ...]) -> None:
    with pytest.raises(
        GatewayError, match=r"the derivative has [02] outputs \((none|'a', 'b')\), expected one"
    ) as caught:
        written(Response(outputs), GRADIENT)
    assert caught.value.reason is Reason.INVALID_OUTPUT
