"""Values that are worked on in steps are the same wherever the steps end."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest

from gateway.core import bytes_elements, messages
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.json import arrays, bulk_strings, read_bare, writing
from gateway.core.tensors import Tensor
from gateway.protocols.grps import strings
from gateway.protocols.v1 import b64

TEXT = 'a\\"\n\\\\é😀\ud83d\ude00 [x], '.encode("utf-16", "surrogatepass").decode("utf-16") * 9


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("step", range(13, 40))
def test_a_long_string_is_read_in_steps(monkeypatch: pytest.MonkeyPatch, step: int, ascii_only: bool) -> None:
    monkeypatch.setattr(bulk_strings, "_LONG", step)
    text = json.dumps([[TEXT]], ensure_ascii=ascii_only).encode()
    array = read_bare(text, values=10, literals=False)
    assert array.shape == (1, 1)
    assert isinstance(array.values, bytes)
    assert bytes_elements.unpack(array.values) == [TEXT.encode()]


LONG = b"a" * 40


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b'["%b" x]', "not JSON: unexpected character, expected ',' or ']' in an array of strings"),
        (b'["a" "%b"]', "not JSON: unexpected character, expected ',' or ']' in an array of strings"),
        (b'["%b\x01"]', "not JSON: unexpected control character in string in an array of strings"),
        (b'["%b\\x"]', "not JSON: invalid escaped sequence in string in an array of strings"),
        (b'[["%b"]', "not JSON: the array's brackets do not match"),
        (b"[" * 65 + b'"%b"' + b"]" * 65, "nested deeper than 64"),
        (b"[" * 65 + b'"a", "%b"' + b"]" * 65, "nested deeper than 64"),
    ],
)
@pytest.mark.parametrize("step", [16, 2**20])
def test_a_long_string_that_is_none_is_refused_in_the_same_words(
    monkeypatch: pytest.MonkeyPatch, step: int, text: bytes, error: str
) -> None:
    monkeypatch.setattr(bulk_strings, "_LONG", step)
    with pytest.raises(DecodeError) as refused:
        read_bare(text % LONG, values=100, literals=False)
    assert str(refused.value) == error


@pytest.mark.parametrize("step", range(1, 12))
def test_nesting_is_checked_in_steps(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(arrays, "_PIECE", step)
    assert read_bare(b"[[[1,2],[3,4],[5,6]],[[1,2],[3,4],[5,6]]]", values=9, literals=False).shape == (2, 3, 2)
    for ragged in (b"[[[1,2],[3,4]],[[1,2],[3,4,5]]]", b"[[1,2],[3,4],5]", b"[1,[2]]", b"[[1,2],[3,[4]]]"):
        with pytest.raises(DecodeError, match="ragged"):
            read_bare(ragged, values=9, literals=False)


@pytest.mark.parametrize("size", range(40, 60))
def test_base64_is_read_and_written_in_steps(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(b64, "_PIECE", 16)
    data = bytes(range(size))
    element = b64.to_json(data)
    assert element == b'{"b64":"%b"}' % b64encode(data)
    assert b64.mark(b"[1, %b]" % element) == b'[1, "\x7fb64:%b"]' % b64encode(data)
    assert b64._decode(b64encode(data), 0) == data
    with pytest.raises(ValueError, match=r"padding|Padding|data"):
        b64._decode(b64encode(b"a") + b64encode(data), 0)


ELEMENTS = (b"", b"a", 'é\u20ac\N{GRINNING FACE} "\\\n\0'.encode(), b"", b"x" * 9)


@pytest.fixture(params=range(1, 9))
def step(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A very small number of bytes for all steps."""
    size: int = request.param
    for module in (messages, bytes_elements, writing, strings):
        monkeypatch.setattr(module, "STEP", size)
    return size


def test_long_strings_are_written_in_steps(step: int) -> None:
    lists = [list(ELEMENTS[:2]), [], list(ELEMENTS[2:])]
    assert json.loads(b"".join(writing.utf8_pieces(lists))) == [each.decode() for each in ELEMENTS]
    for cut in (ELEMENTS[2][:-11], b"a" * step + b"\xff", ELEMENTS[2][:2] + b"\x80"):
        with pytest.raises(UnicodeDecodeError):
            list(writing.utf8_pieces([[b"a", cut]]))


@pytest.mark.parametrize("elements", [ELEMENTS, ELEMENTS[:1] * 3, ELEMENTS[2:3] * 2, ELEMENTS[4:]])
def test_long_elements_are_packed_and_unpacked_in_steps(
    step: int, elements: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bytes_elements, "_MIN_SIZE", 1)
    raw = b"".join(len(each).to_bytes(4, "little") + each for each in elements)
    assert bytes_elements.pack(map(memoryview, elements)) == raw
    for kind in (bytes, bytearray, memoryview):
        assert bytes_elements.unpack(kind(raw)) == list(elements)
    assert strings.is_utf8(Tensor("", Datatype.BYTES, (len(elements),), raw))
    broken = bytes_elements.pack((*elements, b"a" * step + b"\xff"))
    assert not strings.is_utf8(Tensor("", Datatype.BYTES, (len(elements) + 1,), broken))


def test_joined_bytes_are_the_same_in_steps(step: int) -> None:
    body = bytes(range(20))
    assert messages.as_bytes(memoryview(body)) == messages.join(body[:7], bytearray(body[7:])) == body
    assert all(len(part) <= step for part in messages.steps(body))
