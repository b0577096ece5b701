import pytest

from gateway.core.errors import DecodeError
from gateway.protocols.v2.rest.parameters import read_parameters


def test_reads_every_kind() -> None:
    given = {"s": "", "i": -(2**63), "u": 2**64 - 1, "f": 0.5, "b": False}
    assert read_parameters(given, "the request") == given
    assert read_parameters(None, "the request") == {}


def test_null_is_absent_only_where_servers_write_it() -> None:
    assert read_parameters({"k": None, "l": 1}, "the response", reply=True) == {"l": 1}
    with pytest.raises(DecodeError, match=r"the request: parameter 'k' must be .* not null"):
        read_parameters({"k": None}, "the request")


def test_the_headers_in_mlservers_replies_are_left_out() -> None:
    headers = {"host": "127.0.0.1", "content-length": "78"}
    assert read_parameters({"headers": headers, "l": 1}, "the response", reply=True) == {"l": 1}
    assert read_parameters({"headers": "a parameter"}, "the response", reply=True) == {"headers": "a parameter"}
    with pytest.raises(DecodeError, match="the request: parameter 'headers' must be"):
        read_parameters({"headers": headers}, "the request")


@pytest.mark.parametrize("wrong", [{}, [], 2**64, -(2**63) - 1, float("nan"), float("inf")])
def test_refuses_other_values_by_key(wrong: object) -> None:
    with pytest.raises(DecodeError, match="the request: parameter 'k' must be"):
        read_parameters({"k": wrong}, "the request")
