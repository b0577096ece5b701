"""Graphs that are called: values, types along edges, branches, fallbacks, errors, streams, and what is held."""

import asyncio
import gc
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gateway.bridge.graphs.evaluation import GraphEvaluation
from gateway.bridge.graphs.schedule import Order
from gateway.core.errors import (
    DecodeError,
    DetailedError,
    GatewayError,
    Reason,
    Status,
    TransportError,
    invalid_input,
    refusal,
    unsupported,
)
from gateway.core.frozen import replace
from gateway.core.models import ModelEntry, ServerInfo, Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.principal import Grant, Principal
from gateway.core.record import UNRECORDED, Record
from gateway.core.requests import Answer, Request, RequestedOutput, Response
from gateway.core.tensors import tensor
from gateway.core.transport import Destination
from tests.bridge.graphs.models import FP64, MODELS, Counted, Graphed, Lab, Model, Norm, Plain
from tests.records import made

X: dict[str, Any] = {"x": "FP64 [-1, 2]"}
POINT = {"x": [[3.0, 4.0]]}


def plain(name: str, inputs: list[str], outputs: list[str], compute: Any) -> dict[str, Model]:
    return {name: Plain(inputs, outputs, compute)}


def doubles(*names: str, of: str = "FP64 [-1, 2]") -> dict[str, Model]:
    """Models that double x, with these names."""
    return dict.fromkeys(names or ("double",), Plain([f"x {of}"], [f"y {of}"], lambda x: x * 2))


def step(model: str = "double", x: Any = "$x", **more: Any) -> dict[str, Any]:
    return {"model": model, "inputs": {"x": x}, **more}


ONE: dict[str, Any] = {"inputs": X, "steps": {"n": step("norm")}, "outputs": {"y": "$n"}}


def graph_of(lab: Lab | None = None, /, *, y: Any = None, **steps: Any) -> Graphed:
    """A graph of these steps, whose output is `y` or else the last step."""
    return Graphed({"inputs": X, "steps": steps, "outputs": {"y": y or f"${list(steps)[-1]}"}}, lab)


async def test_values_of_a_diamond() -> None:
    graph = Graphed(
        {
            "inputs": X,
            "steps": {
                "left": step(),
                "right": step(x={"sum": ["$x", [10, 20]]}),
                "both": {"concat": ["$left", "$right"], "axis": 1},
                "end": step("norm", "$both"),
            },
            "outputs": {"log": "$end.log", "left": "$left", "doubled": {"sum": ["$x", "$x"]}},
        },
        Lab({**MODELS, **doubles()}),
    )
    found = await graph.infer({"x": [[1.0, 2.0], [0.0, 0.0]]})
    assert list(found) == ["log", "left", "doubled"]
    assert found["log"].tolist() == [[-(4 + 16 + 22**2 + 44**2) / 2], [-(400 + 1600) / 2]]
    assert found["left"].tolist() == [[2.0, 4.0], [0.0, 0.0]]
    assert found["doubled"].tolist() == [[2.0, 4.0], [0.0, 0.0]]
    assert graph.memory.used == 0


async def test_only_what_is_asked_for_is_computed() -> None:
    data = {**ONE, "steps": {**ONE["steps"], "s": step("sine")}, "outputs": {"y": "$n", "z": "$s"}}
    graph = Graphed(data)
    found = await graph.infer(POINT, outputs=(RequestedOutput("z"),))
    assert list(found) == ["z"]
    assert graph.lab.called() == [("sine", "infer")]
    with pytest.raises(GatewayError, match="model 'posterior' has no output 'q'; expected y, z"):
        await graph.infer(POINT, outputs=(RequestedOutput("q"),))
    with pytest.raises(GatewayError, match="its outputs have no parameters"):
        await graph.infer(POINT, outputs=(RequestedOutput("z", {"classification": 1}),))


@pytest.mark.parametrize("inputs", [{"x": "FP64 [-1, 2]"}, {"x": "FP64 [2]"}])
async def test_a_graph_without_steps_is_a_function(inputs: dict[str, str]) -> None:
    graph = Graphed({"inputs": inputs, "outputs": {"y": {"sum": ["$x"], "weights": [3.0]}}})
    x = np.array([1.0, 2.0]).reshape((1, 2) if "-1" in inputs["x"] else (2,))
    assert (await graph.infer({"x": x}))["y"].tolist() == (3 * x).tolist()


@pytest.mark.parametrize(
    ("inputs", "parameters", "told"),
    [
        ({}, {}, r"model 'posterior' needs the input x FP64\[-1,2\]"),
        ({"x": [[1, 2]]}, {}, r"input 'x' is INT64 \[1, 2\], expected FP64 \[-1, 2\]"),
        ({"x": [1.0, 2.0]}, {}, r"input 'x' is FP64 \[2\], expected FP64 \[-1, 2\]"),
        ({"x": [[1.0, 2.0, 3.0]]}, {}, r"input 'x' is FP64 \[1, 3\], expected"),
        ({**POINT, "z": [1]}, {}, "model 'posterior' has no input 'z'"),
        (POINT, {"temperature": 1}, "model 'posterior' is a graph and has no parameter 'temperature'; remove it"),
    ],
)
async def test_inputs_that_do_not_fit(inputs: Any, parameters: Any, told: str) -> None:
    graph = Graphed(ONE)
    with pytest.raises(GatewayError, match=told) as refused:
        await graph.infer(inputs, parameters)
    assert refused.value.reason is Reason.INVALID_INPUT
    assert graph.lab.calls == graph.lab.questions == []


async def test_inputs_of_a_batch_have_equally_many_rows() -> None:
    graph = Graphed({"inputs": {**X, "z": "FP64 [-1, 2]"}, "outputs": {"y": {"concat": ["$x", "$z"], "axis": 0}}})
    with pytest.raises(GatewayError, match="input 'z' has 2 rows, and another one 1; send the same number"):
        await graph.infer({"x": [[1.0, 2.0]], "z": np.zeros((2, 2))})


async def test_constants_get_the_datatype_and_the_rows_of_their_place() -> None:
    seen: list[Any] = []

    def keep(*given: Any) -> Any:
        seen.extend(given)
        return given[0]

    model = plain(
        "keep", ["x FP64 [-1, 2]", "k INT32 [-1, 3]", "t BYTES [-1, 1]", "s FP32 [1]"], ["y FP64 [-1, 2]"], keep
    )
    inputs = {"x": "$x", "k": [1, 2, 3], "t": ["$$a"], "s": [0.5]}
    await graph_of(Lab(model), s=step("keep", inputs=inputs)).infer({"x": np.zeros((2, 2))})
    _, k, t, s = seen
    assert (k.dtype, k.tolist()) == (np.int32, [[1, 2, 3], [1, 2, 3]])
    assert t.tolist() == [[b"$a"], [b"$a"]]
    assert (s.dtype, s.tolist()) == (np.float32, [0.5])


