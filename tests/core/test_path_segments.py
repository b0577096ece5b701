import pytest

from gateway.core.errors import GatewayError, Reason
from gateway.core.path_segments import path_segment


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("echo", "echo"),
        ("a/..b?c#d%2F e\r\n", "a%2F..b%3Fc%23d%252F%20e%0D%0A"),
        ("%2e", "%252e"),
        ("ü", "%C3%BC"),
        ("...", "..."),
        ("a..b/.c", "a..b%2F.c"),
    ],
)
def test_a_name_is_one_segment(name: str, segment: str) -> None:
    assert path_segment(name, "model", "V2") == segment


@pytest.mark.parametrize("name", ["", ".", "..", "a/../b", "a/..", "./a", "a\\..\\b", "../b"])
def test_names_that_would_change_the_path_are_refused(name: str) -> None:
    with pytest.raises(GatewayError) as refused:
        path_segment(name, "version", "V2")
    assert refused.value.reason is Reason.INVALID_INPUT
    assert refused.value.message == f"version {name!r} has no URL on a V2 server"


def test_half_of_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(GatewayError, match=r"model '\\ud800' is not UTF-8"):
        path_segment("\ud800", "model", "V2")
