"""Bodies that go on as they came, and those that must not."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import DEFAULT_LIMITS
from gateway.core.types import Message, Request, Response, Tensor
from tests.protocols.umbridge.wire import LISTENER, TARGET, UMBRIDGE, answered, asked, written

BODY = '{"name": "m", "input": [[1e3, 0.10], [2.50]], "config": {}}'
GRADIENT = '{"name": "m", "outWrt": 0, "inWrt": 1, "input": [[0.10]], "sens": [1e0], "config": {"level": 1.50}}'
JACOBIAN = '{"name":"m","outWrt":-1,"inWrt":0,"input":[[0.10]],"vec":[1.0],"config":{}}'
HESSIAN = '{"vec":[1.0],"sens":[2.0],"name":"m","outWrt":0,"inWrt1":0,"inWrt2":0,"input":[[0.10]],"config":{}}'
TENTHS = ",".join(["0.10"] * 20_000)
MANY = f'{{"name":"m","input":[[{TENTHS}]],"config":{{}}}}'
CALLS = {"Evaluate": BODY, "Gradient": GRADIENT, "ApplyJacobian": JACOBIAN, "ApplyHessian": HESSIAN}


def fitted(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The tensors as the bridge gives them to a codec: with names, other shapes, and the same data."""
    return tuple(
        Tensor(f"input{at}", each.datatype, (1, *each.shape), each.data, "", each.parameters)
        for at, each in enumerate(tensors)
    )


def sent(request: Request) -> Message:
    return UMBRIDGE.encode_request(replace(request, inputs=fitted(request.inputs)), TARGET)


def anew(request: Request) -> Message:
    return sent(replace(request, original=None))


# --- requests ---


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *((f"/{call}", body) for call, body in CALLS.items()),
        ("/Evaluate", '{"name":"m","input":[],"config":{}}'),
        ("/Evaluate", '{"config":{"a":[1,{"b":null}],"c":1e2,"d":true},"input":[[1.0]],"name":"m"}'),
        ("/Evaluate", '{"name":"m","input":[[1,-2]],"config":{}}'),
        ("/Evaluate", '{"name":"m","input":[[]],"config":{}}'),
        ("/Evaluate", '{"name":"ä","input":[[1e-400, -0.0, 1E+2]],"config":{}}'),
        ("/Evaluate", MANY),
    ],
    ids=lambda each: each[:60],
)
def test_a_call_goes_on(path: str, body: str) -> None:
    message = sent(asked(path, body))
    assert message.body == body.encode()
    assert (message.method, message.path, message.status) == ("POST", path, 0)
    assert list(message.headers) == [("content-type", "application/json")]


HOSTILE = {
    "an unknown member": BODY[:-1] + ',"x":1}',
    "a member of another call": BODY[:-1] + ',"sens":[1.0]}',
    "no config": '{"name":"m","input":[[0.10]]}',
    "a null config": BODY.replace("{}", "null"),
    "an empty list as config": BODY.replace("{}", "[]"),
    "a bare number": BODY.replace("[2.50]", "2.50"),
    "NaN": BODY.replace("2.50", "NaN"),
    "infinity": BODY.replace("2.50", "Infinity"),
    "opposite infinities": BODY.replace("2.50", "Infinity, -Infinity"),
    "nan": BODY.replace("2.50", "nan"),
    "inf": BODY.replace("2.50", "-inf"),
    "NaN among many": MANY.replace("0.10]", "NaN]"),
    "infinity among many": MANY.replace("0.10]", "-Infinity]"),
    "a byte order mark": "\ufeff" + BODY,
    "blanks before": " " + BODY,
    "a line's end": BODY + "\r\n",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=list(HOSTILE))
def test_what_says_more_or_less_is_written_anew(body: str) -> None:
    request = asked("/Evaluate", body)
    assert not request.flaw
    assert sent(request).body == anew(request).body != body.encode()


@pytest.mark.parametrize("config", ["NaN", "-Infinity", "1e999"])
def test_a_config_that_is_not_json_is_refused(config: str) -> None:
    with pytest.raises(DecodeError):
        asked("/Evaluate", BODY.replace("{}", f'{{"level":[{config}]}}'))


