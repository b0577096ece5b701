import pytest

from gateway.core.errors import DecodeError
from gateway.protocols.v2.parameters import read_parameters


def test_reads_every_kind() -> None:
    given = {"s": "", "i": -(2**63), "u": 2**64 - 1, "f": 0.5, "b": False}
    assert read_parameters(given, "the request") == given
    assert read_parameters(None, "the request") == {}


def test_null_is_absent_only_where_servers_write_it() -> None:
    assert read_parameters({"k": None, "l": 1}, "the response", nulls=True) == {"l": 1}
    with pytest.raises(DecodeError, match=r"the request: parameter 'k' must be .* not null"):
        read_parameters({"k": None}, "the request")


@pytest.mark.parametrize("wrong", [{}, [], 2**64, -(2**63) - 1, float("nan"), float("inf")])
def test_refuses_the_rest_by_key(wrong: object) -> None:
    with pytest.raises(DecodeError, match="the request: parameter 'k' must be"):
        read_parameters({"k": wrong}, "the request")
