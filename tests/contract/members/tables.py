"""Loads the tables: what the gateway does with each message member, for the same protocol and for other protocols."""

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
"""`carried`, `refused` or `left out: reason`; `carried` and `refused` can also have a note. Or a map with these texts
by protocol: a name, the beginning of several names (`v2`), or `else`."""


@frozen
class Row:
    """One member.

    - `same`: the statement if both sides use the same protocol; by protocol if the statements differ.
    - `others`: the statement for other protocols, by the server's protocol for requests, and the client's for replies.
    - `base`, `variant`: two messages that differ only in this member; None if it is not tested.
    - `only`: the protocols with this member; empty for all protocols of the table.
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
    """The messages of one or several protocols.

    - `sources`: the schemas of the messages.
    - `described`: the members with a row, by message of the schemas. It leaves out messages and members that are not in
      the schemas (`beyond`, `beyond_too`). Rows for several messages (`also`) count for each of them.
    - `borrowed`: messages whose other members are described in another table (`members_of`).
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
    text = yaml.load(path.read_text(), yaml.CSafeLoader)
    rows: list[Row] = []
    described: dict[str, frozenset[str]] = {}
    for name, message in text["messages"].items():
        members = message["members"]
        if isinstance(members, list):  # all members have the statements of the message
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
    """Yield the messages by their names, and by the names in `also`."""
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
    """Return `value` with a patch at a path such as `body.inputs.0`."""
    if not at:
        return merged(value, patch)
    head, _, rest = at.partition(".")
    if isinstance(value, list):
        return [placed(each, rest, patch) if str(place) == head else each for place, each in enumerate(value)]
    known = dict(value or {})
    return known if not patch else {**known, head: placed(known.get(head, {}), rest, patch)}


def stated(statement: Statement, form: str) -> str:
    """Return the statement for a protocol."""
    if isinstance(statement, str):
        return statement
    names = [name for name in statement if name != ELSE and form.startswith(name)]
    return statement[max(names, key=len, default=ELSE)]


def outcome(statement: str) -> str:
    return statement.partition(":")[0].strip()


def statements(row: Row) -> Iterator[str]:
    for each in (row.same, row.others):
        yield from [each] if isinstance(each, str) else each.values()


TABLES = {path.stem: load(path) for path in sorted(FOLDER.glob("*.yaml"))}
