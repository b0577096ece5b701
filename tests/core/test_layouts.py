"""What is remembered of bodies is bounded, and the oldest is forgotten first."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from gateway.core import layouts
from gateway.core.layouts import AlikeLayoutStore, LayoutStore, ProofAttempts


def test_the_oldest_key_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "MOST", 3)
    store: LayoutStore[str, int] = LayoutStore()
    for at, key in enumerate("abcad"):
        store.remember(key, at)
    assert store == {"b": 1, "c": 2, "d": 4}


def test_threads_may_remember_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "MOST", 50)
    store: LayoutStore[tuple[int, int], int] = LayoutStore()

    def remember_many(thread: int) -> None:
        for at in range(20_000):
            store.remember((thread, at), at)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(remember_many, range(4)))
    finally:
        sys.setswitchinterval(interval)
    assert len(store) == 50


def test_the_oldest_of_those_with_one_key_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "ALIKE", 3)
    store: AlikeLayoutStore[str, int] = AlikeLayoutStore()
    for number in range(5):
        store.remember_alike("a", number)
    store.remember_alike("b", 7)
    assert store == {"a": (4, 3, 2), "b": (7,)}


def test_layouts_with_one_key_count_as_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "MOST", 5)
    store: AlikeLayoutStore[str, int] = AlikeLayoutStore()
    for number, key in enumerate("aabbcad"):
        store.remember_alike(key, number)
    assert store == {"c": (4,), "a": (5, 1, 0), "d": (6,)}


def test_what_is_never_proven_is_tried_ever_more_rarely() -> None:
    attempts: ProofAttempts[str] = ProofAttempts()
    assert [at for at in range(100) if attempts.is_due("a")] == [0, 1, 2, 4, 8, 16, 32, 64]
    assert attempts.is_due("b")
    attempts.succeeded("a")
    assert [at for at in range(10) if attempts.is_due("a")] == [0, 1, 2, 4, 8]
