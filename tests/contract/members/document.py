"""Writes docs/carried.md: the tables of all members, for people."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tests.contract.members.tables import ELSE, TABLES, Row, Statement, Table

FILE = Path(__file__).parents[3] / "docs" / "carried.md"

HEAD = """\
# Message field compatibility

For each protocol, all that its messages can say: the fields of its schema, its parameters, headers and attachments.
`make matrix` writes this page from the tables in `tests/contract/members`. A test fails if a schema or an OpenAPI
document has a member without a row here, or a row has no member. Rows with ✓ are tried: two messages that differ in
this member alone go through a gateway, for every pair of wire forms, and the difference must be carried, refused or
left out as the row says.

- **carried**: it reaches the other side, in the form that the other protocol has for it.
- **refused**: the client gets an error that says so; the model is not called, or its reply is not passed on.
- **left out**: it does not reach the other side, for the reason given. Nothing else is left out.

*Between equals* is the same wire form on both sides. *Others* are, for a request, the servers of other wire forms, and
for a reply, the clients of other wire forms.
"""


def page() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *(line for table in TABLES.values() for line in _of_table(table))])


def _of_table(table: Table) -> Iterator[str]:
    if not table.rows:
        return
    title = f"`{table.name}`"
    others = [f"`{name}`" for name in table.protocols if name != table.name]
    yield f"## {title}" + (f": {', '.join(others)}" if others else "") + "\n"
    for message, rows in groupby(table.rows, lambda row: row.message):
        yield f"### {message.replace('{', '').replace('}', '')}\n"
        yield "| member | between equals | others | |"
        yield "| --- | --- | --- | --- |"
        yield from [_line(row) for row in rows]
        yield ""


def _line(row: Row) -> str:
    mark = "✓" if row.variant is not None else ""
    return f"| `{row.name}` | {_text(row.same)} | {_text(row.others)} | {mark} |"


def _text(statement: Statement) -> str:
    if isinstance(statement, str):
        return statement.replace("|", "\\|")
    named = [f"`{name}`: {text}" for name, text in statement.items() if name != ELSE]
    return "<br>".join([*named, f"else {statement[ELSE]}"])


def write() -> None:
    """Write the page."""
    FILE.write_text(page())
