"""The names in PromQL expressions: which metrics, and which labels of them. It reads what the dashboard and the alerts
use of the language, and refuses what it does not know."""

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*")
    | (?P<range>\[[^\]]*\])
    | (?P<number>[0-9][0-9.]*)
    | (?P<name>[A-Za-z_:][A-Za-z0-9_:]*)
    | (?P<mark>=~|!~|!=|==|<=|>=|[-+*/%^<>=(){},])
    )""",
    re.VERBOSE,
)
FUNCTIONS = {"absent", "count", "histogram_quantile", "max", "rate", "sum", "topk"}
GROUPING = {"by", "without"}
OF_TARGETS = {"instance", "job", "le"}
"""Labels that every metric may have."""


@dataclass(frozen=True)
class Names:
    """`selected`: the metrics, each with the labels that its selector has. `grouped`: the labels in `by (...)`."""

    selected: tuple[tuple[str, frozenset[str]], ...]
    grouped: frozenset[str]


def tokens(expression: str) -> list[tuple[str, str]]:
    """The kind and text of each token. Raises ValueError for what is none."""
    found, at, text = [], 0, expression.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"no PromQL at {text[at:]!r}")
        assert match.lastgroup is not None
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


def names(expression: str) -> Names:
    """The names in an expression. Raises ValueError for a function that is not known here."""
    found, selected, grouped = tokens(expression), [], set[str]()
    at = 0
    while at < len(found):
        kind, text = found[at]
        following = found[at + 1][1] if at + 1 < len(found) else ""
        if kind == "name" and text in GROUPING:
            at += 2
            while found[at][1] != ")":
                grouped |= {found[at][1]} - {","}
                at += 1
        elif kind == "name" and (following == "(" or following in GROUPING):
            if text not in FUNCTIONS:
                raise ValueError(f"{text} is no function that is known here")
        elif kind == "name":
            labels = set[str]()
            if following == "{":
                at += 2
                while found[at][1] != "}":
                    if found[at][0] == "name":
                        labels.add(found[at][1])
                    at += 1
            selected.append((text, frozenset(labels)))
        at += 1
    return Names(tuple(selected), frozenset(grouped))
