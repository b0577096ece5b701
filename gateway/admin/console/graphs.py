"""`/api/graphs`: the positions of the boxes and arrows in the diagrams of model graphs, and the number of calls of
their steps."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel

from gateway.bridge.graphs.calls import CALLS_COUNTED, CANCELLED, ERRORS, SECONDS
from gateway.bridge.graphs.graph import Graph
from gateway.bridge.graphs.picture import WIDTH, PictureLayout, box_lines, picture


class DrawnBox(BaseModel):
    """An input, a step or an output, with its position in pixels. `lines` are the lines of text in the box; the first
    is the name."""

    name: str
    kind: Literal["input", "step", "output"]
    lines: list[str]
    x: int
    y: int
    width: int
    height: int


class DrawnArrow(BaseModel):
    """The arrow of a tensor. `points` contains its start, the points where it enters and leaves each column that it
    crosses, and its end."""

    label: str
    points: list[tuple[int, int]]


class DrawnGraph(BaseModel):
    """The diagram of one model graph."""

    name: str
    description: str
    width: int
    height: int
    boxes: list[DrawnBox]
    arrows: list[DrawnArrow]


class CountedCalls(BaseModel):
    """The calls of one step since the configuration was last loaded: the numbers of completed calls, failed calls, and
    calls cancelled because the client disconnected or another step failed, and the total duration in seconds."""

    calls: int
    errors: int
    cancelled: int
    seconds: float


class DrawnGraphs(BaseModel):
    """The diagrams of all graphs."""

    graphs: list[DrawnGraph]


class GraphTraffic(BaseModel):
    """The calls by graph and step. Steps without calls are missing."""

    steps: dict[str, dict[str, CountedCalls]]


def drawn(graphs: Mapping[str, Graph]) -> DrawnGraphs:
    """Return the diagrams of `graphs`."""
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
    """Return the calls of steps. `counted` contains the counts by graph and step."""
    steps: dict[str, dict[str, CountedCalls]] = {}
    for (graph, step), counts in counted.items():
        steps.setdefault(graph, {})[step] = CountedCalls(
            calls=int(counts[CALLS_COUNTED]),
            errors=int(counts[ERRORS]),
            cancelled=int(counts[CANCELLED]),
            seconds=counts[SECONDS],
        )
    return GraphTraffic(steps=steps)
