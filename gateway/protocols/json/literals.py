"""NaN, Infinity and -Infinity as Python servers write them. JSON does not have these literals, and msgspec refuses
them, but the gateway accepts them in tensors.

Before msgspec reads the text again, each literal becomes a string with a prefix, the mark. The texts of tensors get
their literals back; all other literals are refused.
"""

import re

_MARK = b'"\x7f'
# Strings, to skip the words in them. A string without an end continues to the end of the text, so the pattern never
# backtracks.
_LITERAL = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|-?(?:NaN|Infinity)\b', re.DOTALL)
_MARKED = re.compile(rb'"\x7f(-?(?:NaN|Infinity))"')


def mark(text: bytes) -> bytes | None:
    """Return `text` with each literal replaced by a marked string. Return None if the text has no literal, or already
    contains the mark."""
    if (b"NaN" not in text and b"Infinity" not in text) or is_marked(text):
        return None
    return _LITERAL.sub(_marked, text)


def _marked(match: "re.Match[bytes]") -> bytes:
    found = match[0]
    return found if found.startswith(b'"') else b'%b%b"' % (_MARK, found)


def unmark(text: bytes) -> bytes:
    """Return the text with its literals instead of the marked strings."""
    return _MARKED.sub(rb"\1", text) if _MARK in text else text


def is_marked(text: bytes) -> bool:
    """Return True if the text contained a literal."""
    return _MARK in text and _MARKED.search(text) is not None
