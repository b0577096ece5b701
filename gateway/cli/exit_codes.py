"""Functions that print an error on standard error, and end the command with an exit code.

| code | meaning |
|---|---|
| 0 | success, or a positive result |
| 1 | a negative result: something failed, differs or is invalid |
| 2 | wrong usage: an invalid option or argument, or an unreadable file |
| 3 | the server is unreachable |
| 4 | no response in time |
| 130 | interrupted by Ctrl-C |
"""

import os
import sys
from typing import NoReturn, TextIO

from gateway.tools.printed import printable_lines

FAILED, USAGE, UNREACHABLE, TIMED_OUT, INTERRUPTED = 1, 2, 3, 4, 130
_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


def end(code: int, message: object) -> NoReturn:
    """Print `message` on standard error, in red if colors are supported, and exit with `code`."""
    print(in_red(printable_lines(str(message))), file=sys.stderr)
    raise SystemExit(code)


def in_red(text: str) -> str:
    """Return `text` formatted as an error for standard error, in red if colors are supported."""
    return f"{_RED}{text}{_PLAIN}" if shows_colours(sys.stderr) else text


def fail(message: object) -> NoReturn:
    """Print `message` on standard error, and exit with FAILED."""
    end(FAILED, message)


def misuse(message: object) -> NoReturn:
    """Print `message` on standard error, and exit with USAGE."""
    end(USAGE, message)


def shows_colours(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that supports colors, and NO_COLOR is not set (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
