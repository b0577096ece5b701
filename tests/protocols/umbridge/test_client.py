"""Requests to backends, and what their replies mean."""

from json import loads

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, Target
from gateway.core.requests import Request, Response
from gateway.core.tensors import Parameters, Tensor, tensor
from gateway.protocols.umbridge.client import decode_response, encode_request
from tests.protocols.umbridge.wire import TARGET, answered, floats, index, integers, numbers

FINITE = st.floats(allow_nan=False, allow_infinity=False)
SENS, VEC = floats(0.5, name="sens"), integers(7, name="vec")


def asked(operation: Operation, *inputs: Tensor, model: str = "m", part: str = "", **parameters: str) -> Request:
    return Request(operation, model, inputs=inputs, parameters=parameters, part=part)


BODIES: list[tuple[Request, str, bytes]] = [
    (
        asked(Operation.INFER, floats(1.5, 1e-300), integers(2)),
        "/Evaluate",
        b'{"name":"m","input":[[1.5,1e-300],[2]],"config":{}}',
    ),
    (asked(Operation.INFER), "/Evaluate", b'{"name":"m","input":[],"config":{}}'),
    (
        asked(Operation.INFER, floats(), model='a"b\n\0'),
        "/Evaluate",
        b'{"name":"a\\"b\\n\\u0000","input":[[]],"config":{}}',
    ),
    (
        asked(Operation.GRADIENT, floats(1.5), index("out_wrt", 2), index("in_wrt", -1), SENS),
        "/Gradient",
        b'{"name":"m","outWrt":2,"inWrt":-1,"input":[[1.5]],"sens":[0.5],"config":{}}',
    ),
    (
        asked(Operation.APPLY_JACOBIAN, index("out_wrt", 0), index("in_wrt", 1), VEC),
        "/ApplyJacobian",
        b'{"name":"m","outWrt":0,"inWrt":1,"input":[],"vec":[7],"config":{}}',
    ),
    (
        asked(
            Operation.APPLY_HESSIAN, floats(1.5), *map(index, ("out_wrt", "in_wrt1", "in_wrt2"), (0, 1, 2)), SENS, VEC
        ),
        "/ApplyHessian",
        b'{"name":"m","outWrt":0,"inWrt1":1,"inWrt2":2,"input":[[1.5]],"sens":[0.5],"vec":[7],"config":{}}',
    ),
    (asked(Operation.METADATA, part="InputSizes"), "/InputSizes", b'{"name":"m","config":{}}'),
    (asked(Operation.METADATA, part="OutputSizes"), "/OutputSizes", b'{"name":"m","config":{}}'),
    (asked(Operation.METADATA, part="InputSizes", config='{"n":3}'), "/InputSizes", b'{"name":"m","config":{"n":3}}'),
    (asked(Operation.METADATA, part="ModelInfo", config='{"n":3}'), "/ModelInfo", b'{"name":"m"}'),
]


@pytest.mark.parametrize(("request_", "path", "body"), BODIES)
def test_the_body_has_the_keys_of_the_python_client_in_its_order(request_: Request, path: str, body: bytes) -> None:
    message = encode_request(request_, TARGET)
    assert (message.method, message.path, message.body) == ("POST", path, body)
    assert message.headers.get("content-type") == "application/json"


@pytest.mark.parametrize(
    "operation", [Operation.MODELS, Operation.LIVE, Operation.READY, Operation.SERVER_METADATA, Operation.MODEL_READY]
)
def test_server_operations_are_a_get_of_info(operation: Operation) -> None:
    message = encode_request(Request(operation, "m"), TARGET)
    assert (message.method, message.path, message.parts) == ("GET", "/Info", ())


@pytest.mark.parametrize("operation", [Operation.CONFIG, Operation.STREAM, Operation.METADATA])
def test_an_operation_that_umbridge_does_not_have_is_refused(operation: Operation) -> None:
    with pytest.raises(GatewayError, match=f"operation '{operation.value}' is not supported by UM-Bridge") as caught:
        encode_request(Request(operation, "m"), TARGET)
    assert caught.value.reason is Reason.UNSUPPORTED


