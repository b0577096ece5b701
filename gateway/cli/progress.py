"""A line on standard error while a command does what takes long: what it does, how far it is, and since when.

It is shown from the first second on, on a terminal only, and is gone at the end.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import TextIO

from gateway.cli.printed import printable
from gateway.core.frozen import frozen

AFTER = 1.0
"""Seconds before the line is shown: what ends sooner needs none."""
EVERY = 0.2
BAR = 30
"""Characters of the bar."""
_CLEAR = "\r\x1b[K"


@frozen
class ProgressStep:
    """How far something is: `text` says what is being done now, `done` is the share of all, from 0 to 1, None if that
    is not known."""

    text: str
    done: float | None = None


class ProgressLine:
    """The line of something that is being done."""

    def __init__(self, what: str, stream: TextIO) -> None:
        self._what = what
        self._stream = stream
        self._step = ProgressStep("")
        self._look: Callable[[], ProgressStep] = lambda: self._step
        self._began = time.monotonic()
        self._is_drawn = False
        self._drawing = Lock()

    def show(self, text: str, done: float | None = None) -> None:
        """Tell what is being done now, and how far it is, as a ProgressStep."""
        self._step = ProgressStep(text, done)

    def show_each(self, look: Callable[[], ProgressStep]) -> None:
        """Ask `look` for the ProgressStep whenever the line is drawn, in another thread."""
        self._look = look

    def counted(self, total: int, unit: str) -> Callable[[], None]:
        """Show 0 of `total`; each call of what is returned counts one more as done."""
        done = 0

        def count() -> None:
            nonlocal done
            done += 1
            self.show(f"{done} of {total} {unit}", done / total)

        self.show(f"0 of {total} {unit}", 0.0 if total else None)
        return count

    def print(self, text: str) -> None:
        """Print on standard output, above the line."""
        with self._drawing:
            self._clear()
            print(text, flush=True)

    def draw(self) -> None:
        """Draw the line as it is now."""
        text = line(self._what, self._look(), time.monotonic() - self._began)
        with self._drawing:
            self._stream.write(_CLEAR + text[: _width(self._stream) - 1])
            self._stream.flush()
            self._is_drawn = True

    def clear(self) -> None:
        """Take the line away."""
        with self._drawing:
            self._clear()

    def _clear(self) -> None:
        if self._is_drawn:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._is_drawn = False


@contextmanager
def progress(what: str, after: float = AFTER) -> Iterator[ProgressLine]:
    """Show a line while the block runs, from `after` seconds on. What the block prints goes through the line's
    `print`; errors are printed after the block."""
    shown = ProgressLine(what, sys.stderr)
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield shown
        return
    ends = Event()

    def draw() -> None:
        wait = after
        while not ends.wait(wait):
            shown.draw()
            wait = EVERY

    drawing = Thread(target=draw, daemon=True, name="progress")
    drawing.start()
    try:
        yield shown
    finally:
        ends.set()
        drawing.join()
        shown.clear()


def line(what: str, step: ProgressStep, seconds: float) -> str:
    """The text of the line after so many seconds. Servers choose the names of their models, so what would move the
    cursor is left out."""
    since = f"  {seconds:.0f} s"
    if step.done is None:
        text = f"{what}: {step.text}" if step.text else what
    else:
        full = min(BAR, int(step.done * BAR))
        text = f"{what}  [{'#' * full:{BAR}}] {min(100, int(step.done * 100)):3}%  {step.text}"
    return printable(text) + since


def _width(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80
