"""Problems in a configuration, with file, line and column. The checks return Findings; `loading` converts them to
Problems."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field
from difflib import get_close_matches
from pathlib import Path

from gateway.config.document import Location
from gateway.config.fields import VALUE
from gateway.core.frozen import frozen
from gateway.core.protocol import Protocol, SettingError

MOST_PROBLEMS = 100
"""Maximum number of problems that are reported for a configuration. A file that is not a configuration can contain a
hundred thousand."""

_CREDENTIALS = re.compile(r"//[^/\s']*@")
"""`user:password@` of a URL."""


def without_credentials(text: str) -> str:
    """Return `text` with `***` instead of the user and password in every URL."""
    return _CREDENTIALS.sub("//***@", text)


@frozen
class Problem:
    """A message about a position in a file. `line` and `column` count from 1, columns in characters. `is_warning` is
    True if the configuration is usable despite the problem. `location` contains the keys and indexes of the position;
    it is empty outside of all keys."""

    file: str
    line: int
    column: int
    message: str
    is_warning: bool = False
    location: Location = field(default=(), compare=False)

    def __str__(self) -> str:
        warning = "warning: " if self.is_warning else ""
        return f"{self.file}:{self.line}:{self.column}: {warning}{without_credentials(self.message)}"


class ConfigError(Exception):
    """The configuration is invalid. `problems` contains all errors, and warnings that might explain them, in the order
    of the file. `files` contains the other files that the problems mention. If one of these files changes, the
    configuration might become valid."""

    def __init__(self, problems: Iterable[Problem], files: Iterable[str] = ()) -> None:
        self.problems = first_of(problems)
        self.files = frozenset(map(Path, files))
        super().__init__("\n".join(map(str, self.problems)))


def first_of(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems in the order of the file. If there are more than MOST_PROBLEMS, return the first errors, and
    a problem that says that more exist."""
    found = ordered(problems)
    if len(found) <= MOST_PROBLEMS:
        return found
    kept = ordered(sorted(found, key=lambda problem: problem.is_warning)[:MOST_PROBLEMS])
    last = kept[-1]
    text = f"there are more than these {MOST_PROBLEMS} problems; fix these first"
    return *kept, Problem(last.file, last.line, last.column, text, all(each.is_warning for each in kept))


def ordered(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems without duplicates, in the order of the file."""
    return tuple(sorted(set(problems), key=lambda problem: (problem.line, problem.column, problem.message)))


@frozen
class Finding:
    """A message about a location in the configuration. `{value}` in the message is a placeholder for the value at the
    location. `at_key` is True if the message is about the key, not its value. `files` contains the other files that the
    message is about."""

    location: Location
    message: str
    at_key: bool = False
    files: tuple[str, ...] = ()


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return the suggestion in a message about an unknown word: the most similar known word, or a list of all of
    `known`."""
    options = sorted(known)
    close = get_close_matches(word, options, n=1, cutoff=0.7)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; expected {listed(options)}" if options else "; define one first"


def unknown(location: Location, what: str, name: str, known: Collection[str]) -> Iterator[Finding]:
    """Yield a finding if `name`, the value at `location`, is not one of `known`."""
    if name not in known:
        yield Finding(location, f"unknown {what} {VALUE}{suggestion(name, known)}")


def unused(location: Location, why: str) -> Finding:
    """Return the warning about a key without effect."""
    return Finding(location, f"{location[-1]!r} has no effect: {why}", at_key=True)


def wrong_settings(location: Location, protocol: Protocol, values: Mapping[str, str]) -> Iterator[Finding]:
    """Find settings that the protocol does not support, or whose values are invalid."""
    known = [] if protocol.settings is None else [each.name for each in protocol.settings.keys]
    if values and not known:
        yield Finding(location, f"{protocol.name} has no settings; remove the key", at_key=True)
        return
    for key in values:
        if key not in known:
            text = f"{protocol.name} has no setting {key!r}{suggestion(key, known)}"
            yield Finding((*location, key), text, at_key=True)
    try:
        protocol.with_settings(values)
    except SettingError as error:
        yield Finding((*location, error.key), str(error))


def listed(options: Iterable[str]) -> str:
    """Return the options in the form `a, b or c`."""
    *most, last = options
    return f"{', '.join(most)} or {last}" if most else last