def evaluate(*inputs: Tensor, parameters: Parameters | None = None) -> bytes:
    request = Request(Operation.INFER, "m", inputs=inputs, parameters=parameters or {})
    return bytes(encode_request(request, TARGET).body)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([1.5, np.nan, np.inf, -np.inf]), b"[1.5,NaN,Infinity,-Infinity]"),
        (np.array([0.1], np.float32), b"[0.10000000149011612]"),
        (np.array([2**63 - 1]), b"[9223372036854775807]"),
        (np.array([2**64 - 1], np.uint64), b"[18446744073709551615]"),
        (np.array([[1, 2], [3, 4]], np.int8), b"[1,2,3,4]"),
        (np.zeros((0, 2)), b"[]"),
        (np.array([True, False]), b"[1,0]"),
        (np.array(2.5), b"[2.5]"),
    ],
)
def test_numbers_are_written_exactly(array: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]", text: bytes) -> None:
    assert evaluate(tensor("x", array)) == b'{"name":"m","input":[' + text + b'],"config":{}}'


@given(st.lists(st.lists(FINITE, max_size=70), max_size=3), st.sampled_from([Datatype.FP64, Datatype.FP32]))
def test_any_floats_are_written_exactly(vectors: list[list[float]], datatype: Datatype) -> None:
    with np.errstate(over="ignore"):
        arrays = [np.nan_to_num(np.array(vector, np.float64).astype(datatype.dtype)) for vector in vectors]
    tensors = [Tensor("", datatype, each.shape, each.tobytes()) for each in arrays]
    assert loads(evaluate(*tensors))["input"] == [each.astype(np.float64).tolist() for each in arrays]


@pytest.mark.parametrize("count", [1, 63, 64, 65, 40_000])
def test_literals_stand_for_what_json_lacks(count: int) -> None:
    data = np.full(count, np.nan)
    data[-1] = -np.inf
    written = evaluate(Tensor("", Datatype.FP64, (count,), data.tobytes()))
    assert written.endswith(b'-Infinity]],"config":{}}')
    assert written.count(b"NaN") == count - 1


def test_bytes_are_refused_by_name() -> None:
    with pytest.raises(GatewayError, match="input 'x' is BYTES, but UM-Bridge carries numbers only"):
        evaluate(tensor("x", np.array(["a"])))


@pytest.mark.parametrize(
    ("config", "raw"),
    [
        ('{"scale":2.50,"a":null}', b'{"scale":2.50,"a":null}'),
        (' {"input": {"vec": [1, "a"]}, "µ": "ß"}\n', '{"input": {"vec": [1, "a"]}, "µ": "ß"}'.encode()),
        ('{"big":123456789012345678}', b'{"big":123456789012345678}'),
        ('[1,"a"]', b'[1,"a"]'),
        ('"fine"', b'"fine"'),
        ("2.5", b"2.5"),
        ("false", b"false"),
        ("null", b"{}"),
        ("[]", b"{}"),
    ],
)
def test_config_is_written_as_it_came(config: str, raw: bytes) -> None:
    assert evaluate(parameters={"config": config}) == b'{"name":"m","input":[],"config":' + raw + b"}"


@pytest.mark.parametrize(
    "config",
    ["", '{"a":1', '{},"name":"other"', '1,"name":"other"', '1,"config":2', "1}{", "NaN", '{"a":1,"a":2}', "{a}",
     '\ufeff{"a":1}', 7, True, '{"\ud800":1}'],
)  # fmt: skip
def test_a_config_that_is_not_one_json_value_cannot_get_into_the_message(config: str | int) -> None:
    with pytest.raises(GatewayError, match="parameter 'config'") as caught:
        evaluate(parameters={"config": config})
    assert caught.value.reason is Reason.INVALID_INPUT


def test_a_config_beyond_the_limit_of_the_backend_is_refused() -> None:
    request = Request(Operation.INFER, "m", parameters={"config": '{"a":"xxxxxxxxxxxxx"}'})
    with pytest.raises(GatewayError, match=r"`limits: \{config: 20\}` of backend 'science' allows no more") as caught:
        encode_request(request, Target("science", limits=Limits(config=20)))
    assert caught.value.reason is Reason.TOO_LARGE


def test_a_parameter_that_umbridge_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(GatewayError, match="parameter 'temperature' is not supported by UM-Bridge") as caught:
        evaluate(parameters={"config": "{}", "temperature": 0.5})
    assert caught.value.reason is Reason.INVALID_INPUT
    with pytest.raises(GatewayError, match="parameter 'unit' of input 'x' is not supported by UM-Bridge"):
        evaluate(replace(floats(1.0, name="x"), parameters={"unit": "m"}))


def test_the_parameter_gateway_datatype_is_left_out() -> None:
    """Another gateway adds it to V2 REST requests in JSON."""
    marked = replace(floats(1.5, name="x"), parameters={"gateway_datatype": "FP16"})
    assert evaluate(marked) == b'{"name":"m","input":[[1.5]],"config":{}}'


