"""GrpsMessage as JSON: literal texts, both ways."""

import json

import numpy as np
import pytest
from google.protobuf import json_format

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.protocol import Limits
from gateway.core.tensors import Tensor, tensor
from gateway.protocols.grps import gmap
from gateway.protocols.grps.json.message import read_message, write_message
from gateway.protocols.grps.payload import str_data
from gateway.protocols.grps.schema import FAILURE, SUCCESS, GrpsMessage, GrpsStatus, Payload
from tests.protocols.grps.protobuf.upb import GRPS, comparable
from tests.protocols.grps.values import numbers, texts

LIMITS = Limits()
OK = GrpsStatus(200, "OK", SUCCESS)


def one(text: str) -> Tensor:
    """The one tensor of gtensors with the members `text`."""
    [found] = read_message(b'{"gtensors":{"tensors":[{%b}]}}' % text.encode(), "input", LIMITS).tensors
    return found


def same(found: GrpsMessage, expected: GrpsMessage) -> bool:
    return comparable(found) == comparable(expected)


# --- Both ways ---

TABLE = {
    '{"model":"your_model-1.0.0","str_data":"hello grps"}': GrpsMessage(
        "your_model-1.0.0", payload=Payload.STR_DATA, tensors=(str_data("hello grps"),)
    ),
    '{"status":{"code":200,"msg":"OK","status":"SUCCESS"}}': GrpsMessage(status=OK),
    '{"status":{"code":503,"msg":"Service Unavailable","status":"FAILURE"}}': GrpsMessage(
        status=GrpsStatus(503, "Service Unavailable", FAILURE)
    ),
    '{"status":{},"str_data":""}': GrpsMessage(status=GrpsStatus(), payload=Payload.STR_DATA, tensors=(str_data(""),)),
    '{"gtensors":{}}': GrpsMessage(payload=Payload.GTENSORS),
    '{"gtensors":{"tensors":[{"name":"in1","dtype":"DT_INT32","shape":[3,2],"flat_int32":[1,2,3,4,5,-6]},'
    '{"dtype":"DT_FLOAT64","shape":[2],"flat_float64":[0.1,1e+300]}]}}': GrpsMessage(
        payload=Payload.GTENSORS,
        tensors=(tensor("in1", np.array([[1, 2], [3, 4], [5, -6]], np.int32)), numbers("", Datatype.FP64, 0.1, 1e300)),
    ),
    # every reader gets the number that the float is: 6.2 in 32 bits, 0.1 in 16
    '{"gtensors":{"tensors":[{"name":"a","dtype":"DT_FLOAT32","shape":[1],"flat_float32":[6.199999809265137]},'
    '{"name":"b","dtype":"DT_FLOAT16","shape":[1],"flat_float16":[0.0999755859375]}]}}': GrpsMessage(
        payload=Payload.GTENSORS, tensors=(numbers("a", Datatype.FP32, 6.2), numbers("b", Datatype.FP16, 0.1))
    ),
    '{"gtensors":{"tensors":[{"dtype":"DT_INT64","shape":[2],'
    '"flat_int64":["9223372036854775807","-9223372036854775808"]}]}}': GrpsMessage(
        payload=Payload.GTENSORS, tensors=(numbers("", Datatype.INT64, 2**63 - 1, -(2**63)),)
    ),
    '{"gtensors":{"tensors":[{"dtype":"DT_FLOAT32","shape":[4],'
    '"flat_float32":["NaN",1.0,"Infinity","-Infinity"]}]}}': GrpsMessage(
        payload=Payload.GTENSORS, tensors=(numbers("", Datatype.FP32, np.nan, 1, np.inf, -np.inf),)
    ),
    '{"gtensors":{"tensors":[{"dtype":"DT_UINT8","shape":[3],"flat_uint8":[0,7,255]},'
    '{"dtype":"DT_INT8","shape":[2],"flat_int8":[-128,127]},'
    '{"dtype":"DT_INT16","shape":[1],"flat_int16":[-32768]},'
    '{"dtype":"DT_STRING","shape":[2,1],"flat_string":["é\\"]",""]},'
    '{"dtype":"DT_INT32","flat_int32":[5]},'
    '{"dtype":"DT_INT32","shape":[2,0]}]}}': GrpsMessage(
        payload=Payload.GTENSORS,
        tensors=(
            numbers("", Datatype.UINT8, 0, 7, 255),
            numbers("", Datatype.INT8, -128, 127),
            numbers("", Datatype.INT16, -32768),
            replace(texts("", 'é"]', ""), shape=(2, 1)),
            tensor("", np.array(5, np.int32)),
            tensor("", np.zeros((2, 0), np.int32)),
        ),
    ),
    '{"gmap":{"s_s":{"a":"é"},"s_b":{"b":"AP8="},"s_i32":{"c":-1},"s_i64":{"d":"9007199254740993"},'
    '"s_f":{"e":0.10000000149011612,"n":"NaN"},"s_d":{"f":0.1,"i":"-Infinity"}}}': GrpsMessage(
        payload=Payload.GMAP,
        tensors=(
            gmap.entry("s_s", "a", "é"),
            gmap.entry("s_b", "b", b"\0\xff"),
            gmap.entry("s_i32", "c", -1),
            gmap.entry("s_i64", "d", 2**53 + 1),
            gmap.entry("s_f", "e", 0.1),
            gmap.entry("s_f", "n", np.nan),
            gmap.entry("s_d", "f", 0.1),
            gmap.entry("s_d", "i", -np.inf),
        ),
    ),
    '{"gmap":{}}': GrpsMessage(payload=Payload.GMAP),
}

