"""Counts what JSON consists of before it is read: reading makes an object of each value, and holds the event loop up in
any thread."""

import re

_TEXTS = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""Each text; one without an end goes to the end of the document."""


def has_more_values(text: str, most: int) -> bool:
    """Whether a document of JSON, valid or not, has more than `most` values. An empty list counts as two."""
    if _marks(text) < most:
        return False
    found = at = 0
    for each in _TEXTS.finditer(text):  # one by one, so that other threads have their turn
        found += _marks(text[at : each.start()])
        if found >= most:
            return True
        at = each.end()
    return found + _marks(text[at:]) >= most


def _marks(text: str) -> int:
    """Every value but the document itself follows one of these."""
    return text.count(",") + text.count("[") + text.count("{")
