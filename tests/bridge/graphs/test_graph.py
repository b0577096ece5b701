"""Graphs as they are written: names, values, circles, what nobody needs, and what may be missing."""

from typing import Any

import numpy as np
import pytest

from gateway.bridge.graphs.expressions import DEEPEST, MOST_VALUES, ConstantTensor, First, Reference, Transformed
from gateway.bridge.graphs.graph import MOST_STEPS, Condition, Graph, make_graph
from gateway.bridge.graphs.picture import as_text
from gateway.bridge.graphs.transforms import GraphError
from gateway.core.tensors import MAX_RANK
from tests.bridge.graphs.models import keys

X = {"x": "FP64 [-1, 2]"}


def graph(steps: dict[str, Any], outputs: dict[str, Any], inputs: dict[str, str] | None = None) -> Graph:
    return make_graph("g", keys({"inputs": X if inputs is None else inputs, "steps": steps, "outputs": outputs}))


def call(x: Any = "$x", when: Any = None, **inputs: Any) -> dict[str, Any]:
    return {"model": "m", "inputs": {"x": x, **inputs}, **({"when": when} if when else {})}


def refused(steps: dict[str, Any], outputs: dict[str, Any], inputs: dict[str, str] | None = None) -> GraphError:
    with pytest.raises(GraphError) as found:
        graph(steps, outputs, inputs)
    return found.value


def test_steps_come_after_those_that_they_need() -> None:
    made = graph(
        {
            "last": call("$middle.y", b={"sum": ["$first", "$x"]}),
            "middle": call("$first"),
            "first": call(),
        },
        {"y": "$last.z"},
    )
    assert list(made.steps) == ["first", "middle", "last"]
    assert made.waits_for(made.steps) == {
        "first": frozenset(),
        "middle": frozenset({"first"}),
        "last": frozenset({"first", "middle"}),
    }
    assert made.needed([Reference("middle", "y")]).keys() == {"first", "middle"}


def test_values_are_read() -> None:
    made = graph(
        {"s": call(), "both": {"concat": ["$x", "$s.y"], "axis": 1}},
        {"a": "$s", "b": {"slice": "$both", "axis": 1, "from": 1}, "c": "$x"},
    )
    assert made.outputs["a"] == Reference("s", "")
    assert made.outputs["c"] == Reference("", "x")
    b = made.outputs["b"]
    assert isinstance(b, Transformed)
    assert str(b) == "slice(concat($x, $s.y; axis 1); axis 1, from 1)"
    assert b.parts == (Reference("", "x"), Reference("s", "y"))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ([0.5, 1], np.array([0.5, 1.0])),
        (3, np.array(3)),
        (2**63, np.array(2**63, np.uint64)),
        ([[True], [False]], np.array([[True], [False]])),
        ([], np.zeros(0)),
        ("$$x", np.array(b"$x", object)),
        (["a$$", "é", "$$$y"], np.array([b"a$$", "é".encode(), b"$$y"], object)),
    ],
)
def test_constants(written: Any, expected: Any) -> None:
    made = graph({"s": call(c=written)}, {"y": "$s"}).steps["s"].inputs["c"]
    assert isinstance(made, ConstantTensor)
    assert made.array.dtype == expected.dtype
    assert made.array.tolist() == expected.tolist()


DEEP: Any = 1
for _ in range(MAX_RANK + 1):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ([1, "a"], "expected only numbers, only texts, or only true and false in a constant"),
        ([1, True], "only numbers, only texts"),
        ([[1], [1, 2]], "different lengths"),
        ([1, "$x"], "no transform"),
        (None, "expected a number, a text, a list or a map, got None"),
        ([{"sum": ["$x", "$x"]}], "expected a number"),
        (DEEP, f"expected at most {MAX_RANK} dimensions"),
        (2**64, "outside the range of INT64 and UINT64"),
        (["a", "$x"], "'$x' cannot stand in a constant; `concat` and `stack` join tensors"),
        ("$xs", "unknown input or step 'xs'; did you mean '$x'?"),
        ("$forth", "unknown input or step 'forth'; expected one of s, x"),
        ({"sums": ["$x"]}, "no transform 'sums'; did you mean 'sum'?"),
        ({"sum": []}, "expected a list"),
        ({"slice": ["$x"]}, "'slice' takes one value here, not a list"),
        ({"first": ["$x"], "axis": 1}, "'first' has no option 'axis'"),
        ({"sum": ["$x"], "axis": 1}, "'sum' takes one value here"),
        ({}, "the first key is one of"),
    ],
)  # fmt: skip
def test_wrong_values(written: Any, told: str) -> None:
    error = refused({"s": call(c=written)}, {"y": "$s"})
    assert error.place[:4] == ("steps", "s", "inputs", "c")
    if written != [1, "$x"]:
        assert told in error.message