EACH = pytest.mark.parametrize(("text", "grps"), TABLE.items(), ids=[text[:60] for text in TABLE])


@EACH
def test_what_is_written(text: str, grps: GrpsMessage) -> None:
    assert b"".join(write_message(grps, "output", "string")).decode() == text


@EACH
def test_what_is_read(text: str, grps: GrpsMessage) -> None:
    assert same(read_message(text.encode(), "input", LIMITS), grps)


@EACH
def test_what_is_read_of_servers_that_print_it_prettily(text: str, grps: GrpsMessage) -> None:
    document = json.loads(text)
    assert same(read_message(json.dumps(document, indent=1, ensure_ascii=False).encode(), "output", LIMITS), grps)
    # long enough to be read the other way
    padded = json.dumps({"unknown": "x" * 10_000, **document}, indent=2).encode()
    assert same(read_message(padded, "output", LIMITS), grps)


# --- What else is read ---


def test_the_example_of_the_specification() -> None:
    text = b"""{"gtensors": {"tensors": [
        {"name": "in1", "dtype": "DT_INT32", "shape": [3, 2], "flat_int32": [1, 2, 3, 4, 5, 6]},
        {"name": "in2", "dtype": "DT_FLOAT64", "shape": [3, 3],
         "flat_double": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]}]}}"""
    [_, second] = read_message(text, "input", LIMITS).tensors
    assert second.array.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


@pytest.mark.parametrize(
    ("members", "datatype", "expected"),
    [
        ('"dtype": 1, "shape": [1], "flat_uint8": [1]', Datatype.UINT8, [1]),
        ('"dtype": 9, "shape": [1], "flat_string": ["NaN"]', Datatype.BYTES, [b"NaN"]),
        ('"dtype": "DT_INT64", "shape": [2], "flat_int64": [1, 9223372036854775807]', Datatype.INT64, [1, 2**63 - 1]),
        ('"dtype": "DT_INT64", "shape": [2], "flat_int64": [ "1" , "2" ]', Datatype.INT64, [1, 2]),
        ('"dtype": "DT_INT32", "shape": [2], "flat_int32": ["-1","2"]', Datatype.INT32, [-1, 2]),
        ('"dtype": "DT_FLOAT32", "shape": [2], "flat_float32": ["1.5","2e3"]', Datatype.FP32, [1.5, 2000]),
        ('"dtype": "DT_FLOAT32", "shape": [1], "flat_float32": [6.2]', Datatype.FP32, [float(np.float32(6.2))]),
        ('"dtype": "DT_FLOAT64", "shape": [1], "flat_float64": [3]', Datatype.FP64, [3.0]),
        ('"dtype": "DT_INT32", "shape": [1], "flat_int32": [1e3]', Datatype.INT32, [1000]),
        ('"flat_int32": [], "dtype": "DT_INT8", "shape": [1], "flat_int8": [1], "name": null', Datatype.INT8, [1]),
    ],
)
def test_other_ways_to_say_it(members: str, datatype: Datatype, expected: list[object]) -> None:
    found = one(members)
    assert (found.datatype, found.array.tolist()) == (datatype, expected)