@pytest.mark.parametrize(
    ("dtype", "constant", "expected"),
    [
        (np.float32, [1, 0.5], [[2.0, 1.5]]),
        (np.int64, [1, 2], [[2, 3]]),
        (ml_dtypes.bfloat16, [1, 0.5], [[2.0, 1.5]]),
        (np.uint8, 5, [[6, 6]]),
    ],
)
async def test_constants_in_sums_get_the_datatype_of_the_others(dtype: Any, constant: Any, expected: Any) -> None:
    name = tensor("x", np.zeros(1, dtype)).datatype.value
    graph = Graphed({"inputs": {"x": f"{name} [-1, 2]"}, "outputs": {"y": {"sum": ["$x", constant]}}})
    found = await graph.infer({"x": np.ones((1, 2), dtype)})
    assert found["y"].dtype == dtype
    assert found["y"].astype(float).tolist() == expected


async def test_constants_without_a_value_in_the_datatype_are_refused() -> None:
    """Rounding 1.5 would answer another question."""
    graph = Graphed({"inputs": {"x": "INT64 [2]"}, "outputs": {"y": {"sum": ["$x", [1.5, 2]]}}})
    with pytest.raises(GatewayError, match=r"different datatypes, INT64 .*FP64"):
        await graph.infer({"x": [1, 2]})


async def test_constants_alone_are_computed_too() -> None:
    data = {"inputs": {"x": "FP64 [2]"}, "outputs": {"y": {"sum": [{"cast": [1, 2], "datatype": "FP64"}, "$x"]}}}
    assert (await Graphed(data).infer({"x": [0.5, 1.0]}))["y"].tolist() == [1.5, 3.0]


@pytest.mark.parametrize(
    ("model", "y", "told"),
    [
        (
            "untold", {"sum": ["$s", [300, 0]]},
            "sum($s, constant [2]): the constant: element 0, 300, is out of the range of UINT8",
        ),
        (
            "untold", {"sum": ["$s", [1, 2, 3]]},
            "sum($s, constant [3]): a constant of shape [3] and a tensor of shape [2]",
        ),
        ("pair", "$s", "$s means the only output, but the step has y, z; name one"),
    ],
)  # fmt: skip
async def test_what_only_the_tensors_of_a_model_without_metadata_show(model: str, y: Any, told: str) -> None:
    lab = Lab({
        **plain("untold", ["x UINT8 [2]"], ["y UINT8 [2]"], lambda x: x),
        **plain("pair", ["x UINT8 [2]"], ["y UINT8 [2]", "z UINT8 [2]"], lambda x: (x, x)),
    })  # fmt: skip
    lab.untold = {"untold", "pair"}
    graph = Graphed({"inputs": {"x": "UINT8 [2]"}, "steps": {"s": step(model)}, "outputs": {"y": y}}, lab)
    with pytest.raises(GatewayError) as failed:
        await graph.infer({"x": np.ones(2, np.uint8)})
    assert failed.value.message.removeprefix("model 'posterior': ").startswith(told)
    assert failed.value.reason is Reason.INVALID_OUTPUT


async def test_texts_go_through() -> None:
    words = {"a": [[b"cat", b"dog"]], "b": [[b"cow", b"dog"]], "c": [[b"cat", b"eel"]]}
    graph = Graphed(
        {
            "inputs": dict.fromkeys(words, "BYTES [-1, 2]"),
            "outputs": {
                "vote": {"vote": ["$a", "$b", "$c"]},
                "fixed": {"vote": ["$b", ["cat", "pig"], ["cat", "pig"]]},
                "joined": {"concat": ["$a", "$b"], "axis": 1},
            },
        }
    )
    found = await graph.infer({name: np.array(each, object) for name, each in words.items()})
    assert found["vote"].tolist() == [[b"cat", b"dog"]]
    assert found["fixed"].tolist() == [[b"cat", b"pig"]]
    assert found["joined"].tolist() == [[b"cat", b"dog", b"cow", b"dog"]]


async def test_steps_that_do_not_wait_for_each_other_run_at_once() -> None:
    steps = {f"s{at}": step() for at in range(5)}
    data = {"inputs": X, "steps": steps, "outputs": {"y": {"sum": [f"$s{at}" for at in range(5)]}}}
    for most, expected in ((16, 5), (2, 2)):
        graph = Graphed({**data, "steps_at_once": most}, Lab(doubles()))
        assert (await graph.infer(POINT))["y"].tolist() == [[30.0, 40.0]]
        assert graph.lab.most == expected


async def test_the_first_error_ends_the_steps_in_flight() -> None:
    lab = Lab(doubles("double", "slow", "bad"))
    lab.gates["slow"] = asyncio.Event()
    lab.errors["bad"] = refusal(Reason.MODEL_ERROR, "no such luck")
    graph = graph_of(lab, slow=step("slow"), bad=step("bad"), after=step(x="$slow"), y={"sum": ["$after", "$bad"]})
    with pytest.raises(GatewayError, match=r"step 'bad' \(model 'bad'\): no such luck") as failed:
        await graph.infer(POINT)
    assert failed.value.status is Status.INTERNAL
    assert lab.running == []
    assert lab.called() == [("slow", "infer"), ("bad", "infer")]
    counts = graph.model.calls.counts
    assert counts["bad"] | {"seconds": 0} == {"calls": 1, "errors": 1, "cancelled": 0, "seconds": 0}
    assert counts["slow"] | {"seconds": 0} == {"calls": 1, "errors": 0, "cancelled": 1, "seconds": 0}


async def test_a_client_that_leaves_ends_all_steps() -> None:
    lab = Lab(doubles("a", "b"))
    lab.gates = {"a": asyncio.Event(), "b": asyncio.Event()}
    graph = graph_of(lab, a=step("a"), b=step("b"), y={"sum": ["$a", "$b"]})
    request = asyncio.ensure_future(graph.infer(POINT))
    await lab.both.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert lab.running == []
    assert graph.memory.used == 0
    for each in graph.model.calls.counts.values():
        assert (each["calls"], each["errors"], each["cancelled"]) == (1, 0, 1)


UNSENT = TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "backend 'b' at a:1: refused", sent=False)
SENT = TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, "backend 'b' at a:1: broken off", sent=True)


