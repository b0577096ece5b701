"""Explain libyaml's syntax errors: the position, the mistake, and the fix.

libyaml reports what its grammar expected next, often at the token after the mistake. This module has a rule for each
libyaml message, which recognizes common mistakes in the YAML text near the error's position.
"""

import re
from collections.abc import Callable
from typing import Any, TypeAlias

import yaml

from gateway.core.frozen import frozen

_LONGEST = 60


@frozen
class TextPlace:
    """A position in the text, counted from 0."""

    line: int
    column: int


Told: TypeAlias = tuple[TextPlace, str] | None
"""The position and the message; None if the rule does not recognize the mistake."""


def explained(text: str, error: yaml.MarkedYAMLError) -> tuple[TextPlace, str]:
    """Return the position of, and the reason for, a syntax error in `text`, which libyaml refused with `error`."""
    lines = text.splitlines()
    problem, context = _place(error.problem_mark), _place(error.context_mark)
    for words, rule in _RULES:
        if words in f"{error.context or ''}: {error.problem or ''}":
            told = rule(lines, problem, context)
            if told is not None:
                return told
    return problem, "not YAML: " + ", ".join(part for part in (error.context, error.problem) if part)


def _place(mark: Any) -> TextPlace:
    return TextPlace(mark.line, mark.column) if mark else TextPlace(0, 0)


def quoted(token: str) -> str:
    """Return `token` as a quoted YAML scalar."""
    return "'" + token.replace("'", "''") + "'"


def _rest(lines: list[str], at: TextPlace) -> str:
    return lines[at.line][at.column :] if at.line < len(lines) else ""


def _before(lines: list[str], at: TextPlace) -> str:
    return lines[at.line][: at.column] if at.line < len(lines) else ""


def _word(lines: list[str], at: TextPlace) -> str:
    """Return the unquoted value that starts at `at`, up to its end inside brackets or before a comment."""
    found = re.match(r"[^\s,\[\]{}]+", _rest(lines, at))
    return found[0][:_LONGEST] if found else _rest(lines, at)[:1]


def _reserved(lines: list[str], problem: TextPlace, context: TextPlace) -> Told:
    """Explain a value that starts with a character that YAML reserves for other uses."""
    return _to_quote(lines, context)


def _to_quote(lines: list[str], at: TextPlace) -> Told:
    word = _word(lines, at)
    if not word:
        return None
    return at, f"text cannot begin with {word[0]!r} in YAML; quote it: {quoted(word)}"


def _no_token(lines: list[str], problem: TextPlace, context: TextPlace) -> Told:
    return _tab(lines, problem, context) or _to_quote(lines, problem)


def _tab(lines: list[str], problem: TextPlace, context: TextPlace) -> Told:
    if problem.line >= len(lines):
        return None
    line = lines[problem.line]
    indentation = line[: len(line) - len(line.lstrip())]
    if "\t" not in indentation:
        return None
    return TextPlace(problem.line, indentation.index("\t")), "a tab in the indentation; write spaces"


def _second_colon(lines: list[str], problem: TextPlace, context: TextPlace) -> Told:
    """Explain a second `: ` in a line, inside a value or after an incomplete line."""
    if re.search(r":\s", _before(lines, problem)):
        found = re.search(r":\s+(.*)$", lines[problem.line])
        said = quoted(found[1][:_LONGEST]) if found else "it"
        return problem, f"a second ': ' in this line; quote the value: {said}"
    above = _line_above(lines, problem.line)
    if above is None:
        return None
    return _below_value(lines, problem, above) or _without_colon(lines, above)


def _below_value(lines: list[str], problem: TextPlace, above: int) -> Told:
    """Explain a line that is indented deeper than the line `above`, although that line has a value."""
    key = re.match(r"(\s*(?:- +)*)([^\s:]+):\s+[^\s#]", lines[above])
    indentation = len(lines[problem.line]) - len(lines[problem.line].lstrip())
    if key is None or indentation <= len(key[1]):
        return None
    return problem, f"{key[2]!r} in line {above + 1} already has a value; indent this line less"


def _line_above(lines: list[str], line: int) -> int | None:
    full = [at for at in range(line) if lines[at].strip() and not lines[at].lstrip().startswith("#")]
    return full[-1] if full else None


def _unfinished_key(lines: list[str], problem: TextPlace, context: TextPlace) -> Told:
    return _without_colon(lines, context.line)


