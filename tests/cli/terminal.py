"""A terminal for tests: a command runs in it, in a process of its own, and its screen can be read."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyte

from tests.cli.commands import ENVIRON, ROOT
from tests.limits import GENEROUS


class Terminal:
    """A terminal of `columns` and `lines`, and the command that runs in it."""

    def __init__(self, process: "subprocess.Popen[bytes]", descriptor: int, columns: int, lines: int) -> None:
        self.process = process
        self.written = b""
        """All that was written to it."""
        self._descriptor = descriptor
        self._screen: Any = pyte.Screen(columns, lines)
        self._stream: Any = pyte.ByteStream(self._screen)

    def text(self) -> str:
        """What stands on the screen."""
        return "\n".join(line.rstrip() for line in self._screen.display)

    def colours(self, word: str) -> set[str]:
        """The colours of the first place where `word` stands on the screen."""
        for at, line in enumerate(self._screen.display):
            column = line.find(word)
            if column >= 0:
                return {self._screen.buffer[at][column + each].fg for each in range(len(word))}
        raise AssertionError(f"{word!r} is not on the screen:\n{self.text()}")

    def until(self, shown: Callable[[str], bool]) -> str:
        """Wait until the screen is so; its text."""
        limit = time.monotonic() + GENEROUS
        while not shown(self.text()):
            if time.monotonic() > limit or not self._read():
                raise AssertionError(f"the screen is:\n{self.text()}")
        return self.text()

    def type(self, keys: str) -> None:
        os.write(self._descriptor, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        self._screen.resize(lines, columns)
        _set_size(self._descriptor, columns, lines)

    def shows_what_is_typed(self) -> bool:
        """Whether the terminal shows what is typed and waits for Enter, as it did before the command began."""
        flags = termios.tcgetattr(self._descriptor)[3]
        return bool(flags & termios.ECHO and flags & termios.ICANON)

    def ended(self) -> int:
        """Wait until the command has ended; its exit code."""
        while self._read():
            pass
        return self.process.wait(GENEROUS)

    def _read(self) -> bool:
        """Read what comes; False if no more will."""
        if not select.select([self._descriptor], [], [], 0.1)[0]:
            return self.process.poll() is None
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # the other end is closed
            return False
        self.written += data
        self._stream.feed(data)
        return True


@contextmanager
def terminal(*arguments: str, columns: int = 80, lines: int = 24) -> Iterator[Terminal]:
    """`gateway` with these arguments in a terminal of its own."""
    ours, theirs = pty.openpty()
    _set_size(ours, columns, lines)
    environ = {key: value for key, value in ENVIRON.items() if key not in ("NO_COLOR", "COLUMNS", "LINES")}
    environ["TERM"] = "xterm-256color"
    command = [sys.executable, "-m", "gateway", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        try:
            yield Terminal(process, ours, columns, lines)
        finally:
            process.kill()
            os.close(theirs)
            os.close(ours)


def _set_size(descriptor: int, columns: int, lines: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
