import json
import math
import random
import re
from contextlib import suppress
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.core.bytes_elements import pack, unpack
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.json import (
    INT64_MAX,
    INT64_MIN,
    PIECE,
    UINT64_MAX,
    Array,
    ArrayForm,
    Pieces,
    number_pieces,
    numbers,
    read,
    read_members,
    string_pieces,
    write,
    write_message,
    write_numbers,
)
from gateway.core.json import bulk_numbers as json_numbers
from gateway.core.json.document import AllBut
from tests.limits import examples
from tests.traced import traced

DATA = {"data": ArrayForm.ARRAY}
INPUT = {"input": ArrayForm.VECTORS}
BLANKS = b" " * 10_000  # makes any document one of those that are read piece by piece


def both(body: bytes, arrays: dict[str, ArrayForm], values: int = 1000, literals: bool = False) -> Any:
    """What `read` makes of `body`, small and large: the same."""
    outcomes = [outcome(text, arrays, values, literals) for text in (body, body + BLANKS)]
    assert same(*outcomes), outcomes
    if isinstance(outcomes[0], DecodeError):
        raise outcomes[0]
    return outcomes[0]


def outcome(body: bytes, arrays: dict[str, ArrayForm], values: int, literals: bool) -> Any:
    try:
        return read(body, arrays, values=values, literals=literals)
    except DecodeError as error:
        return error


def refused(body: bytes, arrays: dict[str, ArrayForm], message: str, behind: bytes = BLANKS) -> None:
    """That `body` is refused so, small and large."""
    for text in (body, body + behind):
        with pytest.raises(DecodeError, match=message):
            read(text, arrays, values=1000, literals=False)


def same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, Array):
        return bool(one.shape == other.shape) and same(one.values, other.values)
    if isinstance(one, np.ndarray):
        return bool(one.dtype == other.dtype) and one.tobytes() == other.tobytes()
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, DecodeError) or bool(one == other)


def read_data(text: str, literals: bool = False) -> Array:
    array = both(b'{"data":%b}' % text.encode(), DATA, literals=literals)["data"]
    assert isinstance(array, Array)
    return array


# Arrays longer than one piece (256 KiB): here they are cut at the last comma before the second gap.
GAP = " " * 200_000


@pytest.mark.parametrize(
    ("text", "dtype", "numbers", "shape"),
    [
        ("[]", "i8", [], (0,)),
        ("[[], []]", "i8", [], (2, 0)),
        ("[[[]], [[]]]", "i8", [], (2, 1, 0)),
        ("[1, -2, 3]", "i8", [1, -2, 3], (3,)),
        ("[-0]", "i8", [0], (1,)),
        (f"[{INT64_MIN}, {INT64_MAX}]", "i8", [INT64_MIN, INT64_MAX], (2,)),
        (f"[0, {UINT64_MAX}]", "u8", [0, UINT64_MAX], (2,)),
        (f"[{INT64_MAX + 1}]", "u8", [INT64_MAX + 1], (1,)),
        ("[1.0, 2]", "f8", [1.0, 2.0], (2,)),
        ("[1e3]", "f8", [1000.0], (1,)),
        ("[1E3, 1]", "f8", [1000.0, 1.0], (2,)),
        ("[9007199254740993, 0.5]", "f8", [9007199254740992.0, 0.5], (2,)),
        ("[18446744073709551616, 0.5]", "f8", [2.0**64, 0.5], (2,)),
        ("[-1, 18446744073709551615, 0.5]", "f8", [-1.0, 2.0**64, 0.5], (3,)),
        ("[1e300, -1e300]", "f8", [1e300, -1e300], (2,)),
        ("[5e-324, 1e-400]", "f8", [5e-324, 0.0], (2,)),
        ("[true, false]", "?", [True, False], (2,)),
        ("[[1, 2], [3, 4], [5, 6]]", "i8", [1, 2, 3, 4, 5, 6], (3, 2)),
        ("[[1], [2]]", "i8", [1, 2], (2, 1)),
        ("[ [ [1,2] , [3,4.5] ] ]", "f8", [1, 2, 3, 4.5], (1, 2, 2)),
        ("[[true], [false]]", "?", [True, False], (2, 1)),
        ("7", "i8", [7], ()),
        ("-0.5", "f8", [-0.5], ()),
        ("true", "?", [True], ()),
        (f"[1,2,{GAP}3,4{GAP}]", "i8", [1, 2, 3, 4], (4,)),
        (f"[1,2,{GAP}3 , -4 {GAP}, 5]", "i8", [1, 2, 3, -4, 5], (5,)),
        (f"[1,2,{GAP}3,0.5{GAP}]", "f8", [1, 2, 3, 0.5], (4,)),
        (f"[0.5,{GAP}3,9007199254740993{GAP}]", "f8", [0.5, 3, 2.0**53], (3,)),
        (f"[9007199254740993,{GAP}3,0.5{GAP}]", "f8", [2.0**53, 3, 0.5], (3,)),
        (f"[1,{GAP}3,18446744073709551615{GAP}]", "u8", [1, 3, UINT64_MAX], (3,)),
        (f"[18446744073709551616,{GAP}3,0.5{GAP}]", "f8", [2.0**64, 3, 0.5], (3,)),
        (f"[true,{GAP}false,true{GAP}]", "?", [True, False, True], (3,)),
        (f"[[1,{GAP}3],[4,5]{GAP}]", "i8", [1, 3, 4, 5], (2, 2)),
        (f"[[1,{GAP}3],[4{GAP},5]]", "i8", [1, 3, 4, 5], (2, 2)),
        (f"[[[]],{GAP}[[]],[[]]{GAP}]", "i8", [], (3, 1, 0)),
    ],
)
def test_numbers(text: str, dtype: str, numbers: list[Any], shape: tuple[int, ...]) -> None:
    array = read_data(text)
    assert isinstance(array.values, np.ndarray)
    assert array.values.dtype == np.dtype(dtype)
    assert array.values.tolist() == numbers
    assert array.shape == shape


