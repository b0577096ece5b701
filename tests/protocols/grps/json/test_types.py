"""Messages read by their type say the same as if the general reader had read them, and both refuse the same.

A message with a byte order mark is not read by its type, so that each one is read twice: without one and with it.
"""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.protocol import Limits
from gateway.protocols.grps.json.message import read_by_type, read_message
from tests.protocols.grps.protobuf.upb import comparable

BOM = b"\xef\xbb\xbf"
LIMITS = Limits()


def outcome(text: bytes, limits: Limits) -> object:
    try:
        return comparable(read_message(text, "input", limits))
    except (DecodeError, GatewayError) as error:
        return type(error), str(error)


def assert_same(text: bytes | str, limits: Limits = LIMITS) -> None:
    raw = text.encode() if isinstance(text, str) else text
    assert outcome(raw, limits) == outcome(BOM + raw, limits)


X = '{"name": "x:0", "dtype": "DT_FLOAT32", "shape": [1, 2], "flat_float32": [1e0, 0.10]}'
Y = '{"dtype":"DT_INT16","shape":[2],"flat_int16":[-3,4],"name":"y"}'
Z = '{"dtype":"DT_STRING","shape":[1,2],"flat_string":["a:[{","ä"],"name":"z"}'
SCALAR = '{"dtype":"DT_FLOAT64","flat_float64":[0.10]}'
STATUS = '{"code":200,"msg":"OK","status":"SUCCESS"}'
BODY = f'{{"status": {STATUS}, "model": "m-1.0.0", "gtensors": {{"tensors": [{X},{Y},{Z},{SCALAR}]}}}}'


def body_of(*tensors: str, more: str = "") -> str:
    return f'{{"gtensors":{{"tensors":[{",".join(tensors)}]}}{more}}}'


def test_what_clients_and_servers_write_is_read_by_its_type() -> None:
    assert read_by_type(BODY.encode(), LIMITS) is not None
    assert_same(BODY)


@pytest.mark.long
@pytest.mark.parametrize("count", [100, 1000, 30_000])
@pytest.mark.parametrize("element", ["0.10", "7", "NaN", '"1"', "1e400", "[1]", "18446744073709551616"])
def test_many_elements(count: int, element: str) -> None:
    for tensor in (X, Y):
        many = tensor.replace("[1, 2]", f"[{count}]").replace("[2]", f"[{count}]")
        many = many.replace("1e0, 0.10", ",".join(["0.10"] * (count - 1) + [element]))
        assert_same(body_of(many.replace("-3,4", ",".join(["7"] * (count - 1) + [element])), SCALAR, X))
    assert_same(body_of(*[X] * count))


def test_many_elements_are_read_by_their_type() -> None:
    many = X.replace("[1, 2]", "[3000]").replace("1e0, 0.10", ",".join(["0.10"] * 3000))
    for tensors in ((many,), (many, X), (X, many), (SCALAR, many), (Z, many)):
        assert read_by_type(body_of(*tensors).encode(), LIMITS) is not None
        assert_same(body_of(*tensors))


