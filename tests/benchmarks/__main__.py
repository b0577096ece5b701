"""`python -m tests.benchmarks`: what a request costs in the gateway and in hand-written adapters, side by side."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.benchmarks import memory, table
from tests.benchmarks.measure import Measured, generator, measure
from tests.benchmarks.rows import ROWS, Row
from tests.benchmarks.servers import running


def main() -> None:
    options = _options()
    rows = [row for row in ROWS if options.rows in row.name]
    weighed = options.rows in memory.TITLE
    if options.json:
        print(table.document(list(_measured(rows, options.rounds)), _peak() if weighed else None))
        return
    _show(rows, options.rounds)
    if weighed:
        print(f"\n{_peak().shown()}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    parser.add_argument("--rounds", type=int, default=5, help="how often each row is measured (default 5)")
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows whose title has TEXT")
    return parser.parse_args()


def _peak() -> memory.Peak:
    with tempfile.TemporaryDirectory() as folder:
        return memory.measure(Path(folder))


def _show(rows: Sequence[Row], rounds: int) -> None:
    """Print each row when it is there."""
    print(table.heading(rounds), flush=True)
    found = []
    for each in _measured(rows, rounds):
        found.append(each)
        print(f"\n{table.block(each)}", flush=True)
    print(f"\n{table.verdict(found)}")


def _measured(rows: Sequence[Row], rounds: int) -> Iterator[Measured]:
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as servers, generator() as load:
        for row in rows:
            yield measure(row, rounds, servers, load)


if __name__ == "__main__":
    main()