def test_negative_zero_keeps_its_sign() -> None:
    values = read_data("[-0.0, 0.0]").values
    assert [math.copysign(1, value) for value in values] == [-1.0, 1.0]


@pytest.mark.parametrize(
    ("text", "elements", "shape"),
    [
        ('["a", "", "\\u0000", "é\\ud83d\\ude00"]', ["a", "", "\0", "é😀"], (4,)),
        ('[["a", "b"], ["c", "d"]]', ["a", "b", "c", "d"], (2, 2)),
        ('["[", "]", "{", "}", ",", "\\"", "\\\\", "\\"data\\":[1]"]',
         ["[", "]", "{", "}", ",", '"', "\\", '"data":[1]'], (8,)),
        ('"alone"', ["alone"], ()),
    ],
)  # fmt: skip
def test_strings(text: str, elements: list[str], shape: tuple[int, ...]) -> None:
    for tail in ("}", ',"name":"x"}', ',"parameters":{}}'):
        document = both(f'{{"id":"1","data":{text}{tail}'.encode(), DATA)
        assert document["data"].values == pack(map(str.encode, elements))
        assert document["data"].shape == shape


DEEP = {"": [65], "1": [64, 65, 2000], '"a"': [64, 66], "null": [900, 960, 990], "true": [900, 1030]}
"""Depths, by what the innermost array holds."""
NOT_JSON = [
    "", "[1, 2", "[1, 2]]", "[1],[2]", "1, 2", "[1 2]", "[1,]", "[,1]", "[01]", "[1.]", "[+1]", "[.5]", "[0x10]",
    "[1truefalse]", "[tru]", "[é]", "[[1,]2,[3,4]]", '["a" "b"]', '["a",]',
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("null", "null is not a number"),
        ("[1, null]", "element 1: null is not a number"),
        ("[[1, 2], [3]]", "ragged"),
        ("[1, [2]]", "ragged"),
        ("[[1], 2]", "ragged"),
        ("[[1], []]", "ragged"),
        ("[[[1]], [2]]", "ragged"),
        ("[[1, [2, 3]], [[], 1]]", "ragged"),
        ('["a", ["b"]]', "ragged"),
        ('[["a", "b"], ["c"]]', "ragged"),
        ("[1, true]", "element 1: a boolean next to a number"),
        ("[false, 0.5]", "element 1: a number next to a boolean"),
        ('[1, "a"]', "element 1: a string next to a number"),
        ('["a", null]', "element 1: null"),
        ('["a", true]', "element 1: a boolean next to a string"),
        ("{}", "an object at byte 8, expected an array"),
        ('{"a": 1}', "an object"),
        ("[1, {}]", "an object"),
        ('["a", {}]', "an object"),
        ("[18446744073709551616]", "element 0: 18446744073709551616 is an integer beyond 64 bits"),
        ("[1, -9223372036854775809]", "element 1: -9223372036854775809 is an integer beyond 64 bits"),
        ("[-1, 9223372036854775808]", "element 1: 9223372036854775808 is above INT64, next to negative integers"),
        ("[18446744073709551616, true]", "next to"),
        ("[%s]" % ("9" * 5000), "thousands of digits"),
        ("[%s, 0.5]" % ("9" * 400), "element 0 is out of the range of a double"),
        ("[0.5, 1e400]", "element 1 is out of the range of a double"),
        ("[NaN]", "NaN is not JSON"),
        ("[nan]", "not JSON"),
        ("Infinity", "Infinity is not JSON"),
        ('["\\ud800"]', "not JSON"),
        *(("[" * depth + leaf + "]" * depth, "deeper than 64") for leaf, depths in DEEP.items() for depth in depths),
        *((text, "not JSON") for text in NOT_JSON),
        (f"[-1,{GAP}3,18446744073709551615{GAP}]", "element 2: 18446744073709551615 is above INT64"),
        (f"[9223372036854775808,{GAP}3,-1{GAP}]", "element 0: 9223372036854775808 is above INT64"),
        (f"[18446744073709551616,{GAP}3,5{GAP}]", "element 0: 18446744073709551616 is an integer beyond 64 bits"),
        (f"[1,{GAP}3,18446744073709551616{GAP}]", "element 2: 18446744073709551616 is an integer beyond 64 bits"),
        (f"[1,{GAP}3,null{GAP}]", "element 2: null"),
        (f"[1,{GAP}3,true{GAP}]", "element 2: a boolean next to a number"),
        (f"[true,{GAP}true,3{GAP}]", "element 2: a number next to a boolean"),
        (f"[true,{GAP}true,18446744073709551616{GAP}]", "element 2: a number next to a boolean"),
        (f"[1,{GAP}3,,4{GAP}]", "brackets or commas"),
        (f"[1,{GAP}3,{GAP}]", "a comma without a value"),
        (f"[1,{GAP}3,{GAP}", "brackets or commas"),
        (f"[{GAP},1{GAP}]", "brackets or commas"),
        (f"[1,{GAP}[],,{GAP}]", "brackets or commas"),
        (f"[1],{GAP}[2{GAP}]", "not JSON"),
        (f"[{GAP}1],[2{GAP}]", "brackets or commas"),
        (f"[1,{GAP}2,3]]{GAP}", "brackets or commas"),
        (f"[[1,{GAP}2,3]{GAP}", "brackets or commas"),
        (f"[1{GAP}{GAP},2]", "262144 bytes of an array without a comma"),
        (f"[[1,{GAP}3],[4{GAP}]]", "ragged"),
        ("[" * 65 + f"1,{GAP}3,{GAP}4" + "]" * 65, "deeper than 64"),
    ],
)  # fmt: skip
def test_refused_arrays(text: str, message: str) -> None:
    for tail in ("}", ',"name":"x"}'):
        refused(b'{"data":%b%b' % (text.encode(), tail.encode()), DATA, "(?s)" + message)


