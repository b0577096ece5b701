"""Derivatives of graphs by the chain rule, against differences of the graph's own values and against hand-made ones."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from gateway.bridge.graphs.graph import StepKeys
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.requests import Response
from gateway.core.tensors import Tensor, tensor
from tests.bridge.graphs.models import ALL, MODELS, Counted, Graphed, Lab, Model, Norm, Plain, Sine

GRADIENT, JACOBIAN, HESSIAN = Operation.GRADIENT, Operation.APPLY_JACOBIAN, Operation.APPLY_HESSIAN
RNG = np.random.default_rng(4)

CHAIN: dict[str, Any] = {
    "inputs": {"x": "FP64 [-1, 2]"},
    "steps": {"a": {"model": "sine", "inputs": {"x": "$x"}}, "b": {"model": "norm", "inputs": {"x": "$a"}}},
    "outputs": {"log": "$b"},
}
TWICE: dict[str, Any] = {
    "inputs": {"x": "FP64 [-1, 2]", "k": "FP64 [-1, 3]"},
    "steps": {
        "a": {"model": "sine", "inputs": {"x": "$x"}},
        "p": {"model": "product", "inputs": {"a": "$a", "b": {"sum": ["$a", "$k"], "weights": [1, 2]}}},
        "n": {"model": "norm", "inputs": {"x": {"concat": ["$p.p", "$x", "$a"], "axis": 1}}},
    },
    "outputs": {
        "log": {"sum": ["$n", "$p.s"], "weights": [2, -1]},
        "mean": {"mean": ["$a", "$p.p", "$k"]},
        "parts": {"stack": [{"slice": "$a", "axis": 1, "to": 1}, "$p.s"], "axis": 2},
        "k": "$k",
    },
}
PRIOR: dict[str, Any] = {
    "inputs": {"x": "FP64 [-1, 2]"},
    "steps": {
        "a": {"model": "sine", "inputs": {"x": {"sum": ["$x", [0.5, -0.5]]}}},
        "p": {"model": "product", "inputs": {"a": "$a", "b": [0.1, 0.2, 0.3]}},
        "n": {"model": "norm", "inputs": {"x": "$x"}},
    },
    "outputs": {"log": {"sum": ["$p.s", "$n.log"]}},
}
RESHAPED: dict[str, Any] = {
    "inputs": {"x": "FP64 [-1, 2, 3]"},
    "steps": {
        "left": {"split": {"reshape": "$x", "shape": [-1, 6]}, "parts": 2, "part": 0, "axis": 1},
        "n": {"model": "norm", "inputs": {"x": {"concat": ["$left", {"sum": "$x", "axis": 1}], "axis": -1}}},
        "m": {"model": "norm", "inputs": {"x": {"mean": "$x", "axis": -1}}},
    },
    "outputs": {"log": {"sum": ["$n", "$m"]}, "total": {"reshape": {"sum": "$left", "axis": 1}, "shape": [-1, 1]}},
}
VECTORS: dict[str, Any] = {
    "inputs": {"x": "FP64 [2]"},
    "steps": {"e": {"model": "vector", "inputs": {"x": "$x"}}, "f": {"model": "vector", "inputs": {"x": "$e"}}},
    "outputs": {"y": {"concat": ["$f", {"slice": "$e", "from": 1}]}, "s": {"sum": "$f", "axis": 0}},
}
INTEGERS: dict[str, Any] = {
    "inputs": {"n": "INT64 [-1, 1]", "x": "FP64 [-1, 2]"},
    "steps": {
        "s": {"model": "scaled", "inputs": {"x": "$x", "n": "$n"}},
        "t": {"model": "scaled", "inputs": {"x": "$s", "n": {"sum": ["$n", 1]}}},
    },
    "outputs": {"y": "$t", "n": "$n"},
}
GRAPHS = {
    "chain": CHAIN, "twice": TWICE, "prior": PRIOR, "reshaped": RESHAPED, "vectors": VECTORS, "integers": INTEGERS,
}  # fmt: skip


def point(data: Mapping[str, Any], rows: int) -> dict[str, Any]:
    """Inputs for a graph: with -1 as the rows."""
    found: dict[str, Any] = {}
    for name, text in data["inputs"].items():
        shape = [rows if size == -1 else size for size in map(int, text.split(" ", 1)[1].strip("[]").split(","))]
        found[name] = RNG.integers(1, 4, shape) if text.startswith("INT") else RNG.normal(size=shape) / 2
    return found


def flat(array: Any, rows: int | None) -> Any:
    return array.reshape(-1) if rows is None else array.reshape(rows, -1)


async def value(graph: Graphed, inputs: Mapping[str, Any], output: str, rows: int | None) -> Any:
    return flat((await graph.infer(inputs))[output], rows)


def moved(inputs: Mapping[str, Any], name: str, vector: Any, step: float) -> dict[str, Any]:
    return {**inputs, name: inputs[name] + step * vector.reshape(inputs[name].shape)}


PAIRS = [
    pytest.param(name, at, into, id=f"{name}-{output}-{given}")
    for name, data in GRAPHS.items()
    for at, output in enumerate(data["outputs"])
    for into, given in enumerate(data["inputs"])
    if not (name == "integers" and "n" in (output, given))
]


@pytest.mark.parametrize(("name", "output", "into"), PAIRS)
async def test_derivatives_are_those_of_the_values(name: str, output: int, into: int) -> None:
    """Gradients and Jacobians against central differences of values, at 1e-7; Hessians against those of gradients."""
    data = GRAPHS[name]
    rows = None if name == "vectors" else 3
    graph, inputs = Graphed(data), point(data, 3)
    given, told = list(data["inputs"])[into], list(data["outputs"])[output]
    vec = flat(RNG.normal(size=inputs[given].shape), rows)
    sens = RNG.normal(size=(await value(graph, inputs, told, rows)).shape)
    shape = (1,) if rows is None else (rows, 1)
    at = {"out_wrt": np.full(shape, output), "in_wrt": np.full(shape, into)}
    ahead, back = [await value(graph, moved(inputs, given, vec, step), told, rows) for step in (1e-5, -1e-5)]
    pushed = await graph.derive(JACOBIAN, inputs, **at, vec=vec)
    np.testing.assert_allclose(pushed, (ahead - back) / 2e-5, rtol=1e-7, atol=1e-8)
    pulled = await graph.derive(GRADIENT, inputs, **at, sens=sens)
    assert pulled.shape == vec.shape
    np.testing.assert_allclose((pulled * vec).sum(-1), (sens * pushed).sum(-1), rtol=1e-11, atol=1e-12)
    second = {"out_wrt": at["out_wrt"], "in_wrt1": at["in_wrt"], "in_wrt2": at["in_wrt"], "sens": sens, "vec": vec}
    ahead, back = [
        await graph.derive(GRADIENT, moved(inputs, given, vec, step), **at, sens=sens) for step in (1e-5, -1e-5)
    ]
    found = await graph.derive(HESSIAN, inputs, **second)
    np.testing.assert_allclose(found, (ahead - back) / 2e-5, rtol=1e-6, atol=1e-7)
    assert graph.memory.used == 0


async def test_a_hessian_of_two_inputs() -> None:
    graph, inputs = Graphed(TWICE), point(TWICE, 2)
    sens, vec = RNG.normal(size=(2, 1)), RNG.normal(size=(2, 3))
    indices = {"out_wrt": [[0], [0]], "in_wrt1": [[0], [0]], "in_wrt2": [[1], [1]]}
    found = await graph.derive(HESSIAN, inputs, **indices, sens=sens, vec=vec)
    ahead, back = [await graph.derive(GRADIENT, moved(inputs, "k", vec, step), sens=sens) for step in (1e-5, -1e-5)]
    np.testing.assert_allclose(found, (ahead - back) / 2e-5, rtol=1e-6, atol=1e-7)


async def test_literal_values() -> None:
    """log = -|sin(A x)|^2 / 2 at x = (pi/2, 0): sin(A x) = (1, -1, sin(pi/4)), cos(A x) = (0, 0, cos(pi/4))."""
    graph = Graphed(CHAIN)
    x = [[np.pi / 2, 0.0]]
    np.testing.assert_allclose((await graph.infer({"x": x}))["log"], [[-1.25]], rtol=1e-15)
    # -sin cos (0.5, 0.25) at pi/4 = -0.5 (0.5, 0.25)
    found = await graph.derive(GRADIENT, {"x": x}, sens=[[2.0]])
    np.testing.assert_allclose(found, [[-0.5, -0.25]], atol=1e-15)


async def test_calls_that_are_made() -> None:
    """One Gradient call for each edge, and no evaluation whose value nobody needs."""
    graph = Graphed(CHAIN)
    inputs = point(CHAIN, 1)
    await graph.derive(GRADIENT, inputs, sens=[[1.0]])
    assert graph.lab.called() == [("sine", "infer"), ("norm", "gradient"), ("sine", "gradient")]
    await graph.derive(JACOBIAN, inputs, vec=[[1.0, 0.0]])
    assert graph.lab.called() == [("sine", "infer"), ("sine", "apply_jacobian"), ("norm", "apply_jacobian")]
    graph = Graphed(PRIOR)
    await graph.derive(GRADIENT, inputs, sens=[[1.0]])
    assert sorted(graph.lab.called()) == [
        ("norm", "gradient"), ("product", "gradient"), ("sine", "gradient"), ("sine", "infer"),
    ]  # fmt: skip


async def test_what_does_not_depend_on_an_input_has_a_derivative_of_0() -> None:
    graph, inputs = Graphed(TWICE), point(TWICE, 2)
    ones = {"out_wrt": [[3], [3]], "in_wrt": [[0], [0]]}
    found = await graph.derive(GRADIENT, inputs, **ones, sens=np.ones((2, 3)))
    assert found.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    found = await graph.derive(JACOBIAN, inputs, **ones, vec=np.ones((2, 2)))
    assert found.tolist() == np.zeros((2, 3)).tolist()
    indices = {"out_wrt": [[1], [1]], "in_wrt1": [[1], [1]], "in_wrt2": [[0], [0]]}
    found = await graph.derive(HESSIAN, inputs, **indices, sens=np.zeros((2, 3)), vec=np.ones((2, 2)))
    assert found.tolist() == np.zeros((2, 3)).tolist()


async def test_no_call_is_made_for_a_vector_of_zeros() -> None:
    graph = Graphed(CHAIN)
    found = await graph.derive(GRADIENT, point(CHAIN, 1), sens=[[0.0]])
    assert found.tolist() == [[0.0, 0.0]]
    assert graph.lab.called() == [("sine", "infer")]


@pytest.mark.parametrize("operation", [GRADIENT, JACOBIAN, HESSIAN])
async def test_nan_is_not_lost(operation: Operation) -> None:
    graph = Graphed(CHAIN)
    inputs = {"x": np.array([[np.nan, 1.0]])}
    vectors = {"sens": [[1.0]], "vec": [[1.0, 0.0]]}
    names = {GRADIENT: ["sens"], JACOBIAN: ["vec"], HESSIAN: ["sens", "vec"]}[operation]
    assert np.isnan(await graph.derive(operation, inputs, **{each: vectors[each] for each in names})).any()
    found = await graph.derive(GRADIENT, point(CHAIN, 1), sens=[[np.nan]])
    assert np.isnan(found).all()


@pytest.mark.parametrize("operation", [GRADIENT, JACOBIAN, HESSIAN])
@pytest.mark.parametrize("name", ["chain", "twice", "reshaped"])
async def test_a_batch_without_rows(name: str, operation: Operation) -> None:
    data = GRAPHS[name]
    graph, inputs = Graphed(data), point(data, 0)
    first = next(iter(inputs.values()))
    vec, sens = np.zeros((0, int(np.prod(first.shape[1:])))), np.zeros((0, 1))
    given = {GRADIENT: {"sens": sens}, JACOBIAN: {"vec": vec}, HESSIAN: {"sens": sens, "vec": vec}}[operation]
    for indices in ({}, {each: np.zeros((0, 1), np.int64) for each in DERIVATIVES[operation] if each in INDEX_TENSORS}):
        found = await graph.derive(operation, inputs, **given, **indices)
        assert found.shape == (sens if operation is JACOBIAN else vec).shape


SWITCHED: dict[str, Any] = {
    "inputs": {"x": "FP64 [-1, 2]"},
    "steps": {
        "score": {"model": "norm", "inputs": {"x": "$x"}},
        "near": {"model": "sine", "inputs": {"x": "$x"}, "when": {"value": "$score", "above": -1}},
        "far": {"sum": [{"concat": ["$x", "$score"], "axis": 1}], "weights": [3.0]},
    },
    "outputs": {"y": {"first": ["$near", "$far"]}},
}


@pytest.mark.parametrize(("x", "is_near"), [([[0.3, 0.4]], True), ([[3.0, 4.0]], False)])
async def test_only_the_branch_that_is_taken_has_derivatives(x: Any, is_near: bool) -> None:
    graph = Graphed(SWITCHED)
    sens, vec = RNG.normal(size=(1, 3)), RNG.normal(size=(1, 2))
    inputs = {"x": np.array(x)}
    pushed = await graph.derive(JACOBIAN, inputs, vec=vec)
    ahead, back = [(await graph.infer(moved(inputs, "x", vec, step)))["y"] for step in (1e-6, -1e-6)]
    np.testing.assert_allclose(pushed, (ahead - back) / 2e-6, rtol=1e-7)
    graph.lab.calls.clear()
    pulled = await graph.derive(GRADIENT, inputs, sens=sens)
    np.testing.assert_allclose((pulled * vec).sum(), (sens * pushed).sum(), rtol=1e-12)
    assert (("sine", "gradient") in graph.lab.called()) is is_near
    second = await graph.derive(HESSIAN, inputs, sens=sens, vec=vec)
    ahead, back = [await graph.derive(GRADIENT, moved(inputs, "x", vec, step), sens=sens) for step in (1e-5, -1e-5)]
    np.testing.assert_allclose(second, (ahead - back) / 2e-5, rtol=1e-6, atol=1e-8)


async def test_a_branch_that_does_not_depend_on_an_input_has_a_derivative_of_0() -> None:
    near = {"model": "sine", "inputs": {"x": "$x"}, "when": {"value": "$score", "above": -1}}
    data = {
        "inputs": {"x": "FP64 [-1, 2]", "z": "FP64 [-1, 3]"},
        "steps": {
            "score": {"model": "norm", "inputs": {"x": "$x"}},
            "near": near,
            "n": {"model": "norm", "inputs": {"x": {"first": ["$near", "$z"]}}},
        },
        "outputs": {"y": {"sum": ["$n"], "weights": [2.0]}},
    }
    graph, inputs = Graphed(data), {"x": [[3.0, 4.0]], "z": [[1.0, 2.0, 3.0]]}
    assert (await graph.infer(inputs))["y"].tolist() == [[-14.0]]
    assert (await graph.derive(JACOBIAN, inputs, vec=[[1.0, 1.0]])).tolist() == [[0.0]]
    assert (await graph.derive(GRADIENT, inputs, sens=[[1.0]])).tolist() == [[0.0, 0.0]]
    by_z = {"in_wrt": [[1]], "sens": [[1.0]]}
    assert (await graph.derive(GRADIENT, inputs, **by_z)).tolist() == [[-2.0, -4.0, -6.0]]


UNUSED = {"at": {"argmax": "$b"}}
"""An output that needs the step b, and has no derivatives."""


@pytest.mark.parametrize(
    ("change", "operations"),
    [
        ({}, {GRADIENT, JACOBIAN, HESSIAN}),
        ({"outputs": {"log": "$b", "at": {"argmax": "$a"}}}, {GRADIENT, JACOBIAN, HESSIAN}),
        ({"outputs": {"log": {"vote": ["$b", "$b"]}}}, set()),
        ({"outputs": {"log": {"cast": {"argmax": "$a"}, "datatype": "FP64"}, **UNUSED}}, set()),
        ({"outputs": {"log": {"cast": "$b", "datatype": "FP32"}}}, {GRADIENT, JACOBIAN, HESSIAN}),
        ({"outputs": {"log": {"sum": "$a", "axis": 0}, **UNUSED}}, set()),
        ({"outputs": {"log": {"reshape": "$a", "shape": [-1, 1]}, **UNUSED}}, set()),
        ({"outputs": {"log": {"concat": [{"sum": "$a", "axis": 1}, {"sum": "$b", "axis": 1}]}}}, set()),
    ],
)
async def test_which_derivatives_a_graph_has(change: dict[str, Any], operations: set[Operation]) -> None:
    found = await Graphed({**CHAIN, **change}).signature()
    assert found.operations == {Operation.INFER} | operations


@pytest.mark.parametrize(
    ("own", "operations"),
    [
        ({Operation.INFER}, set()),
        ({Operation.INFER, GRADIENT}, {GRADIENT}),
        ({Operation.INFER, JACOBIAN}, {JACOBIAN}),
        ({Operation.INFER, GRADIENT, HESSIAN}, {GRADIENT}),
    ],
)
async def test_a_step_without_a_derivative_leaves_the_graph_without_it(
    own: set[Operation], operations: set[Operation]
) -> None:
    norm = Norm()
    norm.operations = frozenset(own)
    graph = Graphed(CHAIN, Lab({**MODELS, "norm": norm}))
    assert (await graph.signature()).operations == {Operation.INFER} | operations
    refused = next(each for each in (GRADIENT, JACOBIAN, HESSIAN) if each not in operations)
    with pytest.raises(GatewayError, match=f"{refused.value} is not supported by model 'posterior': not every step"):
        await graph.derive(refused, point(CHAIN, 1))


async def test_a_step_that_depends_on_no_float_needs_no_derivatives() -> None:
    count = Plain(["n INT64 [-1, 1]"], ["m INT64 [-1, 1]"], lambda n: n + 1)
    data = {**INTEGERS, "steps": {**INTEGERS["steps"], "c": {"model": "count", "inputs": {"n": "$n"}}}}
    data["steps"]["t"] = {"model": "scaled", "inputs": {"x": "$s", "n": "$c"}}
    graph = Graphed(data, Lab({**MODELS, "count": count}))
    inputs = {"n": [[2]], "x": [[1.0, 2.0]]}
    # y = (n + 1) (n x^2)^2 = 12 x^4
    assert (await graph.infer(inputs))["y"].tolist() == [[12.0, 192.0]]
    found = await graph.derive(GRADIENT, inputs, in_wrt=[[1]], sens=[[1.0, 1.0]])
    assert found.tolist() == [[48.0, 384.0]]


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"in_wrt": [[0]], "sens": [[1.0, 1.0]]}, "input 'n' of model 'posterior' is INT64, and has no derivatives"),
        ({"in_wrt": [[1]], "out_wrt": [[1]], "sens": [[1.0]]}, "output 'n' of model 'posterior' is INT64"),
        ({"in_wrt": [[2]], "sens": [[1.0, 1.0]]}, "index 'in_wrt' is 2, but the model has 2 inputs"),
        ({"in_wrt": [[1]], "out_wrt": [[-1]], "sens": [[1.0, 1.0]]}, "index 'out_wrt' is -1, but the model has"),
        ({"in_wrt": [[1.0]], "sens": [[1.0, 1.0]]}, "index 'in_wrt' is FP64, expected INT64"),
        ({"in_wrt": [[1]]}, "gradient of model 'posterior' needs the input 'sens'"),
        ({"in_wrt": [[1]], "sens": [[1.0]]}, r"input 'sens' is FP64 \[1, 1\], expected FP64 with"),
        ({"in_wrt": [[1]], "sens": [[1.0, 1.0], [1.0, 1.0]]}, r"expected FP64 with the elements of \[1, 2\]"),
        ({"in_wrt": [[1]], "sens": [1.0, 1.0]}, r"input 'sens' has shape \[2\], but the other inputs have 1"),
        ({"in_wrt": [[1]], "sens": [[1, 1]]}, r"input 'sens' is INT64 \[1, 2\]"),
        ({"in_wrt": [[1]], "sens": [[1.0, 1.0]], "extra": [1.0]}, "has no input 'extra'"),
    ],
)  # fmt: skip
async def test_derivatives_that_cannot_be_asked_for(more: dict[str, Any], told: str) -> None:
    with pytest.raises((GatewayError, DecodeError), match=told) as refused:
        await Graphed(INTEGERS).derive(GRADIENT, {"n": [[2]], "x": [[1.0, 2.0]]}, **more)
    if isinstance(refused.value, GatewayError):
        assert refused.value.reason is Reason.INVALID_INPUT


async def test_an_index_that_differs_from_row_to_row_is_refused() -> None:
    inputs = point(TWICE, 2)
    with pytest.raises(DecodeError, match="index 'in_wrt' differs in some rows; send one request for each"):
        await Graphed(TWICE).derive(GRADIENT, inputs, in_wrt=[[0], [1]], sens=[[1.0], [1.0]])


class Wrong(Sine):
    """Gives its derivatives in another shape, or by another name."""

    def __init__(self, response: Response) -> None:
        self.response = response

    def answer(self, request: Any) -> Response:
        return super().answer(request) if request.operation is Operation.INFER else self.response


@pytest.mark.parametrize(
    ("outputs", "told"),
    [
        ([tensor("output", np.zeros((1, 3)))], r"gradient gave shape \[1, 3\], expected the elements of \[1, 2\]"),
        ([tensor("output", np.zeros((2, 1)))], r"gradient gave shape \[2, 1\], expected the elements of \[1, 2\]"),
        ([tensor("y", np.zeros((1, 2)))], "gradient gave outputs y, expected 'output'"),
        ([], "gradient gave outputs none, expected 'output'"),
    ],
)
async def test_a_step_that_gives_another_derivative_than_it_was_asked_for(outputs: list[Tensor], told: str) -> None:
    graph = Graphed(CHAIN, Lab({**MODELS, "sine": Wrong(Response(tuple(outputs)))}))
    with pytest.raises(GatewayError, match=told) as failed:
        await graph.derive(GRADIENT, point(CHAIN, 1), sens=[[1.0]])
    assert failed.value.message.startswith("step 'a' (model 'sine'): ")
    assert failed.value.reason is Reason.INVALID_OUTPUT


class Uneven(Model):
    """Gives a Jacobian of another length by each input, of an output whose length is not known."""

    inputs, outputs = ("a FP64 [-1, 2]", "b FP64 [-1, 2]"), ("y FP64 [-1, -1]",)

    def jacobian(self, x: Any, o: int, i: int) -> Any:
        return np.ones((2 + i, 2))


async def test_lengths_that_only_the_vectors_show() -> None:
    steps = {"u": {"model": "uneven", "inputs": {"a": "$x", "b": "$x"}}}
    graph = Graphed(
        {"inputs": {"x": "FP64 [-1, 2]"}, "steps": steps, "outputs": {"y": "$u"}}, Lab({"uneven": Uneven()})
    )
    with pytest.raises(GatewayError) as failed:
        await graph.derive(JACOBIAN, {"x": [[1.0, 2.0]]}, vec=[[1.0, 1.0]])
    assert failed.value.message == "derivatives of shapes [1, 2] and [1, 3] do not add up"
    assert failed.value.reason is Reason.INVALID_OUTPUT
    free = {"inputs": {"x": "FP64 [-1, -1]"}, "outputs": {"y": {"slice": "$x", "axis": 1, "to": 1}}}
    with pytest.raises(GatewayError) as failed:
        await Graphed(free).derive(GRADIENT, {"x": [[1.0, 2.0]]}, sens=[[1.0, 1.0]])
    assert failed.value.message == (
        "a vector has shape [1, 2], but its tensor has shape [1, 1]; send one number for each element of the tensor"
    )
    assert failed.value.reason is Reason.INVALID_INPUT


async def test_rows_that_are_claimed_without_bytes_take_no_memory() -> None:
    """With an empty vector, an index for each of 2^40 rows would take 8 TiB."""
    steps = {"n": {"model": "norm", "inputs": {"x": "$x"}}}
    data = {"inputs": {"x": "FP64 [-1, -1]"}, "steps": steps, "outputs": {"y": "$n"}}
    graph = Graphed(data, memory=Counted(2**30))
    with pytest.raises(GatewayError, match="no memory for 8796093022208 bytes more"):
        await graph.derive(JACOBIAN, {"x": np.zeros((2**40, 0))}, vec=np.zeros((2**40, 0)))
    assert graph.memory.used == 0


async def test_parameters_of_a_step_go_on_with_its_derivatives() -> None:
    """UM-Bridge's `config` belongs to Gradient as to Evaluate."""
    steps = {**CHAIN["steps"], "a": {**CHAIN["steps"]["a"], "parameters": {"config": '{"level":2}', "part": 1}}}
    graph = Graphed({**CHAIN, "steps": steps})
    await graph.derive(GRADIENT, point(CHAIN, 1), sens=[[1.0]])
    told = [(each.operation, dict(each.parameters)) for each in graph.lab.calls if each.model == "sine"]
    config = {"config": '{"level":2}'}
    assert told == [(Operation.INFER, {**config, "part": 1}), (GRADIENT, {**config, "part": 1})]
    assert [dict(each.parameters) for each in graph.lab.questions if each.model == "sine"] == [config] * 2


def test_models_are_what_the_steps_call() -> None:
    """The models of these tests have consistent derivatives themselves."""
    for model in MODELS.values():
        _check(model)
    assert StepKeys("m").model == "m"


def _check(model: Model) -> None:
    assert model.operations == ALL
    x = [
        np.array([2]) if "INT64" in each else RNG.normal(size=3 if "3" in each.split("[")[1] else 2)
        for each in model.inputs
    ]
    for o in range(len(model.outputs)):
        for i, _ in enumerate(model.inputs):
            if "INT64" in model.inputs[i]:
                continue
            for j, direction in enumerate(np.eye(len(x[i]))):
                ahead, back = [
                    np.asarray(model.value([*x[:i], x[i] + step * direction, *x[i + 1 :]])[o]) for step in (1e-6, -1e-6)
                ]
                np.testing.assert_allclose(model.jacobian(x, o, i)[:, j], (ahead - back) / 2e-6, rtol=1e-6, atol=1e-8)
