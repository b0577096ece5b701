"""Quotes around numbers are removed in steps, from large texts. What is left is the same wherever the steps end."""

from __future__ import annotations

import pytest

from gateway.protocols.grps.json import message
from gateway.protocols.grps.json.message import unquote

LONGEST_WORD = len('"-Infinity"')

INTEGERS = b'"12" , "-3",' * 20 + b'"4"'
WORDS = b'1.5,"NaN", "-Infinity",2e3,"Infinity",' * 10 + b'"NaN"'
OTHERS = b'"5",' * 30 + b"6," * 30 + b'"NaN"'
ROWS = b",".join([b'[1, "NaN", -2.5]', b'["Infinity","-Infinity", 0]'] * 10)
TEXTS = b'"NaN", "flat_int8", "1", "ndarray", ' * 10 + rb'"\"ndarray\": [\"NaN\"]", "\"flat_int8\": [\"1\"]"'
BODY = b'{"a": [%b], "flat_string": [%b], "flat_int64": [%b], "flat_fp32":[%b], "flat_int8": [%b], "ndarray" : [%b]}'


def without(text: bytes, *words: bytes) -> bytes:
    """`text` with these words out of their quotes."""
    for word in words:
        text = text.replace(b'"%b"' % word, word)
    return text


NOT_FINITE = (b"NaN", b"Infinity", b"-Infinity")


@pytest.mark.parametrize("step", [*range(LONGEST_WORD, 60), 2**18])
def test_only_numbers_lose_their_quotes(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(message, "_SMALL", step)
    monkeypatch.setattr(message, "_STEP", step)
    body = BODY % (TEXTS, TEXTS, INTEGERS, WORDS, OTHERS, ROWS)
    integers, others = without(INTEGERS, b"12", b"-3", b"4"), without(OTHERS, b"NaN")
    words, rows = without(WORDS, *NOT_FINITE), without(ROWS, *NOT_FINITE)
    assert unquote(body) == BODY % (TEXTS, TEXTS, integers, words, others, rows)


def test_a_list_with_a_long_string_keeps_its_quotes() -> None:
    body = b'{"flat_int64": ["1","%b","NaN"]}' % (b"2" * 2**20)
    assert unquote(body) == body