def test_transforms_are_nested_only_so_deep() -> None:
    value: Any = "$x"
    for _ in range(DEEPEST):
        value = {"sum": [value, "$x"]}
    assert graph({}, {"y": value})
    assert f"nested more than {DEEPEST} levels deep" in refused({}, {"y": {"sum": [value]}}).message


def test_values_behind_names_count_as_if_they_were_written_out() -> None:
    """Ten lines could else stand for a thousand additions, and 32 lines for more than there is time for."""
    doubled = {f"v{at}": {"sum": [f"$v{at - 1}" if at else "$x"] * 2} for at in range(30)}
    assert str(MOST_VALUES) in refused(doubled, {"y": "$v29"}).message
    nested = {f"v{at}": {"sum": [f"$v{at - 1}" if at else "$x", "$x"]} for at in range(900)}
    assert f"nested more than {DEEPEST} levels deep" in refused(nested, {"y": "$v899", "z": "$v0"}).message
    half: dict[str, Any] = {name: name for name in ("$x", "$low")}
    for name in half:
        for _ in range(DEEPEST // 2 + 1):
            half[name] = {"sum": [half[name], "$x"]}
    told = refused({"low": half["$x"]}, {"low": "$low", "y": half["$low"]})
    assert told.message == f"values are nested more than {DEEPEST} levels deep; use fewer levels"
    assert told.place == ("outputs", "y", "sum", 0)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ({"a": call("$b"), "b": call("$c"), "c": call("$b", y="$x")}, "the step needs itself: b -> c -> b"),
        ({"a": call("$a", y="$x")}, "the step needs itself: a -> a"),
        ({"a": call(when={"value": "$b.y", "above": 1}), "b": call("$a")}, "the step needs itself: a -> b -> a"),
        ({"a": {"sum": ["$b", "$x"]}, "b": {"sum": ["$a"]}}, "the value needs itself: a -> b -> a"),
    ],
)
def test_circles(steps: dict[str, Any], told: str) -> None:
    error = refused(steps, {"y": "$a"})
    assert (error.message, error.place) == (told, ("steps", "a"))


