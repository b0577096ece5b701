"""`gateway graph`: a model that is made of others as text, as DOT and as SVG."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.cli.commands import ROOT, gateway, written

SWITCH = ("--config", str(ROOT / "config/examples/graph-switch.yaml"))
POSTERIOR = ("--config", str(ROOT / "config/examples/graph-posterior.yaml"))
SVG = "{http://www.w3.org/2000/svg}"


def test_the_text_has_each_step_with_its_inputs_and_its_condition() -> None:
    result = gateway("graph", *SWITCH, "detector")
    assert result.exit_code == 0
    assert result.stdout == (
        "detector\n"
        "inputs\n"
        "  image  FP32[1,3,640,640]\n"
        "steps, at most 16 in parallel\n"
        "  1. small  calls nano\n"
        "       image = $image\n"
        "  1. asked  calls large\n"
        "       when parameter quality equals 'high'\n"
        "       image = $image\n"
        "  2. unsure  calls large\n"
        "       when $small.confidence below 0.5\n"
        "       image = $image\n"
        "outputs\n"
        "  boxes  first($asked.boxes, $unsure.boxes, $small.boxes)\n"
    )


def test_dot_has_a_box_for_each_step_and_an_arrow_for_each_tensor() -> None:
    lines = gateway("graph", *POSTERIOR, "--format", "dot").stdout.splitlines()
    assert lines[0] == 'digraph "posterior" {'
    assert '  "step:likelihood" [shape=box, label="likelihood\\nmisfit"];' in lines
    assert [line.strip() for line in lines if "->" in line] == [
        '"in:theta" -> "step:forward" [label="theta → input0"];',
        '"in:theta" -> "step:prior" [label="theta → theta"];',
        '"step:forward" -> "step:likelihood" [label="its output → predicted"];',
        '"step:prior" -> "out:logdensity" [label="log sum"];',
        '"step:likelihood" -> "out:logdensity" [label="log sum"];',
    ]


def test_boxes_of_the_svg_stand_apart_and_in_their_columns(tmp_path: Path) -> None:
    file = tmp_path / "graph.svg"
    assert gateway("graph", *POSTERIOR, "--format", "svg", "--output", str(file)).stdout == ""
    whole = ElementTree.parse(file).getroot()
    boxes = {}
    for group in whole.iter(f"{SVG}g"):
        rect = group.find(f"{SVG}rect")
        assert rect is not None
        x, y, width, height = (int(rect.attrib[each]) for each in ("x", "y", "width", "height"))
        boxes["".join(group.find(f"{SVG}text").itertext())] = (x, y, x + width, y + height)  # type: ignore[union-attr]
    assert len(boxes) == 5
    for name, (left, top, right, bottom) in boxes.items():
        assert 0 <= left < right <= int(whole.attrib["width"]), name
        assert 0 <= top < bottom <= int(whole.attrib["height"]), name
        for other, (x, y, to_x, to_y) in boxes.items():
            assert other == name or right <= x or to_x <= left or bottom <= y or to_y <= top, (name, other)
    columns = [left for left, _, _, _ in boxes.values()]
    assert columns == sorted(columns)


def test_names_are_escaped_in_pictures(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
listeners: [{name: a, bind: "127.0.0.1:0", protocols: [v2-rest]}]
backends: {b: {protocol: v2-rest, endpoints: ["http://127.0.0.1:1"]}}
routes: [{match: {}, backend: b}]
models:
  '<b>"m"':
    inputs: {'<x>"': "FP32 [1]"}
    steps: {s: {model: 'a"<&\\b', inputs: {x: '$<x>"'}}}
    outputs: {y: $s.y}
""",
    )
    svg = ElementTree.fromstring(gateway("graph", "--config", file, "--format", "svg").stdout)
    assert 'a"<&\\b' in "".join(svg.itertext())
    assert 'label="s\\na\\"<&\\\\b"' in gateway("graph", "--config", file, "--format", "dot").stdout


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((*SWITCH, "detektor"), "no model 'detektor' in `models`; did you mean 'detector'?\n"),
        (("--config", str(ROOT / "config/gateway.yaml")), "the configuration has no `models`\n"),
    ],
)
def test_a_model_that_there_is_not_is_told(arguments: tuple[str, ...], text: str) -> None:
    result = gateway("graph", *arguments)
    assert result.exit_code == 2
    assert result.stderr == text
