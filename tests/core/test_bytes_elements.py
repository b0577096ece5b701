import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.bytes_elements import PIECE, count, offsets, pack, pieces, unpack
from gateway.core.errors import DecodeError
from tests.traced import traced


@pytest.mark.parametrize(
    ("elements", "raw"),
    [
        ([], b""),
        ([b""], b"\x00\x00\x00\x00"),
        ([b"ab", b"", b"c\x00"], b"\x02\x00\x00\x00ab\x00\x00\x00\x00\x02\x00\x00\x00c\x00"),
    ],
)
def test_raw_form(elements: list[bytes], raw: bytes) -> None:
    assert pack(elements) == raw
    assert unpack(raw) == elements
    assert count(raw) == len(elements)


@pytest.mark.parametrize(
    "elements",
    [
        [b"12345"] * 1000,
        [b""] * 2000,
        [b"12345"] * 1000 + [b"1234", b"123456"],  # the size is right for elements of one length, the lengths are not
        [b"x" * 5000],
        [bytes([at % 256]) * (at % 7) for at in range(3000)],
    ],
)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_large(elements: list[bytes], kind: type) -> None:
    raw = kind(pack(elements))
    assert unpack(raw) == elements
    assert all(type(element) is bytes for element in unpack(raw))
    assert count(raw) == len(elements)


@pytest.mark.parametrize(
    ("raw", "element"),
    [
        (b"\x00", 0),
        (b"\x01\x00\x00\x00", 0),
        (b"\x01\x00\x00\x00a\x02\x00\x00", 1),
        (b"\x01\x00\x00\x00a\x02\x00\x00\x00b", 1),
        (b"\xff\xff\xff\xffa", 0),
        (pack([b"12345"] * 1000) + b"\x05\x00\x00\x001234", 1000),
        (pack([b"12345"] * 1000)[:-9] + b"\x06\x00\x00\x0012345", 999),
    ],
)
def test_elements_past_the_end(raw: bytes, element: int) -> None:
    for read in (unpack, count):
        with pytest.raises(DecodeError, match=f"element {element} reaches past the end"):
            read(raw)


@pytest.mark.parametrize(
    ("elements", "step", "expected"),
    [
        ([], 2, [0]),
        ([b"a", b"", b"bc", b"d"], 1, [0, 5, 9, 15, 20]),
        ([b"a", b"", b"bc", b"d"], 2, [0, 9, 20]),
        ([b"12345"] * 1000, 250, [0, 2250, 4500, 6750, 9000]),
    ],
)
def test_offsets_of_rows(elements: list[bytes], step: int, expected: list[int]) -> None:
    assert offsets(pack(elements), step) == expected


@pytest.mark.parametrize(
    ("raw", "error"),
    [
        (pack([b"12345"] * 1000)[:-1], "BYTES element 999 reaches past the end of the data"),
        (b"\x00", "BYTES element 0 reaches past the end of the data"),
        (pack([b"a"] * 3), "BYTES data of 15 bytes is not a multiple of 2 elements"),
        (pack([b"12345"] * 1001), "BYTES data of 9009 bytes is not a multiple of 2 elements"),
    ],
)
def test_offsets_of_what_is_no_rows(raw: bytes, error: str) -> None:
    with pytest.raises(DecodeError) as refused:
        offsets(raw, 2)
    assert str(refused.value) == error


@given(st.binary(max_size=40))
def test_count_and_unpack_agree(raw: bytes) -> None:
    try:
        elements = unpack(raw)
    except DecodeError as error:
        with pytest.raises(DecodeError, match=str(error)):
            count(raw)
    else:
        assert count(raw) == len(elements)
        assert pack(elements) == raw


def test_packing_many_short_elements_takes_little_more_than_they_do() -> None:
    elements = [b"x"] * 50_000
    with traced() as memory:
        raw = pack(elements)
    assert memory.peak < 5 * len(raw)
    assert raw == b"\x01\x00\x00\x00x" * 50_000


@pytest.mark.parametrize("elements", [[b"ab"] * (3 * PIECE), [b"", b"a"] * PIECE, [b""] * (PIECE + 1)])
def test_pieces_are_all_elements_and_none_is_long(elements: list[bytes]) -> None:
    found = list(pieces(pack(elements)))
    assert [element for piece in found for element in piece] == elements
    assert max(map(len, found)) <= PIECE
