"""Writes docs/carried.md: the tables of all members, for people."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tests.contract.members.tables import ELSE, TABLES, Row, Statement, Table

FILE = Path(__file__).parents[3] / "docs" / "carried.md"

HEAD = """\
# Message field compatibility

This page lists all message members of each protocol: the fields of the schema, parameters, headers and attachments.
`make matrix` writes the page from the tables in `tests/contract/members`. A test fails if a schema or an OpenAPI
document has a member without a row on this page, or if a row has no member. Rows with ✓ are tested for every pair of
protocols: the test sends two messages that differ only in this member through a gateway, and checks the effect.

- **carried**: the other side gets the member, in the form that its protocol uses.
- **refused**: the client gets an error that explains this. The gateway does not call the model, or does not forward
  the model's response.
- **left out**: the other side does not get the member, for the given reason. The gateway leaves out no other members.

The column *same protocol* applies if client and server use the same protocol. For a request, *other protocols* are
servers with another protocol, and for a response, clients with another protocol.
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
        yield "| member | same protocol | other protocols | tested |"
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
    return "<br>".join([*named, f"others: {statement[ELSE]}"])


def write() -> None:
    """Write the page."""
    FILE.write_text(page())
