"""NaN, Infinity and -Infinity as Python servers write them.

JSON does not define these literals, and msgspec refuses them, but the gateway accepts them in tensors.

Before msgspec reads the text a second time, each literal is replaced by a string with a prefix, the mark. In tensors,
the literals are then restored. Elsewhere, they are refused. `reading` marks the literals, and `places` restores them.
"""

import re
from collections.abc import Callable

_MARK = b'"\x7f'
_QUOTE = ord('"')
_LITERALS = (b"NaN", b"-NaN", b"Infinity", b"-Infinity")
# The pattern matches strings, so that literals in strings are skipped. An unterminated string extends to the end of the
# text, so the pattern never backtracks.
_LITERAL = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|-?(?:NaN|Infinity)\b', re.DOTALL)
_MARKED = re.compile(rb'"\x7f(-?(?:NaN|Infinity))"')


def mark(text: bytes) -> bytes | None:
    """Return `text` with each literal replaced by a marked string. Return None if the text contains no literal, or
    already contains the mark."""
    if (b"NaN" not in text and b"Infinity" not in text) or is_marked(text):
        return None
    return replaced(_LITERAL, lambda literal: b'%b%b"' % (_MARK, literal), text)


def replaced(pattern: "re.Pattern[bytes]", replacement: Callable[[bytes], bytes], text: bytes) -> bytes:
    """Return the text in which each match of `pattern` that is not a string is replaced.

    The pattern also matches strings, which stay unchanged. `re.sub` would use a hundred bytes of memory for each match
    until it returns."""
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
    """Return the text with its literals instead of the marked strings."""
    if _MARK in text:
        for literal in _LITERALS:
            text = text.replace(b'%b%b"' % (_MARK, literal), literal)
    return text


def is_marked(text: bytes) -> bool:
    """Return True if the text contained a literal."""
    return _MARK in text and _MARKED.search(text) is not None
