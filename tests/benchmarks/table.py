"""How every benchmark prints: a heading, and each row when it is there."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol


class Shown(Protocol):
    def shown(self) -> str: ...


def show(heading: str, measure: Callable[[Path], Iterable[Shown]]) -> None:
    """`measure` gets a folder of its own."""
    print(f"\n{heading}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for each in measure(Path(folder)):
            print(each.shown(), flush=True)