@pytest.mark.parametrize(
    ("text", "datatype", "expected"),
    [
        ("[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]", Datatype.INT64, [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]),
        ("[1, 2.5]", Datatype.FP64, [1, 2.5]),
        ('[["Infinity", 1], [2, "-Infinity"]]', Datatype.FP64, [[np.inf, 1], [2, -np.inf]]),
        ("7", Datatype.INT64, 7),
        ("[[], []]", Datatype.INT64, [[], []]),
    ],
)
def test_an_ndarray_has_no_datatype(text: str, datatype: Datatype, expected: object) -> None:
    grps = read_message(b'{"ndarray": %b}' % text.encode(), "input", LIMITS)
    [found] = grps.tensors
    assert (grps.payload, found.name, found.untyped, found.datatype) == (Payload.NDARRAY, "", True, datatype)
    assert found.array.tolist() == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"ndarray": [1, "NaN"], "more": {"flat_int8": [2]}}',
        '{"more": {"flat_int8": [2]}, "ndarray": [1, "NaN"]}',
        '{"more": {"flat_int8": 2}, "ndarray": [1, "NaN"]}',
    ],
)
def test_an_ndarray_may_have_words_beside_a_list_that_nobody_reads(text: str) -> None:
    [tensor] = read_message(text.encode(), "input", LIMITS).tensors
    assert str(tensor.array.tolist()) == "[1.0, nan]"


def test_an_ndarray_is_written_nested() -> None:
    nested = tensor("y", np.array([[1, 6.1], [np.nan, 4]], np.float32))
    grps = GrpsMessage(payload=Payload.NDARRAY, tensors=(nested,))
    assert b"".join(write_message(grps, "output", "string")) == b'{"ndarray":[[1.0,6.099999904632568],["NaN",4.0]]}'


def test_keys_of_maps_may_be_any_text() -> None:
    text = b'{"gmap":{"s_s":{"flat_int64":"1","ndarray":"\\"NaN\\"","":"e"},"s_i32":{"flat_int8":3}}}'
    assert list(gmap.entries(read_message(text, "input", LIMITS).tensors)) == [
        ("s_s", "flat_int64", "1"),
        ("s_s", "ndarray", '"NaN"'),
        ("s_s", "", "e"),
        ("s_i32", "flat_int8", 3),
    ]


def test_doubles_of_maps_may_be_integers_of_any_size() -> None:
    text = b'{"gmap":{"s_d":{"a":18446744073709551616,"b":"-7","c":"1.5e3"},"s_i64":{"d":2.0}}}'
    assert list(gmap.entries(read_message(text, "input", LIMITS).tensors)) == [
        ("s_i64", "d", 2),
        ("s_d", "a", 2.0**64),
        ("s_d", "b", -7.0),
        ("s_d", "c", 1500.0),
    ]


