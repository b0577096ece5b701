"""`python -m tests.contract.document` writes docs/matrix.md: what a run of the matrix saw, as tables for people.

It writes tests/contract/left_out.txt as well: the cases that the tests of the contract leave out.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.errors import Reason
from gateway.reference.bundled.testing import KINDS
from tests.contract import cases
from tests.contract.flavors import DIALECTS
from tests.contract.installed import INSTALLED, toys
from tests.contract.matrix import Matrix, running
from tests.contract.matrix_rows import ROWS, Observed, observed
from tests.contract.matrix_rows.asked import NONE, REFUSED, SAME, Asked
from tests.contract.matrix_rows.losses import LEFT_OUT, left_of
from tests.interop.independent_peers import BACKS, FRONTS

FILE = Path(__file__).parents[2] / "docs" / "matrix.md"

Run = Mapping[str, Mapping[str, Observed]]
"""What was seen, by front and back."""

OURS = {name: each for name, each in DIALECTS.items() if each.protocol.name in INSTALLED}
FORMS = {name: OURS[name] for name in INSTALLED}
"""As servers of ours speak them."""

HEAD = """\
# Any client in front of any server

What each pair of protocols carries, and what it cannot. `make matrix` writes this page, from what clients of every
protocol see of one gateway in front of servers of every protocol, over sockets; a test holds it against a new run.

## At a glance

Clients are on the left, servers on top. Of the datatypes that the clients can send, so many **come back as they were**,
so many more (+) in another form, and so many are refused. The tables below tell which, and what else is carried.
"""

WORDS = """\
Of datatypes:

- **same**: the same bits in the same datatype
- **as FP64**: the same values in that wider datatype, with the parameter `gateway_datatype` where there is a place
- **value**: the same values, as numbers in text that has no datatypes
- **rounded**: the nearest double, where that is the protocol's only number
- **refused**: an error in the client's own form, which names what cannot be carried

Of the rest:

- two rows: a batch of two reaches the backend in one call, or in a call for each row
- inputs are told apart: what happens to two inputs that are sent in another order
- outputs asked for: a client that wants one of two outputs gets that one, whatever the backend can be asked for
- derivatives: a client's operations, or models such as `M.gradient` beside `M`, reach those of the backend
- errors: how many of the errors that a model can raise arrive as what they were

Routes to these servers had a `signature`, since they tell none, or none that can be trusted:
{declared}.
"""

UNTYPED = """
Numbers of {clients} clients are text without datatypes: their values come back, but none in the datatype that it had,
so that all of them count as another form (+)."""

NO_WAY = "not possible"
CANNOT = {
    "bytes that are no text": "send bytes that are no text",
    "shape `[3, 1, 2]`": "send a tensor of shape `[3, 1, 2]`",
    "two rows": "send two rows in one request",
    "outputs asked for": "ask for some of the outputs",
    "a stream": "ask for a stream",
    "`config`, without `carry_config`": "send a `config`, unless the route has `carry_config`",
    "other parameters": "send other parameters",
    "id": "give a request an id",
    "version": "name a version",
    "derivatives": "ask for derivatives",
    "metadata": "ask for metadata",
    "list of models": "ask for the list of models",
}
"""What clients whose protocol has no words for it cannot do, by row."""

FLAVORS = """\
Servers of `{form}` that do not tell that they have more, and clients that use no more, differ from it in this:"""

PEERS = """\
`tests/interop/test_independent_peers.py` runs each row and each column once more:
"""


async def run() -> Run:
    """Ask everything of every pair."""
    with toys():
        async with running() as matrix:
            return await seen(matrix)


async def seen(matrix: Matrix) -> Run:
    """The same of a matrix that runs."""
    return {
        front.name: {back.name: await observed(Asked(matrix, front, back)) for back in OURS.values()}
        for front in OURS.values()
    }


def document(seen: Run) -> str:
    """The page."""
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
        *_peers(),
    ]
    return "\n".join(lines) + "\n"


def _overview(seen: Run) -> Iterator[str]:
    head = ["clients \\ servers", *map(_code, seen)]
    return _table(head, ([_linked(front), *map(_counts, backs.values())] for front, backs in seen.items()))


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


def _alike(backs: Mapping[str, Observed]) -> Iterator[str]:
    """What is the same whatever is behind."""
    [first, *_] = backs.values()
    always = {row: first[row] for row in first if len(_words(backs, row)) == 1}
    lacking = [row for row, word in always.items() if word == NONE]
    datatypes = [row for row in lacking if row in DATATYPES]
    yield from ("Whatever is behind:", "")
    yield from (f"- {row}: {word}" for row, word in always.items() if row in ROWS and word != NONE)
    if datatypes:
        yield f"- datatypes that clients cannot send: {', '.join(datatypes)}"
    if len(lacking) > len(datatypes):
        yield f"- what clients cannot do: {'; '.join(CANNOT[row] for row in lacking if row in ROWS)}"


def _differences(backs: Mapping[str, Observed]) -> Iterator[list[str]]:
    for row in (*Datatype, *ROWS):
        words = [pair[row] for pair in backs.values()]
        if len(set(words)) > 1 or (row in DATATYPES and words[0] != NONE):
            yield [row, *words]


def _words(backs: Mapping[str, Observed], row: str) -> set[str]:
    return {pair[row] for pair in backs.values()}


def _flavors(seen: Run) -> Iterator[str]:
    """What other servers of a protocol, and clients that speak as one does to them, have less or more."""
    for name, flavor in OURS.items():
        if name in FORMS:
            continue
        yield from (f"## `{name}`", "", FLAVORS.format(form=flavor.protocol.name), "")
        yield from _table(["", "their clients", "their servers"], _flavored(seen, name, flavor.protocol.name))
        yield ""


def _flavored(seen: Run, name: str, form: str) -> Iterator[list[str]]:
    as_client = [(seen[name][back], seen[form][back]) for back in FORMS]
    as_server = [(seen[front][name], seen[front][form]) for front in FORMS]
    for row in (*Datatype, *ROWS):
        cells = [_others(pairs, row) for pairs in (as_client, as_server)]
        if any(cells):
            yield [row, *cells]


def _others(pairs: Sequence[tuple[Observed, Observed]], row: str) -> str:
    """What is said of a flavor where it is not what is said of the form."""
    words = {one[row] or NO_WAY for one, other in pairs if one[row] != other[row]}
    return ", ".join(sorted(words))


def _errors() -> Iterator[str]:
    yield from ("## Errors", "", LEFT_OUT)
    reasons = [reason for reason in Reason if reason in KINDS.values()]
    rows = ([reason.value, *(left_of(reason, form) for form in FORMS.values())] for reason in reasons)
    yield from _table(["", *map(_code, FORMS)], rows)


def _peers() -> Iterator[str]:
    yield from ("## With clients and servers that are not ours", "", PEERS)
    servers = {name: ", ".join(back.peer for back in BACKS.values() if back.form == name) for name in FORMS}
    rows = ([_code(name), FRONTS[name].peer, servers[name]] for name in FORMS)
    yield from _table(["", "client, in front of all", "servers, behind all"], rows)


def _table(head: Sequence[str], rows: Iterator[list[str]]) -> Iterator[str]:
    yield from map(_line, (head, ["---"] * len(head), *rows))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _code(name: str) -> str:
    return f"`{name}`"


def _linked(front: str) -> str:
    return f"[`{front}`](#{front}-clients)"


if __name__ == "__main__":
    FILE.write_text(document(asyncio.run(run())), "utf-8")
    cases.FILE.write_text(cases.left_out(), "utf-8")
