"""NaN, Infinity and -Infinity as Python servers write them: no JSON, and refused by msgspec, but read in tensors.

Before the text is read again, each becomes a string with a prefix, the mark. Where a tensor stands, its text gets them
back; anywhere else they are refused.
"""

import re

_MARK = b'"\x7f'
# Strings, so that the words in them are passed over. One without an end goes on to the end of the text: nothing
# backtracks.
_LITERAL = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|-?(?:NaN|Infinity)\b', re.DOTALL)
_MARKED = re.compile(rb'"\x7f(-?(?:NaN|Infinity))"')


def mark(text: bytes) -> bytes | None:
    """The text with a marked string in place of each literal; None if there is none, or such a string is in the text
    already."""
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
    """Whether a literal was in the text."""
    return _MARK in text and _MARKED.search(text) is not None