@pytest.mark.parametrize("position", ["0.0", "-0.0", "1e0"])
def test_a_position_that_is_no_integer_is_written_anew(position: str) -> None:
    body = GRADIENT.replace('"inWrt": 1', f'"inWrt": {position}')
    assert sent(asked("/Gradient", body)).body == anew(asked("/Gradient", body)).body != body.encode()


def test_a_derivative_without_input_is_written_anew() -> None:
    body = GRADIENT.replace('"input": [[0.10]], ', "")
    assert b'"input":[]' in sent(asked("/Gradient", body)).body


def test_a_body_in_several_parts_is_written_anew() -> None:
    message = Message("POST", "/Evaluate", parts=(BODY[:20].encode(), BODY[20:].encode()), pattern="POST /Evaluate")
    request = UMBRIDGE.decode_request(message, LISTENER)
    assert sent(request).body == anew(request).body != BODY.encode()


def other_data(tensor: Tensor) -> Tensor:
    """An equal tensor, whose data is not what was read."""
    return replace(tensor, data=bytes(bytearray(tensor.data)))


CHANGES = {
    "another model": lambda request: replace(request, model="n"),
    "another config": lambda request: replace(request, parameters={"config": '{"level":2}'}),
    "no config": lambda request: replace(request, parameters={}),
    "other data": lambda request: replace(request, inputs=(other_data(request.inputs[0]), *request.inputs[1:])),
    "another order": lambda request: replace(request, inputs=(request.inputs[1], request.inputs[0])),
    "one input less": lambda request: replace(request, inputs=request.inputs[:1]),
    "one input more": lambda request: replace(request, inputs=(*request.inputs, request.inputs[0])),
    "another datatype": lambda request: replace(
        request, inputs=tuple(replace(each, datatype=Datatype.INT64) for each in request.inputs)
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_changed_request_is_written_anew(change: Any) -> None:
    body = BODY.replace("{}", '{"level": 1}')
    changed = change(asked("/Evaluate", body))
    assert sent(changed).body == anew(changed).body != body.encode()


@pytest.mark.parametrize("operation", [Operation.GRADIENT, Operation.APPLY_JACOBIAN])
def test_an_evaluation_is_no_derivative(operation: Operation) -> None:
    # a companion's request, such as one for `m.gradient`, is sent as the derivative of `m`
    body = '{"name":"m","input":[[0.10],[0],[1],[1e0]],"config":{}}'
    request = replace(asked("/Evaluate", body), operation=operation)
    assert sent(request).body == anew(request).body != body.encode()


def test_the_config_of_a_body_that_would_go_on_is_limited_all_the_same() -> None:
    request = asked("/Gradient", GRADIENT)
    target = replace(TARGET, limits=replace(DEFAULT_LIMITS, config=5))
    with pytest.raises(GatewayError, match="config of 13 bytes"):
        UMBRIDGE.encode_request(request, target)


def test_parameters_of_a_tensor_are_refused_all_the_same() -> None:
    request = asked("/Evaluate", BODY)
    inputs = (replace(request.inputs[0], parameters={"unit": "K"}), *request.inputs[1:])
    with pytest.raises(GatewayError, match="parameter 'unit'"):
        UMBRIDGE.encode_request(replace(request, inputs=inputs), TARGET)


# --- replies ---

REPLY = '{"output": [[1e3, 0.10], [2.50]]}'
DERIVATIVE = '{"output": [1e3, 0.10]}'
MANY_OUTPUTS = f'{{"output":[[{TENTHS}]]}}'
EVALUATE, DERIVE = asked("/Evaluate", BODY), asked("/Gradient", GRADIENT)


def returned(body: str, request: Request = EVALUATE) -> bytes:
    answer = answered(body, request)
    assert isinstance(answer, Response)
    return written(replace(answer, outputs=fitted(answer.outputs)), request)


def returned_anew(body: str, request: Request = EVALUATE) -> bytes:
    return written(replace(answered(body, request), original=None), request)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("body", "request_"),
    [(REPLY, EVALUATE), (DERIVATIVE, DERIVE), ('{"output":[]}', EVALUATE), (MANY_OUTPUTS, EVALUATE)],
    ids=["outputs", "derivative", "none", "many"],
)
def test_a_reply_comes_back(body: str, request_: Request) -> None:
    assert returned(body, request_) == body.encode()


@pytest.mark.parametrize(
    "body",
    [
        REPLY[:-1] + ',"traceback":"..."}',
        REPLY.replace("2.50", "NaN"),
        REPLY.replace("2.50", "-Infinity"),
        REPLY.replace("[2.50]", "2.50"),
        REPLY + "\n",
        " " + REPLY,
        "\ufeff" + REPLY,
    ],
)
def test_a_reply_that_says_more_or_less_is_written_anew(body: str) -> None:
    assert returned(body) == returned_anew(body) != body.encode()


def test_a_changed_reply_is_written_anew() -> None:
    answer = answered(REPLY, EVALUATE)
    assert isinstance(answer, Response)
    for outputs in (answer.outputs[::-1], answer.outputs[:1], tuple(map(other_data, answer.outputs))):
        assert written(replace(answer, outputs=outputs), EVALUATE) != REPLY.encode()


def test_the_reply_of_a_derivative_is_none_of_an_evaluation() -> None:
    # a client that evaluates the companion `m.gradient` gets a list of vectors
    answer = answered(DERIVATIVE, DERIVE)
    assert written(answer, EVALUATE) == b'{"output":[[1000.0,0.1]]}'


# --- whatever the body ---

NUMBERS = st.one_of(
    st.floats().map(json.dumps),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["1e3", "0.10", "-0", "1E-400", "nan", "inf", "1e400", "true", "null", '"1"', "01", "1.", "[1]"]),
)
VECTORS = st.one_of(
    st.lists(st.lists(NUMBERS, max_size=4).map(lambda each: f"[{','.join(each)}]"), max_size=3).map(
        lambda each: f"[{', '.join(each)}]"
    ),
    NUMBERS,
)
CONFIGS = st.one_of(
    st.sampled_from(["{}", "null", "[]", '""', "0", '{"a":NaN}', '{"a":1e999}', '{"config":{}}', '{"input":[[1]]}']),
    st.dictionaries(st.text(max_size=3), st.one_of(st.floats(), st.integers(), st.text(max_size=3))).map(json.dumps),
)
MEMBERS = st.lists(
    st.one_of(
        VECTORS.map(lambda each: f'"input": {each}'),
        CONFIGS.map(lambda each: f'"config":{each}'),
        st.sampled_from(['"name":"m"', '"name": ""', '"x":1', '"Config":{}', '"error":{}', '"\\u0069nput":[[1.5]]']),
    ),
    max_size=5,
)
BODIES = st.tuples(st.sampled_from(["", " ", "\ufeff"]), MEMBERS, st.sampled_from(["", "\n", "}", ",1"])).map(
    lambda each: f"{each[0]}{{{','.join(each[1])}}}{each[2]}"
)
PLAIN = st.tuples(VECTORS, CONFIGS).map(lambda each: f'{{"name":"m","input":{each[0]},"config":{each[1]}}}')


