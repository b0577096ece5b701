import json

import pytest

from gateway.core.errors import DecodeError
from gateway.core.json import write_message
from gateway.core.requests import NestedJson
from gateway.protocols.v2.rest.parameters import json_parameters, nested_parameter, read_parameters


def test_reads_every_kind() -> None:
    given = {"s": "", "i": -(2**63), "u": 2**64 - 1, "f": 0.5, "b": False}
    assert read_parameters(given, "the request") == given
    assert read_parameters(None, "the request") == {}


def test_null_is_absent() -> None:
    assert read_parameters({"k": None, "l": 1}, "the response", reply=True) == {"l": 1}
    assert read_parameters({"headers": None, "l": 1}, "the request") == {"l": 1}


@pytest.mark.parametrize("nested", [{"b": [1, 1.0, None, True]}, [], {}, [float("nan")], {"ü": 2**70}])
def test_nested_values_stay_what_they_are(nested: object) -> None:
    found = read_parameters({"k": nested, "l": 1}, "the request")
    assert type(found["k"]) is NestedJson
    (text,) = write_message({"parameters": json_parameters(found, "the request")})
    assert repr(json.loads(text)) == repr({"parameters": {"k": nested, "l": 1}})
    assert "'k' is an object or a list" in str(nested_parameter(found, (), "the request", "input"))


def test_a_nested_value_never_decides_a_destination() -> None:
    with pytest.raises(DecodeError, match="parameter 'sequence_id' must be"):
        read_parameters({"sequence_id": {}}, "the request")


def test_the_headers_in_mlservers_replies_are_left_out() -> None:
    headers = {"host": "127.0.0.1", "content-length": "78"}
    assert read_parameters({"headers": headers, "l": 1}, "the response", reply=True) == {"l": 1}
    assert read_parameters({"headers": "a parameter"}, "the response", reply=True) == {"headers": "a parameter"}
    assert type(read_parameters({"headers": headers}, "the request")["headers"]) is NestedJson


@pytest.mark.parametrize("wrong", [2**64, -(2**63) - 1, float("nan"), float("inf")])
def test_refuses_other_values_by_key(wrong: object) -> None:
    with pytest.raises(DecodeError, match="the request: parameter 'k' must be"):
        read_parameters({"k": wrong}, "the request")
