"""The results as text: a table for people, or one JSON document."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict

from tests.benchmarks import access_log, cached, codecs, crowd, gathered, graphs, memory, metrics, protection, stall
from tests.benchmarks.measure import Measured
from tests.benchmarks.rows import UMBRIDGE_TO_GRPC, UMBRIDGE_TO_V2, V2_TO_UMBRIDGE
from tests.benchmarks.servers import BACKENDS

AIM = 0.5
"""The gateway's CPU by the adapter's, for 10 doubles."""

ADAPTED = (UMBRIDGE_TO_V2, V2_TO_UMBRIDGE, UMBRIDGE_TO_GRPC)
COLUMNS = ("", "CPU us", "p50 us", "p99 us")


def heading(rounds: int) -> str:
    """What the numbers are, and of which machine."""
    return "\n".join(
        [
            f"Python {platform.python_version()}, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f};"
            f" medians of {rounds} rounds, taken in turns.",
            "CPU: user and system time of one process per request, all its threads. Latency: as the client sees it.",
            f"Adapters: {', '.join(f'{way.adapter} ({way.name})' for way in ADAPTED)}.",
            f"Servers: {BACKENDS}.",
            "Direct: the same vectors straight to the server, in its own protocol; the CPU is the server's.",
            "The gateway sends an UM-Bridge server one call at a time, the others wait; the adapter sends all at once.",
        ]
    )


def block(measured: Measured) -> str:
    """One row of the benchmark, as a small table."""
    costs = (("gateway", measured.gateway), ("adapter", measured.adapter), ("direct", measured.direct))
    rows = [COLUMNS, *((name, *(f"{number:,.0f}" for number in asdict(cost).values())) for name, cost in costs if cost)]
    if measured.ratio:
        rows.append(("gateway/adapter", *(f"{number:.2f}" for number in asdict(measured.ratio).values())))
    lines = [f"  {name:16}" + "".join(f"{cell:>12}" for cell in cells) for name, *cells in rows]
    return "\n".join([measured.row.name, *lines])


def verdict(all_measured: Sequence[Measured]) -> str:
    """The aim, and the worst ratio of CPU."""
    ratios = {each.row.name: each.ratio.cpu for each in all_measured if each.ratio and each.row.doubles == 10}
    if not ratios:
        return ""
    worst = max(ratios, key=lambda name: ratios[name])
    return f"CPU, gateway/adapter, 10 doubles: at most {ratios[worst]:.2f} ({worst}); the aim is {AIM:.2f}."


def codecs_heading() -> str:
    """What the numbers of the codecs are, and their columns."""
    small, large = f"{codecs.SMALL} FP32", f"{codecs.LARGE:,} FP32"
    return "\n".join(
        [
            "The codecs alone, in one process: CPU, and in brackets by that of a yardstick, measured in turns with it.",
            f"{small}, named: decode_request + encode_response (facing), encode_request + decode_response (backend),",
            "  by json.loads(json.dumps()) of the same as V2's JSON.",
            f"{large}: encode_request and decode_request, by a numpy copy of the array; a view costs nothing.",
            "",
            f"{'':44}" + "".join(f"{column:>17}" for column in ("facing us", "backend us", "encode ms", "decode ms")),
        ]
    )


def codec(measured: codecs.Measured) -> str:
    """One row of the codecs."""
    small = [f"{cost.microseconds:.1f} ({cost.ratio:.1f})" for cost in (measured.facing, measured.backend)]
    large = [f"{cost.microseconds / 1e3:.3f} ({cost.ratio:.2f})" for cost in (measured.encode, measured.decode)]
    return f"{measured.row.name:44}" + "".join(f"{cell:>17}" for cell in (*small, *large))


def document(
    all_measured: Sequence[Measured],
    peak: memory.Peak | None,
    all_codecs: Sequence[codecs.Measured],
    stalls: Sequence[stall.Stall],
    protections: Sequence[protection.Protection],
    crowds: Sequence[crowd.Crowded],
    logs: Sequence[protection.Protection] = (),
    ids: Sequence[protection.Protection] = (),
    counts: Sequence[protection.Protection] = (),
    gathers: Sequence[gathered.Gathered] = (),
    caches: Sequence[cached.Cached] = (),
    steps: Sequence[graphs.Steps | graphs.Diamond | graphs.BesideTriton] = (),
) -> str:
    """Everything as JSON: microseconds, bytes, seconds of stalls, and ratios without a unit."""
    weighed = [{"row": memory.TITLE, **asdict(peak), "ratio": peak.ratio}] if peak else []
    return json.dumps(
        [
            *map(_entry, all_measured),
            *weighed,
            *map(_codec_entry, all_codecs),
            *_stalls(stalls),
            *_protections(protections, protection.TITLE),
            *_protections(logs, access_log.TITLE),
            *_protections(ids, access_log.IDS_TITLE),
            *_protections(counts, metrics.TITLE),
            *map(_crowd, crowds),
            *({**asdict(each), "row": f"{gathered.TITLE}: {each.way}"} for each in gathers),
            *({**asdict(each), "row": f"{cached.TITLE}: {each.row}"} for each in caches),
            *({**asdict(each), "row": f"{graphs.TITLE}: {each.row}"} for each in steps),
        ],
        indent=2,
    )


def _entry(measured: Measured) -> dict[str, object]:
    costs = {name: getattr(measured, name) for name in ("gateway", "adapter", "direct", "ratio")}
    return {"row": measured.row.name, **{name: asdict(cost) for name, cost in costs.items() if cost}}


def _codec_entry(measured: codecs.Measured) -> dict[str, object]:
    costs = {name: asdict(getattr(measured, name)) for name in ("facing", "backend", "encode", "decode")}
    return {"row": measured.row.name, **costs}


def _protections(protections: Sequence[protection.Protection], title: str) -> list[dict[str, object]]:
    return [{**asdict(each), "row": f"{title}: {each.row}"} for each in protections]


def _crowd(crowded: crowd.Crowded) -> dict[str, object]:
    return {"row": crowd.TITLE, **asdict(crowded)}


def _stalls(stalls: Sequence[stall.Stall]) -> list[dict[str, object]]:
    return [{**asdict(each), "row": f"{stall.TITLE}: {each.row}"} for each in stalls]
