"""Bytes are found in bodies of every kind, also where a large one is searched in pieces."""

from collections.abc import Callable

import pytest

from gateway.core.messages import Buffer
from gateway.core.words import find_byte, has_byte

KINDS: list[Callable[[bytes], Buffer]] = [bytes, bytearray, memoryview]
AT = [0, 1, 4095, 4096, 2**20 + 4095, 2**20 + 4096, 2**20 + 4097]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", AT)
def test_the_first_place_of_a_byte(kind: Callable[[bytes], Buffer], at: int) -> None:
    body = kind(b"1" * at + b"]" + b"1" * 9 + b"]")
    assert find_byte(body, b"]", 0) == find_byte(body, b"]", at) == at
    assert find_byte(body, b"]", at + 1) == at + 10
    assert find_byte(body, b"]", at + 11) == find_byte(body, b"[", 0) == -1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("at", AT)
def test_one_of_several_bytes_from_a_place_on(kind: Callable[[bytes], Buffer], at: int) -> None:
    body = kind(b"1" * at + b"u" + b"1" * 9)
    assert has_byte(body, b"nu")
    assert has_byte(body, b"nu", at)
    assert not has_byte(body, b"nu", at + 1)
    assert not has_byte(body, b"na")
