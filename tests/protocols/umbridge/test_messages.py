"""Bodies read by their types say the same as if the general reader had read them, and both refuse the same.

A bytearray is not read by its type, so that each body is read twice: as bytes and as one.
"""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.requests import Answer, Request, Response
from gateway.protocols.umbridge.schema import CALL_READERS
from tests.protocols.umbridge.wire import LISTENER, TARGET, UMBRIDGE, asked, call, reply

EVALUATE = '{"name": "m", "input": [[1e3, 0.10], [-2]], "config": {}}'
CONFIGURED = '{"name":"m","input":[[0.10]],"config":{"level":1.50,"deep":[{"a":[1,{"b":2}]}]}}'
GRADIENT = '{"name":"m","outWrt":0,"inWrt":1,"input":[[0.10]],"sens":[1.5],"config":{}}'
JACOBIAN = '{"name":"m","outWrt":0,"inWrt":1,"input":[[0.10]],"vec":[1.5],"config":{}}'
HESSIAN = '{"name":"m","outWrt":0,"inWrt1":1,"inWrt2":-1,"input":[[0.10]],"sens":[1.5],"vec":[2],"config":{}}'
CALLS = {
    EVALUATE: "/Evaluate",
    CONFIGURED: "/Evaluate",
    GRADIENT: "/Gradient",
    JACOBIAN: "/ApplyJacobian",
    HESSIAN: "/ApplyHessian",
}
OUTPUTS, DERIVATIVE = '{"output": [[1e3, 0.10], [-2]]}', '{"output": [1e3, 0.10]}'
REPLIES = {OUTPUTS: asked("/Evaluate", EVALUATE), DERIVATIVE: asked("/Gradient", GRADIENT)}


def said(value: Request | Answer) -> tuple[object, ...]:
    assert isinstance(value, Request | Response)
    request = isinstance(value, Request)
    tensors = value.inputs if isinstance(value, Request) else value.outputs
    read = [(each.name, each.datatype, each.shape, bytes(each.data), each.untyped) for each in tensors]
    return value.model, value.version, value.id, read, dict(value.parameters), request and value.flaw  # type: ignore[union-attr]


def outcome(read: Callable[[Message], Request | Answer], message: Message) -> object:
    try:
        return said(read(message))
    except (DecodeError, GatewayError) as error:
        return type(error), str(error)


def assert_same(read: Callable[[Message], Request | Answer], message: Message) -> None:
    [body] = message.parts
    assert outcome(read, message) == outcome(read, replace(message, parts=(bytearray(body),)))


def assert_same_call(path: str, body: str, listener: ListenerSettings = LISTENER) -> None:
    assert_same(lambda message: UMBRIDGE.decode_request(message, listener), call(path, body))


def assert_same_reply(body: str, request: Request) -> None:
    assert_same(lambda message: UMBRIDGE.decode_response(message, request, TARGET), reply(body))


@pytest.mark.parametrize("body", CALLS, ids=CALLS.values())
def test_a_call(body: str) -> None:
    assert_same_call(CALLS[body], body)


@pytest.mark.parametrize("body", REPLIES)
def test_a_reply(body: str) -> None:
    assert_same_reply(body, REPLIES[body])


def test_what_clients_and_servers_write_is_read_by_its_type() -> None:
    assert CALL_READERS[Operation.INFER].read(EVALUATE.encode(), 100).name == "m"


ODD = [
    EVALUATE.replace("[[1e3, 0.10], [-2]]", "[0.10]"),
    EVALUATE.replace("[[1e3, 0.10], [-2]]", "0.10"),
    EVALUATE.replace("[-2]", '"[-2]"'),
    EVALUATE.replace("[[1e3, 0.10], [-2]]", "[[]]"),
    EVALUATE.replace("[[1e3, 0.10], [-2]]", "[[[1.5]]]"),
    EVALUATE.replace('"m"', '"\\u0061"'),
    EVALUATE.replace('"m"', '"\\ud800"'),
    EVALUATE.replace('"m"', '"\\u003a"'),
    EVALUATE.replace('"m"', '":"'),
    EVALUATE.replace('"m"', '""'),
    EVALUATE.replace('"m"', "1"),
    EVALUATE.replace('"name"', '"n\\u0061me"'),
    EVALUATE.replace("{}", '{"input": [[0.10]]}'),
    EVALUATE.replace("{}", "null"),
    EVALUATE.replace("{}", "[]"),
    EVALUATE.replace("{}", "7"),
    EVALUATE.replace("{}", '{"a": 1, "a": 2}'),
    EVALUATE.replace("{}", '{"a": 1e400}'),
    EVALUATE.replace("{}", '{"a": [1e300, -0, -0.0, 1E5]}'),
    EVALUATE.replace("{}", '{"a": [18446744073709551616, -99999999999999999999, 1e19]}'),
    EVALUATE.replace("{}", '{"a": NaN}'),
    EVALUATE.replace("{}", '{"\\u0061": "\\n\\u00e4\\ud83d\\ude00"}'),
    EVALUATE[:-1] + ',"x":1}',
    EVALUATE[:-1] + ',"config":{}}',
    EVALUATE[:-1] + ',"config":{"a":1}}',
    EVALUATE[:-1],
    EVALUATE + "}",
    " " + EVALUATE + "\n",
    "\ufeff" + EVALUATE,
    '{"name":"m"}',
    '{"name":"m","input":[[0.10]]}',
    "[]",
    "",
]


