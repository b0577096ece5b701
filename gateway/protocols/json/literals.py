"""NaN, Infinity and -Infinity as Python servers write them: no JSON, and refused by msgspec, but read in tensors.

Before the text is read again, each becomes a string with a prefix, the mark. Where a tensor stands, its text gets them
back; anywhere else they are refused.
"""

import re
from collections.abc import Callable

_MARK = b'"\x7f'
_QUOTE = ord('"')
_LITERALS = (b"NaN", b"-NaN", b"Infinity", b"-Infinity")
# Strings, so that the words in them are passed over. One without an end goes on to the end of the text: nothing
# backtracks.
_LITERAL = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|-?(?:NaN|Infinity)\b', re.DOTALL)
_MARKED = re.compile(rb'"\x7f(-?(?:NaN|Infinity))"')


def mark(text: bytes) -> bytes | None:
    """The text with a marked string in place of each literal; None if there is none, or such a string is in the text
    already."""
    if (b"NaN" not in text and b"Infinity" not in text) or is_marked(text):
        return None
    return replaced(_LITERAL, lambda literal: b'%b%b"' % (_MARK, literal), text)


def replaced(pattern: "re.Pattern[bytes]", replacement: Callable[[bytes], bytes], text: bytes) -> bytes:
    """The text with the replacement of each match of `pattern` that is no string. The pattern also matches strings,
    which stay. `re.sub` would take a hundred bytes for each match until it ends."""
    result, at = bytearray(), 0
    for found in pattern.finditer(text):
        start = found.start()
        if text[start] != _QUOTE:
            result += text[at:start]
            result += replacement(found[0])
            at = found.end()
    result += text[at:]
    return bytes(result)


def unmark(text: bytes) -> bytes:
    """The text with the literals back in it."""
    if _MARK in text:
        for literal in _LITERALS:
            text = text.replace(b'%b%b"' % (_MARK, literal), literal)
    return text


def is_marked(text: bytes) -> bool:
    """Whether a literal was in the text."""
    return _MARK in text and _MARKED.search(text) is not None
