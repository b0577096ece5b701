"""What is wrong with a configuration: every problem with its file, line and column."""

from collections.abc import Iterable
from difflib import get_close_matches

from gateway.config.document import Location
from gateway.core.frozen import frozen


@frozen
class Problem:
    """`line` and `column` count from 1, columns in characters. `is_warning`: the configuration works with it."""

    file: str
    line: int
    column: int
    message: str
    is_warning: bool = False

    def __str__(self) -> str:
        warning = "warning: " if self.is_warning else ""
        return f"{self.file}:{self.line}:{self.column}: {warning}{self.message}"


class ConfigError(Exception):
    """A configuration that cannot be used; `problems` are all that was found, in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = ordered(problems)
        super().__init__("\n".join(map(str, self.problems)))


def ordered(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Each problem once, in the order of the file."""
    return tuple(sorted(set(problems), key=lambda problem: (problem.line, problem.column, problem.message)))


@frozen
class Finding:
    """Something wrong at a location. `{value}` in `message` stands for the value there; `at_key`: the key is meant."""

    location: Location
    message: str
    at_key: bool = False


def suggestion(word: str, known: Iterable[str]) -> str:
    """How a message about the unknown `word` goes on: the likeliest of `known`, else all of them."""
    options = sorted(known)
    close = get_close_matches(word, options, n=1, cutoff=0.7)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; expected {listed(options)}" if options else "; there are none"


def listed(options: Iterable[str]) -> str:
    """`a, b or c`."""
    *most, last = options
    return f"{', '.join(most)} or {last}" if most else last