@pytest.mark.parametrize("depth", [300, 1000, 2000])
@pytest.mark.parametrize("closed", [False, True])
def test_nesting_beyond_what_orjson_can_is_told_as_nesting(depth: int, closed: bool) -> None:
    for opening, closing in (("[", "]"), ('{"a":', "}")) if closed else (("[", ""),):
        with pytest.raises(DecodeError, match="nested deeper than 64"):
            both(b'{"outputs":%b1%b}' % ((opening * depth).encode(), (closing * depth).encode()), DATA, values=5000)


def test_nesting_of_an_array_counts_from_the_document() -> None:
    assert read_data("[" * 63 + "1" + "]" * 63).shape == (1,) * 63


@pytest.mark.parametrize("literals", [False, True])
def test_literals_are_numbers_only_on_request(literals: bool) -> None:
    text = "[NaN, nan, Infinity, inf, -Infinity, -inf, 1]"
    if not literals:
        with pytest.raises(DecodeError):
            read_data(text)
        return
    values = read_data(text, literals=True).values
    inf = math.inf
    np.testing.assert_array_equal(values, [math.nan, math.nan, inf, inf, -inf, -inf, 1])


@pytest.mark.parametrize("literal", ["1e400", "-1e400", "1" + "0" * 400])
def test_a_number_that_no_double_holds_is_no_infinity(literal: str) -> None:
    for beside, literals in (("0.5, 1", False), ("0.5, 1", True), ("NaN, -inf", True)):
        with pytest.raises(DecodeError, match="element 2 is out of the range of a double"):
            read_data(f"[{beside}, {literal}]", literals)


@pytest.mark.parametrize("text", ["NaN", "[[NaN], [1]]", "[-inf]", "[inf, 2.718281828459045e301]"])
def test_literals_stand_wherever_a_number_may(text: str) -> None:
    expected = json.loads(text.replace("inf", "Infinity"))
    np.testing.assert_array_equal(np.reshape(read_data(text, True).values, np.shape(expected)), expected)


@pytest.mark.parametrize(
    "text",
    ["[1NaN]", "[NaN1]", "[-NaN]", "[--inf]", "[+inf]", "[nanNaN]", "[NAN]", "[Inf]", "[null, NaN]", "[true, NaN]"],
)
def test_literals_are_whole_words(text: str) -> None:
    with pytest.raises(DecodeError):
        read_data(text, literals=True)


def test_literals_outside_arrays_are_not_json() -> None:
    with pytest.raises(DecodeError):
        both(b'{"x":NaN}', DATA, literals=True)


def test_vectors() -> None:
    vectors = both(b'{"input":[[1,2], 3 ,[0.5], [] ,[true]],"name":"m"}', INPUT)["input"]
    assert [(vector.values.dtype.name, vector.values.tolist(), vector.shape) for vector in vectors] == [
        ("int64", [1, 2], (2,)),
        ("int64", [3], ()),
        ("float64", [0.5], (1,)),
        ("int64", [], (0,)),
        ("bool", [True], (1,)),
    ]
    assert both(b'{"input":[]}', INPUT)["input"] == []
    assert both(b'{"input":[ ]}', INPUT)["input"] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "list of vectors"),
        ("null", "list of vectors"),
        ("[[[1]]]", "deeper than a list of vectors"),
        ("[[1], [[2]]]", "deeper than a list of vectors"),
        ("[[1], [2, null]]", "vector 1: element 1: null is not a number"),
        ("[1, null]", "vector 1: element 0: null is not a number"),
        ('[["a"]]', "a string is not a number"),
        ('["a"]', "a string is not a number"),
        ("[[1],]", "not JSON"),
        ("[,[1]]", "not JSON"),
        ("[[1] [2]]", "not JSON"),
        ("[[1]2]", "not JSON"),
        ("[1[2]]", "not JSON"),
        ("[[1]", "not JSON"),
        ("[[1]]]", "not JSON"),
        ("[1,2]3", "not JSON"),
        ("[%s1]" % ("1," * 1000), "more than 1000 vectors"),
        ("[%s[]]" % ("[]," * 1000), "more than 1000 vectors"),
    ],
)
def test_refused_vectors(text: str, message: str) -> None:
    refused(b'{"input":%b}' % text.encode(), INPUT, message)


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf", b" \r\n\t"])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_every_buffer_and_a_byte_order_mark(start: bytes, kind: Any) -> None:
    document = read(kind(start + b'{"data":[1],"a":[null,{"b":1.5}]}\n'), DATA, values=10, literals=False)
    assert document["a"] == [None, {"b": 1.5}]


