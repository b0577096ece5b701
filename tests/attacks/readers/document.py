"""`python -m tests.attacks.readers.document` measures every reader, and writes the table of docs/bounds.md."""

from __future__ import annotations

import re
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
| reader | body that takes the most memory | memory beside 1 MiB and 20 MiB of it | longest stall | processor's time |
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
    memory = f"{one.memory / MIB:.0f} MiB, {many.memory / MIB:.0f} MiB"
    text = what.replace("|", "\\|").replace("{", "`{").replace("}", "}`")
    return f"| {name} | {text} | {memory} | {1e3 * many.stall:.0f} ms | {one.seconds:.2f} s, {many.seconds:.1f} s |\n"


def table() -> str:
    """The table, as measured now."""
    with Pool(2) as pool:
        return HEAD + "".join(pool.map(row, [each.name for each in shown()], chunksize=1))


def rows_of_the_page() -> dict[str, int]:
    """The readers in the table of the page, with the MiB that 20 MiB took."""
    text = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    return {name: int(memory) for name, memory in re.findall(r"^\| (.+?) \| .*? MiB, (\d+) MiB \|", text, re.MULTILINE)}


def main() -> None:
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + begin + table() + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
