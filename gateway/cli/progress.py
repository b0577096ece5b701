"""A progress line on standard error during slow work, with the current step, the progress and the elapsed time.

The line appears after one second, only on a terminal, and disappears when the work ends.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import TextIO

from gateway.core.frozen import frozen
from gateway.tools.printed import printable

AFTER = 1.0
"""Seconds until the line appears. Shorter work needs no line."""
EVERY = 0.2
BAR = 30
"""Width of the bar, in characters."""
_CLEAR = "\r\x1b[K"


@frozen
class ProgressStep:
    """The progress of some work. `text` describes the current step. `done` is the completed fraction, or None if
    unknown."""

    text: str
    done: float | None = None


class ProgressLine:
    """The progress line for some work."""

    def __init__(self, what: str, stream: TextIO) -> None:
        self._what = what
        self._stream = stream
        self._step = ProgressStep("")
        self._look: Callable[[], ProgressStep] = lambda: self._step
        self._began = time.monotonic()
        self._is_drawn = False
        self._drawing = Lock()

    def show(self, text: str, done: float | None = None) -> None:
        """Set the current step and the progress (see ProgressStep)."""
        self._step = ProgressStep(text, done)

    def show_each(self, look: Callable[[], ProgressStep]) -> None:
        """Set `look` as the function that returns the ProgressStep. Another thread calls `look` whenever it draws the
        line."""
        self._look = look

    def counted(self, total: int, unit: str) -> Callable[[], None]:
        """Show 0 of `total`. Each call of the returned function adds 1 to the number shown."""
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
        """Draw the current line."""
        text = line(self._what, self._look(), time.monotonic() - self._began)
        with self._drawing:
            self._stream.write(_CLEAR + text[: _width(self._stream) - 1])
            self._stream.flush()
            self._is_drawn = True

    def clear(self) -> None:
        """Remove the line."""
        with self._drawing:
            self._clear()

    def _clear(self) -> None:
        if self._is_drawn:
            self._stream.write(_CLEAR)
            self._stream.flush()
            self._is_drawn = False


@contextmanager
def progress(what: str, after: float = AFTER) -> Iterator[ProgressLine]:
    """Show a line while the block runs, after the first `after` seconds. In the block, print only through the line's
    `print`; print error messages after the block."""
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
    """Return the text of the line after `seconds`. The text can contain model names, which servers choose, so the
    result contains no control characters."""
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