@pytest.mark.parametrize(
    ("error", "goes_on"),
    [
        (UNSENT, "always"),
        (SENT, "safe"),
        (refusal(Reason.OVERLOADED, "queue full"), "always"),
        (refusal(Reason.NOT_READY, "starting"), "always"),
        (refusal(Reason.CIRCUIT_OPEN, "open"), "always"),
        (refusal(Reason.MODEL_NOT_FOUND, "gone"), "always"),
        (refusal(Reason.TIMEOUT, "too late"), "safe"),
        (refusal(Reason.MODEL_ERROR, "failed"), "safe"),
        (invalid_input("bad shape"), "never"),
    ],
)
async def test_fallbacks(error: GatewayError, goes_on: str) -> None:
    """What may have run is not run again elsewhere, unless that is declared to be safe."""
    lab = Lab(doubles("a", "b"))
    lab.errors["a"] = error
    graph = graph_of(lab, s=step("a", fallback=["b"]))
    for is_safe in (False, True):
        lab.safe = {"a"} if is_safe else set()
        if goes_on == "always" or (goes_on == "safe" and is_safe):
            assert (await graph.infer(POINT))["y"].tolist() == [[6.0, 8.0]]
        else:
            with pytest.raises(GatewayError, match=r"step 's' \(model 'a'\)") as failed:
                await graph.infer(POINT)
            assert (failed.value.status, failed.value.reason) == (error.status, error.reason)


async def test_the_last_fallback_is_named_by_its_error() -> None:
    lab = Lab(doubles("a", "b"))
    lab.errors = {"a": UNSENT, "b": UNSENT}
    graph = graph_of(lab, s=step("a", fallback=["b"]))
    with pytest.raises(TransportError, match=r"step 's' \(model 'b'\): backend 'b' at a:1: refused") as failed:
        await graph.infer(POINT)
    assert not failed.value.sent
    assert graph.model.calls.counts["s"]["fallbacks"] == 1


async def test_a_graph_whose_first_step_ran_is_not_one_that_was_never_sent() -> None:
    lab = Lab(doubles("a", "b"))
    lab.errors = {"b": UNSENT}
    with pytest.raises(TransportError, match=r"step 'second' \(model 'b'\)") as failed:
        await graph_of(lab, first=step("a"), second=step("b", "$first")).infer(POINT)
    assert failed.value.sent


async def test_what_only_some_may_see_stays_apart() -> None:
    lab = Lab(doubles())
    error = DetailedError(Status.UNAVAILABLE, Reason.UNREACHABLE, "it ended", "secret output", sent=False)
    lab.errors["double"] = error
    with pytest.raises(DetailedError, match="secret output") as failed:
        await graph_of(lab, s=step()).infer(POINT)
    assert failed.value.brief == "step 's' (model 'double'): it ended"


async def test_a_model_that_no_route_leads_to() -> None:
    graph = graph_of(Lab({}), s=step("nowhere"))
    with pytest.raises(GatewayError, match=r"step 's' \(model 'nowhere'\): no route for 'nowhere'") as failed:
        await graph.infer(POINT)
    assert failed.value.status is Status.NOT_FOUND
    with pytest.raises(GatewayError, match=r"step 's' \(model 'nowhere'\): no route"):
        await graph.signature()


WHEN: dict[str, Any] = {
    "inputs": X,
    "steps": {
        "a": step("a", when={"parameter": "way", "equals": "left"}),
        "b": step("b", when={"parameter": "way", "differs": "left"}),
        "c": step("c", "$a"),
    },
    "outputs": {"y": {"first": ["$c", "$b"]}},
}


@pytest.mark.parametrize(("way", "called", "expected"), [("left", "ac", 4), ("right", "b", 2), (None, "b", 2)])
async def test_branches(way: str | None, called: str, expected: int) -> None:
    graph = Graphed(WHEN, Lab(doubles(*"abc")))
    found = await graph.infer(POINT, {} if way is None else {"way": way})
    assert found["y"].tolist() == [[3.0 * expected, 4.0 * expected]]
    assert [name for name, _ in graph.lab.called()] == list(called)


@pytest.mark.parametrize(("x", "called"), [([[0.1, 0.1]], ["norm", "double"]), ([[3.0, 4.0]], ["norm"])])
async def test_a_branch_by_a_value(x: Any, called: list[str]) -> None:
    above = step(when={"value": "$n", "above": -1})
    graph = graph_of(Lab({**MODELS, **doubles()}), n=step("norm"), d=above, y={"first": ["$d", "$x"]})
    found = await graph.infer({"x": x})
    assert found["y"].tolist() == (np.array(x) * (2 if "double" in called else 1)).tolist()
    assert [name for name, _ in graph.lab.called()] == called
    with pytest.raises(GatewayError, match=r"\$n has shape \[2, 1\], and a condition compares one element"):
        await graph.infer({"x": np.zeros((2, 2))})


SKIPPED = step("a", when={"parameter": "way", "equals": "left"})
"""Without the parameter, this step does not run."""


@pytest.mark.parametrize(
    "y",
    [
        {"first": [{"sum": ["$a", "$x"]}, "$x"]},
        {"first": [{"sum": [{"first": ["$a"]}, "$x"]}, "$x"]},
        {"first": [{"sum": [{"sum": ["$a", "$x"]}, "$x"]}, "$x"]},
        {"sum": [{"first": [{"sum": ["$a", "$x"]}, "$x"]}], "weights": [1.0]},
    ],
)
async def test_a_value_of_a_missing_tensor_is_missing_itself(y: Any) -> None:
    graph = graph_of(Lab(doubles("a")), a=SKIPPED, y=y)
    assert (await graph.infer(POINT))["y"].tolist() == POINT["x"]
    assert graph.lab.called() == []


async def test_a_missing_value_differs_from_all_others() -> None:
    lab = Lab(doubles("a", "d", of="FP64 [-1, 1]"))
    steps = {"a": SKIPPED, "d": step("d", when={"value": "$a", "differs": 9})}
    graph = Graphed({"inputs": {"x": "FP64 [-1, 1]"}, "steps": steps, "outputs": {"y": {"first": ["$d", "$x"]}}}, lab)
    assert (await graph.infer({"x": [[3.0]]}))["y"].tolist() == [[6.0]]
    assert lab.called() == [("d", "infer")]


async def test_a_branch_by_a_text() -> None:
    label = plain("label", ["x FP64 [-1, 2]"], ["y BYTES [-1, 1]"], lambda x: np.array([[b"cat"]], object))
    equal = step(when={"value": "$l", "equals": "cat"})
    graph = graph_of(Lab({**label, **doubles()}), l=step("label"), d=equal, y={"first": ["$d", "$x"]})
    assert (await graph.infer(POINT))["y"].tolist() == [[6.0, 8.0]]


