"""JSON lines as the JSON of the list of their documents, and back."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError
from gateway.protocols.json.media import lines

BODIES = {
    "nothing": (b"", b"[]"),
    "numbers": (b"1\n2.50\n", b"[1,2.50]"),
    "objects": (b'{"a":[1,2]}\n{"b":"x,y"}\n', b'[{"a":[1,2]},{"b":"x,y"}]'),
    "line ends in strings": (b'"a\\nb"\n"],["\n', b'["a\\nb","],["]'),
    "not finite": (b'[NaN,"NaN"]\n{"a":-Infinity}\nInfinity\n', b'[[NaN,"NaN"],{"a":-Infinity},Infinity]'),
    "null": (b"null\ntrue\n", b"[null,true]"),
    "letters": ('"é\u2028\x85"\n'.encode(), '["é\u2028\x85"]'.encode()),
}


@pytest.mark.parametrize(("body", "text"), BODIES.values(), ids=BODIES)
def test_lines_in_both_directions(body: bytes, text: bytes) -> None:
    assert lines.read(body) == text
    assert lines.write(text) == body


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"1\n2", b"[1,2]"),
        (b"1\r\n[2]\r\n", b"[1,[2]]"),
        (b" 1\n\t2 \n  ", b"[ 1,\t2 ]"),
        (b"\xef\xbb\xbf1\n", b"[1]"),
        (b"nan\n[inf,-inf]\n", b"[nan,[inf,-inf]]"),
        (b"  ", b"[]"),
    ],
)
def test_other_spellings_are_read(body: bytes, text: bytes) -> None:
    assert lines.read(body) == text


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"\n", "line 1 is empty"),
        (b"1\n\n", "line 2 is empty"),
        (b"1\n \n2\n", "line 2 is empty"),
        (b"1\n2,3\n", "line 2 is not one JSON document: .*trailing characters"),
        (b"1 2\n", "line 1 is not one JSON document"),
        (b'{"a":1}{"b":2}\n', "line 1 is not one JSON document"),
        (b"[1\n2]\n", "line 1 is not one JSON document"),
        (b"[1\n,2]\n", "line 1 is not one JSON document"),
        (b"1 2\n[3\n,4]\n", "line 1 is not one JSON document"),
        (b"[1],[2\n", "line 1 is not one JSON document"),
        (b"NaN,NaN\n", "line 1 is not one JSON document"),
        (b'1\n"a\nb"\n', "line 2 is not one JSON document"),
        (b'1\n"NaN', "line 2 is not one JSON document"),
        (b'{\n  "a": 1\n}\n', "line 1 is not one JSON document"),
        (b"1\n" + b"[" * 100_000, "line 2 is not one JSON document"),
        (b"1\r2\n", "line 1 is not one JSON document"),
    ],
)
def test_what_is_not_one_document_in_each_line_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        lines.read(body)


def test_long_bodies_are_checked_in_pieces() -> None:
    body = b"".join(b'{"a":%d}\n' % at for at in range(200_000))
    assert json.loads(lines.read(body)) == [{"a": at} for at in range(200_000)]
    with pytest.raises(DecodeError, match="line 200001 is not one JSON document"):
        lines.read(body + b"1,2\n")
    with pytest.raises(DecodeError, match="line 200001 is empty"):
        lines.read(body + b"\n1\n")


documents = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=8,
)


@given(st.lists(documents), st.sampled_from([b"\n", b"\r\n"]), st.booleans())
def test_the_lines_of_another_writer_are_read(rows: list[Any], end: bytes, ascii: bool) -> None:
    texts = [json.dumps(row, ensure_ascii=ascii).encode("utf-8", "replace") for row in rows]
    text = lines.read(b"".join(text + end for text in texts))
    assert text == b"[%b]" % b",".join(texts)


@given(st.lists(documents))
def test_another_reader_reads_what_is_written(rows: list[Any]) -> None:
    body = lines.write(json.dumps(rows, separators=(",", ":")).encode())
    assert list(map(json.dumps, map(json.loads, body.splitlines()))) == list(map(json.dumps, rows))


@given(st.lists(st.sampled_from([b"1", b",", b"[", b"]", b"{", b"}", b'"', b"\n", b" ", b":", b"\\", b"NaN"])))
def test_a_list_has_one_element_for_each_line(pieces: list[bytes]) -> None:
    body = b"".join(pieces)
    try:
        text = lines.read(body)
    except DecodeError:
        return
    try:
        rows = json.loads(text)
    except ValueError:
        return  # the reader of the list refuses it
    assert len(rows) == body.count(b"\n") + bool(body.rpartition(b"\n")[2].strip())
