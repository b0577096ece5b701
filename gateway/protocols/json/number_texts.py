"""Converts numbers in strings, `["0", "1.5"]` (`$x|numbers`) and `"0,1.5"` (`$x|commas`), to a JSON text of numbers,
and back.

No Python object is created per number: blanks or brackets replace the quotes in the text, and the ordinary reader of
numbers reads the result. That reader cannot detect a string with several numbers, so commas and brackets within quotes
are refused first.
"""

import numpy as np

from gateway.core.errors import DecodeError

_PIECE = 2**20
"""Number of bytes to process in one step."""
_QUOTE = ord('"')


def numbers_of_texts(text: bytes) -> bytes:
    """Return `["0", "1"]` as `[ 0 , 1 ]`. Raises DecodeError for a string that cannot be one number."""
    return _replaced(text, b"[]{},", b"  ")


def numbers_of_lists(text: bytes) -> bytes:
    """Return `["0,1", "2,3"]` as `[[0,1], [2,3]]`. Raises DecodeError for a string that cannot be numbers separated by
    commas."""
    return _replaced(text, b"[]{}", b"[]")


def _replaced(text: bytes, refused: bytes, brackets: bytes) -> bytes:
    """Return `text` with its quotes replaced. Raises DecodeError if a quoted string contains a byte in `refused`."""
    if b"\\" in text:
        raise DecodeError("a text with a backslash, expected a number")
    table = np.zeros(256, np.bool_)
    table[list(refused)] = True
    found = np.frombuffer(text, np.uint8).copy()
    is_open = False
    for start in range(0, len(found), _PIECE):
        piece = found[start : start + _PIECE]
        quotes = piece == _QUOTE
        within = np.logical_xor.accumulate(quotes) ^ is_open
        if (within & table[piece]).any():
            raise DecodeError('a text that is not a number, expected a text like "1.5"')
        is_open = bool(within[-1])
        piece[quotes & within], piece[quotes & ~within] = brackets
    return found.tobytes()


def texts_of_numbers(text: bytes) -> bytes:
    """Return a compact JSON text of numbers, flat or nested, with each number as a string. null stays null."""
    if b"[]" in text:
        return text
    found = text.replace(b",", b'","').replace(b"[", b'["').replace(b"]", b'"]')
    while b'"[' in found:
        found = found.replace(b'"[', b"[").replace(b']"', b"]")
    found = found if found.startswith(b"[") else b'"%b"' % found
    return found.replace(b'"null"', b"null")


def text_with_commas(text: bytes) -> bytes:
    """Return a flat JSON list of numbers as one string."""
    return b'"%b"' % text[1:-1]
