"""Values that are worked on in steps are the same wherever the steps end."""

from __future__ import annotations

import json
from base64 import b64encode
from itertools import chain

import pytest

from gateway.core import bytes_elements
from gateway.core.errors import DecodeError
from gateway.core.json import arrays, bulk_strings, read_bare, writing
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


@pytest.mark.parametrize("step", range(1, 9))
def test_long_strings_are_written_in_steps(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(writing, "_STEP", step)
    lists = [["", "a"], [], ['é\u20ac\N{GRINNING FACE} "\\\n\0', "", "x" * step], [""]]
    assert json.loads(b"".join(writing.string_pieces(lists))) == list(chain.from_iterable(lists))
