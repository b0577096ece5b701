"""Model graphs: the positions of their boxes and arrows in the picture, and the calls of their steps."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel

from gateway.bridge.graphs.calls import CALLS_COUNTED, CANCELLED, ERRORS, SECONDS
from gateway.bridge.graphs.graph import Graph
from gateway.bridge.graphs.picture import WIDTH, PictureLayout, box_lines, picture


class DrawnBox(BaseModel):
    """An input, a step or an output, with its position in pixels. `lines` is the text of the box, with the name in the
    first line."""

    name: str
    kind: Literal["input", "step", "output"]
    lines: list[str]
    x: int
    y: int
    width: int
    height: int


class DrawnArrow(BaseModel):
    """The arrow of a tensor. `points` has its start, its left and right points at the columns that it passes, and its
    end."""

    label: str
    points: list[tuple[int, int]]


class DrawnGraph(BaseModel):
    """The picture of one model."""

    name: str
    description: str
    width: int
    height: int
    boxes: list[DrawnBox]
    arrows: list[DrawnArrow]


class CountedCalls(BaseModel):
    """The calls of one step since the last configuration load: completed calls, failed calls, calls cancelled because
    the client left or another step failed, and the total seconds."""

    calls: int
    errors: int
    cancelled: int
    seconds: float


class DrawnGraphs(BaseModel):
    """The pictures of all graphs."""

    graphs: list[DrawnGraph]


class GraphTraffic(BaseModel):
    """The calls by graph and step, for steps with calls."""

    steps: dict[str, dict[str, CountedCalls]]


def drawn(graphs: Mapping[str, Graph]) -> DrawnGraphs:
    """Return the pictures of `graphs`."""
    return DrawnGraphs(graphs=[_drawn(each) for each in graphs.values()])


def _drawn(graph: Graph) -> DrawnGraph:
    whole = picture(graph)
    layout = PictureLayout(whole)
    boxes = [
        DrawnBox(name=box.name, kind=box.kind, lines=list(box_lines(box)), x=x, y=y, width=WIDTH, height=height)
        for key, box in whole.boxes.items()
        for x, y, height in [layout.places[key]]
    ]
    arrows = [DrawnArrow(label=each.label, points=layout.points(at)) for at, each in enumerate(whole.arrows)]
    return DrawnGraph(
        name=graph.name,
        description=graph.description,
        width=layout.width,
        height=layout.height,
        boxes=boxes,
        arrows=arrows,
    )


def traffic(counted: Mapping[tuple[str, str], Mapping[str, float]]) -> GraphTraffic:
    """Return the calls of steps. `counted` has the counts by graph and step."""
    steps: dict[str, dict[str, CountedCalls]] = {}
    for (graph, step), counts in counted.items():
        steps.setdefault(graph, {})[step] = CountedCalls(
            calls=int(counts[CALLS_COUNTED]),
            errors=int(counts[ERRORS]),
            cancelled=int(counts[CANCELLED]),
            seconds=counts[SECONDS],
        )
    return GraphTraffic(steps=steps)
