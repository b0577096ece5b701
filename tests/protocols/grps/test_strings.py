"""Elements of BYTES that must be text."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.protocols.grps.strings import as_string, is_utf8
from tests.protocols.grps.values import numbers, texts


def _decodes(element: bytes) -> bool:
    try:
        element.decode()
    except UnicodeDecodeError:
        return False
    return True


ELEMENTS = st.one_of(st.binary(max_size=4), st.text(max_size=200).map(str.encode))


@given(st.lists(ELEMENTS, max_size=5))
def test_text_is_utf8_in_every_element(elements: list[bytes]) -> None:
    assert is_utf8(texts("t", *elements)) is all(map(_decodes, elements))


def test_characters_do_not_reach_from_one_element_into_the_next() -> None:
    assert is_utf8(texts("t", b"\xc3\xa9"))
    assert not is_utf8(texts("t", b"\xc3", b"\xa9"))
    assert not is_utf8(texts("t", *["a" * 200] * 100, b"\xff"))


def test_numbers_stay() -> None:
    vector = numbers("x", Datatype.FP32, 1)
    assert as_string(vector, "base64", "input 'x'") is vector