async def test_types_are_checked_before_the_first_call() -> None:
    graph = graph_of(s=step("sine"), n=step("scaled", inputs={"x": "$s", "n": [[1]]}))
    with pytest.raises(GatewayError) as refused:
        await graph.infer(POINT)
    assert refused.value.reason is Reason.FAILED_PRECONDITION
    assert refused.value.message == (
        "model 'posterior': steps.n.inputs.x: $s is FP64 [-1, 3], and the input is x FP64[-1,2]"
    )
    assert graph.lab.calls == []


PRODUCT = {"model": "product", "inputs": {"a": [[1, 2, 3]], "b": [[1, 2, 3]]}}
SINGLE = {"cast": "$x", "datatype": "FP32"}
BY_X = step("sine", when={"value": "$x", "above": 1})
BY_P = step("sine", when={"parameter": "p", "above": 1})
MISFITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "steps.n.inputs.z: model 'norm' has no input 'z'; expected x": (
        {"n": {"model": "norm", "inputs": {"z": "$x"}}}, {"y": "$n"},
    ),
    "steps.n.inputs.a: $x is FP64 [-1, 2], and the input is a FP64[-1,3]": (
        {"n": {"model": "product", "inputs": {"a": "$x"}}}, {"y": "$n.s"},
    ),
    "steps.n.inputs: model 'norm' needs the input x FP64[-1,-1]": (
        {"n": {"model": "norm", "inputs": {}}}, {"y": "$n", "x": "$x"},
    ),
    "outputs.y: model 'norm' of step 'n' has no output 'q'; expected log": ({"n": step("norm")}, {"y": "$n.q"}),
    "outputs.y: model 'product' has 2 outputs; expected one of '$p.p', '$p.s'": (
        {"p": PRODUCT}, {"y": "$p", "x": "$x"},
    ),
    "steps.n.inputs.n: constant [1] is FP64, and the input is n INT64[-1,1]; `cast` changes it": (
        {"n": {"model": "scaled", "inputs": {"x": "$x", "n": [1.5]}}}, {"y": "$n"},
    ),
    "steps.n.inputs.x: cast($x; datatype FP32) is FP32, and the input is x FP64[-1,-1]; `cast` changes it": (
        {"n": {"model": "norm", "inputs": {"x": SINGLE}}}, {"y": "$n"},
    ),
    "outputs.y: 'sum': expected tensors of the same shape, got FP64 [-1, 1] and FP64 [-1, 2]": (
        {"n": step("norm")}, {"y": {"sum": ["$n", "$x"]}},
    ),
    "steps.s.when.value: expected one element for a condition, but $x is x FP64[-1,2]": (
        {"n": step("norm"), "s": BY_X}, {"y": "$n", "s": {"first": ["$s", "$s", "$n"]}},
    ),
    "outputs.y: 'first' needs equal tensors": (
        {"n": step("norm"), "c": BY_P}, {"y": {"first": ["$c", {"cast": "$n", "datatype": "FP32"}]}},
    ),
}  # fmt: skip


POOLED = plain("pool", ["x FP64 [-1, 2]"], ["y FP64 [1]"], lambda x: x.sum(keepdims=True)[0, :1])
SHARED = plain("shared", ["x FP64 [-1, 2]", "k FP64 [2]"], ["y FP64 [-1, 2]"], lambda x, k: x + k)


@pytest.mark.parametrize(
    ("inputs", "steps", "outputs", "told"),
    [
        (X, {}, {"y": {"concat": ["$x", "$x"], "axis": 0}}, "outputs.y.concat: 'concat' mixes the rows of a batch"),
        (
            X,
            {"n": {"model": "norm", "inputs": {"x": {"reshape": {"slice": "$x", "from": 1}, "shape": [-1, 2]}}}},
            {"y": {"first": ["$n"]}},
            "steps.n.inputs.x.reshape.slice: 'slice' mixes the rows of a batch",
        ),
        (
            X,
            {"p": step("pool"), "s": {"model": "shared", "inputs": {"x": "$x", "k": {"concat": ["$p", "$p"]}}}},
            {"y": "$s"},
            "steps.p: model 'pool' turns a batch into one value: its y FP64[1] has no rows",
        ),
        (
            X,
            {"n": step("norm"), "s": step("norm", when={"value": {"sum": "$n", "axis": 0}, "above": 1})},
            {"y": {"first": ["$s", "$n"]}},
            "steps.s.when.value.sum: 'sum' mixes the rows of a batch",
        ),
        (X, {"s": {"model": "shared", "inputs": {"x": "$x", "k": [1, 2]}}}, {"y": "$s"}, ""),
        ({**X, "k": "FP64 [4]"}, {}, {"y": "$x", "k": {"slice": "$k", "to": 2}}, ""),
        ({"x": "FP64 [4]"}, {}, {"y": {"slice": "$x", "to": 2}}, ""),
        (X, {}, {"y": {"sum": ["$x", [1, 2]]}}, ""),
    ],
)
async def test_rows_are_not_mixed_where_they_are_the_points_of_derivatives(
    inputs: Any, steps: Any, outputs: Any, told: str
) -> None:
    """The value of one point would depend on the others. Without `derivatives` such a graph is as good as any."""
    data = {"inputs": inputs, "steps": steps, "outputs": outputs}
    lab = Lab({**MODELS, **POOLED, **SHARED})
    assert await Graphed(data, lab).signature()
    graph = Graphed({**data, "derivatives": {"method": "central"}}, lab)
    if told:
        with pytest.raises(GatewayError) as refused:
            await graph.signature()
        text = refused.value.message
        assert text == f"model 'posterior': {told}; `derivatives` of the graph need each row of a batch by itself"
    else:
        assert await graph.signature()


async def test_derivatives_of_a_graph_need_the_types_of_all_steps() -> None:
    """Nobody could say whether rows are mixed."""
    lab = Lab({**MODELS, **doubles()})
    lab.untold = {"double"}
    data = {"inputs": X, "steps": {"d": step(), "n": step("norm", "$d")}, "outputs": {"y": "$n"}}
    graph = Graphed({**data, "derivatives": {"method": "central"}}, lab)
    assert (await graph.infer(POINT))["y"].tolist() == [[-50.0]]
    with pytest.raises(GatewayError, match=r"steps\.d: tensors unknown for model 'double' of step 'd'"):
        await graph.signature()


@pytest.mark.parametrize("told", MISFITS)
async def test_types_along_edges(told: str) -> None:
    steps, outputs = MISFITS[told]
    graph = Graphed({"inputs": X, "steps": steps, "outputs": outputs})
    for operation in (Operation.INFER, Operation.METADATA):
        with pytest.raises(GatewayError) as refused:
            await graph.ask(operation, [tensor("x", np.zeros((1, 2)))] if operation is Operation.INFER else ())
        assert refused.value.message.startswith(f"model 'posterior': {told}")
        assert refused.value.reason is Reason.FAILED_PRECONDITION


