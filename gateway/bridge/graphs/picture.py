"""Draws pictures of a graph as text, DOT (Graphviz) and SVG, for the console and `gateway graph`.

All three formats show the same Picture: boxes for the graph's inputs, steps and outputs, in columns from left to right,
and an arrow for each tensor between two boxes. A box is to the right of all boxes on which it depends.
"""

from collections.abc import Iterator, Mapping
from html import escape
from itertools import pairwise
from typing import Literal

from gateway.bridge.graphs.expressions import Expression, First, Reference, Transformed
from gateway.bridge.graphs.graph import Condition, Graph, GraphStep
from gateway.core.frozen import frozen

Kind = Literal["input", "step", "output"]


@frozen
class Box:
    """A box for an input, a step or an output.

    `about` is a step's model, an input's type, or the value of an output."""

    name: str
    kind: Kind
    about: str
    column: int
    conditions: str = ""
    fallback: str = ""


@frozen
class Arrow:
    """A tensor that passes from the box `start` to the box `end` (names in `Picture.boxes`).

    `tensor` is the tensor's name at the source. `into` is the input that the tensor becomes, or becomes part of. `by`
    contains the transforms in between."""

    start: str
    end: str
    tensor: str
    into: str
    by: str = ""

    @property
    def label(self) -> str:
        """Return the arrow's label."""
        through = f" {self.by}" if self.by else ""
        return f"{self.tensor}{through} → {self.into}" if self.into else f"{self.tensor}{through}"


@frozen
class Picture:
    """Boxes by identifier, in column order, and the arrows between them."""

    title: str
    boxes: Mapping[str, Box]
    arrows: tuple[Arrow, ...]


def picture(graph: Graph) -> Picture:
    """Return the picture of `graph`."""
    columns = _columns(graph)
    boxes = {f"in:{each.name}": Box(each.name, "input", _type(each), 0) for each in graph.inputs}
    for name, step in graph.steps.items():
        boxes[f"step:{name}"] = Box(
            name, "step", _model(step), columns[name], _condition(step.when), ", ".join(step.fallback)
        )
    last = max(columns.values(), default=0) + 1
    arrows: list[Arrow] = []
    for name, step in graph.steps.items():
        for into, value in step.inputs.items():
            arrows += _arrows(value, f"step:{name}", into)
        if step.when is not None and step.when.value is not None:
            arrows += _arrows(step.when.value, f"step:{name}", "when")
    for name, value in graph.outputs.items():
        boxes[f"out:{name}"] = Box(name, "output", str(value), last)
        arrows += _arrows(value, f"out:{name}", "")
    ordered = sorted(boxes.items(), key=lambda each: each[1].column)
    return Picture(graph.name, dict(ordered), tuple(arrows))


def _columns(graph: Graph) -> dict[str, int]:
    """Return the column of each step: the one after the last column on which the step depends.

    Steps in the same column run in parallel."""
    columns: dict[str, int] = {}
    for name, step in graph.steps.items():
        columns[name] = 1 + max((columns[each.step] for each in step.needs if each.step), default=0)
    return columns


def _model(step: GraphStep) -> str:
    return f"{step.model} version {step.version}" if step.version else step.model


def _condition(condition: Condition | None) -> str:
    if condition is None:
        return ""
    what = condition.value if condition.value is not None else f"parameter {condition.parameter}"
    return f"{what} {condition.comparison} {condition.to!r}"


def _type(spec: object) -> str:
    return str(spec).partition(" ")[2] or str(spec)


def _arrows(value: Expression, end: str, into: str, by: str = "") -> Iterator[Arrow]:
    match value:
        case Reference():
            start = f"step:{value.step}" if value.step else f"in:{value.tensor}"
            yield Arrow(start, end, value.tensor or "its output", into, by)
        case Transformed():
            for each in value.arguments:
                yield from _arrows(each, end, into, f"{by} {value.name}".strip())
        case First():
            for each in value.arguments:
                yield from _arrows(each, end, into, f"{by} first".strip())


