"""The results as text: a table for people, or one JSON document."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict

from tests.benchmarks.measure import Measured
from tests.benchmarks.rows import UMBRIDGE_TO_V2, V2_TO_UMBRIDGE
from tests.benchmarks.servers import BACKENDS

AIM = 0.5
"""The gateway's CPU by the adapter's, for 10 doubles."""

COLUMNS = ("", "CPU us", "p50 us", "p99 us")


def heading(rounds: int) -> str:
    """What the numbers are, and of which machine."""
    return "\n".join(
        [
            f"Python {platform.python_version()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f};"
            f" medians of {rounds} rounds, taken in turns.",
            "CPU: user and system time of one process per request, all its threads. Latency: as the client sees it.",
            f"Adapters: {UMBRIDGE_TO_V2.adapter} ({UMBRIDGE_TO_V2.name}), {V2_TO_UMBRIDGE.adapter}"
            f" ({V2_TO_UMBRIDGE.name}).",
            f"Servers: {BACKENDS}.",
            "Direct: the same vectors straight to the server, in its own protocol; the CPU is the server's.",
            "The gateway sends an UM-Bridge server one call at a time, the others wait; the adapter sends all at once.",
        ]
    )


def block(measured: Measured) -> str:
    """One row of the benchmark, as a small table."""
    costs = (("gateway", measured.gateway), ("adapter", measured.adapter), ("direct", measured.direct))
    rows = [COLUMNS, *((name, *(f"{number:,.0f}" for number in asdict(cost).values())) for name, cost in costs)]
    rows.append(("gateway/adapter", *(f"{number:.2f}" for number in asdict(measured.ratio).values())))
    lines = [f"  {name:16}" + "".join(f"{cell:>12}" for cell in cells) for name, *cells in rows]
    return "\n".join([measured.row.name, *lines])


def verdict(all_measured: Sequence[Measured]) -> str:
    """The aim, and the worst ratio of CPU."""
    worst = max(
        (each for each in all_measured if each.row.doubles == 10), key=lambda each: each.ratio.cpu, default=None
    )
    if worst is None:
        return ""
    return f"CPU, gateway/adapter, 10 doubles: at most {worst.ratio.cpu:.2f} ({worst.row.name}); the aim is {AIM:.2f}."


def document(all_measured: Sequence[Measured]) -> str:
    """Everything as JSON: microseconds, and ratios without a unit."""
    return json.dumps([_entry(each) for each in all_measured], indent=2)


def _entry(measured: Measured) -> dict[str, object]:
    costs = {name: asdict(getattr(measured, name)) for name in ("gateway", "adapter", "direct", "ratio")}
    return {"row": measured.row.name, **costs}