@pytest.mark.parametrize(
    ("steps", "outputs", "inputs", "told", "place"),
    [
        ({"a": call(), "v": {"sum": ["$a"]}}, {"y": "$a"}, None, "no output needs the step 'v'", ("steps", "v")),
        ({}, {"y": [1]}, None, "nothing uses the input 'x'; remove it", ("inputs", "x")),
        ({"x": call()}, {"y": "$x"}, None, "'x' is already an input of the graph", ("steps", "x")),
        ({"1a": call()}, {"y": "$x"}, None, "'1a' is no name of a step", ("steps", "1a")),
        ({"v": {"sum": ["$x"]}}, {"y": "$v.z"}, None, "'$v' is one tensor and has no 'z'", ("outputs", "y")),
        ({}, {"y": "$x"}, {"x": "FP64"}, "a shape, such as FP64 [-1, 4], got 'FP64'", ("inputs", "x")),
        ({}, {"y": "$x"}, {"x": "float [2]"}, "no datatype 'float'; did you mean FP32?", ("inputs", "x")),
        ({}, {"y": "$x"}, {"x": "FP64 [-2]"}, "each -1 (any) or more", ("inputs", "x")),
        ({"a": call(when={"equals": 1})}, {"y": "$a"}, None, "one of `parameter` and `value`", ("steps", "a", "when")),
        (
            {"a": call(when={"parameter": "p", "above": 1, "equals": 1})}, {"y": "$a"}, None,
            "set exactly one of equals, differs, above, below", ("steps", "a", "when"),
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_graph(
    steps: dict[str, Any], outputs: dict[str, Any], inputs: dict[str, str] | None, told: str, place: tuple[str, ...]
) -> None:
    error = refused(steps, outputs, inputs)
    assert told in error.message
    assert error.place == place


SCORE = {"score": call()}
WAYS = (("a", "equals"), ("b", "differs"))
HIGH = {"value": "$score.s", "equals": 1}
LOW = {"value": "$score.s", "differs": 1}


@pytest.mark.parametrize(
    ("steps", "output", "told"),
    [
        ({"a": call(when={"parameter": "p", "above": 1})}, "$a", "step 'a' can be skipped; use `first`"),
        ({**SCORE, "a": call(when=HIGH), "b": call("$a")}, "$b", "step 'b' can be skipped"),
        ({**SCORE, "a": call(when=HIGH)}, {"sum": ["$a", "$x"]}, "step 'a' can be skipped"),
        ({**SCORE, "a": call(when=HIGH), "b": call(when=HIGH)}, {"first": ["$a", "$b"]}, "step 'a' can be skipped"),
        (
            {**SCORE, "a": call(when=HIGH), "b": call(when={**LOW, "differs": 2})}, {"first": ["$a", "$b"]},
            "step 'a' can be skipped",
        ),
        (
            {**SCORE, **{name: call(when={"value": {"sum": ["$score.s"]}, way: 1}) for name, way in WAYS}},
            {"first": ["$a", "$b"]}, "step 'a' can be skipped",
        ),
        (
            {"a": call(when={"parameter": "p", "equals": 1}), "b": call(when={"parameter": "p", "differs": True})},
            {"first": ["$a", "$b"]}, "step 'a' can be skipped",
        ),
    ],
)  # fmt: skip
def test_outputs_that_may_be_missing(steps: dict[str, Any], output: Any, told: str) -> None:
    error = refused(steps, {"y": output})
    assert error.message.startswith("output 'y' can be missing: ")
    assert told in error.message
    assert error.place == ("outputs", "y")


@pytest.mark.parametrize(
    ("steps", "output"),
    [
        ({"a": call(when={"parameter": "p", "above": 1}), "b": call()}, {"first": ["$a", "$b"]}),
        ({**SCORE, "a": call(when=HIGH), "b": call(when=LOW)}, {"first": ["$a", "$b"]}),
        (
            {**SCORE, "a": call(when=HIGH), "b": call(when=LOW), "c": call("$a")},
            {"first": [{"sum": ["$c", "$x"]}, "$b"]},
        ),
        (
            {name: call(when={"parameter": "p", way: "left"}) for name, way in WAYS},
            {"first": ["$a", "$b"]},
        ),
    ],
)
def test_outputs_that_are_always_there(steps: dict[str, Any], output: Any) -> None:
    assert graph(steps, {"y": output})


@pytest.mark.parametrize(
    ("comparison", "to", "yes", "no"),
    [
        ("equals", 1, [1, 1.0], [2, True, "1", None]),
        ("equals", True, [True], [1, False, None]),
        ("equals", "a", ["a"], ["A", None]),
        ("differs", 1, [2, True, None], [1, 1.0]),
        ("above", 0.5, [1, 0.6], [0.5, float("nan"), "1", True, None]),
        ("below", 0.5, [0, -1.0], [0.5, float("nan"), None]),
    ],
)
def test_conditions(comparison: str, to: Any, yes: list[Any], no: list[Any]) -> None:
    condition = Condition("p", None, comparison, to)
    assert [condition.holds(each) for each in yes] == [True] * len(yes)
    assert [condition.holds(each) for each in no] == [False] * len(no)


def test_most_steps_are_read_in_any_order() -> None:
    steps = {f"s{at}": call(x=f"$s{at - 1}" if at else "$x") for at in range(MOST_STEPS)}
    made = graph(dict(reversed(steps.items())), {"y": f"$s{MOST_STEPS - 1}"})
    assert list(made.steps) == list(steps)


def test_the_text_of_a_step_has_its_parameters_and_its_fallbacks() -> None:
    step = {**call(), "parameters": {"level": 2, "mode": "fast"}, "fallback": ["m2", "m3"]}
    assert list(as_text(graph({"s": step}, {"y": "$s.y"}))) == [
        "g",
        "inputs",
        "  x  FP64[-1,2]",
        "steps, at most 16 in parallel",
        "  1. s  calls m",
        "       x = $x",
        "       parameters level=2, mode='fast'",
        "       else m2, m3",
        "outputs",
        "  y  $s.y",
    ]


def test_first_is_a_value_of_its_own() -> None:
    made = graph({"a": call(), "b": call()}, {"y": {"first": ["$a", "$b"]}}).outputs["y"]
    assert made == First((Reference("a", ""), Reference("b", "")), ("outputs", "y"))