def test_results_do_not_change_with_the_buffer() -> None:
    for large in (b"", BLANKS):
        body = bytearray(b'{"data":[1,2]}' + large)
        array = read(body, DATA, values=10, literals=False)["data"]
        body[:] = bytes(len(body))
        read(b'{"data":[7,8]}' + large, DATA, values=10, literals=False)
        assert array.values.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "empty body, expected a JSON object"),
        (b" \n", "empty body"),
        (b"\xef\xbb\xbf", "empty body"),
        (b"[]", "expected a JSON object, found an array"),
        (b'"a"', "expected a JSON object, found a string"),
        (b"null", "expected a JSON object, found null"),
        (b'{"a":1}x', "not JSON"),
        (b'{"a":1}{}', "not JSON"),
        (b'{"a":1,"a":1}', "key 'a' occurs twice"),
        (b'{"b":{"c":[{"a":1,"\\u0061":1}]}}', "key 'a' occurs twice"),
        (b'{"data":[1],"data":[1]}', "key 'data' occurs twice"),
        (b'{"a":"\xff"}', "not UTF-8: byte 0xff at 6"),
        (b'{"data":[1,2,3],"a":"\xed\xa0\x80"}', "not UTF-8: byte 0xed at 21"),
        (b'{"data":[1,2,3],"a":tru}', "at byte 20"),
        (b'{"a":"\\ud800"}', "not JSON"),
        (b'{"a":"\t"}', "not JSON"),
        (b"{'a':1}", "not JSON"),
        (b'{"a":' + b"[" * 64 + b"]" * 64 + b"}", "deeper than 64"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "deeper than 64"),
        (b'{"a":' + b"[" * 1020 + b"]" * 1020 + b"}", "deeper than 64"),
        (b'{"a":[' + b"1," * 1000 + b"1]}", "more than 1000 JSON values.*limits.json_values"),
        (b'{"a":[' + b"{}," * 1000 + b"{}]}", "limits.json_values"),
        (b'{"x' + b'"' * 5000, "limits.json_values"),
        (b'"data":[1]', "not JSON"),
        (b'{"abc"data":[1]}', "not JSON"),
        (b'{"data":[1],"data', "not JSON"),
    ],
)
def test_refused_documents(body: bytes, message: str) -> None:
    refused(body, DATA, message, behind=BLANKS if body.strip(b"\xef\xbb\xbf \n") else b"")


def test_the_limit_counts_values_outside_arrays() -> None:
    body = b'{"data":[1,2,3,4,5,6,7,8,9],"a":[1,2]}'  # the document, the array, `a`, 1, 2
    assert both(body, DATA, values=5)["a"] == [1, 2]
    with pytest.raises(DecodeError, match="more than 4 JSON values"):
        both(body, DATA, values=4)


def test_plain_values_are_exact() -> None:
    values: list[Any] = [2**64, -(2**63) - 1, 1e300, 1.5, True, None, "é\"\\", {"": {}}, []]  # fmt: skip
    for value in [values, *values]:
        found = both(json.dumps({"x": value}, ensure_ascii=False).encode(), DATA)["x"]
        assert found == value
        assert type(found) is type(value)


@pytest.mark.parametrize("key", ['"data"', '"d\\u0061ta"'])
def test_keys_are_keys_however_they_are_written(key: str) -> None:
    document = both(f'{{"data2":[1],"x":"data","y":"\\"data\\":[2]","l":["data",":"],{key} : [3] }}'.encode(), DATA)
    assert document["data"].values.tolist() == [3]
    assert document["data2"] == [1]
    assert document["y"] == '"data":[2]'


@pytest.mark.parametrize("large", [b"", BLANKS])
def test_level_tells_an_array_from_a_namesake(large: bytes) -> None:
    body = b'{"config":{"input":{"file":null},"l":[{"input":[[1]]}]},"input":[[1,2]],"z":{"input":"text"}}' + large
    document = read(body, INPUT, values=100, literals=False, level=1)
    assert document["input"][0].values.tolist() == [1, 2]
    assert document["config"] == {"input": {"file": None}, "l": [{"input": [[1]]}]}
    inner = read(
        b'{"data":null,"inputs":[{"data":[1]},{"data":[2]}]}' + large, DATA, values=100, literals=False, level=3
    )
    assert inner["data"] is None
    assert [tensor["data"].values.tolist() for tensor in inner["inputs"]] == [[1], [2]]


def test_large_nested_arrays() -> None:
    numbers = np.random.default_rng(1).normal(size=(50_000, 2))
    text = orjson.dumps(numbers, option=orjson.OPT_SERIALIZE_NUMPY)
    assert len(text) > 3 * 2**18
    array = read(b'{"data":%b}' % text, DATA, values=100, literals=False)["data"]
    assert array.shape == (50_000, 2)
    assert array.values.tobytes() == numbers.tobytes()
    ragged = text[:-1] + b",[1]]"
    with pytest.raises(DecodeError, match="ragged"):
        read(b'{"data":%b}' % ragged, DATA, values=100, literals=False)


@pytest.mark.long
@pytest.mark.parametrize(
    "body",
    [
        b'{"data":[' + b"[]," * 700_000 + b"[]]}",
        b'{"data":["a",' + b"[]," * 700_000 + b"[]]}",
        b'{"data":["a",' + b"{}," * 700_000 + b"{}]}",
        b'{"data":' + b"[" * 2_000_000,
        b'{"data":[' + b"null," * 400_000 + b"1]}",
        b'{"data":[' + b"1" * 2_000_000 + b"]}",
        b'{"x":[' + b"[]," * 700_000 + b"[]]}",
        b'{"x":' + b"[" * 2_000_000,
        b"{" + b'"data":1,' * 200_000 + b"}",
        b'{"input":[' + b"[]," * 700_000 + b"[]]}",
        b'{"x":"' + b'\\"' * 1_000_000,
        b'{"x' + b'"' * 2_000_000,
    ],
    ids=lambda body: body[:14].decode(),
)
def test_hostile_documents_take_little_memory(body: bytes) -> None:
    with traced() as memory, pytest.raises(DecodeError):
        read(body, DATA | INPUT, values=10_000, literals=True)
    # orjson reserves, but does not touch, 12 bytes for each of its text
    assert memory.peak < 14 * len(body) + 4 * 2**20


