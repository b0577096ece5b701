"""NaN, Infinity and -Infinity as Python servers write them. They are not JSON, and msgspec refuses them, but tensors
can contain them.

Before msgspec reads the text again, each literal becomes a string with a prefix, the mark. The texts of tensors get
their literals back; all other literals are refused.
"""

import re

_MARK = b'"\x7f'
# Strings, so that the words in them are passed over. One without an end goes on to the end of the text: nothing
# backtracks.
_LITERAL = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|-?(?:NaN|Infinity)\b', re.DOTALL)
_MARKED = re.compile(rb'"\x7f(-?(?:NaN|Infinity))"')


def mark(text: bytes) -> bytes | None:
    """Return `text` with a marked string for each literal. Return None if the text contains no literal, or already
    contains such a string."""
    if (b"NaN" not in text and b"Infinity" not in text) or is_marked(text):
        return None
    return _LITERAL.sub(_marked, text)


def _marked(match: "re.Match[bytes]") -> bytes:
    found = match[0]
    return found if found.startswith(b'"') else b'%b%b"' % (_MARK, found)


def unmark(text: bytes) -> bytes:
    """The text with the literals back in it."""
    return _MARKED.sub(rb"\1", text) if _MARK in text else text


def is_marked(text: bytes) -> bool:
    """Return True if the text contained a literal."""
    return _MARK in text and _MARKED.search(text) is not None
