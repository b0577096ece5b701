"""Plain YAML scalars by the core schema of YAML 1.2 (section 10.3.2), which avoids the traps of YAML 1.1: `no`, `on`,
`12:30`, `1_000` and `2024-01-01` are text, and `1e3` is a number."""

import re
from collections.abc import Callable
from typing import TypeAlias

Scalar: TypeAlias = bool | int | float | str | None

_SPECIAL: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}

# An integer with more digits than any datatype can hold stays text, because Python refuses to convert thousands of
# digits.
_NUMBERS: tuple[tuple[re.Pattern[str], Callable[[str], int | float]], ...] = (
    (re.compile(r"[-+]?[0-9]{1,40}"), int),
    (re.compile(r"0o[0-7]{1,40}"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]{1,40}"), lambda text: int(text[2:], 16)),
    (re.compile(r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)"), float),
    (re.compile(r"[-+]?\.(inf|Inf|INF)"), lambda text: float(text.replace(".", ""))),
    (re.compile(r"\.(nan|NaN|NAN)"), lambda text: float("nan")),
)


def other_words(flag: bool) -> str:
    """Return the words that are the boolean `flag` in YAML 1.1 but text in YAML 1.2, as a clause for an error
    message."""
    words, boolean = ("y, yes and on", "true") if flag else ("n, no and off", "false")
    return f"YAML 1.1, which Helm reads, turns {words} into {boolean}"


def resolve(text: str) -> Scalar:
    """Return the value of the plain scalar `text`."""
    if text in _SPECIAL:
        return _SPECIAL[text]
    for pattern, number in _NUMBERS:
        if pattern.fullmatch(text):
            return number(text)
    return text
