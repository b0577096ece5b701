"""The gateway drops nothing silently: each member of each message has a row in the tables of `members`, and the rows
are true."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import pytest

from tests.contract.installed import INSTALLED
from tests.contract.members import document
from tests.contract.members.forms import Values
from tests.contract.members.schemas import of_schema
from tests.contract.members.tables import TABLES, Row, Table, outcome, stated, statements
from tests.contract.members.trying import CARRIED, LEFT_OUT, REFUSED, Between
from tests.every_case import failures

QUESTIONS: Mapping[str, Values] = {
    name: table.examples["request"]
    for table in TABLES.values()
    for name in table.protocols
    if table.examples["request"]
}
"""An inference request in each protocol."""


def in_schemas(table: Table) -> Mapping[str, frozenset[str]]:
    """Return the members that the table must describe, by message."""
    found: dict[str, frozenset[str]] = {}
    for source in table.sources:
        found |= of_schema(source)
    for message, other in table.borrowed.items():
        theirs = frozenset().union(*TABLES[other].described.values())
        told = {each for each in found.get(message, ()) if each.rpartition(".")[2] in theirs}
        found[message] = found.get(message, frozenset()) - told
    return found


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_member_has_a_row(table: Table) -> None:
    missing = {
        message: sorted(members - table.described.get(message, frozenset()))
        for message, members in in_schemas(table).items()
        if members - table.described.get(message, frozenset())
    }
    assert not missing, f"give these members rows in tests/contract/members/{table.name}.yaml"


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_row_has_a_member(table: Table) -> None:
    known = in_schemas(table)
    assert set(table.described) <= set(known), "messages that no schema has"
    for message in {row.message for row in table.rows} & set(table.described):
        alike = [known[each] for each, members in table.described.items() if members == table.described[message]]
        assert table.described[message] <= frozenset().union(*alike), message


def test_every_wire_form_has_a_table() -> None:
    tabled = {name for table in TABLES.values() for name in table.protocols}
    assert set(INSTALLED) - tabled == set(), "give these wire forms a table in tests/contract/members"
    assert tabled - set(INSTALLED) == set(), "tables of wire forms that there are not"


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_statement_says_what_becomes_of_a_member(table: Table) -> None:
    for row in table.rows:
        for each in statements(row):
            said, _, why = each.partition(":")
            assert said in (CARRIED, REFUSED, LEFT_OUT), f"{row.message} {row.name}: {each}"
            assert why or said != LEFT_OUT, f"{row.message} {row.name} is left out: why?"


def tried() -> Iterator[Any]:
    """Yield the request members and the reply members of each protocol, combined with each protocol that has a
    table."""
    others = [name for name in INSTALLED if name in QUESTIONS]
    for table in TABLES.values():
        for own, direction, other in product(table.protocols, ("request", "reply"), others):
            rows = [
                row
                for row in table.rows
                if row.variant is not None and row.direction == direction and own in (row.only or table.protocols)
            ]
            if rows:
                yield pytest.param(rows, own, direction, other, id=f"{own}-{direction}-{other}")


@pytest.mark.long
@pytest.mark.parametrize(("rows", "own", "direction", "other"), [*tried()])
async def test_what_becomes_of_a_member(rows: list[Row], own: str, direction: str, other: str) -> None:
    between = Between(own, other) if direction == "request" else Between(other, own)
    with failures() as failed:
        for row in rows:
            with failed.of(f"{row.message}: {row.name}"):
                assert row.base is not None
                assert row.variant is not None
                if direction == "request":
                    found = await between.request_outcome(row.base, row.variant, row.setting)
                else:
                    found = await between.reply_outcome(QUESTIONS[other], row.base, row.variant, row.setting)
                statement = stated(row.same, own) if own == other else stated(row.others, other)
                assert found == outcome(statement), statement


def test_the_page_is_up_to_date() -> None:
    assert document.FILE.read_text() == document.page(), "run `make matrix`"