@pytest.mark.parametrize("text", [b"1,", b"1.5,", b"[1],", b"true,", b"NaN,"])
def test_the_densest_numbers_take_bounded_memory(text: bytes) -> None:
    body = b'{"data":[' + text * (2**21 // len(text)) + text[:-1] + b"]}"
    with traced() as memory:
        read(body, DATA, values=100, literals=True)
    assert memory.peak < 16 * len(body) + 8 * 2**20


@pytest.mark.parametrize("text", [b'"x",', b'["x"],', b'"\\u0000",', '"é",'.encode()], ids=bytes.decode)
def test_the_densest_strings_take_bounded_memory(text: bytes) -> None:
    body = b'{"data":[' + text * (2**18 // len(text)) + text[:-1] + b"]}"
    with traced() as memory:
        read(body, DATA, values=100, literals=True)
    assert memory.peak < 8 * len(body)


@pytest.mark.parametrize("between", [b",", b", ", b" , "])
@pytest.mark.parametrize("row", [b"%b", b"[%b]", b"[[%b]]"])
@pytest.mark.parametrize(
    "element", [b'"a"', b'""', b'","', b'"[]"', b'"\\""', b'"\\\\"', b'"%b"' % (b"long" * 3000)], ids=len
)
def test_strings_are_the_same_wherever_a_piece_of_the_text_ends(between: bytes, row: bytes, element: bytes) -> None:
    count = 20_000 // len(element)
    for blanks in range(3):
        text = b"[" + b" " * blanks + between.join([row % element] * count) + b"]"
        found = read(b'{"data":%b}' % text, DATA, values=2 * count, literals=False)["data"]
        assert leaves_of(found) == [orjson.loads(element)] * count
        assert found.shape == (count, *[1] * row.count(b"["))


@pytest.mark.parametrize(
    ("tail", "message"),
    [
        (b"", "not JSON"),
        (b",]", "not JSON"),
        (b",   ]", "not JSON"),
        (b"]]", "not JSON"),
        (b'],"b"]', "not JSON"),
        (b',"b]', "not JSON"),
        (b' "b"]', "not JSON"),
        (b",[]]", "ragged"),
        (b',["b"]]', "ragged"),
        (b",1]", "element 2001: a number next to a string"),
        (b",null]", "element 2001: null is not a number"),
        (b',"\\ud800"]', "not JSON"),
        (b',"\xff"]', "not JSON"),
    ],
)
@pytest.mark.parametrize("blanks", [b"", b" " * 5000], ids=["", "blanks"])
def test_what_follows_many_strings_is_judged_as_well(blanks: bytes, tail: bytes, message: str) -> None:
    text = b"[" + b'"a",' * 2000 + blanks + b'"a"' + blanks + tail + blanks
    with pytest.raises(DecodeError, match=message):
        read(b'{"data":%b}' % text, DATA, values=10, literals=False)


def test_an_error_leaves_the_parser_usable() -> None:
    kept = []
    for text in (b"[1, true", b"[18446744073709551616]", b"[1, null]", b"[0.5, x]"):
        with pytest.raises(DecodeError) as caught:
            read(b'{"data":%b}' % text + BLANKS, DATA, values=10, literals=True)
        kept.append(caught)  # with the traceback and all that it holds
        assert read_data("[1, 2]").values.tolist() == [1, 2]  # type: ignore[union-attr]


def test_what_holds_on_to_the_parser_is_left_behind() -> None:
    parser = json_numbers._simd
    held = parser.parser.parse(b"[1]")  # as an exception's traceback may
    assert parser.parse(b"[2]", "i") is None
    assert parser.parse(b"[2]", "i") is not None
    assert len(held) == 1  # type: ignore[arg-type]


@pytest.mark.parametrize("numbers", [[1, -2], [2**64 - 1], [True, False], [0.5, 1]])
def test_a_parser_in_use_changes_nothing(numbers: list[Any]) -> None:
    held = json_numbers._simd.parser.parse(b"[1]")
    found = read(b'{"data":%b}' % orjson.dumps(numbers) + BLANKS, DATA, values=10, literals=False)["data"]
    assert found.values.tolist() == numbers
    assert held is not None


def test_numbers_that_must_be_read_slowly_are_bounded() -> None:
    body = b'{"data":[0.5' + b",18446744073709551616" * 850_000 + b"]}"
    with pytest.raises(DecodeError, match="more than 16777216 bytes of numbers, some"):
        read(body, DATA, values=10, literals=False)


def test_nested_strings_may_hold_brackets() -> None:
    rows = [[f"[[\n{at}"] for at in range(50)]
    found = read(orjson.dumps({"data": rows}), DATA, values=10, literals=False)["data"]
    assert found.shape == (50, 1)
    assert unpack(found.values)[7].decode() == rows[7][0]


# Properties

scalars = (
    st.integers(-(2**65), 2**65)
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
    | st.text(max_size=5)
    | st.none()
)
nested = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)
elements = [
    st.integers(INT64_MIN, INT64_MAX),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.text(),
]
documents = st.dictionaries(st.sampled_from(["data", "input", "a", "b:c", "[", ""]), nested, max_size=4)


LITERALS = ("0", "-0", "-0.0", "1", "1.0", "1e0", "0.1", "-7", *map(str, (2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1)))
BEYOND = ("1e18", "9.3e18", "-1e19", "1e400", "true", "null", '"a"', "NaN", *map(str, (2**64, -(2**63), -(2**63) - 1)))
NUMBERS = st.tuples(
    st.lists(st.sampled_from(LITERALS), min_size=1, max_size=3),
    st.integers(1, 60),
    st.lists(st.sampled_from(LITERALS + BEYOND), max_size=2),
).map(lambda parts: ",".join(parts[0] * parts[1] + parts[2]))
"""Few literals many times, and perhaps one that changes what all of them are."""


@example(",".join(["1"] * 40 + [str(2**64)]), 0, "", False)
@example(",".join(["1.5"] * 40 + ["-1e19"]), 2, "", False)
@example(",".join(["-1"] * 40 + [str(2**63)]), 0, "", False)
@given(NUMBERS, st.integers(0, 70), st.sampled_from(["", ',"data":[1]', ',"a":1,"a":2', ","]), st.booleans())
@settings(max_examples=examples(500), deadline=None)
def test_many_numbers_read_the_same_small_and_large(numbers: str, depth: int, tail: str, literals: bool) -> None:
    text = f'{{"data":{"[" * depth}[{numbers}]{"]" * depth}{tail}}}'
    with suppress(DecodeError):  # which is the same for both
        both(text.encode(), DATA, literals=literals)


@given(documents)
@settings(max_examples=examples(300), deadline=None)
def test_any_document_reads_the_same_small_and_large(document: dict[str, Any]) -> None:
    for text in (json.dumps(document), json.dumps(document, ensure_ascii=False, separators=(",", ":"))):
        try:
            found = both(text.encode(), DATA | INPUT)
        except DecodeError:
            continue
        assert as_doubles(plain(found)) == as_doubles(document)


@given(
    st.sampled_from([(0,), (3,), (2, 0), (2, 3), (3, 1), (1, 1, 2), (2, 2, 2)]),
    st.sampled_from(elements),
    st.data(),
)
@settings(max_examples=examples(200), deadline=None)
def test_every_rectangular_array_is_read(shape: tuple[int, ...], element: st.SearchStrategy[Any], data: Any) -> None:
    leaves = data.draw(st.lists(element, min_size=math.prod(shape), max_size=math.prod(shape)))
    flat = np.empty(len(leaves), object)
    flat[:] = leaves
    found = read_data(json.dumps(flat.reshape(shape).tolist()))
    assert found.shape == shape
    assert leaves_of(found) == leaves


def leaves_of(array: Array) -> list[Any]:
    values = array.values
    return [text.decode() for text in unpack(values)] if isinstance(values, bytes) else list(values)


def plain(value: Any) -> Any:
    """The JSON value that an Array was read from."""
    if isinstance(value, Array):
        leaves = leaves_of(value) if isinstance(value.values, bytes) else value.values.tolist()
        flat = np.empty(len(leaves), object)
        flat[:] = leaves
        return flat.reshape(value.shape).tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list) else value