SQUARE = "[4294967295, 4294967295]"
ODD = [
    "",
    "{}",
    "[]",
    '{"gtensors":{}}',
    '{"gtensors":null}',
    '{"gtensors":[]}',
    '{"gtensors":{"tensors":{}}}',
    body_of(),
    body_of("{}"),
    body_of(X, more=',"x":1'),
    body_of(X, more=',"gtensors":{}'),
    body_of(X, more=',"model":1'),
    body_of(X, more=',"str_data":"a"'),
    body_of(X, more=',"str_data":null'),
    body_of(X, more=',"model":""'),
    body_of(X, more=',"status":{}'),
    body_of(X, more=',"status":{"code":200,"msg":"OK"}'),
    body_of(X) + "}",
    body_of(X, more=f',"status":{STATUS.replace("200", "201")}'),
    body_of(X, more=',"status":null'),
    body_of(X)[:-1],
    body_of(X, more=f',"status":{STATUS.replace("200", "200.0")}'),
    body_of(X.replace("x:0", "\\u0078")),
    *(body_of(X.replace("[1, 2]", shape)) for shape in ("[2.0]", "[-2]", "[true,2]", "[3]", f"[{2**32}]", SQUARE)),
    body_of(X.replace('"shape": [1, 2], ', "")),
    body_of(X.replace('"DT_FLOAT32"', "7")),
    body_of(X.replace("DT_FLOAT32", "DT_FLOAT64")),
    body_of(X.replace('{"name"', '{"flat_int32":[],"name"')),
    body_of(X.replace('{"name"', '{"flat_int32":[1],"name"')),
    body_of(X.replace('{"name"', '{"name":"a","name"')),
    body_of(X.replace("float32", "float16").replace("FLOAT32", "FLOAT16")),
    body_of(X.replace("flat_float32", "flat_double")),
    body_of(X.replace("[1e0, 0.10]", "0")),
    body_of(X.replace("[1e0, 0.10]", "[[1e0, 0.10]]")),
    body_of(Y.replace("-3", "1.0")),
    body_of(Y.replace("-3", "40000")),
    body_of(Y.replace("16", "64")),
    body_of(X.replace("0.10", "4e38")),
    body_of(X.replace("0.10", "true")),
    body_of(X.replace("0.10", "null")),
    body_of(X, X.replace("1e0", "2.5")),
    body_of(Z.replace('"ä"', "1")),
    body_of(Z.replace('"ä"', '["ä"]')),
    body_of(X.replace('"flat_float32"', '"flat_float32" ')),
    '{"str_data":"gtensors"}',
    '{"ndarray":[[1.5]],"model":"gtensors"}',
]


@pytest.mark.parametrize("body", ODD)
def test_an_odd_message(body: str) -> None:
    assert_same(body)


def test_any_limits() -> None:
    for values in range(45):
        assert_same(BODY, replace(LIMITS, json_values=values))
        assert_same(body_of(SCALAR), replace(LIMITS, json_values=values))
    for size in range(20):
        assert_same(BODY, replace(LIMITS, message=size))


def test_a_text_that_is_not_utf_8() -> None:
    for at in range(1, len(BODY)):
        assert_same(BODY[:at].encode() + b"\xff" + BODY[at:].encode())


MEMBER = st.one_of(
    st.tuples(st.sampled_from(["name", "dtype", "x"]), st.sampled_from(["", "x:1", "DT_INT32", "DT_FLOAT32", 7])),
    st.tuples(st.just("shape"), st.lists(st.sampled_from([0, 1, 2, -1, 1.0]), max_size=2)),
    st.tuples(
        st.sampled_from(["flat_int32", "flat_float32", "flat_string", "flat_int64", "flat_float16", "flat_x"]),
        st.lists(st.floats() | st.integers(-(2**65), 2**65) | st.just("1") | st.just(True), max_size=3),
    ),
)


@given(st.lists(st.lists(MEMBER, max_size=5).map(dict), max_size=2), st.sampled_from([{}, {"model": "m"}, {"x": 1}]))
def test_any_tensors(tensors: list[dict[str, Any]], others: dict[str, Any]) -> None:
    assert_same(json.dumps({"gtensors": {"tensors": tensors}, **others}))


@given(st.data())
@example(None)
def test_any_text(data: st.DataObject | None) -> None:
    body = BODY if data is None else changed(BODY, data)
    assert_same(body)
    assert_same(body.replace("[1, 2]", "[1, 602]").replace("1e0", "1e0" + ",0.5" * 600))


def changed(body: str, data: st.DataObject) -> str:
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(len(body), start + 10)))
    pieces = data.draw(
        st.lists(st.sampled_from([*'[]{}"\\,: 1.e', '"shape":[2]', '"flat_int16":[1]', "true"]), max_size=4)
    )
    return body[:start] + "".join(pieces) + body[end:]