def as_text(graph: Graph) -> Iterator[str]:
    """Yield the lines of a text description, with the steps in order. Steps with the same number run in parallel."""
    whole = picture(graph)
    yield f"{graph.name}{f': {graph.description}' if graph.description else ''}"
    yield "inputs"
    yield from (f"  {each.name}  {each.about}" for each in whole.boxes.values() if each.kind == "input")
    yield f"steps, at most {graph.steps_at_once} in parallel"
    for each in whole.boxes.values():
        if each.kind == "step":
            yield f"  {each.column}. {each.name}  calls {each.about}"
            yield from (f"       {line}" for line in _step_lines(graph.steps[each.name], each))
    yield "outputs"
    yield from (f"  {each.name}  {each.about}" for each in whole.boxes.values() if each.kind == "output")


def _step_lines(step: GraphStep, box: Box) -> Iterator[str]:
    if box.conditions:
        yield f"when {box.conditions}"
    yield from (f"{name} = {value}" for name, value in step.inputs.items())
    if step.parameters:
        yield f"parameters {', '.join(f'{name}={each!r}' for name, each in step.parameters.items())}"
    if box.fallback:
        yield f"else {box.fallback}"


def as_dot(whole: Picture) -> Iterator[str]:
    """Yield the lines of a graph in DOT, for `dot -Tpng`."""
    yield f"digraph {_quoted(whole.title)} {{"
    yield "  rankdir=LR; node [shape=box, fontname=sans]; edge [fontname=sans, fontsize=10];"
    for key, box in whole.boxes.items():
        shape = {"input": "ellipse", "step": "box", "output": "ellipse"}[box.kind]
        text = "\\n".join(_escaped(each) for each in box_lines(box))
        yield f'  {_quoted(key)} [shape={shape}, label="{text}"];'
    for arrow in whole.arrows:
        yield f"  {_quoted(arrow.start)} -> {_quoted(arrow.end)} [label={_quoted(arrow.label)}];"
    yield "}"


def box_lines(box: Box) -> Iterator[str]:
    """Yield the lines of text in a box, starting with its name."""
    yield box.name
    yield box.about
    if box.conditions:
        yield f"when {box.conditions}"
    if box.fallback:
        yield f"else {box.fallback}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'


WIDTH, _LINE, _GAP_X, _GAP_Y, _MARGIN = 190, 16, 170, 26, 14
"""Sizes in the SVG, in pixels: the box width, the height of a line of text, the gap between columns, the gap between
boxes, and the margin."""
_MOST_LETTERS = 28
"""The maximum number of characters per line in a box. Longer text is truncated in the box, but complete in the
tooltip."""

