from hypothesis import given
from hypothesis import strategies as st

from gateway.core.messages import Headers
from gateway.transports.grpc.metadata import unarmoured, written

NAMES = st.from_regex(rb"x[0-9a-z_.-]{0,8}", fullmatch=True).filter(lambda name: not name.endswith(b"-bin"))
TEXTS = st.from_regex(rb"[!-~]*", fullmatch=True)
BINARY = st.tuples(NAMES.map(lambda name: name + b"-bin"), st.binary())


@given(st.lists(st.tuples(NAMES, TEXTS)))
def test_texts_that_grpc_can_carry_are_written_as_they_are(raw: list[tuple[bytes, bytes]]) -> None:
    assert list(written(Headers(raw))) == raw


@given(st.lists(BINARY))
def test_binary_values_come_back_as_they_were(raw: list[tuple[bytes, bytes]]) -> None:
    armoured = list(written(Headers(raw)))
    assert [field for name, text in armoured for field in unarmoured(name, text)] == raw
    assert all(text.isascii() and not text.endswith(b"=") for _, text in armoured)


@given(st.lists(st.tuples(st.binary(), st.binary())))
def test_any_headers_are_metadata_that_grpc_can_carry(raw: list[tuple[bytes, bytes]]) -> None:
    for name, text in written(Headers(raw)):
        assert name == name.lower()
        assert text.isascii()