def _without_colon(lines: list[str], at: int) -> Told:
    """Explain a line that should be `key: value`."""
    if at >= len(lines):
        return None
    line = lines[at].split(" #")[0].rstrip()
    begin = len(line) - len(line.lstrip(" -"))
    colon = re.match(r"[A-Za-z_][\w.-]*:(?=[^\s:])", line[begin:])
    if colon:
        end = begin + colon.end()
        told = f"{line[begin:end]} {line[end:]}"[:_LONGEST]
        return TextPlace(at, end), f"a space is missing after the colon: write {told}"
    text = line[begin:][:_LONGEST]
    return TextPlace(at, begin), f"expected KEY: VALUE, got {text!r}; is a colon missing?"


_CLOSING = {"[": "]", "{": "}"}


def _unclosed(lines: list[str], problem: TextPlace, context: TextPlace) -> Told:
    """Explain an error inside brackets, where a comma or the closing bracket is missing."""
    opening = _rest(lines, context)[:1]
    closing = _CLOSING.get(opening)
    if closing is None:
        return None
    found = _rest(lines, problem)[:1]
    if found == "{" and _before(lines, problem).endswith("$"):
        return _reference(lines, problem)
    if problem.line > context.line or not found:
        return context, f"{opening!r} is never closed; {closing!r} is missing"
    if found in "]}":
        there = f"the {opening!r} in column {context.column + 1}"
        return problem, f"{found!r} does not close {there}; {closing!r} is missing before it"
    return problem, f"expected ',' or {closing!r} before {found!r}; quote text that has {found!r} in it"


def _reference(lines: list[str], problem: TextPlace) -> Told:
    begin = problem.column - 1
    found = re.match(r"\$\{[^}]*\}", lines[problem.line][begin:])
    return TextPlace(
        problem.line, begin
    ), f"quote a reference inside brackets: {quoted(found[0] if found else '${NAME}')}"


def _no_value(lines: list[str], problem: TextPlace, context: TextPlace) -> Told:
    """Explain an error at the expected start of a value or an item."""
    found = _rest(lines, problem)[:1]
    before = _before(lines, problem)
    if found == ":" and before.endswith("["):
        whole = re.match(r"\[[^\]\s]*\](:\d+)?", before[-1:] + _rest(lines, problem))
        said = quoted(whole[0]) if whole else "'[::1]:80'"
        return TextPlace(problem.line, problem.column - 1), f"'[' begins a list in YAML; quote an IPv6 address: {said}"
    if found in (",", "]", "}"):
        return problem, f"a value is missing before {found!r}; quote text that begins with it"
    return _to_quote(lines, problem) if found else None


def _no_key(lines: list[str], problem: TextPlace, context: TextPlace) -> Told:
    """Explain an error after a complete value, or at an indentation that no other line has."""
    found, before = _rest(lines, problem), _before(lines, problem)
    if not found:
        return None
    if before.strip(" -"):
        if found[0] in "]}":
            return problem, f"{found[0]!r} closes nothing; remove it, or quote the text that contains it"
        return problem, f"{found[:_LONGEST].rstrip()!r} follows a complete value; quote the whole value"
    above = _line_above(lines, problem.line)
    below_value = None if above is None else _below_value(lines, problem, above)
    return below_value or (problem, "the indentation of this line matches no line above it; align it with one")


def _no_item(lines: list[str], problem: TextPlace, context: TextPlace) -> Told:
    return problem, f"expected '- ', like in the list from line {context.line + 1} on, or less indentation"


def _open_quote(lines: list[str], problem: TextPlace, context: TextPlace) -> Told:
    return context, f"the quote {_rest(lines, context)[:1]} has no closing quote; add it"


def _escape(lines: list[str], problem: TextPlace, context: TextPlace) -> Told:
    return context, "a \\ in \"...\" begins an escape that YAML does not have; write \\\\, or quote with '...'"


def _list_in_line(lines: list[str], problem: TextPlace, context: TextPlace) -> Told:
    item = _rest(lines, problem).removeprefix("-").strip()[:_LONGEST]
    return problem, f"begin a list on a new line, or write it in brackets: [{item}]"


_RULES: tuple[tuple[str, Callable[[list[str], TextPlace, TextPlace], Told]], ...] = (
    ("found a tab", _tab),
    ("cannot start any token", _no_token),
    ("while scanning an alias", _reserved),
    ("while scanning an anchor", _reserved),
    ("while scanning a directive", _reserved),
    ("while scanning a block scalar", _reserved),
    ("mapping values are not allowed", _second_colon),
    ("mapping keys are not allowed", _no_value),
    ("could not find expected ':'", _unfinished_key),
    ("expected ',' or ']'", _unclosed),
    ("expected ',' or '}'", _unclosed),
    ("expected node content", _no_value),
    ("did not find expected key", _no_key),
    ("expected '-' indicator", _no_item),
    ("while scanning a quoted scalar", _open_quote),
    ("while parsing a quoted scalar", _escape),
    ("block sequence entries are not allowed", _list_in_line),
)