_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1b1f24 }
.small { font-size: 11px; fill: #59636e }
rect { fill: #f6f8fa; stroke: #59636e }
.input rect, .output rect { fill: #ddf4ff; stroke: #0969da }
path { fill: none; stroke: #59636e }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .small { fill: #9198a1 }
  rect { fill: #212830; stroke: #9198a1 }
  .input rect, .output rect { fill: #0c2d4d; stroke: #4493f8 }
  path { stroke: #9198a1 }
}
"""


def as_svg(whole: Picture) -> str:
    """Return the picture as an SVG document that suits light and dark pages."""
    layout = PictureLayout(whole)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {layout.width} {layout.height}" width="{layout.width}" '
        f'height="{layout.height}" role="img" aria-label="{escape(f"The graph of model {whole.title}")}">',
        f"<title>{escape(whole.title)}</title><style>{_STYLE}</style>",
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M1 1 7 4 1 7"/></marker>',
    ]
    parts += [_svg_arrow(arrow, layout.points(at)) for at, arrow in enumerate(whole.arrows)]
    parts += [_svg_box(box, *layout.places[key]) for key, box in whole.boxes.items()]
    return "\n".join([*parts, "</svg>\n"])


class PictureLayout:
    """The positions of all boxes and arrows. An arrow that crosses columns has a lane below the boxes of each
    column."""

    def __init__(self, whole: Picture) -> None:
        self._arrows = whole.arrows
        self._columns = {key: box.column for key, box in whole.boxes.items()}
        self._below: dict[int, int] = {}
        self.places: dict[str, tuple[int, int, int]] = {}
        """For each box, its left edge, upper edge and height."""
        for key, box in whole.boxes.items():
            tall = _LINE * len(list(box_lines(box))) + 12
            self.places[key] = self._left(box.column), self._free(box.column, tall), tall
        self._lanes: dict[tuple[int, int], int] = {}
        for at, arrow in enumerate(whole.arrows):
            for column in range(self._columns[arrow.start] + 1, self._columns[arrow.end]):
                self._lanes[at, column] = self._free(column, _LINE) + _LINE // 2
        self.width: int = max(x for x, _, _ in self.places.values()) + WIDTH + _MARGIN
        self.height = max(self._below.values()) - _GAP_Y + _MARGIN
        self._beside: dict[tuple[str, bool], int] = {}
        self._ends = [(self._end(each.start, leaves=True), self._end(each.end, leaves=False)) for each in self._arrows]

    @staticmethod
    def _left(column: int) -> int:
        return _MARGIN + column * (WIDTH + _GAP_X)

    def _free(self, column: int, tall: int) -> int:
        """Reserve the next free space in a column. Return its upper edge."""
        top = self._below.get(column, _MARGIN)
        self._below[column] = top + tall + _GAP_Y
        return top

    def _end(self, key: str, *, leaves: bool) -> int:
        """Return the vertical position at which the next arrow leaves or reaches a box. Arrows are spread over the
        box's side."""
        _, y, tall = self.places[key]
        count = sum((each.start if leaves else each.end) == key for each in self._arrows)
        at = self._beside[key, leaves] = self._beside.get((key, leaves), 0) + 1
        return y + tall * at // (count + 1)

    def points(self, at: int) -> list[tuple[int, int]]:
        """Return the points of arrow number `at`: its start, the left and right edge of each column that it crosses,
        and its end."""
        arrow, (begin, end) = self._arrows[at], self._ends[at]
        first, last = self._columns[arrow.start], self._columns[arrow.end]
        points = [(self._left(first) + WIDTH, begin)]
        for column in range(first + 1, last):
            points += [(self._left(column), self._lanes[at, column])]
            points += [(self._left(column) + WIDTH, self._lanes[at, column])]
        return [*points, (self._left(last), end)]


def _svg_arrow(arrow: Arrow, points: list[tuple[int, int]]) -> str:
    line = "M{} {}".format(*points[0])
    for (x, y), (to_x, to_y) in pairwise(points):
        bend = (x + to_x) // 2
        line += f" C{bend} {y} {bend} {to_y} {to_x} {to_y}"
    title = f"<title>{escape(arrow.label)}</title>"
    # If the arrow has lanes, put the label in the first lane, where no other line crosses it.
    (x, y), (to_x, to_y) = points[1:3] if len(points) > 2 else points
    place = f'x="{(x + to_x) // 2}" y="{(y + to_y) // 2 - 4}" text-anchor="middle"'
    text = f'<text class="small" {place}>{escape(_cut(arrow.label))}{title}</text>'
    return f'<path d="{line}" marker-end="url(#tip)">{title}</path>{text}'


def _svg_box(box: Box, x: int, y: int, tall: int) -> str:
    lines = list(box_lines(box))
    texts = [
        f'<text{"" if at == 0 else " class=" + chr(34) + "small" + chr(34)} x="{x + 10}" '
        f'y="{y + 18 + _LINE * at}">{escape(_cut(line))}<title>{escape(line)}</title></text>'
        for at, line in enumerate(lines)
    ]
    round_ = ' rx="18"' if box.kind != "step" else ' rx="4"'
    rect = f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{tall}"{round_}/>'
    return f'<g class="{box.kind}">{rect}{"".join(texts)}</g>'


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}…"