# protobuf's parser reads the same of these: `json_format.Parse`
LOWER_CAMEL_CASE = {
    '{"strData": "a"}': '{"str_data": "a"}',
    '{"gmap": {"sS": {"a": "x"}, "sI32": {"a": 1}, "sI64": {"b": "2"}, "sF": {"c": 0.5}, "sD": {"d": "NaN"}}}': (
        '{"gmap": {"s_s": {"a": "x"}, "s_i32": {"a": 1}, "s_i64": {"b": 2}, "s_f": {"c": 0.5}, "s_d": {"d": "NaN"}}}'
    ),
    '{"gmap": {"sB": {"a": "-_8", "b": "-_8=", "c": "+/8"}}}': (
        '{"gmap": {"s_b": {"a": "+/8=", "b": "+/8=", "c": "+/8="}}}'
    ),
    '{"gtensors": {"tensors": [{"dtype": 4, "shape": ["2"], "flatInt32": [1, 2]}]}}': (
        '{"gtensors": {"tensors": [{"dtype": "DT_INT32", "shape": [2], "flat_int32": [1, 2]}]}}'
    ),
    '{"gtensors": {"tensors": [{"dtype": 5, "shape": [2.0], "flatInt64": ["1", "9223372036854775807"]}]}}': (
        '{"gtensors": {"tensors": [{"dtype": 5, "shape": [2], "flat_int64": [1, 9223372036854775807]}]}}'
    ),
    '{"gtensors": {"tensors": [{"dtype": 7, "shape": [2], "flatFloat32": [1.5, "-Infinity"], "name": null}]}}': (
        '{"gtensors": {"tensors": [{"dtype": 7, "shape": [2], "flat_float32": [1.5, "-Infinity"]}]}}'
    ),
    '{"gtensors": {"tensors": [{"dtype": 9, "shape": ["1"], "flatString": ["7"]}]}}': (
        '{"gtensors": {"tensors": [{"dtype": 9, "shape": [1], "flat_string": ["7"]}]}}'
    ),
    '{"status": {"code": "422", "status": 2}}': '{"status": {"code": 422, "status": "FAILURE"}}',
}


@pytest.mark.parametrize(("text", "plain"), LOWER_CAMEL_CASE.items())
def test_what_the_mapping_of_protobuf_allows(text: str, plain: str) -> None:
    found, expected = (read_message(each.encode(), "input", LIMITS) for each in (text, plain))
    assert same(found, expected)
    # long enough to be read the other way
    assert same(read_message(b" " * 10_000 + text.encode(), "input", LIMITS), expected)
    given, wanted = (json_format.Parse(each, GRPS()) for each in (text, plain))
    assert given == wanted or "NaN" in text


def test_quotes_within_strings_stay() -> None:
    text = json.dumps({"str_data": '"flat_int64": ["1"], "ndarray": ["NaN"]'})
    [found] = read_message(text.encode(), "input", LIMITS).tensors
    assert bytes(found.data)[4:] == b'"flat_int64": ["1"], "ndarray": ["NaN"]'


def test_null_is_absent() -> None:
    grps = read_message(b'{"status":null,"str_data":"a","gmap":null,"gtensors":null,"bin_data":null}', "input", LIMITS)
    assert (grps.payload, grps.status) == (Payload.STR_DATA, None)