async def test_signatures_are_asked_for_once_a_minute_and_after_a_recovery() -> None:
    graph = Graphed(ONE)
    for _ in range(3):
        await graph.infer(POINT)
    assert len(graph.lab.questions) == 1
    assert graph.lab.questions[0].part == ""
    graph.clock.now = 60.0
    await graph.infer(POINT)
    assert len(graph.lab.questions) == 2
    graph.model.signatures.forget()
    await graph.infer(POINT)
    assert len(graph.lab.questions) == 3


async def test_a_model_that_has_changed_is_found_out_soon() -> None:
    graph = graph_of(Lab(doubles(of="FP64 [-1, 3]")), s=step())
    with pytest.raises(GatewayError, match="the input is x"):
        await graph.infer(POINT)
    graph.lab.models.update(doubles())
    graph.clock.now = 1.0
    assert (await graph.infer(POINT))["y"].tolist() == [[6.0, 8.0]]


async def test_a_model_that_has_changed_under_signatures_that_fit_is_asked_again_once_a_second() -> None:
    lab = Lab(doubles())
    graph = graph_of(lab, s=step())
    await graph.infer(POINT)
    lab.models["double"] = Plain(["x FP64 [-1, 2]"], ["y FP32 [-1, 2]"], lambda x: x.astype(np.float32))
    for seconds, questions in [(0.5, 1), (0.6, 1)]:
        graph.clock.now += seconds
        with pytest.raises(GatewayError, match="output 'y' is FP32"):
            await graph.infer(POINT)
        assert len(lab.questions) == questions
    assert (await graph.infer(POINT))["y"].dtype == np.float32
    assert len(lab.questions) == 2


async def test_a_model_without_metadata_runs_all_the_same() -> None:
    lab = Lab({**MODELS, **doubles()})
    lab.untold = {"double"}
    data = {"inputs": X, "steps": {"d": step(), "n": step("norm", "$d")}}
    graph = Graphed({**data, "outputs": {"y": "$n"}}, lab)
    assert (await graph.infer(POINT))["y"].tolist() == [[-50.0]]
    # The graph's own signature is known, but for derivatives.
    assert await graph.signature() == Signature(
        (TensorSpec("x", FP64, (-1, 2)),), (TensorSpec("y", FP64, (-1, 1)),), frozenset({Operation.INFER}), "posterior",
        platform="graph",
    )  # fmt: skip
    graph = Graphed({**data, "outputs": {"y": "$n", "d": "$d.y"}}, lab)
    assert (await graph.infer(POINT))["d"].tolist() == [[6.0, 8.0]]
    with pytest.raises(GatewayError) as refused:
        await graph.signature()
    assert refused.value.message == (
        "model 'posterior': outputs.d: tensors unknown for model 'double' of step 'd'; "
        "declare them by `signature` on its route"
    )
    assert refused.value.reason is Reason.FAILED_PRECONDITION


class Liar(Model):
    inputs, outputs = ("x FP64 [-1, 2]",), ("y FP64 [-1, 2]",)

    def __init__(self, *outputs: Any) -> None:
        self._given = outputs

    def answer(self, request: Request) -> Response:
        return Response(self._given)


@pytest.mark.parametrize(
    ("outputs", "told"),
    [
        ((tensor("y", np.zeros((1, 3))),), r"output 'y' is FP64 \[1, 3\], but the model's metadata has FP64 \[-1, 2\]"),
        ((tensor("y", np.zeros((1, 2), np.float32)),), r"output 'y' is FP32 \[1, 2\], but the model's metadata has"),
        ((tensor("z", np.zeros((1, 2))),), "step 's' has no output 'y'; expected one of z"),
        ((), "step 's' has no output 'y'; expected one of none"),
    ],
)
async def test_a_step_that_answers_otherwise_than_it_promised(outputs: Any, told: str) -> None:
    graph = graph_of(Lab({**MODELS, "liar": Liar(*outputs)}), s=step("liar"), n=step("norm", "$s.y"))
    with pytest.raises(GatewayError, match=told) as failed:
        await graph.infer(POINT)
    assert failed.value.reason is Reason.INVALID_OUTPUT
    assert graph.lab.called() == [("liar", "infer")]


async def test_a_transform_that_does_not_fit_what_came() -> None:
    lab = Lab({"liar": Liar(tensor("y", np.zeros((1, 5))))})
    lab.untold = {"liar"}
    with pytest.raises(GatewayError, match=r"sum\(\$s, \$x\): expected tensors of the same shape") as failed:
        await graph_of(lab, s=step("liar"), y={"sum": ["$s", "$x"]}).infer(POINT)
    assert failed.value.reason is Reason.INVALID_OUTPUT
    split = {"inputs": {"x": "FP64 [-1, -1]"}, "outputs": {"y": {"split": "$x", "parts": 2, "part": 0, "axis": 1}}}
    with pytest.raises(GatewayError, match="has no 2 equal parts along axis 1") as failed:
        await Graphed(split).infer({"x": np.zeros((1, 3))})
    assert failed.value.reason is Reason.INVALID_INPUT


LARGE = np.zeros((1, 10_000))


async def test_intermediate_tensors_are_counted_and_dropped_after_their_last_use() -> None:
    wide = doubles(of="FP64 [-1, -1]")
    steps = {f"s{at}": step(x=f"$s{at - 1}" if at else "$x") for at in range(6)}
    data = {"inputs": {"x": "FP64 [-1, -1]"}, "steps": steps, "outputs": {"y": "$s5"}}
    memory = Counted()
    await Graphed(data, Lab(wide), memory).infer({"x": LARGE})
    assert (memory.used, memory.peak) == (0, 2 * LARGE.nbytes)
    # All six are needed at the end.
    memory = Counted()
    kept = {**data, "outputs": {"y": {"sum": [f"$s{at}" for at in range(6)]}}}
    await Graphed(kept, Lab(wide), memory).infer({"x": LARGE})
    assert (memory.used, memory.peak) == (0, 7 * LARGE.nbytes)
    memory = Counted(3 * LARGE.nbytes)
    with pytest.raises(GatewayError, match="no memory for 80000 bytes more") as failed:
        await Graphed(kept, Lab(wide), memory).infer({"x": LARGE})
    assert failed.value.reason is Reason.OVERLOADED
    assert memory.used == 0