def as_doubles(value: Any) -> Any:
    """`value` with doubles for integers, as they are read beside a literal that is no integer."""
    if isinstance(value, dict):
        return {key: as_doubles(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_doubles(item) for item in value]
    return float(value) if type(value) is int else value


VALID = [
    b'{"name":"m","input":[[1.5,-2e3],[3],4],"config":{"a":[null,true]}}',
    b'{"id":"x","inputs":[{"name":"a:b","shape":[2,2],"data":[[1,2],[3,4]]},{"data":["p","\\u00e9\\n"],"q":{}}]}',
    b'{"data":[[true],[false]],"x":{"data":[18446744073709551615,0]}}',
]


def agrees_with_the_standard_library(body: bytes) -> None:
    """Whatever is accepted is JSON, small and large alike."""
    try:
        found = both(body, DATA | INPUT)
    except DecodeError:
        return
    expected = json.loads(body.decode("utf-8-sig"), parse_constant=lambda name: pytest.fail(name))
    assert as_doubles(plain(found)) == as_doubles(expected)


@pytest.mark.parametrize("body", VALID)
def test_every_cut_document_is_refused(body: bytes) -> None:
    both(body, DATA | INPUT)
    for end in range(len(body)):
        with pytest.raises(DecodeError):
            both(body[:end], DATA | INPUT)


@pytest.mark.parametrize("body", VALID)
def test_every_byte_replaced_or_removed(body: bytes) -> None:
    for at, byte in product(range(len(body)), b'"[]{},:1.-e\\ \xfft'):
        agrees_with_the_standard_library(body[:at] + bytes([byte]) + body[at + 1 :])
    for at in range(len(body)):
        agrees_with_the_standard_library(body[:at] + body[at + 1 :])


def test_mutated_documents() -> None:
    dice = random.Random(5)
    pieces = [b" ", *b'" [ ] { } , : 1 0.5 null true "data": NaN \\ \x80'.split()]
    for _ in range(3000):
        body = bytearray(dice.choice(VALID))
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(body))
            body[at : at + dice.randint(0, 3)] = dice.choice(pieces)
        agrees_with_the_standard_library(bytes(body))