def said(request: Request) -> tuple[object, ...]:
    """A request as text: NaN is equal to itself."""
    tensors = [(each.datatype, each.shape, bytes(each.data)) for each in request.inputs]
    return request.model, tensors, dict(request.parameters), request.flaw


@given(st.one_of(PLAIN, BODIES))
@example(BODY)
def test_what_goes_out_says_what_came_in(body: str) -> None:
    try:
        request = asked("/Evaluate", body)
    except (DecodeError, GatewayError):
        return  # refused, as ever
    if request.flaw:
        return
    message = sent(request)
    assert said(asked("/Evaluate", bytes(message.body))) == said(request)
    if message.body == body.encode():  # strict JSON alone
        json.loads(body, parse_constant=lambda word: pytest.fail(f"{word} went on"))


@given(VECTORS)
def test_what_comes_back_says_what_the_backend_said(vectors: str) -> None:
    body = f'{{"output":{vectors}}}'
    try:
        answer = answered(body, EVALUATE)
    except (DecodeError, GatewayError):
        return
    again = answered(written(answer, EVALUATE).decode(), EVALUATE)
    assert isinstance(answer, Response)
    assert isinstance(again, Response)
    assert [bytes(each.data) for each in again.outputs] == [bytes(each.data) for each in answer.outputs]
