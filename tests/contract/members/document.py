"""Writes docs/carried.md: the tables of all members, for people."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tests.contract.members.tables import ELSE, TABLES, Row, Statement, Table

FILE = Path(__file__).parents[3] / "docs" / "carried.md"

HEAD = """\
# Message field compatibility

For each protocol, this page lists all fields that its messages can have: the fields of its schema, its parameters,
headers and attachments. `make matrix` writes the page from the tables in `tests/contract/members`. A test fails if a
schema or an OpenAPI document has a member without a row on this page, or a row has no member. Rows with ✓ are tested.
For every pair of protocols, the test sends two messages through a gateway that differ only in this member, and checks
that the difference is carried, refused or left out, as the row states.

- **carried**: the member reaches the other side, in the form that the other protocol has for it.
- **refused**: the client gets an error that names the problem. The gateway does not call the model, or does not forward
  its response.
- **left out**: the member does not reach the other side, for the reason given. The gateway leaves out nothing else.

*Same protocol* means that client and server use the same protocol. For a request, *other protocols* are the protocols
of other servers, and for a response, the protocols of other clients.
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
