"""Count the values of a JSON document before it is parsed. Parsing creates an object for each value, and blocks the
event loop even if another thread does the parsing."""

import re

_TEXTS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""Matches each JSON string. An unterminated string extends to the end of the document."""


def has_more_values(text: str, most: int) -> bool:
    """Return True if a JSON document, valid or not, contains more than `most` values. An empty list counts as two
    values."""
    if _marks(text) < most:
        return False
    found = at = 0
    for each in _TEXTS.finditer(text):  # one at a time, so other threads can run in between
        found += _marks(text[at : each.start()])
        if found >= most:
            return True
        at = each.end()
    return found + _marks(text[at:]) >= most


def _marks(text: str) -> int:
    """Return the number of characters that precede a value. Every value except the document itself follows one of these
    characters."""
    return text.count(",") + text.count("[") + text.count("{")
