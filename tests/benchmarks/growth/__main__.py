"""`python -m tests.benchmarks.growth`: whether a request costs more as routes, backends and idle connections grow, what
an idle connection and a large tensor take in memory, how long large JSON keeps the loop from its turn, and what a fleet
of servers with thousands of models costs."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks.growth import costs, placement, stalls, tensors
from tests.benchmarks.table import Shown, show


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.growth", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="pairs of which each ratio is the median (default 15)")
    parser.add_argument("--only", choices=("costs", "idle", "tensors", "stalls", "placement"), help="only one table")
    parser.add_argument("--row", default="", help="of tensors and stalls only rows whose name has this text")
    options = parser.parse_args()
    tables: dict[str, tuple[str, Callable[[Path], Iterator[Shown]]]] = {
        "costs": (costs.heading(options.rounds), lambda folder: costs.measure(folder, options.rounds)),
        "idle": (costs.memory_heading(), costs.measure_idle),
        "tensors": (tensors.heading(), lambda folder: tensors.measure(folder, options.row)),
        "stalls": (stalls.heading(), lambda folder: stalls.measure(folder, options.row)),
        "placement": (placement.heading(), lambda folder: placement.measure()),
    }
    for name, (heading, measure) in tables.items():
        if options.only in (None, name):
            show(heading, measure)


if __name__ == "__main__":
    main()
