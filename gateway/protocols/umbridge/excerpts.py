"""What a peer sent, short enough for an error's text."""

from reprlib import Repr

_short = Repr()
_short.maxstring = _short.maxother = 60


def excerpt(found: object) -> str:
    """`found` as Python shows it, with the middle of long and deep values left out."""
    return _short.repr(found)
