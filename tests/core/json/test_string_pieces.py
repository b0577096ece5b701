"""Nested texts are written some rows at a time, and short texts are kept without the room that they were written in."""

import json
import tracemalloc
from math import prod

import numpy as np
import pytest

from gateway.core.json import kept, nested_string_pieces
from gateway.core.json.writing import PIECE


@pytest.mark.parametrize(
    "shape",
    [
        (0,), (3,), (0, 2), (2, 0), (2, 3), (PIECE + 1, 1), (2, PIECE + 1), (1, 2, 3), (PIECE, 2, 1), (2, 0, 3),
        (2, 2, PIECE + 1), (1, 3 * PIECE), (0, PIECE + 1), (2, PIECE + 1, 2),
    ],
)  # fmt: skip
@pytest.mark.parametrize("length", [PIECE, 1000])
def test_pieces_are_the_array(shape: tuple[int, ...], length: int) -> None:
    texts = [f'{at}"é' for at in range(prod(shape))]
    pieces = list(nested_string_pieces((texts[at : at + length] for at in range(0, len(texts), length)), shape))
    assert json.loads(b"".join(pieces)) == np.array(texts, object).reshape(shape).tolist()
    assert len(pieces) <= 2 + -(-prod(shape) // (PIECE // 2))


def test_kept_texts_are_equal() -> None:
    for text in (b"", b"1", b"a" * 2000):
        assert kept(text) == text


def test_one_long_row_is_written_in_pieces() -> None:
    """In one list, its texts take 8 bytes each; the text of a piece takes 8 MiB while orjson writes it."""
    count = 256 * PIECE
    given = ([""] * PIECE for _ in range(256))
    tracemalloc.start()
    size = sum(len(each) for each in nested_string_pieces(given, (1, count)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == 3 * count - 1 + 4
    assert peak < 4 * count
