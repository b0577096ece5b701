from hypothesis import given
from hypothesis import strategies as st

from gateway.core.types import Headers
from gateway.transports.grpc.metadata import metadata
from gateway.transports.grpc.metadata import raw as read

NAMES = st.from_regex(rb"x[0-9a-z_.-]{0,8}", fullmatch=True).filter(lambda name: not name.endswith(b"-bin"))
TEXTS = st.from_regex(rb"[ -~]*", fullmatch=True)
BINARY = st.tuples(NAMES.map(lambda name: name + b"-bin"), st.binary())


@given(st.lists(st.tuples(NAMES, TEXTS) | BINARY))
def test_what_grpc_can_carry_comes_back_as_it_was(raw: list[tuple[bytes, bytes]]) -> None:
    assert read(metadata(Headers(raw))) == raw


@given(st.lists(st.tuples(st.binary(), st.binary())))
def test_any_headers_are_metadata_that_grpc_can_carry(raw: list[tuple[bytes, bytes]]) -> None:
    for name, text in metadata(Headers(raw)):
        assert name == name.lower()
        assert isinstance(text, bytes) if name.endswith("-bin") else text.isascii()
