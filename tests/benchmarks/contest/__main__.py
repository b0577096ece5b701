"""The gateway against other programs that do the same work, side by side in one run.

    python -m tests.benchmarks.contest                       everything; half an hour
    python -m tests.benchmarks.contest --quick               the targets alone, under two minutes
    python -m tests.benchmarks.contest --rows "V2 REST to V2 REST" --sizes 10 --in-flight 16 --rounds 7
    ... --no-latencies                                       CPU, requests per second and memory alone
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from tests.benchmarks.contest.measure import LATENCIES, Contest, Figures, Plan, generator, measure
from tests.benchmarks.contest.sides import GRPC_TO_GRPC, REST_TO_GRPC, REST_TO_REST, Started

SIZES = (10, 1_000, 10_000, 1_000_000)
IN_FLIGHT = (1, 16, 256)
PAIRS = {
    "V2 REST to V2 REST": REST_TO_REST,
    "V2 gRPC to V2 gRPC": GRPC_TO_GRPC,
    "V2 REST to V2 gRPC": REST_TO_GRPC,
}


def main() -> None:
    options = _options()
    plan = Plan(options.rounds, options.seconds, not options.no_latencies, not options.no_wrk)
    contests = [
        Contest(name, size, in_flight, sides)
        for name, sides in PAIRS.items()
        if options.rows in name
        for size in options.sizes
        for in_flight in options.in_flight
    ]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack, generator() as load:
        started = Started(Path(folder), stack)
        for contest in contests:
            show(contest, measure(contest, plan, started, load))


def show(contest: Contest, figures: Mapping[str, Figures]) -> None:
    print(f"\n{contest.name}, {contest.size:,} floats, {contest.in_flight} in flight")
    heads = ("", "CPU us", "ratio", "req/s", *(f"{each} us" for each in LATENCIES), "peak MiB")
    print("".join(f"{head:>11}" if at else f"{head:24}" for at, head in enumerate(heads)))
    for name, each in figures.items():
        if each.missing:
            print(f"{name:24}  missing: {each.missing}", flush=True)
            continue
        latencies = "".join(f"{each.latencies.get(name, 0):11.0f}" for name in LATENCIES)
        print(
            f"{name:24}{each.cpu:11.1f}{each.ratio:11.2f}{each.per_second:11.0f}{latencies}{each.peak / 2**20:11.0f}",
            flush=True,
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.contest", description=__doc__)
    parser.add_argument("--rows", default="", metavar="TEXT", help="only contests whose name has TEXT")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="numbers of a vector")
    parser.add_argument("--in-flight", type=int, nargs="*", default=IN_FLIGHT)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each turn")
    parser.add_argument("--no-latencies", action="store_true")
    parser.add_argument("--no-wrk", action="store_true", help="the generator in Python for everything")
    return parser.parse_args()


if __name__ == "__main__":
    main()
