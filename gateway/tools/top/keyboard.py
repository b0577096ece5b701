"""Reads key presses from a terminal, one at a time, without Enter."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

END = "q"
"""The key that is returned when the terminal closes."""

Pressed = Callable[[float], str]
"""Returns the characters typed within this many seconds; empty if no key was pressed."""


@contextmanager
def keyboard() -> Iterator[Pressed]:
    """Read keys from standard input when they are pressed, without showing them. Without a terminal, and on Windows, no
    keys are read."""
    if os.name != "posix" or not sys.stdin.isatty():
        yield _nothing
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    _forbid_suspending(terminal)
    try:
        yield lambda seconds: _typed(terminal, seconds)
    finally:
        # Otherwise, unread characters would go to the shell.
        termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


def _forbid_suspending(terminal: int) -> None:
    """Disable the suspend key, because a suspended command would leave the terminal without a cursor and without
    echo."""
    import termios

    attributes = termios.tcgetattr(terminal)
    attributes[6][termios.VSUSP] = b"\x00"
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


def _typed(terminal: int, seconds: float) -> str:
    if not select.select([terminal], [], [], seconds)[0]:
        return ""
    try:
        typed = os.read(terminal, 64).decode("ascii", "ignore")
    except OSError:
        return END
    if not typed:
        return END
    return "" if typed.startswith("\x1b") else typed  # arrow keys and other keys that send several characters


def _nothing(seconds: float) -> str:
    time.sleep(seconds)
    return ""
