"""Bodies read by their types say the same as if `json_bodies` had read them otherwise, and both refuse the same.

A large body is not read by its type, so that each one is read twice: as it is, and with many blanks behind it.
"""

import json
from typing import Any
from unittest import mock

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.protocols.v1 import json_bodies
from gateway.protocols.v1.json_bodies import read_body
from gateway.protocols.v1.schema import REPLY, REQUEST, BodyKeys, TensorFormat

BLANKS = b" " * 2**14


def outcome(text: bytes, keys: BodyKeys, limit: int, any_json: bool) -> object:
    try:
        body = read_body(text, keys, limit, any_json=any_json)
    except DecodeError as error:
        return str(error).replace(f"end of data at byte {len(text)}", "end of data")
    read = [
        (each.name, each.datatype, each.shape, bytes(each.data), each.content_type, each.untyped)
        for each in body.tensors
    ]
    return body.tensor_format, read, repr(body.members), body.tensor_error


def assert_same(text: bytes | str, limit: int = 10_000) -> None:
    raw = text.encode() if isinstance(text, str) else text
    for keys in (REQUEST, REPLY):
        for any_json in (True, False):
            assert outcome(raw, keys, limit, any_json) == outcome(raw + BLANKS, keys, limit, any_json)


ROWS = '{"instances": [[1.5, 0.10], [3, 4]]}'
NAMED_ROWS = '{"signature_name":"s","instances":[{"a":[1.5,0.10],"b":3},{"a":[3,4],"b":-2.5}]}'
COLUMNS = '{"inputs": [[1.5, 0.10]], "signature_name": "s"}'
NAMED_COLUMNS = '{"inputs": {"a": [[1.5, 0.10]], "b": [7]}}'
REPLIES = [
    each.replace("instances", "predictions").replace("inputs", "outputs").replace('"signature_name":"s",', "")
    for each in (ROWS, NAMED_ROWS, NAMED_COLUMNS)
]
BODIES = [ROWS, NAMED_ROWS, COLUMNS, NAMED_COLUMNS, *REPLIES, '{"predictions":{"a":[1.5]}}']


@pytest.mark.parametrize("body", BODIES)
def test_a_body(body: str) -> None:
    assert_same(body)


def test_the_values_of_a_name_in_all_rows_are_one_tensor() -> None:
    with mock.patch.object(json_bodies, "read", side_effect=AssertionError):  # by its type alone
        body = read_body(NAMED_ROWS.encode(), REQUEST, 100, any_json=False)
    assert (body.tensor_format, body.members) == (TensorFormat.ROWS, {"signature_name": "s"})
    a, b = body.tensors
    assert (a.name, a.datatype, a.array.tolist()) == ("a", Datatype.FP64, [[1.5, 0.1], [3, 4]])
    assert (b.name, b.datatype, b.array.tolist()) == ("b", Datatype.FP64, [3, -2.5])


