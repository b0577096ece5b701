"""The tables: for each member of a message what becomes of it, towards the same wire form and towards others."""

from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from gateway.core.frozen import frozen
from tests.contract.members.forms import Values, merged
from tests.contract.members.trying import Setting

FOLDER = Path(__file__).parent
ELSE = "else"

Statement: TypeAlias = str | Mapping[str, str]
"""`carried`, `refused` or `left out: why`, with a remark after the first two if need be; or these by wire form: a name,
the beginning of names (`v2`), or `else`."""


@frozen
class Row:
    """One member.

    - `same`: what becomes of it between two sides of one wire form; by the name of that form if they differ.
    - `others`: between this wire form and others: for requests by the servers' form, for replies by the clients'.
    - `base`, `variant`: two messages that differ in it alone; None if it is not tried.
    - `only`: the wire forms that have it; empty for all of the table.
    """

    table: str
    message: str
    name: str
    direction: str
    same: Statement
    others: Statement
    base: Values | None
    variant: Values | None
    setting: Setting
    only: tuple[str, ...] = ()


@frozen
class Table:
    """The messages of one or several wire forms.

    - `sources`: the schemas that they come from.
    - `described`: the members of each message of the schemas that have a row. Messages and members that no schema has
      are not among them (`beyond`, `beyond_too`); rows for several messages (`also`) are those of all of them.
    - `borrowed`: messages whose other members another table describes (`members_of`).
    - `examples`: a request and a reply of an inference.
    """

    name: str
    protocols: tuple[str, ...]
    sources: tuple[str, ...]
    rows: tuple[Row, ...]
    described: Mapping[str, frozenset[str]] = field(default_factory=dict)
    borrowed: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, Values] = field(default_factory=dict)


def load(path: Path) -> Table:
    """The table in a file."""
    text = yaml.load(path.read_text(), yaml.CSafeLoader)
    rows: list[Row] = []
    described: dict[str, frozenset[str]] = {}
    for name, message in text["messages"].items():
        members = message["members"]
        if isinstance(members, list):  # all with the statements of the message
            members = {each: {"same": message["same"], "others": message["others"]} for each in members}
        if "beyond" not in message:
            known = frozenset(members) - frozenset(message.get("beyond_too", ()))
            described |= dict.fromkeys((name, *message.get("also", ())), known)
        rows += [_row(path.stem, name, message, each, row, text["base"]) for each, row in members.items()]
    borrowed = {name: each["members_of"] for name, each in _named(text["messages"]) if "members_of" in each}
    return Table(
        path.stem, tuple(text["protocols"]), tuple(text["sources"]), tuple(rows), described, borrowed, text["base"]
    )


def _named(messages: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The messages by their names and those that they stand for also."""
    for name, message in messages.items():
        for each in (name, *message.get("also", ())):
            yield each, message


def _row(
    table: str, message: str, about: Mapping[str, Any], member: str, row: Any, examples: Mapping[str, Values]
) -> Row:
    direction = about.get("direction") or message.partition(" ")[0]
    setting = Setting(row.get("datatype", "FP32"), tuple(row.get("shape", (-1, 2))), row.get("signature", True))
    base = variant = None
    if "try" in row:
        at = about["at"]
        base = placed(placed(examples[direction], "body", row.get("base", {})), at, row.get("with", {}))
        variant = placed(base, at, row["try"])
    only = tuple(row.get("only", ()))
    return Row(table, message, member, direction, row["same"], row["others"], base, variant, setting, only)


def placed(value: Any, at: str, patch: Any) -> Any:
    """`value` with a patch at a place, such as `body.inputs.0`."""
    if not at:
        return merged(value, patch)
    head, _, rest = at.partition(".")
    if isinstance(value, list):
        return [placed(each, rest, patch) if str(place) == head else each for place, each in enumerate(value)]
    known = dict(value or {})
    return known if not patch else {**known, head: placed(known.get(head, {}), rest, patch)}


def stated(statement: Statement, form: str) -> str:
    """The statement about a wire form."""
    if isinstance(statement, str):
        return statement
    names = [name for name in statement if name != ELSE and form.startswith(name)]
    return statement[max(names, key=len, default=ELSE)]


def outcome(statement: str) -> str:
    """The statement without its remark."""
    return statement.partition(":")[0].strip()


def statements(row: Row) -> Iterator[str]:
    """All of a row."""
    for each in (row.same, row.others):
        yield from [each] if isinstance(each, str) else each.values()


TABLES = {path.stem: load(path) for path in sorted(FOLDER.glob("*.yaml"))}
