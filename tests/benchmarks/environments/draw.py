"""The charts of a run, run by the interpreter of the peer `charts`: `draw.py FOLDER` reads its `results.json`."""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plot

COLOURS = ("#1f6feb", "#d1662a", "#2f9e62", "#9aa3ad")


def main() -> None:
    folder = Path(sys.argv[1])
    pairs = {}
    for row in json.loads((folder / "results.json").read_text())["rows"]:
        pairs.setdefault(row["pair"], []).append(row)
    for pair, rows in pairs.items():
        draw(pair, rows, folder / "images" / name(pair))


def name(pair: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in pair.lower()).replace("--", "-") + ".png"


def draw(pair, rows, to) -> None:
    """CPU per request, and latency where it was measured, side by side."""
    timed = [row for row in rows if any(each["latencies"] for each in row["sides"].values())]
    figure, axes = plot.subplots(
        1, 2 if timed else 1, figsize=(13 if timed else 8, 1.2 + 0.75 * len(rows)), squeeze=False
    )
    bars(axes[0][0], rows, lambda each: each["cpu"], "CPU per request, microseconds")
    if timed:
        bars(axes[0][1], timed, lambda each: each["latencies"].get("p99", 0), "p99 at the same rate, microseconds")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper left", ncol=len(labels), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.93))
    figure.suptitle(pair, y=0.945, fontsize=12)
    figure.savefig(to, dpi=110)
    plot.close(figure)


def bars(axis, rows, figure_of, title) -> None:
    sides = list(rows[0]["sides"])
    height = 0.8 / len(sides)
    for at, side in enumerate(sides):
        places = [index + at * height for index in range(len(rows))]
        values = [figure_of(row["sides"][side]) for row in rows]
        drawn = axis.barh(places, values, height, label=side, color=COLOURS[at % len(COLOURS)])
        axis.bar_label(drawn, [f"{value:,.0f}" if value else "missing" for value in values], fontsize=7, padding=2)
    axis.set_yticks([index + 0.4 - height / 2 for index in range(len(rows))])
    sizes = [f"{row['size']:,} numbers, " if row["size"] else "" for row in rows]
    labels = [f"{size}{row['in_flight']} in flight" for size, row in zip(sizes, rows, strict=True)]
    axis.set_yticklabels(labels, fontsize=8)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.margins(x=0.15)
    axis.set_title(title, fontsize=10)


if __name__ == "__main__":
    main()
