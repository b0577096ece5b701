"""`python -m tests.contract.document` runs the compatibility matrix and writes the results to docs/matrix.md.

It also writes docs/carried.md, from the tables of members, and tests/contract/left_out.txt, which lists the cases that
the contract tests leave out.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.errors import Reason
from gateway.reference.bundled import KINDS
from tests.contract import cases, ready_forms
from tests.contract.flavors import DIALECTS
from tests.contract.installed import INSTALLED, toys
from tests.contract.matrix import Matrix, running
from tests.contract.matrix_rows import ROWS, Observed, observed
from tests.contract.matrix_rows.asked import NONE, REFUSED, SAME, Asked
from tests.contract.matrix_rows.losses import LEFT_OUT, left_of
from tests.contract.members import document as members
from tests.interop.independent_peers import BACKS, FRONTS

FILE = Path(__file__).parents[2] / "docs" / "matrix.md"

Run = Mapping[str, Mapping[str, Observed]]
"""The results, by client protocol and server protocol."""

OURS = {name: each for name, each in DIALECTS.items() if each.protocol.name in INSTALLED}
FORMS = {name: OURS[name] for name in INSTALLED}
"""One dialect for each protocol: the dialect that the gateway's sample servers use."""

HEAD = """\
# Protocol compatibility matrix

This page shows which features work between each client protocol and each server protocol. `make matrix` writes the
page: clients of every protocol call servers of every protocol through one gateway, over sockets. A test compares the
page with a new run.

## Overview

The rows are client protocols, and the columns are server protocols. Clients send a tensor of each datatype that their
protocol supports to a model that returns its input. Each cell counts the datatypes that come back **unchanged**, that
come back in another form (+), and that the gateway refuses. The sections below list the datatypes and features of each
pair.
"""

WORDS = """\
The cells for datatypes mean:

- **same**: the values come back with the same bits and datatype
- **as FP64**, **as INT64**, ...: the values come back in this wider datatype. If the protocol has parameters,
  `gateway_datatype` contains the original datatype
- **value**: the values come back as JSON numbers without a datatype
- **rounded**: the values come back rounded to the nearest double, the only number type of the protocol
- **refused**: the client gets an error that contains the name of the tensor or parameter

The other rows show:

- two rows: the gateway sends a batch of two rows to the backend in one call, or in one call per row
- inputs are matched: if a client sends the inputs in another order, the gateway matches them by name or by position
- requested outputs (honored): a client that requests one of two outputs gets only this output, even if the backend
  always sends both
- derivatives: the client calls UM-Bridge operations, or derivative models such as `M.gradient`
- errors: the number of model errors that reach the client with the same reason

Routes to servers of these protocols set a `signature` in the test, because the servers report no signature, or often a
wrong one: {declared}.
"""

UNTYPED = """
Clients of {clients} send JSON numbers without a datatype, and get numbers without a datatype. So all datatypes count as
another form (+)."""

NO_WAY = "not possible"
CANNOT = {
    "BYTES that are not UTF-8": "send BYTES that are not UTF-8",
    "shape `[3, 1, 2]`": "send a tensor of shape `[3, 1, 2]`",
    "two rows": "send two rows in one request",
    "requested outputs": "request only some outputs",
    "stream responses": "request a stream",
    "`config`, without `carry_config`": "send a `config` (unless the route has `carry_config`)",
    "other parameters": "send other parameters",
    "id": "send a request id",
    "version": "request a version",
    "derivatives": "request derivatives",
    "metadata": "request metadata",
    "list of models": "request the list of models",
}
"""The limitation to list if the client protocol cannot express the row."""

FLAVORS = """\
This server type differs from `{form}` in the following rows. The column for clients applies to clients that use only
the features of this server type:"""

READY_FORMS = """\
The first table shows clients of each [built-in form](forms.md#ready-forms) with a V2 server (over gRPC). The second
table shows V2 clients (over REST) with servers of each form. Numbers in these forms have no datatype. An empty cell
means that the form cannot represent the feature. `tests/contract/test_ready_forms.py` tests each form with every
protocol."""

PEERS = """\
`tests/interop/test_independent_peers.py` tests each client protocol and each server protocol with software that shares
no code with the gateway:
"""


async def run() -> Run:
    """Return the results of every pair of protocols, and of each built-in form as client and as server."""
    with toys():
        async with running() as matrix:
            pairs = await seen(matrix)
    client, server = ready_forms.OTHERS["v2-rest"], ready_forms.OTHERS["v2-grpc"]
    async with running({each.name: each for each in (*ready_forms.FORMS.values(), client, server)}) as matrix:
        for form in ready_forms.FORMS.values():
            before = await observed(Asked(matrix, form, server))
            behind = await observed(Asked(matrix, client, form))
            pairs = {**pairs, form.name: {BEFORE: before, BEHIND: behind}}
    return pairs


BEFORE, BEHIND = "before", "behind"
"""The roles of a built-in form in the run: client of the gateway, or server behind it."""


async def seen(matrix: Matrix) -> Run:
    return {
        front.name: {back.name: await observed(Asked(matrix, front, back)) for back in OURS.values()}
        for front in OURS.values()
    }


def document(seen: Run) -> str:
    forms = {front: {back: seen[front][back] for back in FORMS} for front in FORMS}
    declared = ", ".join(_code(name) for name, form in FORMS.items() if not form.traits.models.trusted_metadata)
    lines = [
        HEAD,
        *_overview(forms),
        *_untyped(forms),
        "",
        WORDS.format(declared=declared),
        *_fronts(forms),
        *_flavors(seen),
        *_errors(),
        "",
        *_ready_forms(seen),
        "",
        *_peers(),
    ]
    return "\n".join(lines) + "\n"