@given(st.binary(max_size=60), st.booleans())
@settings(max_examples=examples(300), deadline=None)
def test_random_bytes_raise_nothing_else(noise: bytes, literals: bool) -> None:
    for body in (noise, b'{"data":' + noise, b'{"input":[' + noise + b"]}", b'{"data":[1' + noise + b"2]}"):
        outcome(body, DATA | INPUT, 100, literals)
        outcome(body + BLANKS, DATA | INPUT, 100, literals)


# Writing


def test_write_is_compact_and_keeps_large_integers() -> None:
    assert write({"a": [1, None, "é"]}) == '{"a":[1,null,"é"]}'.encode()
    assert write({"a": 2**64, "b": "é"}) == '{"a":18446744073709551616,"b":"é"}'.encode()


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([INT64_MIN, INT64_MAX]), b"[-9223372036854775808,9223372036854775807]"),
        (np.array([UINT64_MAX], "u8"), b"[18446744073709551615]"),
        (np.array([[1, 2], [3, 4]], "i1").T, b"[[1,3],[2,4]]"),
        (np.array([1, 2], ">i4"), b"[1,2]"),
        (np.array([True, False]), b"[true,false]"),
        (np.array([0.1, -0.0, 5e-324, 1.7976931348623157e308]), b"[0.1,-0.0,5e-324,1.7976931348623157e+308]"),
        (np.array([0.1], "f4"), b"[0.10000000149011612]"),
        (np.array([0.1], "f2"), b"[0.0999755859375]"),
        (np.array([0.1], ml_dtypes.bfloat16), b"[0.10009765625]"),
        (np.zeros((0, 3)), b"[]"),
        (np.zeros((2, 0)), b"[[],[]]"),
        (np.array(5), b"5"),
        (np.array(0.1, "f4"), b"0.10000000149011612"),
        (np.array(True), b"true"),
        (np.zeros((1,) * 32, "i8"), b"[" * 32 + b"0" + b"]" * 32),
    ],
)
def test_write_numbers(array: "np.ndarray[Any, Any]", text: bytes) -> None:
    assert write_numbers(array, "error", "output 'y'") == text


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    ("nan", "text"),
    [
        ("literal", b"[[1.5,NaN],[-Infinity,Infinity]]"),
        ("string", b'[[1.5,"NaN"],["-Infinity","Infinity"]]'),
        ("null", b"[[1.5,null],[null,null]]"),
    ],
)
def test_write_not_finite(dtype: Any, nan: str, text: bytes) -> None:
    array = np.array([[1.5, math.nan], [-math.inf, math.inf]], dtype)
    assert write_numbers(array, nan, "output 'y'") == text
    assert write_numbers(array.T, nan, "x").count(b"1.5,") == 1


def test_write_not_finite_scalar() -> None:
    assert write_numbers(np.array(-math.inf), "literal", "y") == b"-Infinity"


def test_write_names_what_has_no_form() -> None:
    pieces = Pieces([b"[1,", b"2]"])
    assert b"".join(write_message({"a": pieces})) == b'{"a":[1,2]}'
    with pytest.raises(TypeError, match=r"^complex has no JSON form$"):
        write_message({"a": pieces, "b": 1j})


def test_write_refuses_by_name() -> None:
    with pytest.raises(GatewayError, match=r"output 'y': element 2 is inf.*nan: literal") as caught:
        write_numbers(np.array([[1, 2], [math.inf, math.nan]]), "error", "output 'y'")
    assert caught.value.reason is Reason.INVALID_INPUT


@given(st.lists(st.floats(), max_size=20))
def test_doubles_survive_text(numbers: list[float]) -> None:
    array = np.array(numbers)
    text = write_numbers(array, "literal", "y")
    found = read(b'{"data":%b}' % text, DATA, values=10, literals=True)["data"].values
    np.testing.assert_array_equal(found, array)


def test_a_view_that_is_not_aligned_is_written() -> None:
    """orjson reads the memory as it lies, and a message's tensors lie anywhere."""
    view = np.frombuffer(b"\0\0\0\0" + np.arange(3.0).tobytes(), np.uint8)[4:].view("<f8")
    assert not view.flags.aligned
    assert write_numbers(view, "error", "x") == b"[0.0,1.0,2.0]"


# --- read_members ---

MEMBERS = [
    (b'{"a": 1}', {"a": ((), [1])}),
    (b'{"a": -1.5}', {"a": ((), [-1.5])}),
    (b'{"a": true}', {"a": ((), [True])}),
    (b'{"a": "x"}', {"a": ((), b"\x01\x00\x00\x00x")}),
    (b'{"a": ""}', {"a": ((), b"\x00\x00\x00\x00")}),
    (b'{"a": [1, 2]}', {"a": ((2,), [1, 2])}),
    (b'{"a": []}', {"a": ((0,), [])}),
    (b'{"a": [[1, 2], [3, 4]]}', {"a": ((2, 2), [1, 2, 3, 4])}),
    (b'{"a": ["x", "y"]}', {"a": ((2,), b"\x01\x00\x00\x00x\x01\x00\x00\x00y")}),
    (b'{"a": "say \\"b\\": [{"}', {"a": ((), b'\x0b\x00\x00\x00say "b": [{')}),
    (b'{"id": [null], "a": 1}', {"id": [None], "a": ((), [1])}),
    (b'{"\\u0069d": null, "a": 1}', {"id": None, "a": ((), [1])}),
    (b'{"id": {"a": null}}', {"id": {"a": None}}),
    (b"{}", {}),
]


def shown_members(document: dict[str, Any]) -> dict[str, Any]:
    return {
        key: (item.shape, item.values if isinstance(item.values, bytes) else item.values.tolist())
        if isinstance(item, Array)
        else item
        for key, item in document.items()
    }


