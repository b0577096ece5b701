"""`python -m tests.benchmarks`: what a request costs in the gateway and in hand-written adapters, side by side, and
what the gateway's parts cost."""

from __future__ import annotations

import argparse
from functools import partial

from tests.benchmarks import cached, crowd, gathered, graphs, least_load, measure, mixed, settings
from tests.benchmarks.rows import ROWS
from tests.benchmarks.table import show


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each row is measured (default 5)")
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows whose title has TEXT")
    options = parser.parse_args()
    rounds = options.rounds
    if rows := [row for row in ROWS if options.rows in row.name]:
        show(measure.heading(rounds), partial(measure.all_of, rows, rounds))
    for setting in settings.SETTINGS:
        if options.rows in setting.title:
            show(setting.heading, partial(settings.measure, setting, rounds))
    for module in (gathered, graphs, cached, least_load, mixed, crowd):
        if options.rows in module.TITLE:
            show(module.heading(), partial(module.measure, rounds=rounds))
    if options.rows in mixed.OVERHEAD_TITLE:
        show(mixed.overhead_heading(), mixed.overheads)


if __name__ == "__main__":
    main()
