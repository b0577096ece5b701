"""What is remembered of bodies is bounded, and the oldest is forgotten first."""

import pytest

from gateway.core import layouts
from gateway.core.layouts import AlikeLayoutStore, LayoutStore, ProofAttempts


def test_the_oldest_key_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "MOST", 3)
    store: LayoutStore[str, int] = LayoutStore()
    for at, key in enumerate("abcad"):
        store.remember(key, at)
    assert store == {"b": 1, "c": 2, "d": 4}


def test_the_oldest_of_those_with_one_key_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "ALIKE", 3)
    store: AlikeLayoutStore[str, int] = AlikeLayoutStore()
    for number in range(5):
        store.remember_alike("a", number)
    store.remember_alike("b", 7)
    assert store == {"a": (4, 3, 2), "b": (7,)}


def test_what_is_never_proven_is_tried_ever_more_rarely() -> None:
    attempts: ProofAttempts[str] = ProofAttempts()
    assert [at for at in range(100) if attempts.is_due("a")] == [0, 1, 2, 4, 8, 16, 32, 64]
    assert attempts.is_due("b")
    attempts.succeeded("a")
    assert [at for at in range(10) if attempts.is_due("a")] == [0, 1, 2, 4, 8]