@pytest.mark.parametrize(("text", "expected"), MEMBERS)
@pytest.mark.parametrize("padding", [b"", b" " * 9000], ids=["small", "large"])
def test_every_member_but_the_plain_ones_is_an_array(text: bytes, expected: dict[str, Any], padding: bytes) -> None:
    assert shown_members(read_members(padding + text, {"id"}, values=100, literals=True)) == expected


def test_lists_of_members_do_not_count_as_values() -> None:
    text = b'{"a": [%b]}' % b",".join([b"1"] * 5000)
    assert read_members(text, (), values=10, literals=True)["a"].shape == (5000,)


def test_literals_are_numbers_of_members() -> None:
    read = read_members(b'{"a": NaN, "b": [-Infinity, 1]}', (), values=10, literals=True)
    assert np.isnan(read["a"].values[0])
    assert read["b"].values.tolist() == [-np.inf, 1]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b'{"a": null}', "'a' at byte 6: element 0: null is not a number"),
        (b'{"a": {"b": 1}}', "an object at byte 6"),
        (b'{"a": [{"b": 1}]}', "an object at byte 7"),
        (b'{"a": [1, [2]]}', "'a' at byte 6: ragged"),
        (b'{"a": [1, "x"]}', "a string next to a number"),
        (b'{"a": 1, "a": 2}', "key 'a' occurs twice"),
        (b'{"a": 1, "\\u0061": 2}', "key 'a' occurs twice"),
        (b'{"a": 1', "not JSON"),
        (b"[1]", "expected a JSON object"),
        (b'{"a\xff": 1}', "not UTF-8"),
    ],
)
def test_members_that_are_no_arrays_are_refused(text: bytes, fault: str) -> None:
    with pytest.raises(DecodeError, match=re.escape(fault)):
        read_members(text, {"id"}, values=100, literals=True)


# Long strings, which patterns are not matched against at once; the last quotes of some are escaped.
LONG = 2**20
LONG_STRINGS = ["a" * LONG, "a" * (LONG - 2), '\\"' * LONG, "a" * LONG + "\\\\", "a" * LONG + '\\\\\\"', "\\\\" * LONG]


@pytest.mark.long
@pytest.mark.parametrize("text", LONG_STRINGS, ids=range(len(LONG_STRINGS)))
def test_long_strings_in_arrays_keys_and_values(text: str) -> None:
    string = f'"{text}"'
    element = json.loads(string)
    body = f'{{"a":{string},"data":["x",{string},"y"],{string}:[{string}],"b":[]}}'.encode()
    document = read(body, {"data": ArrayForm.ARRAY}, values=10, literals=False)
    assert unpack(document["data"].values) == [b"x", element.encode(), b"y"]
    assert (document["a"], document[element], document["b"]) == (element, [element], [])
    members = read_members(f"{{{string}:[{string}]}}".encode(), (), values=10, literals=False)
    assert unpack(members[element].values) == [element.encode()]


def test_a_colon_may_stand_far_from_its_key() -> None:
    body = b'{"data"' + b" " * 2**20 + b" : [1,2]}"
    assert read(body, {"data": ArrayForm.ARRAY}, values=10, literals=False)["data"].values.tolist() == [1, 2]


@pytest.mark.parametrize("shape", [(PIECE + 1,), (3, PIECE), (2, 3, PIECE), (PIECE, 3), (2, PIECE + 1), (PIECE + 1, 1)])
def test_large_arrays_are_written_in_pieces(shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape)).reshape(shape)
    pieces = list(number_pieces(array, "error", "x"))
    assert orjson.loads(b"".join(pieces)) == array.tolist()
    assert max(map(len, pieces)) <= 8 * PIECE


def test_what_is_not_finite_is_found_in_every_piece() -> None:
    array = np.zeros(3 * PIECE)
    array[[5, PIECE, 2 * PIECE + 7]] = np.nan, np.inf, -np.inf
    written = json.loads(write_numbers(array, "literal", "x"))
    assert np.array_equal(written, array, equal_nan=True)
    array[5] = 0
    with pytest.raises(GatewayError, match=f"x: element {PIECE} is inf"):
        write_numbers(array, "error", "x")


def test_documents_with_large_values_are_written_in_parts() -> None:
    array = np.arange(3 * PIECE)
    strings = [["\0", '"'] * 9999, [], ["\N{SNOWMAN}"]]
    texts = tuple(string_pieces(strings))
    whole, first = (numbers(each, "error", "x") for each in (array, array[:1]))
    document = {"a": "\0", "b": [whole], "c": Pieces(texts), "d": first}
    parts = write_message(document)
    expected = {"a": "\0", "b": [array.tolist()], "c": [*strings[0], *strings[2]], "d": [0]}
    assert orjson.loads(b"".join(parts)) == expected
    assert len(parts) > 3
    assert write_message({"e": 2**70}) == (b'{"e":%d}' % 2**70,)
    with_integer = write_message({**document, "e": [-(2**70)], "f": True})
    assert b"".join(with_integer) == b"".join(parts)[:-1] + b',"e":[%d],"f":true}' % -(2**70)
    assert b"".join(string_pieces([])) == b"[]"


def test_every_key_but_the_plain_ones_has_no_end() -> None:
    every = AllBut(("plain",))
    assert [key in every for key in ("plain", "other")] == [False, True]
    assert [every.get(key) for key in ("plain", "other")] == [None, ArrayForm.ARRAY]
    for walk in (list, len):
        with pytest.raises(TypeError, match="its keys have no end"):
            walk(every)
