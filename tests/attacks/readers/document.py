"""`python -m tests.attacks.readers.document` measures every reader, and writes the table of docs/bounds.md.

With names of readers, or with `--missing`, it measures these readers alone and keeps the other rows. Memory is the same
on every machine; times are only worth reading from a machine that does nothing else.
"""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping
from multiprocessing import Pool

from gateway.core.operations import INFER
from gateway.core.protocol import Limits
from tests.attacks.attacked import MIB
from tests.attacks.readers.measuring import cost
from tests.attacks.readers.readers import Reader, readers
from tests.attacks.readers.tracing import worst
from tests.documents.pages import ROOT

PAGE = ROOT / "docs/bounds.md"
BEGIN, END = "<!-- readers: begin -->\n", "<!-- readers: end -->\n"
HEAD = """\
| reader | body that takes the most memory | additional memory for 1 MiB and 20 MiB of it | longest stall | CPU time |
|---|---|---|---|---|
"""


def shown() -> list[Reader]:
    """The readers with a row: those of calls."""
    return [each for each in readers().values() if each.request.operation is INFER]


def row(name: str) -> str:
    """The row of a reader."""
    reader = readers()[name]
    costs = {what: cost(reader, reader.bodies[what](20 * MIB), Limits(), unread=False) for what in worst(reader)}
    what, many = max(costs.items(), key=lambda each: each[1].memory)
    one = cost(reader, reader.bodies[what](MIB), Limits(), unread=False)
    memory = ", ".join(f"{max(each.memory, 0) / MIB:.0f} MiB" for each in (one, many))
    text = what.replace("|", "\\|").replace("{", "`{").replace("}", "}`")
    return f"| {name} | {text} | {memory} | {1e3 * many.stall:.0f} ms | {one.seconds:.2f} s, {many.seconds:.1f} s |\n"


def rows() -> Mapping[str, str]:
    """The rows of the page, by their readers."""
    text = PAGE.read_text().partition(BEGIN)[2].partition(END)[0].removeprefix(HEAD)
    return {line[2:].partition(" | ")[0]: line for line in text.splitlines(keepends=True)}


def rows_of_the_page() -> dict[str, tuple[int, int]]:
    """The readers in the table of the page, with the MiB that 1 MiB and 20 MiB took."""
    found = ((name, re.search(r"\| (\d+) MiB, (\d+) MiB \|", line)) for name, line in rows().items())
    return {name: (int(memory[1]), int(memory[2])) for name, memory in found if memory is not None}


def write(found: Mapping[str, str]) -> None:
    """Write these rows into the page, in the order of the readers."""
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    table = HEAD + "".join(found[each.name] for each in shown() if each.name in found)
    PAGE.write_text(before + begin + table + END + rest.partition(END)[2])


def measure(names: Iterable[str], processes: int) -> None:
    """Measure these readers, and write each row when it is known: what is interrupted goes on with `--missing`."""
    names = list(names)
    with Pool(processes, maxtasksperchild=1) as pool:
        for name, line in zip(names, pool.imap(row, names), strict=True):
            print(line, end="", flush=True)
            write({**rows(), name: line})


def main() -> None:
    parser = ArgumentParser("python -m tests.attacks.readers.document", description=__doc__)
    parser.add_argument("reader", nargs="*", help="the name of a reader, as in the table; default: all")
    parser.add_argument("--missing", action="store_true", help="readers without a row in the page")
    parser.add_argument("--processes", type=int, default=2, help="readers measured at a time; 1 for quiet times")
    given = parser.parse_args()
    known = [each.name for each in shown()]
    for each in given.reader:
        if each not in known:
            parser.error(f"no reader {each!r}; there are: {'; '.join(known)}")
    chosen = given.reader or known
    measure([each for each in chosen if not given.missing or each not in rows()], given.processes)


if __name__ == "__main__":
    main()
