"""Splits texts of many lines into pieces of whole lines.

There is one call into C for each piece, during which no other thread runs.
"""

from collections.abc import Iterator

_PIECE = 2**17  # bytes; patterns take less than a millisecond for this size, and its Python values take some megabytes


def in_pieces(text: bytes, start: int = 0) -> Iterator[bytes]:
    """Yield the lines of `text`, which ends with a line feed, from `start` on, in pieces of _PIECE or one line."""
    at = start
    while at < len(text):
        end = text.rfind(b"\n", at, at + _PIECE) + 1 or text.find(b"\n", at) + 1
        yield text[at:end]
        at = end