def _overview(seen: Run) -> Iterator[str]:
    head = ["clients \\ servers", *map(_code, seen)]
    return _table(
        head, ([f"[`{front}`](#{front}-clients)", *map(_counts, backs.values())] for front, backs in seen.items())
    )


def _untyped(seen: Run) -> Iterator[str]:
    clients = [
        _code(name)
        for name, backs in seen.items()
        if not any(pair[each] == SAME for pair in backs.values() for each in Datatype)
    ]
    if clients:
        yield UNTYPED.format(clients=", ".join(clients))


def _counts(pair: Observed) -> str:
    words = [pair[each] for each in Datatype if pair[each] != NONE]
    same, refused = words.count(SAME), words.count(REFUSED)
    other = len(words) - same - refused
    return "".join([f"**{same}**", *[f" + {other}"] * bool(other), *[f", {refused} refused"] * bool(refused)])


def _fronts(seen: Run) -> Iterator[str]:
    for front, backs in seen.items():
        yield from (f"## `{front}` clients", "", *_alike(backs), "")
        yield from _table(["", *map(_code, backs)], _differences(backs))
        yield ""


def _alike(backs: Mapping[str, Observed], what: str = "server") -> Iterator[str]:
    """Yield a list of the rows that are the same for every server."""
    [first, *_] = backs.values()
    always = {row: first[row] for row in first if len(_words(backs, row)) == 1}
    lacking = [row for row, word in always.items() if word == NONE]
    datatypes = [row for row in lacking if row in DATATYPES]
    yield from (f"With every {what}:", "")
    yield from (f"- {row}: {word}" for row, word in always.items() if row in ROWS and word != NONE)
    if datatypes:
        yield f"- datatypes that clients cannot send: {', '.join(datatypes)}"
    cannot = [CANNOT[row] for row in lacking if row in CANNOT]
    if cannot:
        yield f"- clients cannot: {'; '.join(cannot)}"


def _differences(backs: Mapping[str, Observed]) -> Iterator[list[str]]:
    for row in (*Datatype, *ROWS):
        words = [pair[row] for pair in backs.values()]
        if len(set(words)) > 1 or (row in DATATYPES and words[0] != NONE):
            yield [row, *words]


def _words(backs: Mapping[str, Observed], row: str) -> set[str]:
    return {pair[row] for pair in backs.values()}


def _flavors(seen: Run) -> Iterator[str]:
    """Yield the other server types of each protocol, compared with the protocol's own dialect."""
    for name, flavor in OURS.items():
        if name in FORMS:
            continue
        yield from (f"## `{name}`", "", FLAVORS.format(form=flavor.protocol.name), "")
        yield from _table(["", "clients", "servers"], _flavored(seen, name, flavor.protocol.name))
        yield ""


def _flavored(seen: Run, name: str, form: str) -> Iterator[list[str]]:
    as_client = [(seen[name][back], seen[form][back]) for back in FORMS]
    as_server = [(seen[front][name], seen[front][form]) for front in FORMS]
    for row in (*Datatype, *ROWS):
        cells = [_others(pairs, row) for pairs in (as_client, as_server)]
        if any(cells):
            yield [row, *cells]


def _others(pairs: Sequence[tuple[Observed, Observed]], row: str) -> str:
    """Return the results of a server type that differ from the results of its protocol."""
    words = {one[row] or NO_WAY for one, other in pairs if one[row] != other[row]}
    return ", ".join(sorted(words))


def _errors() -> Iterator[str]:
    yield from ("## Errors", "", LEFT_OUT)
    reasons = [reason for reason in Reason if reason in KINDS.values()]
    rows = ([reason.value, *(left_of(reason, form) for form in FORMS.values())] for reason in reasons)
    yield from _table(["", *map(_code, FORMS)], rows)


def _ready_forms(seen: Run) -> Iterator[str]:
    yield from ("## Built-in forms", "", READY_FORMS)
    for side, title in (
        (BEFORE, "Clients of built-in forms, V2 server"),
        (BEHIND, "V2 clients, servers of built-in forms"),
    ):
        forms = {form.name: seen[form.name][side] for form in ready_forms.FORMS.values()}
        differences = [row for row in _differences(forms) if row[0] in ROWS or len(set(row[1:])) > 1]
        yield from ("", f"### {title}", "", *_alike(forms, "form"), *_datatypes(forms), "")
        yield from _table(["", *map(_code, forms)], iter(differences))


def _datatypes(backs: Mapping[str, Observed]) -> Iterator[str]:
    """Yield the datatypes that come back in the same way from every server, grouped by result."""
    [first, *_] = backs.values()
    alike = [each for each in Datatype if len(_words(backs, each)) == 1 and first[each] != NONE]
    for word in dict.fromkeys(first[each] for each in alike):
        yield f"- datatypes that come back ({word}): {', '.join(each for each in alike if first[each] == word)}"


def _peers() -> Iterator[str]:
    yield from ("## Independent clients and servers", "", PEERS)
    servers = {name: ", ".join(back.peer for back in BACKS.values() if back.form == name) for name in FORMS}
    rows = ([_code(name), FRONTS[name].peer, servers[name]] for name in FORMS)
    yield from _table(
        ["", "client (tested with servers of all protocols)", "servers (tested with clients of all protocols)"], rows
    )


def _table(head: Sequence[str], rows: Iterator[list[str]]) -> Iterator[str]:
    yield from map(_line, (head, ["---"] * len(head), *rows))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(name: str) -> str:
    return f"`{name}`"


if __name__ == "__main__":
    FILE.write_text(document(asyncio.run(run())), "utf-8")
    members.write()
    cases.FILE.write_text(cases.left_out(), "utf-8")
