"""`python -m tests.benchmarks`: what a request costs in the gateway and in hand-written adapters, side by side, and
what the codecs cost alone."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.benchmarks import (
    access_log,
    cached,
    codecs,
    crowd,
    gathered,
    graphs,
    keys,
    least_load,
    memory,
    metrics,
    mixed,
    payload_log,
    protection,
    stall,
    table,
    tracing,
)
from tests.benchmarks.measure import Measured, generator, measure
from tests.benchmarks.rows import ROWS, Row
from tests.benchmarks.servers import running


def main() -> None:
    options = _options()
    rows = [row for row in ROWS if options.rows in row.name]
    weighed = options.rows in memory.TITLE
    ticked = options.rows in stall.TITLE
    guarded = options.rows in protection.TITLE
    logged = options.rows in access_log.TITLE
    counted = options.rows in metrics.TITLE
    identified = options.rows in access_log.IDS_TITLE
    crowded = options.rows in crowd.TITLE
    alone = [row for row in codecs.rows() if options.rows in row.name]
    if options.json:
        measured = [codecs.measure(row, options.rounds) for row in alone]
        stalls = _stalls() if ticked else []
        costs = list(_protections(options.rounds)) if guarded else []
        logs = list(_access_logs(options.rounds)) if logged else []
        ids = list(_access_logs(options.rounds, ids=True)) if identified else []
        counts = list(_counted(options.rounds)) if counted else []
        crowds = [_crowded()] if crowded else []
        peak = _peak() if weighed else None
        rows_measured = list(_measured(rows, options.rounds))
        gathers = list(_gathered(options.rounds)) if options.rows in gathered.TITLE else []
        caches = list(cached.measure(options.rounds)) if options.rows in cached.TITLE else []
        steps = list(graphs.measure(options.rounds)) if options.rows in graphs.TITLE else []
        more = gathers, caches, steps
        print(table.document(rows_measured, peak, measured, stalls, costs, crowds, logs, ids, counts, *more))
        return
    if rows:
        _show(rows, options.rounds)
    if guarded:
        print(f"\n{protection.heading()}", flush=True)
        for each in _protections(options.rounds):
            print(each.shown(), flush=True)
    for title, wanted in ((access_log.TITLE, logged), (access_log.IDS_TITLE, identified)):
        if wanted:
            print(f"\n{protection.heading(title, access_log.AIM)}", flush=True)
            for each in _access_logs(options.rounds, ids=title == access_log.IDS_TITLE):
                print(each.shown(), flush=True)
    if counted:
        print(f"\n{protection.heading(metrics.TITLE, metrics.AIM)}", flush=True)
        for each in _counted(options.rounds):
            print(each.shown(), flush=True)
        print(f"{'counting alone':44}{'':12}{metrics.counting():12.1f}", flush=True)

    if options.rows in keys.TITLE:
        print(f"\n{protection.heading(keys.TITLE, keys.AIM)}", flush=True)
        for each in _keys(options.rounds):
            print(each.shown(), flush=True)
        print(f"{'the check alone':44}{'':12}{keys.checking():12.1f}", flush=True)
    if options.rows in keys.TOGETHER_TITLE:
        print(f"\n{protection.heading(keys.TOGETHER_TITLE, keys.TOGETHER_AIM)}", flush=True)
        for each in _keys(options.rounds, together=True):
            print(each.shown(), flush=True)
    if options.rows in tracing.TITLE:
        print(f"\n{protection.heading(tracing.TITLE, tracing.AIM)}", flush=True)
        for each in _traced(options.rounds):
            print(each.shown(), flush=True)
        print(f"{'the spans of one traced request alone':44}{'':12}{tracing.exporting():12.1f}", flush=True)
    for share, title in payload_log.TITLES.items():
        if options.rows in title:
            print(f"\n{protection.heading(title, payload_log.AIMS[share])}", flush=True)
            for each in protection.over_starts(partial(payload_log.measure, share=share), options.rounds):
                print(each.shown(), flush=True)
    if options.rows in gathered.TITLE:
        print(f"\n{gathered.heading()}", flush=True)
        for way in _gathered(options.rounds):
            print(way.shown(), flush=True)
    if options.rows in graphs.TITLE:
        print(f"\n{graphs.heading()}", flush=True)
        for one in graphs.measure(options.rounds):
            print(one.shown(), flush=True)
    if options.rows in cached.TITLE:
        print("\n".join(["", cached.heading(), *(each.shown() for each in cached.measure(options.rounds))]), flush=True)
    if options.rows in least_load.TITLE:
        print(f"\n{least_load.heading()}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            for taken in least_load.measure(Path(folder), options.rounds):
                print(taken.shown(), flush=True)
    if options.rows in mixed.TITLE:
        print(f"\n{mixed.heading()}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            for load in mixed.measure(Path(folder), options.rounds):
                print(load.shown(), flush=True)
    if options.rows in mixed.OVERHEAD_TITLE:
        print(f"\n{mixed.overhead_heading()}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            for cost in mixed.overheads(Path(folder)):
                print(cost.shown(), flush=True)
    if weighed:
        print(f"\n{_peak().shown()}")
    if ticked:
        print("\n".join(["", stall.heading(), *(each.shown() for each in _stalls())]), flush=True)
    if crowded:
        print(f"\n{_crowded().shown()}", flush=True)
    if alone:
        _show_codecs(alone, options.rounds)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document instead of the table")
    parser.add_argument("--rounds", type=int, default=5, help="how often each row is measured (default 5)")
    parser.add_argument("--rows", default="", metavar="TEXT", help="only rows whose title has TEXT")
    return parser.parse_args()


def _peak() -> memory.Peak:
    with tempfile.TemporaryDirectory() as folder:
        return memory.measure(Path(folder))


def _protections(rounds: int) -> Iterator[protection.Protection]:
    return protection.over_starts(protection.measure, rounds)


def _access_logs(rounds: int, *, ids: bool = False) -> Iterator[protection.Protection]:
    return protection.over_starts(partial(access_log.measure, ids=ids), rounds)


def _counted(rounds: int) -> Iterator[protection.Protection]:
    return protection.over_starts(metrics.measure, rounds)


def _keys(rounds: int, *, together: bool = False) -> Iterator[protection.Protection]:
    return protection.over_starts(partial(keys.measure, together=together), rounds)


def _traced(rounds: int) -> Iterator[protection.Protection]:
    return protection.over_starts(tracing.measure, rounds)


def _gathered(rounds: int) -> Iterator[gathered.Gathered]:
    with tempfile.TemporaryDirectory() as folder:
        yield from gathered.measure(Path(folder), rounds)


def _crowded() -> crowd.Crowded:
    with tempfile.TemporaryDirectory() as folder:
        return crowd.measure(Path(folder))


def _stalls() -> list[stall.Stall]:
    with tempfile.TemporaryDirectory() as folder:
        return list(stall.measure(Path(folder)))


def _show(rows: Sequence[Row], rounds: int) -> None:
    """Print each row when it is there."""
    print(table.heading(rounds), flush=True)
    found = []
    for each in _measured(rows, rounds):
        found.append(each)
        print(f"\n{table.block(each)}", flush=True)
    print(f"\n{table.verdict(found)}")


def _show_codecs(rows: Sequence[codecs.Row], rounds: int) -> None:
    print(f"\n{table.codecs_heading()}", flush=True)
    for row in rows:
        print(table.codec(codecs.measure(row, rounds)), flush=True)


def _measured(rows: Sequence[Row], rounds: int) -> Iterator[Measured]:
    if not rows:
        return
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as servers, generator() as load:
        for row in rows:
            yield measure(row, rounds, servers, load)


if __name__ == "__main__":
    main()