# --- What is refused ---


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ('"name": "x", "dtype": 8, "shape": [1], "flat_floats": [1]', "'x': there is no member 'flat_floats'"),
        (
            '"name": "x", "dtype": 7, "shape": [1], "flatFloat": [1]',
            "input 'x': there is no member 'flatFloat', expected",
        ),
        (
            '"dtype": 2, "shape": [1], "flat_int8": [1], "new": {}',
            "input 0: there is no member 'new', expected one of name",
        ),
        ('"dtype": 7, "shape": [1], "flatFloat32": [1], "flat_float32": [2]', "flat_float32 is there in two spellings"),
        ('"name": "x", "shape": [1]', "input 'x': dtype is None, expected one of DT_UINT8"),
        ('"dtype": "DT_BOOL"', "input 0: dtype is 'DT_BOOL'"),
        ('"dtype": true', "dtype is True"),
        ('"dtype": 0', "dtype is 0"),
        ('"dtype": []', r"dtype is \[\]"),
        ('"name": 1, "dtype": 1', "input 0: name must be a string"),
        ('"name": "x", "dtype": "DT_INT8", "shape": [1], "flat_int16": [1]', "DT_INT8, but has elements in flat_int16"),
        ('"dtype": 8, "shape": [1], "flat_float64": [1], "flat_double": [1]', "expected flat_float64 alone"),
        ('"dtype": 8, "shape": [1], "flat_double": [1], "flatDouble": [1]', "expected flat_float64 alone"),
        ('"dtype": 2, "shape": [1], "flat_int8": [300]', "input 0: element 0, 300, is out of the range of INT8"),
        ('"dtype": 2, "shape": [1], "flat_int8": [-129]', "is out of the range"),
        ('"dtype": 1, "shape": [1], "flat_uint8": [-1]', "is out of the range"),
        ('"dtype": 3, "shape": [2], "flat_int16": [0, 40000]', "element 1, 40000, is out of the range of INT16"),
        ('"dtype": 4, "shape": [1], "flat_int32": [1.5]', "is not integral"),
        ('"dtype": 4, "shape": [1], "flat_int32": ["1,2"]', "strings"),
        ('"dtype": 4, "shape": [1], "flat_int32": ["x"]', "holds strings, expected INT32"),
        ('"dtype": 4, "shape": [1], "flat_int32": [true]', "booleans"),
        ('"dtype": 5, "shape": [1], "flat_int64": ["9223372036854775808"]', "is out of the range of INT64"),
        ('"dtype": 6, "shape": [1], "flat_float16": [70000]', "is out of the range of FP16"),
        ('"dtype": 7, "shape": [1], "flat_float32": [1e39]', "is out of the range of FP32"),
        ('"dtype": 9, "shape": [1], "flat_string": [1]', "holds no strings"),
        ('"dtype": 4, "shape": [2, 2], "flat_int32": [1, 2, 3]', r"3 elements, but shape \[2, 2\] takes 4"),
        ('"dtype": 4, "shape": [2], "flat_int32": [[1], [2]]', r"must be a flat list, not of shape \[2, 1\]"),
        ('"dtype": 4, "shape": [1], "flat_int32": 1', "must be a flat list"),
        ('"dtype": 4, "shape": [2]', "0 elements, but shape"),
        ('"dtype": 4, "shape": [-1]', "expected integers from 0"),
        ('"dtype": 4, "shape": [4294967296]', "expected integers from 0"),
        ('"dtype": 4, "shape": [1.5]', "expected integers from 0"),
        ('"dtype": 4, "shape": ["-1"]', "expected integers from 0"),
        ('"dtype": 4, "shape": ["4294967296"]', "expected integers from 0"),
        ('"dtype": 4, "shape": ["1 "]', "expected integers from 0"),
        ('"dtype": 4, "shape": ["\u0661"]', "expected integers from 0"),
        ('"dtype": 4, "shape": 3', "shape must be a list"),
        ('"dtype": 4, "shape": [0, 4294967295, 4294967295]', "spans more than 2"),
        (f'"dtype": 4, "shape": {[1] * 33}', "33 dimensions, expected at most 32"),
    ],
)
def test_invalid_tensors(members: str, expected: str) -> None:
    with pytest.raises(DecodeError, match=expected):
        one(members)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "empty body"),
        ("[]", "expected a JSON object"),
        ('{"str_data": "a"', "not JSON"),
        ('{"str_data": "a"} x', "not JSON"),
        ('{"gtensors": {"tensors": [{"dtype": 5, "flat_int64": ["1"', "not JSON"),
        ('{"str_data": "a", "str_data": "b"}', "'str_data' occurs twice"),
        ('{"str_data": 1}', "str_data must be a string"),
        ('{"str_data": "a", "gtensors": {}}', "data in str_data and gtensors, expected one of them"),
        ('{"bin_data": "AA=="}', "bin_data should use application/octet-stream format."),
        ('{"bin_data": ""}', "bin_data should use application/octet-stream format."),
        ('{"model": 1, "str_data": ""}', "model must be a string"),
        ('{"status": 1}', "status must be an object"),
        ('{"status": {"status": "FAILED"}}', "UNKNOWN, SUCCESS, FAILURE"),
        ('{"status": {"code": "a"}}', "expected an integer as code"),
        ('{"str_data": "a", "strData": "b"}', "the message: str_data is there in two spellings"),
        ('{"model": "m", "strdata": "a"}', "the message: there is no member 'strdata', expected one of model"),
        ('{"gtensors": {"tensor": []}}', "gtensors: there is no member 'tensor', expected one of tensors"),
        ('{"gmap": {"S_i32": {"a": 1}}}', "gmap: there is no member 'S_i32', expected one of s_s"),
        ('{"gmap": {"s_i32": {}, "sI32": {"a": 1}}}', "gmap: s_i32 is there in two spellings"),
        ('{"gmap": {"sI32": {"a": 1.5}}}', "is not integral"),
        ('{"binData": "AA=="}', "bin_data should use application/octet-stream format."),
        ('{"gtensors": []}', "gtensors must be an object"),
        ('{"gtensors": {"tensors": {}}}', "gtensors must be an object with a list"),
        ('{"gtensors": {"tensors": [1]}}', "input 0 must be an object"),
        ('{"ndarray": [[1, 2], [3]]}', "ragged"),
        ('{"ndarray": [1, [2]]}', "ragged|mixed|scalars"),
        ('{"ndarray": ["a"]}', "ndarray must hold numbers"),
        ('{"ndarray": [true]}', "ndarray must hold numbers"),
        ('{"gmap": []}', "gmap must be an object"),
        ('{"gmap": {"s_s": []}}', "s_s must be an object"),
        ('{"gmap": {"s_s": {"a": 1}}}', r"gmap: s_s\['a'\] is 1, expected a string"),
        ('{"gmap": {"s_b": {"a": "é"}}}', r"s_b\['a'\] is not base64"),
        ('{"gmap": {"s_b": {"a": "A"}}}', r"s_b\['a'\] is not base64"),
        ('{"gmap": {"s_b": {"a": "AP8.="}}}', r"s_b\['a'\] is not base64"),
        ('{"gmap": {"s_i32": {"a": 2147483648}}}', r"s_i32\['a'\].*is out of the range of INT32"),
        ('{"gmap": {"s_i32": {"a": true}}}', "is True, expected INT32"),
        ('{"gmap": {"s_i32": {"a": [1]}}}', "expected INT32"),
        ('{"gmap": {"s_i64": {"a": "1_000"}}}', "expected INT64"),
        ('{"gmap": {"s_i64": {"a": 9223372036854775808}}}', "expected INT64"),
        ('{"gmap": {"s_f": {"a": 1e39}}}', "is out of the range of FP32"),
        ('{"gmap": {"s_d": {"a": "1e999999"}}}', "expected FP64"),
        ('{"gmap": {"s_i32": {"a": 1.5}}}', "is not integral"),
    ],
)
def test_invalid_messages(text: str, expected: str) -> None:
    with pytest.raises(DecodeError, match=expected):
        read_message(text.encode(), "input", LIMITS)