@pytest.mark.parametrize("body", ODD, ids=lambda each: each[:80])
def test_an_odd_call(body: str) -> None:
    assert_same_call("/Evaluate", body)


@pytest.mark.parametrize("depth", [61, 62, 63, 64, 65, 2000])
def test_a_deep_config(depth: int) -> None:
    assert_same_call("/Evaluate", EVALUATE.replace("{}", '{"a": ' + "[" * depth + "]" * depth + "}"))
    assert_same_call("/Evaluate", EVALUATE.replace("{}", '{"a": ' * depth + "1" + "}" * depth))


@pytest.mark.parametrize("depth", [2, 64, 2000])
def test_a_deep_vector(depth: int) -> None:
    assert_same_call("/Evaluate", EVALUATE.replace("[-2]", "[" * depth + "]" * depth))


NUMBERS = [
    "NaN", "-Infinity", "nan", "inf", "1e400", "true", '"1"', "[1.5]", "1.5]", "null", "1e19", "01.5", "1.5,", "", "-0",
    '"1.5.",2', "true,1.5", "{},1.5", "[],1.5", "1.5,[2.5", "1.5e400", "1.5,36893488147419103232", "1.5e300,-0.0",
    "9223372036854775807", "9223372036854775808", "9223372036854775808,-1", "18446744073709551616",
    "-9223372036854775809", "18446744073709551615", "9007199254740993,0.5",
    "1,2", "1.", ".5", "+1", "1e", "0x1", "1 2", "-", "--1", "1\\u0030",
]  # fmt: skip


@pytest.mark.parametrize("numbers", NUMBERS)
def test_numbers(numbers: str) -> None:
    for body, path in CALLS.items():
        assert_same_call(path, body.replace("0.10", numbers))
        assert_same_call(path, body.replace("1.5", numbers))
        assert_same_call(path, body.replace(":0,", f":{numbers},"))
    for body, request in REPLIES.items():
        assert_same_reply(body.replace("0.10", numbers), request)


def test_any_limits() -> None:
    for body, path in CALLS.items():
        for limit in range(40):
            assert_same_call(path, body, replace(LISTENER, limits=Limits(json_values=limit)))
            assert_same_call(path, body, replace(LISTENER, limits=Limits(config=limit)))


def test_more_vectors_than_the_limit_of_values_are_refused() -> None:
    limits = Limits(json_values=40)
    for count in (38, 40, 41):
        body = EVALUATE.replace("[[1e3, 0.10], [-2]]", f"[{','.join(['[]'] * count)}]")
        assert_same_call("/Evaluate", body, replace(LISTENER, limits=limits))
    many = call("/Evaluate", f'{{"input":[{",".join(["[]"] * 41)}]}}')
    with pytest.raises(DecodeError, match="more than 40 vectors"):
        UMBRIDGE.decode_request(many, replace(LISTENER, limits=limits))


@pytest.mark.parametrize("count", [10, 1_000, 5_000, 20_000])
def test_any_size(count: int) -> None:
    assert_same_call("/Evaluate", EVALUATE.replace("0.10", ",".join(["0.10"] * count)))


def test_a_body_that_is_not_utf_8() -> None:
    for at in range(1, len(CONFIGURED)):
        body = CONFIGURED.encode()
        message = replace(call("/Evaluate", ""), parts=(body[:at] + b"\xff" + body[at:],))
        assert_same(lambda each: UMBRIDGE.decode_request(each, LISTENER), message)


PIECES = st.lists(
    st.one_of(
        st.floats().map(repr),
        st.integers(-(2**65), 2**65).map(str),
        st.sampled_from([*'[]{}"\\,: ä', "]]", '"input"', '"config":{}', '"a":1', "0.10", "1e3", "true"]),
    ),
    max_size=4,
)


@given(st.sampled_from(list(CALLS)), st.data())
@example(EVALUATE, None)
def test_any_call(body: str, data: st.DataObject | None) -> None:
    assert_same_call(CALLS[body], body if data is None else changed(body, data))


@given(st.sampled_from(list(REPLIES)), st.data())
def test_any_reply(body: str, data: st.DataObject) -> None:
    assert_same_reply(changed(body, data), REPLIES[body])


def changed(body: str, data: st.DataObject) -> str:
    """`body` with a part of it replaced by others."""
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(len(body), start + 12)))
    return body[:start] + data.draw(st.sampled_from(["", ","])).join(data.draw(PIECES)) + body[end:]
