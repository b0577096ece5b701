"""Bodies as bytes, whatever buffer they come in and however long they are."""

import random

import pytest

from gateway.core.messages import Buffer, as_bytes

STEP = 2**20


@pytest.mark.parametrize("size", [0, 1, STEP - 1, STEP, STEP + 1, 3 * STEP, 3 * STEP + 7])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_body_is_the_same_as_bytes(size: int, kind: type[Buffer]) -> None:
    octets = random.Random(size).randbytes(size)
    found = as_bytes(kind(octets))
    assert type(found) is bytes
    assert found == octets
