import pytest

from gateway.core.http2.connection import UnsentData


@pytest.mark.parametrize("step", [1, 2, 3, 5, 100])
def test_unsent_data_are_taken_piece_by_piece_without_copies(step: int) -> None:
    parts = (b"one", memoryview(b""), memoryview(b"three"), bytearray(b"four"))
    unsent = UnsentData(parts)
    assert unsent.size == 12
    taken = []
    while unsent.size:
        pieces = unsent.take(step)
        assert 0 < sum(map(len, pieces)) <= step
        taken += pieces
    assert b"".join(taken) == b"onethreefour"
    assert {id(piece.obj) for piece in taken[-1:]} == {id(parts[-1])}
