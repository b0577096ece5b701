"""The peers' reader and writer of GrpsMessage, against bytes that real servers sent."""

from __future__ import annotations

import math

import pytest

from tests.peers.grps_json import cpp_float, load, nested, pretty, python_float, read, tensor_of, tree
from tests.peers.grps_messages import SUCCESS, decode, encode, tensor
from tests.peers.protobuf import Document

X = tensor("x", "DT_FLOAT32", [3], [1.0, 2.0, 3.0])
OK = b'{\n "status": {\n  "code": 200,\n  "msg": "OK",\n  "status": "SUCCESS"\n }\n}'

RECORDED: dict[str, Document] = {
    "0a0908c80112024f4b1801": {"status": SUCCESS},
    "120b74776963652d312e302e302a180a160a017810071a0103520c0000803f0000004000004040": {
        "model": "twice-1.0.0",
        "gtensors": {"tensors": [X]},
    },
    "0a0908c80112024f4b18012a180a160a017810071a0103520c00000040000080400000c040": {
        "status": SUCCESS,
        "gtensors": {"tensors": [X | {"flat_float32": [2.0, 4.0, 6.0]}]},
    },
    "3200": {"ndarray": {}},
    "2200": {"str_data": ""},
    "1a0200ff": {"bin_data": b"\0\xff"},
}

ONE_OF_EACH: Document = {
    "gtensors": {
        "tensors": [
            tensor("u8", "DT_UINT8", [3], [0, 127, 255]),
            tensor("i8", "DT_INT8", [2], [-128, 300]),
            tensor("i16", "DT_INT16", [1], [-1]),
            tensor("i32", "DT_INT32", [1], [-(2**31)]),
            tensor("i64", "DT_INT64", [2], [-(2**63), 2**63 - 1]),
            tensor("f16", "DT_FLOAT16", [1], [0.5]),
            tensor("f64", "DT_FLOAT64", [2], [0.1, -math.inf]),
            tensor("s", "DT_STRING", [2], ["", "é"]),
            {"dtype": 77},
        ]
    }
}
GMAP: Document = {
    "gmap": {
        "s_s": {"": "", "a": "b"},
        "s_b": {"b": b"\0\xff"},
        "s_i32": {"i": -1},
        "s_i64": {"l": -(2**63)},
        "s_f": {"f": 0.5},
        "s_d": {"d": 0.1},
    }
}


@pytest.mark.parametrize("recorded", RECORDED)
def test_recorded_bytes_both_ways(recorded: str) -> None:
    assert decode(bytes.fromhex(recorded)) == RECORDED[recorded]
    assert encode(RECORDED[recorded]).hex() == recorded


@pytest.mark.parametrize("message", [ONE_OF_EACH, GMAP], ids=["tensors", "gmap"])
def test_every_field_comes_back(message: Document) -> None:
    assert decode(encode(message)) == message


def test_negatives_cost_ten_bytes() -> None:
    assert encode({"gtensors": {"tensors": [tensor("", "DT_INT8", [1], [-1])]}}).hex() == (
        "2a130a1110021a01012a0a" + "ff" * 9 + "01"
    )


def test_unpacked_lists_and_unknown_fields_are_read() -> None:
    assert decode(bytes.fromhex("2a090a0718011802f80107")) == {"gtensors": {"tensors": [{"shape": [1, 2]}]}}


def test_the_last_of_a_oneof_stays() -> None:
    assert decode(bytes.fromhex("220161" + "1a0162")) == {"bin_data": b"b"}


@pytest.mark.parametrize("broken", ["12", "1205", "0a09", "12ffffffffffffffffffff01", "2201ff", "1801", "00", "13"])
def test_broken_bytes_are_refused(broken: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(bytes.fromhex(broken))


def test_json_of_either_server() -> None:
    message: Document = {
        "status": SUCCESS,
        "gtensors": {
            "tensors": [
                tensor("", "DT_FLOAT32", [2], [6.2, 3.0]),
                tensor("l", "DT_INT64", [1], [2**53 + 1]),
                tensor("d", "DT_FLOAT64", [2], [0.1, math.nan]),
            ]
        },
    }
    assert pretty(tree({"status": SUCCESS}, python_float), 1).encode() == OK
    python, cpp = (tree(message, number)["gtensors"]["tensors"] for number in (python_float, cpp_float))
    assert [python[0]["flat_float32"], cpp[0]["flat_float32"]] == [["6.2", "3.0"], ["6.2", "3"]]
    assert python[1] == {"name": "l", "dtype": "DT_INT64", "shape": [1], "flat_int64": ["9007199254740993"]}
    assert python[2]["flat_float64"] == ["0.1", "NaN"]
    assert "name" not in python[0]


def test_json_is_read_as_the_servers_do() -> None:
    given = load(
        b'{"model": "m", "other": 1, "gtensors": {"tensors": [{"dtype": 5, "shape": ["2"], "flat_int64": [1, '
        b'"9007199254740993"], "flat_double": [1]}, {"dtype": "DT_FLOAT64", "flatFloat64": ["NaN", "-Infinity"]}]}}'
    )
    first, second = read(given, camel=True)["gtensors"]["tensors"]
    assert first == {"dtype": "DT_INT64", "shape": [2], "flat_int64": [1, 9007199254740993]}
    assert math.isnan(second["flat_float64"][0])
    assert read(given, camel=False)["gtensors"]["tensors"][1] == {"dtype": "DT_FLOAT64"}
    assert read({"gmap": {"s_b": {"b": "AP8="}, "s_i64": {"l": "-1"}}}, camel=False) == {
        "gmap": {"s_b": {"b": b"\0\xff"}, "s_i64": {"l": -1}}
    }
    with pytest.raises(ValueError, match="NaN is no JSON"):
        load(b'{"ndarray": [NaN]}')


def test_ndarrays() -> None:
    tensors = tensor_of([[1, 2], [3, 6.1]])
    assert tensors["tensors"][0]["shape"] == [2, 2]
    assert pretty(nested(tensors["tensors"][0], python_float), 0).split() == [
        "[", "[", "1.0,", "2.0", "],", "[", "3.0,", "6.099999904632568", "]", "]",
    ]  # fmt: skip
    assert "shape" not in tensor_of(1)["tensors"][0]
    with pytest.raises(ValueError, match="inhomogeneous"):
        tensor_of([[1], [2, 3]])