def test_tensors_stay_within_the_limit() -> None:
    zeros = b",".join([b"0"] * 100)
    text = b'{"gtensors":{"tensors":[{"dtype":"DT_FLOAT64","shape":[100],"flat_float64":[%b]}]}}' % zeros
    with pytest.raises(GatewayError, match=r"takes 800 bytes, limits\.message is 799") as refused:
        read_message(text, "input", Limits(message=799))
    assert refused.value.reason is Reason.TOO_LARGE


@pytest.mark.parametrize(("nan", "written"), [("literal", b"NaN"), ("null", b"null"), ("string", b'"NaN"')])
def test_what_is_not_finite_is_written_as_the_route_says(nan: str, written: bytes) -> None:
    vector = GrpsMessage(payload=Payload.GTENSORS, tensors=(numbers("y", Datatype.FP64, np.nan),))
    assert b'"flat_float64":[%b]' % written in b"".join(write_message(vector, "output", nan))
    entry = GrpsMessage(payload=Payload.GMAP, tensors=(gmap.entry("s_d", "y", np.nan),))
    assert b"".join(write_message(entry, "output", nan)) == b'{"gmap":{"s_d":{"y":%b}}}' % written
    for grps, name in ((vector, "output 'y'"), (entry, r"s_d\['y'\]")):
        with pytest.raises(GatewayError, match=name):
            write_message(grps, "output", "error")


@pytest.mark.parametrize(
    "grps", [GrpsMessage("\ud800"), GrpsMessage(payload=Payload.GTENSORS, tensors=(texts("\ud800", "a"),))]
)
def test_names_are_utf8(grps: GrpsMessage) -> None:
    with pytest.raises(GatewayError, match="not UTF-8"):
        write_message(grps, "input", "string")
