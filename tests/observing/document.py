"""`python -m tests.observing.document` writes the table of metrics into docs/observability.md."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from gateway.admin import metrics
from gateway.observing import request_metrics
from gateway.observing.families import Family

PAGE = Path(__file__).parents[2] / "docs" / "observability.md"
BEGIN, END = "<!-- metrics: begin -->\n", "<!-- metrics: end -->\n"


def _defined(module: ModuleType) -> Iterator[Family]:
    """The metrics that a module defines, in order."""
    for each in vars(module).values():
        members = each.values() if isinstance(each, dict) else each if isinstance(each, tuple) else (each,)
        yield from (member for member in members if isinstance(member, Family))


FAMILIES = (*_defined(request_metrics), *_defined(metrics))
"""All metrics."""


def table() -> str:
    return "| metric | kind | labels | meaning |\n|---|---|---|---|\n" + "".join(map(_row, FAMILIES))


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.text} |\n"


def documented(page: str) -> str:
    """The page with the table between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(documented(PAGE.read_text()))