@pytest.mark.parametrize("wrong", [floats(0.0, name="in_wrt"), integers(0, 1, name="in_wrt")])
def test_an_index_is_one_integer(wrong: Tensor) -> None:
    with pytest.raises(GatewayError, match=r"in_wrt is .* expected one integer"):
        encode_request(Request(Operation.GRADIENT, "m", inputs=(index("out_wrt", 0), wrong, SENS)), TARGET)


def test_a_derivative_without_its_tensors_is_refused() -> None:
    with pytest.raises(GatewayError, match="gradient got 1 tensors; out_wrt, in_wrt, sens must be the last"):
        encode_request(Request(Operation.GRADIENT, "m", inputs=(SENS,)), TARGET)


def test_the_deadline_is_kept() -> None:
    assert encode_request(Request(Operation.INFER, "m", deadline=2.5), TARGET).deadline == 2.5
    assert encode_request(Request(Operation.MODELS, deadline=2.5), TARGET).deadline == 2.5


# Replies

EVALUATE, GRADIENT = Request(Operation.INFER, "m"), Request(Operation.GRADIENT, "m")


@pytest.mark.parametrize(
    ("body", "outputs"),
    [
        ('{"output": [[1.5, 2], [3]] }', (floats(1.5, 2), integers(3))),
        ('{"time":[1,"s"],"output":[[1]],"log":{"output":null}}', (integers(1),)),
        ('{"output":[]}', ()),
        ('{"output":[[]]}', (integers(),)),
        ('{"output":[2.5,[1]]}', (floats(2.5), integers(1))),
    ],
    ids=["spaces", "other keys", "no outputs", "empty vector", "scalar for a vector"],
)
def test_the_outputs_of_evaluate_are_vectors_without_names(body: str, outputs: tuple[Tensor, ...]) -> None:
    assert answered(body, EVALUATE) == Response(outputs)


@pytest.mark.parametrize("literals", ["NaN, Infinity, -Infinity", "nan, inf, -inf"])
def test_nan_and_infinities_of_servers_are_read(literals: str) -> None:
    answer = answered(f'{{"output": [[{literals}, 0.5]]}}', EVALUATE)
    assert isinstance(answer, Response)
    assert str(numbers(answer.outputs[0])) == "[nan, inf, -inf, 0.5]"


@pytest.mark.parametrize(
    ("body", "output"),
    [
        ('{"output":[1.5,2.5]}', floats(1.5, 2.5, name="output")),
        ('{"output":[]}', integers(name="output")),
        ('{"output":7}', integers(7, name="output")),
    ],
)
def test_a_derivative_is_one_tensor_of_the_companion_s_name(body: str, output: Tensor) -> None:
    for operation in (Operation.GRADIENT, Operation.APPLY_JACOBIAN, Operation.APPLY_HESSIAN):
        assert answered(body, Request(operation, "m")) == Response((output,))


WRONG = [
    (EVALUATE, '{"output":[[null]]}', "null"),
    (EVALUATE, '{"output":[[1.0],[np.float64(1.5)]]}', "."),
    (EVALUATE, '{"output":[[None]]}', "."),
    (EVALUATE, '{"output":[["a"]]}', "."),
    (EVALUATE, '{"output":[[true]]}', "output 0 holds booleans, expected a vector of numbers"),
    (EVALUATE, '{"output":[[[1,2]]]}', "."),
    (EVALUATE, '{"output":null}', "."),
    (EVALUATE, '{"output":1}', "."),
    (EVALUATE, '{"outputs":[[1]]}', "no \"output\" in the reply; it has 'outputs'"),
    (EVALUATE, "{}", 'no "output" in the reply; it has no keys'),
    (EVALUATE, "", "."),
    (EVALUATE, "<html>", "."),
    (EVALUATE, "[[1]]", "."),
    (GRADIENT, '{"output":[[1,2]]}', r"output has shape \[1, 2\], expected a vector of numbers"),
    (GRADIENT, '{"output":null}', "."),
]


@pytest.mark.parametrize(("request_", "body", "says"), WRONG)
def test_a_reply_that_is_not_what_was_asked_is_refused(request_: Request, body: str, says: str) -> None:
    with pytest.raises(DecodeError, match=says):
        answered(body, request_)


@pytest.mark.parametrize("content_type", [b"", b"text/plain; charset=utf-8", b"application/octet-stream"])
def test_the_content_type_is_not_looked_at(content_type: bytes) -> None:
    message = Message(headers=Headers([(b"content-type", content_type)]), parts=(b'{"output":[[1]]}',), status=200)
    assert decode_response(message, EVALUATE, TARGET) == Response((integers(1),))
