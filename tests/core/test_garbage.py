"""Collections of garbage while much is built."""

import gc
import threading

import pytest

from gateway.core.long_work import small_collections


def test_the_thresholds_are_those_of_before_afterwards() -> None:
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), small_collections():
        1 // (gc.get_threshold() == before)
    assert gc.get_threshold() == before


def test_old_objects_are_not_looked_at_within() -> None:
    looked: list[int] = []

    own = threading.get_ident()

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and threading.get_ident() == own:  # an earlier test may have left a thread that collects
            looked.append(info["generation"])

    gc.callbacks.append(note)
    try:
        with small_collections():
            kept = [[each] for each in range(200_000)]
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == 200_000
    assert set(looked) == {0, 1}
