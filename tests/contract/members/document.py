"""Writes docs/carried.md, which lists all message members in tables; `tests.contract.document` calls it."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from tests.contract.members.tables import ELSE, TABLES, Row, Statement, Table

FILE = Path(__file__).parents[3] / "docs" / "carried.md"

HEAD = """\
# Message field compatibility

The gateway translates messages between protocols. This page lists all message members of each protocol (schema fields,
parameters, headers and attachments), and shows what the gateway does with each member:

- **carried**: the gateway translates the member into the protocol of the server or client that receives the message.
- **refused**: the client gets an error that explains why. The gateway does not call the model (for a request member) or
  does not forward the model's response (for a response member).
- **left out**: the gateway drops the member, for the given reason. It drops no other members.

The column *same protocol* applies if client and server use the same protocol. The column *other protocols* lists the
protocols of the server (for requests) or of the client (for responses).

`make matrix` writes the page from the tables in `tests/contract/members`. A test fails if this page and the schemas or
OpenAPI documents of the protocols do not list the same members. Rows with ✓ are tested for every pair of protocols: the
test sends two messages that differ only in this member through a gateway, and compares the results.
"""


def page() -> str:
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
        return _reason_in_parentheses(statement).replace("|", "\\|")
    by_text: dict[str, list[str]] = {}
    for name, text in statement.items():
        if name != ELSE:
            by_text.setdefault(text, []).append(f"`{name}`")
    named = [f"{', '.join(names)}: {_reason_in_parentheses(text)}" for text, names in by_text.items()]
    return "<br>".join([*named, f"others: {_reason_in_parentheses(statement[ELSE])}"])


def _reason_in_parentheses(text: str) -> str:
    effect, _, reason = text.partition(": ")
    return f"{effect} ({reason})" if reason else effect


def write() -> None:
    """Write the page."""
    FILE.write_text(page())
