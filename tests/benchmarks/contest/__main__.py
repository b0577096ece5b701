"""The gateway against other programs that do the same work, side by side in one run.

python -m tests.benchmarks.contest                       everything; about a quarter of an hour
python -m tests.benchmarks.contest --quick               the targets alone, under two minutes
python -m tests.benchmarks.contest --rows "V2 REST to V2 REST" --sizes 10 --in-flight 16 --rounds 7
... --no-latencies                                       CPU, requests per second and memory alone
... --to docs/benchmarks                                 writes results.json, README.md and the charts there
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.contest import dialect, report
from tests.benchmarks.contest.contests import contests
from tests.benchmarks.contest.machine import machine
from tests.benchmarks.contest.measure import Plan, generator, measure
from tests.benchmarks.contest.sides import MissingError, Started

ROUNDS, SECONDS = 3, 0.4
TARGET_ROUNDS, TARGET_SECONDS = 5, 1.0
"""Where there is a target: its verdict needs more than the other figures do."""
QUICK_ROUNDS, QUICK_SECONDS = 3, 0.25


def main() -> None:
    options = _options()
    plan, of_target = _plans(options)
    wanted = list(contests(options.rows, options.sizes, options.in_flight, targets_alone=options.quick))
    begun, found = time.monotonic(), []
    turns = f"{plan}" if plan == of_target else f"{plan}; {of_target} for tests with a target"
    about = machine() | {"rounds": turns, "date": time.strftime("%Y-%m-%d")}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack, generator() as load:
        started = Started(Path(folder), stack)
        for contest in wanted:
            measured = measure(contest, of_target if contest.targets else plan, started, load)
            found.append((contest, measured))
            print(f"\n{report.block(contest, measured)}", flush=True)
        try:
            replies = dialect.replies(started)
        except MissingError:
            replies = []
    about["load averages after"] = " ".join(f"{each:.2f}" for each in os.getloadavg())
    print(f"\n{report.targets(found)}\n\n{report.about_dialect(replies)}")
    print(f"\n{time.monotonic() - begun:.0f} s")
    if options.to:
        report.write(options.to, report.Results(about, found, replies))
        print(f"written to {options.to}")


def _plans(options: argparse.Namespace) -> tuple[Plan, Plan]:
    """The plan of tables without and with a target."""
    if options.quick:
        quick = Plan(QUICK_ROUNDS, QUICK_SECONDS, use_wrk=False)
        return quick, quick
    usual = Plan(options.rounds or ROUNDS, options.seconds or SECONDS)
    further = None if options.no_latencies else usual, not options.no_wrk
    return (
        Plan(usual.rounds, usual.seconds, *further),
        Plan(options.rounds or TARGET_ROUNDS, options.seconds or TARGET_SECONDS, *further),
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.contest",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="the targets alone, in short turns")
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows whose name has TEXT")
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="numbers of a vector")
    parser.add_argument("--in-flight", type=int, nargs="*", default=[])
    parser.add_argument("--rounds", type=int, help=f"default {ROUNDS}; {TARGET_ROUNDS} for tests with a target")
    parser.add_argument("--seconds", type=float, help=f"of a turn; default {SECONDS}; {TARGET_SECONDS} with a target")
    parser.add_argument("--no-latencies", action="store_true", help="no latencies at a rate, and no stalls")
    parser.add_argument("--no-wrk", action="store_true", help="the generator in Python for everything")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="write the results there")
    return parser.parse_args()


if __name__ == "__main__":
    main()