def test_a_thread_that_goes_on_after_the_request_has_ended_counts_nothing() -> None:
    memory = Counted()
    sweep = GraphEvaluation(Graphed({**ONE, "inputs": {"x": "FP64 [2]"}}).model.graph, {}, {}, nobody, {}, memory)
    sweep.hold(LARGE.nbytes)
    assert memory.used == LARGE.nbytes
    sweep.close()
    with pytest.raises(GatewayError, match="has ended") as failed:
        sweep.hold(LARGE.nbytes)
    assert failed.value.reason is Reason.CANCELLED
    assert memory.used == 0


async def nobody(*_: object) -> Response:
    raise AssertionError("nothing is called")


class Slow(Lab):
    """Answers after others had their turn."""

    async def handle(self, request: Request) -> Answer:
        await asyncio.sleep(0)
        return await super().handle(request)


async def test_of_many_requests_one_asks_again_for_the_types() -> None:
    graph = Graphed(ONE, Slow(MODELS))
    await graph.infer(POINT)
    graph.clock.now += 61
    graph.lab.questions.clear()
    await asyncio.gather(*(graph.infer(POINT) for _ in range(5)))
    assert len(graph.lab.questions) == 1


async def test_of_many_first_requests_one_asks_for_the_types() -> None:
    """And of the first ones after a recovery: each model is asked once, all models at the same time."""
    graph = Graphed({**STREAMED, "outputs": {"y": "$s.t"}}, Slow(PARTS))
    for _ in range(2):
        await asyncio.gather(*(graph.infer(POINT) for _ in range(5)))
        assert sorted(each.model for each in graph.lab.questions) == ["norm", "parts"]
        graph.lab.questions.clear()
        await asyncio.gather(*(graph.signature() for _ in range(5)))
        assert sorted((each.model, each.part) for each in graph.lab.questions) == [
            ("norm", ""), ("norm", "operations"), ("parts", ""), ("parts", "operations"),
        ]  # fmt: skip
        graph.model.signatures.forget()
        graph.lab.questions.clear()


