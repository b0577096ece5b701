"""Nested texts are written some rows at a time, and short texts are kept without the room that they were written in."""

import json
from math import prod

import numpy as np
import pytest

from gateway.core.json import kept, nested_string_pieces
from gateway.core.json.writing import PIECE


@pytest.mark.parametrize(
    "shape", [(0,), (3,), (0, 2), (2, 0), (2, 3), (PIECE + 1, 1), (2, PIECE + 1), (1, 2, 3), (PIECE, 2, 1), (2, 0, 3)]
)
def test_pieces_are_the_array(shape: tuple[int, ...]) -> None:
    texts = [f'{at}"é' for at in range(prod(shape))]
    pieces = list(nested_string_pieces(texts, shape))
    assert json.loads(b"".join(pieces)) == np.array(texts, object).reshape(shape).tolist()
    assert len(pieces) <= 2 + -(-prod(shape) // (PIECE // 2))


def test_kept_texts_are_equal() -> None:
    for text in (b"", b"1", b"a" * 2000):
        assert kept(text) == text