ODD = [
    "", "[]", "{}", '{"instances":5}', '{"inputs":5}', '{"inputs":"a"}', '{"inputs":null}', '{"instances":null}',
    '{"instances":[]}', '{"instances":[[]]}', '{"instances":[{}]}', '{"inputs":{}}', '{"instances":{"a":[1]}}',
    '{"instances":[1],"inputs":[1]}', '{"instances":[1],"instances":[2]}', '{"instances":[{"a":1,"a":2}]}',
    '{"inputs":{"a":[1],"a":[2]}}', '{"instances":[{"a":1},{"b":1}]}', '{"instances":[{"a":1},{"a":1,"b":2}]}',
    '{"instances":[{"a":1,"b":2},{"b":3,"a":4}]}', '{"instances":[{"a":1},5]}', '{"instances":[5,{"a":1}]}',
    '{"instances":[{"":1}]}', '{"inputs":{"":1}}', '{"instances":[{"a":[1]},{"a":[1,2]}]}', '{"instances":[{"a":{}}]}',
    '{"instances":[{"a":true},{"a":false}]}', '{"instances":[{"a":true},{"a":1}]}', '{"instances":[{"a":1},{"a":"b"}]}',
    '{"instances":[{"a":"b"},{"a":"c:d"}]}', '{"instances":["a","b"]}', '{"instances":["a:b"]}', '{"instances":[ "a"]}',
    '{"instances":[{"a":["b","c"]},{"a":["d"]}]}', '{"inputs":{"a":"b"}}', '{"inputs":[{"a":1}]}',
    '{"instances":[{"b64":"AAE="}]}', '{"instances":[{"x":{"b64":"AAE="}}]}', '{"inputs":{"b64":"AAE="}}',
    '{"instances":[{"b64":"\u007fb64:"}]}', '{"instances":[{"x":"\u007fb64:"}],"signature_name":"\u007fb64:"}',
    '{"instances":[1],"signature_name":5}', '{"instances":[1],"signature_name":null}',
    '{"instances":[1],"signature_name":""}', '{"instances":[1],"parameters":{"a":1}}', '{"instances":[1],"x":1}',
    '{"\\u0069nstances":[1]}', '{"instances":[1]}x',
    '{"instances":[{"a":18446744073709551616},{"a":1.5}]}', '{"instances":[{"a":18446744073709551615},{"a":-1}]}',
    '{"instances":[{"a":18446744073709551615},{"a":1}]}', '{"instances":[{"a":9223372036854775808},{"a":1.5}]}',
    '{"instances":[{"a":9007199254740993},{"a":0.5}]}', '{"instances":[[1,2],[3]]}', '{"instances":[[1,2],3]}',
    '\ufeff{"instances":[1]}', ' {"instances" : [ 1 ] } ', '{"instances":[NaN]}', '{"instances":[{"a":NaN}]}',
    '{"instances":[1e400]}', '{"instances":[{"a":1e400}]}', '{"instances":[null]}', '{"instances":[{"a":null}]}',
    '{"instances":[{"\\u0061":1}]}', '{"instances":[{"\\ud800":1}]}', '{"instances":[{"a\\u003a":1}]}',
    '{"predictions":[1],"error":"x"}', '{"predictions":[1],"signature_name":"s"}',
    '{"outputs":[1],"signature_name":"s"}',
]  # fmt: skip


@pytest.mark.parametrize("body", ODD)
def test_an_odd_body(body: str) -> None:
    assert_same(body)


@pytest.mark.parametrize("depth", [31, 32, 33, 60, 61, 62, 63, 64, 65, 2000])
@pytest.mark.parametrize("around", ["{}", '[{{"a":{}}}]', '{{"a":{}}}'])
def test_deep_arrays(depth: int, around: str) -> None:
    for key in ("instances", "inputs"):
        assert_same(f'{{"{key}":{around.format("[" * depth + "1" + "]" * depth)}}}')


def test_any_limit_of_values() -> None:
    for body in BODIES:
        for limit in range(30):
            assert_same(body, limit)


def test_a_body_that_is_not_utf_8() -> None:
    for at in range(1, len(NAMED_ROWS)):
        assert_same(NAMED_ROWS[:at].encode() + b"\xff" + NAMED_ROWS[at:].encode())


NUMBER = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False), st.integers(-(2**65), 2**65), st.booleans(), st.just(2**63)
)
VALUE = st.recursive(
    NUMBER | st.sampled_from(["a", ":", '"', ""]), lambda inner: st.lists(inner, max_size=2), max_leaves=4
)
NAME = st.sampled_from(["a", "b", "", "b64", "x:y"])
CONTENT = st.one_of(
    VALUE,
    st.lists(st.dictionaries(NAME, VALUE, max_size=2), max_size=3),
    st.dictionaries(NAME, VALUE, max_size=2),
    st.lists(NUMBER, max_size=3).map(lambda rows: [{"a": row} for row in rows]),
)
KEY = st.sampled_from(["instances", "inputs", "predictions", "outputs", "explanations"])


@given(KEY, CONTENT, st.dictionaries(st.sampled_from(["signature_name", "x", "instances"]), VALUE, max_size=1))
def test_any_body(key: str, content: Any, others: dict[str, Any]) -> None:
    assert_same(json.dumps({key: content, **others}))


@given(st.sampled_from(BODIES), st.data())
def test_any_text(body: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(start, min(len(body), start + 10)))
    pieces = data.draw(st.lists(st.one_of(st.sampled_from([*'[]{}"\\,: 1.eä', '"a":1', "true"])), max_size=4))
    text = body[:start] + "".join(pieces) + body[end:]
    assume(not text.endswith("\\"))  # it would escape the first blank
    assert_same(text)