class Shy(Lab):
    """Tells no model's tensors before `told` is set."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        super().__init__(models)
        self.asked, self.told = asyncio.Event(), asyncio.Event()

    async def handle(self, request: Request) -> Answer:
        if request.operation is Operation.METADATA:
            self.asked.set()
            await self.told.wait()
        return await super().handle(request)


async def test_the_first_request_may_leave_before_the_types_are_known() -> None:
    """The others go on to wait for the answers to its questions, each until its own deadline."""
    lab = Shy(MODELS)
    graph = Graphed(ONE, lab)
    first = asyncio.ensure_future(graph.infer(POINT, deadline=asyncio.get_running_loop().time() + 3600))
    await lab.asked.wait()
    other = asyncio.ensure_future(graph.infer(POINT))
    hasty = asyncio.ensure_future(graph.infer(POINT, deadline=asyncio.get_running_loop().time()))
    with pytest.raises(GatewayError, match="did not report their tensors before the deadline") as late:
        await hasty
    assert late.value.status is Status.DEADLINE_EXCEEDED
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    lab.told.set()
    assert (await other)["y"].tolist() == [[-12.5]]
    assert len(lab.questions) == 1
    assert lab.questions[0].deadline is None


class Gradual(Norm):
    operations = frozenset({Operation.INFER, Operation.GRADIENT})


@pytest.mark.parametrize(
    ("late", "operation"),
    [
        (Plain(["x FP64 [-1, 3]"], ["log FP64 [-1, 1]"], lambda x: x[:, :1]), Operation.INFER),
        (Plain(["x FP64 [-1, 2]"], ["log FP64 [-1, 1]"], lambda x: x[:, :1]), Operation.METADATA),
    ],
)
async def test_what_is_told_late_does_not_replace_what_is_newer(late: Model, operation: Operation) -> None:
    """A model that has changed answers twice, first after the recovery, then as it was before."""
    lab = Shy({"norm": Gradual()})
    graph = Graphed(ONE, lab)
    x = [tensor("x", np.array(POINT["x"]))] if operation is Operation.INFER else []
    before = asyncio.ensure_future(graph.ask(operation, x))
    await lab.asked.wait()
    held, lab.told = lab.told, asyncio.Event()
    lab.told.set()
    graph.model.signatures.forget()
    newer = await graph.ask(operation, x)
    lab.models["norm"] = late
    held.set()
    await before
    lab.models["norm"] = Gradual()
    count = len(lab.questions)
    assert await graph.ask(operation, x) == newer
    assert len(lab.questions) == count


async def test_what_was_told_before_a_recovery_is_not_kept() -> None:
    lab = Shy(MODELS)
    graph = Graphed(ONE, lab)
    before = asyncio.ensure_future(graph.infer(POINT))
    await lab.asked.wait()
    graph.model.signatures.forget()
    lab.told.set()
    await before
    await graph.infer(POINT)
    assert len(lab.questions) == 2


@pytest.mark.parametrize("function", ["mean", "sum"])
async def test_results_are_counted_before_they_are_made(function: str) -> None:
    """2^40 rows without an element in them arrive in no byte; a number for each of them would take 8 TiB."""
    data = {"inputs": {"x": "FP64 [-1, -1]"}, "outputs": {"y": {function: "$x", "axis": 1}}}
    graph = Graphed(data, memory=Counted(2**30))
    with pytest.raises(GatewayError, match="no memory for 8796093022208 bytes more"):
        await graph.infer({"x": np.zeros((2**40, 0))})


async def test_constants_are_not_repeated_for_rows_that_are_only_claimed() -> None:
    model = plain("m", ["x FP64 [-1, 0]", "k FP64 [-1, 1]"], ["y FP64 [-1, 0]"], lambda x, k: x)
    data = {"inputs": {"x": "FP64 [-1, 0]"}, "steps": {"s": {"model": "m", "inputs": {"x": "$x", "k": [1]}}}}
    graph = Graphed({**data, "outputs": {"y": "$s"}}, Lab(model), Counted(2**30))
    with pytest.raises(GatewayError, match="no memory for 8796093022208 bytes more"):
        await graph.infer({"x": np.zeros((2**40, 0))})


async def test_large_tensors_are_computed_beside_the_event_loop() -> None:
    x = np.arange(200_000.0).reshape(1, -1)
    data = {
        "inputs": {"x": "FP64 [-1, -1]"},
        "steps": {"s": step(x={"sum": ["$x", "$x"]})},
        "outputs": {"y": {"sum": ["$s", "$x"]}},
    }
    found = await Graphed(data, Lab(doubles(of="FP64 [-1, -1]"))).infer({"x": x})
    assert (found["y"] == 5 * x).all()


@pytest.mark.parametrize("rows", [0, 1, 3])
async def test_batches_of_any_size(rows: int) -> None:
    graph = Graphed({**ONE, "outputs": {"y": {"concat": ["$n", "$x"], "axis": 1}}})
    found = await graph.infer({"x": np.ones((rows, 2))})
    assert found["y"].tolist() == [[-1.0, 1.0, 1.0]] * rows


async def test_ready_if_all_steps_are() -> None:
    lab = Lab(doubles("a", "b", "c"))
    graph = graph_of(lab, s=step("a", fallback=["b"]), t=step("c"), y={"sum": ["$s", "$t"]})
    assert await graph.ask(Operation.MODEL_READY) is True
    lab.errors["a"] = UNSENT
    assert await graph.ask(Operation.MODEL_READY) is True
    lab.errors["b"] = UNSENT
    assert await graph.ask(Operation.MODEL_READY) is False
    lab.errors = {}
    del lab.models["c"]
    assert await graph.ask(Operation.MODEL_READY) is False


@pytest.mark.parametrize(
    ("operation", "answer"),
    [
        (Operation.LIVE, True),
        (Operation.READY, True),
        (Operation.SERVER_METADATA, ServerInfo("posterior", "")),
        (Operation.MODELS, (ModelEntry("posterior"),)),
    ],
)
async def test_a_graph_is_a_server_with_one_model(operation: Operation, answer: Answer) -> None:
    graph = Graphed(ONE)
    assert await graph.ask(operation) == answer
    assert graph.lab.questions == []


async def test_a_fallback_describes_a_step_whose_model_cannot_be_asked() -> None:
    graph = graph_of(Lab(MODELS), s=step("nowhere", fallback=["norm"]))
    assert (await graph.signature()).outputs == (TensorSpec("y", FP64, (-1, 1)),)


async def test_operations_that_graphs_do_not_have() -> None:
    for operation in (Operation.LOAD, Operation.CONFIG, Operation.EXPLAIN, Operation.MODEL_STATISTICS):
        told = f"{operation.value} is not supported by model 'posterior', which is a graph"
        with pytest.raises(GatewayError, match=told):
            await Graphed(ONE).ask(operation)


STREAMED: dict[str, Any] = {
    "inputs": X,
    "steps": {"n": step("norm"), "s": step("parts", "$n")},
    "outputs": {"token": "$s.t"},
}


PARTS = {**MODELS, **plain("parts", ["x FP64 [-1, 1]"], ["t INT64 [1]"], lambda x: np.array([x.size]))}


STREAM = Request(Operation.STREAM, "posterior", inputs=(tensor("x", np.array(POINT["x"])),))


async def streamed(graph: Graphed, record: Record = UNRECORDED) -> list[Any]:
    found = []
    async with aclosing(graph.model.stream(replace(STREAM, record=record))) as responses:
        async for each in responses:
            found.append([(one.name, one.array.tolist()) for one in each.outputs])
    return found


async def test_the_last_step_may_stream() -> None:
    lab = Lab(PARTS)
    lab.streams["parts"] = [Response((tensor("t", np.array([each])), tensor("u", np.array([0])))) for each in (1, 2)]
    lab.streams["parts"].append(Response())  # the end, as Triton tells it
    graph = Graphed(STREAMED, lab)
    assert await streamed(graph) == [[("token", [1])], [("token", [2])], []]
    assert lab.called() == [("norm", "infer"), ("parts", "stream")]
    lab.errors["parts"] = refusal(Reason.MODEL_ERROR, "out of words")
    with pytest.raises(GatewayError, match=r"step 's' \(model 'parts'\): out of words"):
        await streamed(graph)
    lab.streams["parts"] = [Response((tensor("t", np.array([1.5])),))]
    with pytest.raises(GatewayError, match="output 't' is FP64"):
        await streamed(graph)
    assert graph.memory.used == 0


async def test_a_trace_has_the_steps_of_a_stream_and_their_errors() -> None:
    graph, record = Graphed(STREAMED, Lab(PARTS)), made()
    graph.lab.streams["parts"] = [Response((tensor("t", np.array([1])),))]
    record.events = []
    await streamed(graph, record)
    assert [(each.name, each.facts) for each in record.events] == [
        ("step", {"step": "n", "model": "norm", "route": "to norm"}),
        ("step", {"step": "s", "model": "parts", "route": "to parts"}),
    ]
    assert all(each.ended >= each.began and not each.error for each in record.events)
    graph.lab.errors["parts"] = refusal(Reason.MODEL_ERROR, "out of words")
    with pytest.raises(GatewayError, match="out of words"):
        await streamed(graph, record)
    assert (record.events[-1].error, record.events[-1].failure) == (
        "out of words",
        (Status.INTERNAL, Reason.MODEL_ERROR),
    )


async def test_an_unexpected_error_of_a_step_is_recorded() -> None:
    graph, record, ended = graph_of(Lab(doubles()), s=step()), made(), list[Record]()
    record.of_listener = replace(record.of_listener, step_observers=(ended.append,))
    graph.lab.errors["double"] = RuntimeError("a bug")
    with pytest.raises(RuntimeError, match="a bug"):
        await graph.infer(POINT, record=record)
    [found] = ended
    assert (found.model, found.status, found.reason) == ("double", "INTERNAL", "internal")
    assert found.error_text == "an unexpected error"


@pytest.mark.parametrize(("error", "goes_on"), [(UNSENT, True), (SENT, False), (invalid_input("bad"), False)])
async def test_the_fallback_of_a_step_that_streams(error: GatewayError, goes_on: bool) -> None:
    lab = Lab({**PARTS, "spare": PARTS["parts"]})
    graph = graph_of(lab, n=step("norm"), s=step("parts", "$n", fallback=["nowhere", "spare"]))
    lab.streams = {"parts": [], "spare": [Response((tensor("t", np.array([7])),))]}
    lab.errors["parts"] = error
    if goes_on:
        assert await streamed(graph) == [[("y", [7])]]
        assert [model for model, _ in lab.called()] == ["norm", "parts", "spare"]
        assert graph.model.calls.counts["s"]["fallbacks"] == 1
    else:
        with pytest.raises(GatewayError, match=r"step 's' \(model 'parts'\)"):
            await streamed(graph)


@pytest.mark.parametrize("asks", [lambda graph: graph.infer(POINT), lambda graph: streamed(graph)])
async def test_inputs_that_a_steps_model_refuses(asks: Any) -> None:
    """The bridge to the model says so by a DecodeError, as to a client."""
    lab = Lab(PARTS)
    lab.streams["parts"], lab.errors["parts"] = [], DecodeError("input 'x' has shape [3]")
    graph = graph_of(lab, n=step("norm"), s=step("parts", "$n"))
    with pytest.raises(GatewayError) as refused:
        await asks(graph)
    assert refused.value.message == "step 's' (model 'parts'): input 'x' has shape [3]"
    assert refused.value.status is Status.INVALID_ARGUMENT
    assert graph.model.calls.counts["s"]["errors"] == 1


class Fixed(Lab):
    """Has an answer ready for every request."""

    def select(self, request: Request) -> Destination:
        return Destination(local=self.answer)

    def answer(self, request: Request) -> Answer:
        if request.operation is Operation.METADATA:
            raise unsupported("no metadata here")
        return self.models[request.model].answer(request)


async def test_a_step_whose_answer_is_ready() -> None:
    graph = graph_of(Fixed(doubles()), s=step())
    assert (await graph.infer(POINT))["y"].tolist() == [[6.0, 8.0]]
    with pytest.raises(GatewayError) as refused:
        await streamed(graph)
    assert refused.value.message == "step 's' (model 'double'): model 'double' does not stream; use another operation"
    assert refused.value.status is Status.UNIMPLEMENTED


async def test_a_stream_that_has_begun_is_not_begun_anew_elsewhere() -> None:
    lab = Lab({**PARTS, "spare": PARTS["parts"]})
    graph = graph_of(lab, n=step("norm"), s=step("parts", "$n", fallback=["spare"]))
    lab.streams["parts"] = [Response((tensor("t", np.array([1])),))]
    lab.errors["parts"] = UNSENT
    with pytest.raises(GatewayError, match=r"step 's' \(model 'parts'\)"):
        await streamed(graph)
    assert [model for model, _ in lab.called()] == ["norm", "parts"]


async def test_a_stream_whose_client_leaves_is_cancelled() -> None:
    graph = Graphed(STREAMED, Lab(PARTS))
    graph.lab.streams["parts"] = [Response((tensor("t", np.array([1])),))] * 2
    async with aclosing(graph.model.stream(replace(STREAM))) as responses:
        await anext(responses)
    counts = graph.model.calls.counts["s"]
    assert (counts["calls"], counts["errors"], counts["cancelled"]) == (1, 0, 1)


async def test_values_that_are_no_outputs_of_the_last_step_do_not_stream() -> None:
    for outputs in ({"y": {"sum": ["$n"]}}, {"y": "$n", "x": "$x"}):
        graph = Graphed({**ONE, "outputs": outputs})
        with pytest.raises(GatewayError, match="streams only outputs of one step; request fewer outputs") as refused:
            await streamed(graph)
        assert refused.value.status is Status.UNIMPLEMENTED


async def test_nothing_of_the_client_goes_on_to_steps_but_what_they_need() -> None:
    graph = Graphed(WHEN, Lab(doubles(*"abc")))
    await graph.infer(
        POINT, {"way": "left"}, id="7", deadline=9e9, listener="http", protocol="v2-rest", path="/v2", peer="h:1"
    )
    first = graph.lab.calls[0]
    assert (first.id, first.parameters, first.listener, first.protocol, first.path) == (None, {}, "", "graph", "")
    assert (first.deadline, first.peer, first.principal) == (9e9, "h:1", None)


async def test_steps_share_fairly_as_the_client_does() -> None:
    """A step is a call of the same client in queues and rate limits, though it needs none of its permissions."""
    principal = Principal("anna", [Grant(frozenset({"infer"}), ("posterior",))])
    graph = Graphed(ONE)
    for _ in range(2):
        await graph.infer(POINT, peer="10.0.0.1:1234", principal=principal)
    first, second = graph.lab.calls
    assert first.client == "anna"
    assert first.principal is not None
    assert first.principal is second.principal, "the Router remembers its decisions by principal"
    assert first.principal.may(Operation.INFER, "norm", "")
    assert not principal.may(Operation.INFER, "norm", "")
    assert first.principal.unrestricted is first.principal


async def test_a_thousand_steps() -> None:
    steps = {f"s{at}": step("keep", f"$s{at - 1}" if at else "$x") for at in range(1000)}
    keep = plain("keep", ["x FP64 [-1, 2]"], ["y FP64 [-1, 2]"], lambda x: x + 1)
    assert (await graph_of(Lab(keep), **steps).infer(POINT))["y"].tolist() == [[1003.0, 1004.0]]


async def test_work_waits_for_other_work() -> None:
    done: list[int] = []

    async def work(key: int) -> None:
        await asyncio.sleep(0)
        done.append(key)

    await Order({3: {1, 2}, 1: set(), 2: {1}, 4: {9}}).run(work, 2)
    assert done.index(1) < done.index(2) < done.index(3)
    assert sorted(done) == [1, 2, 3, 4]


async def test_errors_of_several_steps_at_once_are_all_seen(caplog: pytest.LogCaptureFixture) -> None:
    """One is told; asyncio would report the other as never retrieved."""

    async def work(key: int) -> None:
        raise refusal(Reason.MODEL_ERROR, f"{key} failed")

    with pytest.raises(GatewayError, match="failed"):
        await Order({1: set(), 2: set(), 3: set()}).run(work, 3)
    gc.collect()
    assert caplog.text == ""


async def test_constants_are_joined_to_every_row() -> None:
    inputs = {"a": [1, 2, 3], "b": [1, 1, 1]}
    data = {
        "inputs": X,
        "steps": {"p": step("product", inputs=inputs)},
        "outputs": {
            "wide": {"concat": ["$x", [0.5]], "axis": 1},
            "high": {"stack": [[7, 8], "$x"], "axis": 1},
            "p": {"concat": ["$p.p", "$x"], "axis": 1},
        },
    }
    graph = Graphed(data)
    assert [each.shape for each in (await graph.signature()).outputs] == [(-1, 3), (-1, 2, 2), (-1, 5)]
    found = await graph.infer({"x": [[1.0, 2.0], [3.0, 4.0]]})
    assert found["wide"].tolist() == [[1.0, 2.0, 0.5], [3.0, 4.0, 0.5]]
    assert found["high"].tolist() == [[[7.0, 8.0], [1.0, 2.0]], [[7.0, 8.0], [3.0, 4.0]]]
    assert found["p"].tolist() == [[1.0, 2.0, 3.0, 1.0, 2.0], [1.0, 2.0, 3.0, 3.0, 4.0]]
    vec = np.array([[1.0, 2.0], [3.0, 4.0]])
    pushed = await graph.derive(Operation.APPLY_JACOBIAN, {"x": vec}, vec=vec)
    assert pushed.tolist() == [[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]]
    pulled = await graph.derive(Operation.GRADIENT, {"x": vec}, sens=np.ones((2, 3)))
    assert pulled.tolist() == [[1.0, 1.0], [1.0, 1.0]]
