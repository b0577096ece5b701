"""Splits texts of many lines into pieces of whole lines.

Each piece is processed in one call into C, during which no other thread runs.
"""

from collections.abc import Iterator

_PIECE = 2**17  # bytes; patterns take less than a millisecond for this size, the Python values a few megabytes


def in_pieces(text: bytes, start: int = 0) -> Iterator[bytes]:
    """Yield the lines of `text` from `start` on, in pieces of _PIECE bytes or of one line. `text` ends with a line
    feed."""
    at = start
    while at < len(text):
        end = text.rfind(b"\n", at, at + _PIECE) + 1 or text.find(b"\n", at) + 1
        yield text[at:end]
        at = end
