"""Request ids: which are accepted, and those that are made."""

import pytest

from gateway.core.messages import Headers
from gateway.observing.request_ids import accepted_id, new_id

TRACE = b"4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = b"00-" + TRACE + b"-00f067aa0ba902b7-01"


def accepted(*headers: tuple[bytes, bytes]) -> tuple[str, bytes]:
    return accepted_id(Headers(headers).first)


@pytest.mark.parametrize("sane", [b"a", b"7f3e1c2a-98aa-4a53-9ee7-8f6b1a0f7e11", b"a" * 128, b"Root=1-67:x/y+z@h.i_j"])
def test_a_sane_id_is_accepted(sane: bytes) -> None:
    assert accepted((b"x-request-id", sane)) == (sane.decode(), b"")


@pytest.mark.parametrize("odd", [b"", b"a b", b"a\tb", b'"', b"\xc3\xa9", b"\x1b[0m", b"a" * 129, b"a\n"])
def test_an_odd_id_is_not(odd: bytes) -> None:
    assert accepted((b"x-request-id", odd)) == ("", b"")
    assert accepted((b"x-request-id", odd), (b"traceparent", PARENT)) == (TRACE.decode(), PARENT)


def test_the_first_sane_id_counts_before_the_trace() -> None:
    ids = (b"x-request-id", b"one"), (b"x-request-id", b"two")
    assert accepted((b"traceparent", PARENT), *ids) == ("one", PARENT)


@pytest.mark.parametrize(
    "wrong",
    [
        b"00-" + b"0" * 32 + b"-00f067aa0ba902b7-01",
        b"00-" + TRACE + b"-0000000000000000-01",
        b"ff-" + TRACE + b"-00f067aa0ba902b7-01",
        b"00-" + TRACE.upper() + b"-00f067aa0ba902b7-01",
        b"00-" + TRACE + b"-00f067aa0ba902b7",
        b"00-" + TRACE + b"-00f067aa0ba902b7-01x",
        b"00-" + TRACE + b"-00f067aa0ba902b7-01-more",
    ],
)
def test_a_trace_that_w3c_calls_invalid_is_none(wrong: bytes) -> None:
    assert accepted((b"traceparent", wrong)) == ("", b"")


def test_a_later_version_of_the_trace_may_have_more_fields() -> None:
    later = b"01-" + TRACE + b"-00f067aa0ba902b7-01-more"
    assert accepted((b"traceparent", later)) == (TRACE.decode(), later)


def test_made_ids_differ_and_are_accepted_by_the_next_gateway() -> None:
    ids = [new_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(accepted((b"x-request-id", each.encode()))[0] == each for each in ids)
