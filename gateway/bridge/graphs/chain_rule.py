"""Computes the derivatives of a graph by the chain rule.

- GRADIENT uses reverse accumulation, from the output back to the input. For each step on the path, it makes one
  Gradient call per pair of output and input. If several steps use a tensor, the results are added.
- APPLY_JACOBIAN uses forward accumulation, along the steps, with one ApplyJacobian call per pair.
- APPLY_HESSIAN uses both. Let x' be the tangents, u the gradient with respect to a step's outputs, J the step's
  Jacobian, and H(u) the Hessian of the step's output weighted by u. The tangent of the step's gradient is J^T u' + H(u)
  x'.

Vectors are flat, in FP64: `[N, L]` for a batch of N rows, otherwise `[L]`, as in `gateway.core.operations`. A
GraphEvaluation computes the values at the point of the derivative, and runs only the steps that these values depend on.
A vector of zeros causes no call. `model` calls this module.
"""

from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from gateway.bridge.graphs.evaluation import EvaluationPlan, GraphEvaluation
from gateway.bridge.graphs.expressions import ConstantTensor, Expression, First, Reference, Transformed, references
from gateway.bridge.graphs.graph import Graph, GraphStep
from gateway.bridge.graphs.schedule import Order, run_at_once
from gateway.bridge.graphs.types import moving_steps
from gateway.core.errors import invalid_input, invalid_output
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import COMPANION_OUTPUT, DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.tensors import Shape, Tensor
from gateway.core.tensors import tensor as make_tensor

Array: TypeAlias = NDArray[Any]
Place: TypeAlias = tuple[str, str]
"""A tensor: the name of its step (empty for the request) and its own name."""
K = TypeVar("K", bound=Hashable)


class Path:
    """The steps between an input and an output of a graph."""

    def __init__(self, graph: Graph, input_name: str, output: Expression) -> None:
        self.input = input_name
        moving = moving_steps(graph, [input_name])
        self.steps = {name: step for name, step in graph.needed([output]).items() if name in moving}
        """The steps on this path, in order."""

    def has(self, value: Expression) -> bool:
        """Return True if a value depends on a tensor on this path."""
        return any(each.step in self.steps if each.step else each.tensor == self.input for each in references(value))


class ChainRule:
    """Computes the derivatives of `output` at the values of a GraphEvaluation. `signatures` contains the signatures of
    the steps' models.

    `rows` is the number of rows in the request's tensors, or None if they have no batch dimension."""

    def __init__(
        self, evaluation: GraphEvaluation, signatures: Mapping[str, Signature], output: Expression, rows: int | None
    ) -> None:
        self._evaluation = evaluation
        self._graph: Graph = evaluation.graph
        self._signatures = signatures
        self._output = output
        self._rows = rows

    async def gradient(self, name: str, sens: Array) -> Array:
        """Return the product of `sens` and the Jacobian with respect to the input `name`. Raises GatewayError."""
        path = Path(self._graph, name, self._output)
        await self._evaluate(path)
        [found] = await self._back(path, [sens], None)
        return self._or_zeros(found, name)

    async def jacobian(self, name: str, vector: Array) -> Array:
        """Return the product of the Jacobian with respect to the input `name` and `vector`. Raises GatewayError."""
        path = Path(self._graph, name, self._output)
        await self._evaluate(path)
        found = self._push(self._output, path, await self._tangents(path, vector))
        if found is not None:
            return self._flat(found)
        await self._run_for([self._output])
        array = self._evaluation.array(self._output)
        assert array is not None, "an output is not missing"
        return np.zeros_like(self._flat(array), np.float64)

    async def hessian(self, first: str, second: str, sens: Array, vector: Array) -> Array:
        """Return the product of a Hessian and `vector`, which belongs to the input `second`. The Hessian is the second
        derivative of the output, weighted by `sens`, with respect to the inputs `first` and `second`. Raises
        GatewayError."""
        back, forth = (Path(self._graph, each, self._output) for each in (first, second))
        await self._evaluate(back)
        await self._evaluate(forth)
        tangents = _Tangents(forth, await self._tangents(forth, vector))
        _, found = await self._back(back, [sens, np.zeros_like(sens)], tangents)
        return self._or_zeros(found, first)

    def _or_zeros(self, found: Array | None, name: str) -> Array:
        """Return the derivative with respect to an input. The derivative is 0 if the output does not depend on the
        input."""
        tensor = self._evaluation.tensor(Reference("", name), name)
        assert tensor is not None, "an input is not missing"
        return np.zeros_like(self._flat(tensor.array), np.float64) if found is None else found

    async def _evaluate(self, path: Path) -> None:
        """Run the steps whose values the derivatives require. Raises GatewayError like `GraphEvaluation.run`."""
        needed = list(self._needed(self._output))
        for step in path.steps.values():
            needed += step.inputs.values()
            if step.when is not None:  # only running such a step shows whether its condition is true
                needed.append(Reference(step.name, ""))
        await self._run_for(needed)

    async def _run_for(self, values: Iterable[Expression]) -> None:
        """Run the steps that `values` depend on and that have not run yet."""
        steps = [name for name in self._graph.needed(values) if not self._evaluation.was_run(name)]
        await self._evaluation.run(EvaluationPlan(self._graph, steps))

    def _needed(self, value: Expression) -> Iterator[Expression]:
        """Yield the values that propagating a vector through `value` requires."""
        if isinstance(value, Transformed) and value.transform.is_elementwise:
            for each in value.arguments:
                yield from self._needed(each)
        elif isinstance(value, Transformed | First):
            yield from value.arguments

    async def _inputs_of(self, step: GraphStep) -> tuple[Tensor, ...] | None:
        """Return the inputs of a step, or None if the step does not run."""
        return await self._evaluation.inputs_of(step) if self._evaluation.is_taken(step) else None

    async def _back(self, path: Path, sens: Sequence[Array], tangents: "_Tangents | None") -> list[Array | None]:
        """Propagate `sens` backward from the output to the input.

        Return the gradient and, if tangents are given, the tangent of the gradient. `bars[0]` contains the gradients at
        the tensors on the path. With tangents, `bars[1]` contains the tangents of these gradients; both J^T u' and H(u)
        x' are added to them."""
        bars: list[dict[Place, Array]] = [{} for _ in sens]
        for bar, vector in zip(bars, sens, strict=True):
            self._add_back(self._output, vector, bar, path)
        waits_for: dict[str, set[str]] = {name: set() for name in path.steps}
        for name, step in path.steps.items():
            for each in step.needs:
                if each.step in path.steps:
                    waits_for[each.step].add(name)

        async def work(name: str) -> None:
            await self._back_through(path.steps[name], bars, path, tangents)

        await Order(waits_for).run(work, self._graph.steps_at_once)
        return [bar.get(("", path.input)) for bar in bars]

    async def _back_through(
        self, step: GraphStep, bars: Sequence[dict[Place, Array]], path: Path, tangents: "_Tangents | None"
    ) -> None:
        """Propagate the vectors at the outputs of `step` backward to its inputs. The results are added in a fixed order
        of the calls. Therefore, equal requests produce equal results."""
        given = await self._inputs_of(step)
        if given is None:
            return
        calls: dict[tuple[int, str, str, str], Callable[[], Awaitable[Array]]] = {}
        for output in dict.fromkeys(name for bar in bars for at, name in bar if at == step.name):
            for name in (name for name, value in step.inputs.items() if path.has(value)):
                for which, bar in enumerate(bars):
                    vector = bar.get((step.name, output))
                    if vector is not None and vector.any():
                        ask = _Derivative(Operation.GRADIENT, output, (name,), {"sens": vector})
                        calls[which, name, output, ""] = self._call(step, given, ask)
                vector = bars[0].get((step.name, output))
                if tangents is None or vector is None or not vector.any():
                    continue
                for other, value in step.inputs.items():
                    tangent = self._push(value, tangents.path, tangents.of)
                    if tangent is not None:
                        vectors = {"sens": vector, "vec": self._flat(tangent)}
                        ask = _Derivative(Operation.APPLY_HESSIAN, output, (name, other), vectors)
                        calls[1, name, output, other] = self._call(step, given, ask)
        for (which, name, *_), answer in (await self._at_once(calls)).items():
            self._add_back(step.inputs[name], answer, bars[which], path)

    def _add_back(self, value: Expression, sens: Array, bar: dict[Place, Array], path: Path) -> None:
        """Add `sens`, the vector at `value`, to the vectors at the tensors in `value`."""
        if not path.has(value):
            return
        match value:
            case Reference():
                place, vector = self._place(value), self._flat(sens)
                bar[place] = _added(bar.get(place), vector)
            case First():
                chosen = self._evaluation.chosen(value)
                if chosen is not None:
                    self._add_back(chosen, sens, bar, path)
            case Transformed() if value.transform.is_elementwise:
                parts = value.transform.pull([sens] * len(value.arguments), sens)
                for each, part in zip(value.arguments, parts, strict=True):
                    self._add_back(each, part, bar, path)
            case Transformed():
                arrays, result = self._evaluation.arguments(value), self._evaluation.array(value)
                if arrays is not None and result is not None:
                    parts = value.transform.pull(arrays, _shaped(sens, result.shape))
                    for each, part in zip(value.arguments, parts, strict=True):
                        self._add_back(each, part, bar, path)

    async def _tangents(self, path: Path, vector: Array) -> Mapping[Place, Array]:
        """Return the tangents of the outputs of all steps on the path."""
        tangents: dict[Place, Array] = {("", path.input): self._flat(vector)}
        values = [self._output, *(value for step in path.steps.values() for value in step.inputs.values())]
        used = dict.fromkeys(self._place(each) for value in values for each in references(value) if each.step)

        async def work(name: str) -> None:
            outputs = [output for at, output in used if at == name]
            await self._forward_through(path.steps[name], outputs, path, tangents)

        await Order(self._graph.waits_for(path.steps)).run(work, self._graph.steps_at_once)
        return tangents

    async def _forward_through(
        self, step: GraphStep, outputs: Iterable[str], path: Path, tangents: dict[Place, Array]
    ) -> None:
        given = await self._inputs_of(step)
        if given is None:
            return
        calls: dict[tuple[str, str], Callable[[], Awaitable[Array]]] = {}
        for name, value in step.inputs.items():
            tangent = self._push(value, path, tangents)
            if tangent is not None:
                for output in outputs:
                    vectors = {"vec": self._flat(tangent)}
                    ask = _Derivative(Operation.APPLY_JACOBIAN, output, (name,), vectors)
                    calls[name, output] = self._call(step, given, ask)
        for (_, output), answer in (await self._at_once(calls)).items():
            tangents[step.name, output] = _added(tangents.get((step.name, output)), answer)

    def _push(self, value: Expression, path: Path, tangents: Mapping[Place, Array]) -> Array | None:
        """Propagate tangents forward. Return the tangent of a value, or None if the tangent is 0."""
        if isinstance(value, ConstantTensor) or not path.has(value):
            return None
        if isinstance(value, Reference):
            return tangents.get(self._place(value))
        if isinstance(value, First):
            chosen = self._evaluation.chosen(value)
            return None if chosen is None else self._push(chosen, path, tangents)
        parts = [self._push(each, path, tangents) for each in value.arguments]
        first = next((each for each in parts if each is not None), None)
        if first is None:
            return None
        if value.transform.is_elementwise:
            return value.transform.push([np.zeros_like(first) if each is None else each for each in parts])
        arrays = self._evaluation.arguments(value)
        assert arrays is not None, "a tensor that has a tangent is not missing"
        return value.transform.push(
            [
                np.zeros(array.shape) if part is None else _shaped(part, array.shape)
                for part, array in zip(parts, arrays, strict=True)
            ]
        )

    def _place(self, reference: Reference) -> Place:
        if not reference.step or reference.tensor:
            return reference.step, reference.tensor
        return reference.step, self._signatures[reference.step].outputs[0].name

    def _flat(self, array: Array) -> Array:
        shape = (array.size,) if self._rows is None else (self._rows, prod(array.shape[1:]))
        return array.reshape(shape).astype(np.float64, copy=False)

    async def _at_once(self, calls: Mapping[K, Callable[[], Awaitable[Array]]]) -> dict[K, Array]:
        """Return the results of these calls, in order."""
        answers: dict[K, Array] = {}

        async def work(key: K) -> None:
            answers[key] = await calls[key]()

        await run_at_once(calls, work, self._graph.steps_at_once)
        return {key: answers[key] for key in calls}

    def _call(
        self, step: GraphStep, given: tuple[Tensor, ...], derivative: "_Derivative"
    ) -> Callable[[], Awaitable[Array]]:
        """Return the derivative call to a step's model, at the step's inputs `given`."""
        operation, signature = derivative.operation, self._signatures[step.name]
        indices = {
            "out_wrt": _position(derivative.output, signature.outputs, step, "output"),
            **{
                name: _position(each, signature.inputs, step, "input")
                for name, each in zip(_WITH_RESPECT_TO[operation], derivative.inputs, strict=True)
            },
        }
        shape = (1,) if self._rows is None else (self._rows, 1)

        def own(name: str) -> Tensor:
            if name not in INDEX_TENSORS:
                return make_tensor(name, derivative.vectors[name])
            self._evaluation.hold(prod(shape) * 8)
            return make_tensor(name, np.full(shape, indices[name], np.int64))

        async def call() -> Array:
            own_tensors = tuple(map(own, DERIVATIVES[operation]))
            response = await self._evaluation.call(step, operation, (*given, *own_tensors))
            found = [each for each in response.outputs if each.name in (COMPANION_OUTPUT, "")]
            if len(found) != 1:
                names = ", ".join(each.name for each in response.outputs) or "none"
                text = f"{operation.value} gave outputs {names}, expected {COMPANION_OUTPUT!r}"
                raise invalid_output(f"{step}: {text}")
            wanted = self._shape_of_result(step, given, derivative)
            if not _has_elements(found[0].shape, wanted, self._rows):
                text = f"{operation.value} gave shape {list(found[0].shape)}"
                raise invalid_output(f"{step}: {text}, expected the elements of {list(wanted or ())}")
            self._evaluation.hold(len(found[0].data))
            return self._flat(found[0].array)

        return call

    def _shape_of_result(self, step: GraphStep, given: Iterable[Tensor], derivative: "_Derivative") -> Shape | None:
        """Return the shape of the tensor that determines the size of a derivative: the input or, for ApplyJacobian, the
        output. Return None if that tensor was not computed and the metadata does not report its shape."""
        if derivative.operation is not Operation.APPLY_JACOBIAN:
            return next(each.shape for each in given if each.name == derivative.inputs[0])
        if self._evaluation.was_run(step.name):
            tensor = self._evaluation.tensor(Reference(step.name, derivative.output), derivative.output)
            return None if tensor is None else tensor.shape
        spec = next(each for each in self._signatures[step.name].outputs if each.name == derivative.output)
        shape = spec.shape if self._rows is None else (self._rows, *spec.shape[1:])
        return None if -1 in shape else shape


class _Tangents:
    """The tangents of the tensors along a path."""

    def __init__(self, path: Path, of: Mapping[Place, Array]) -> None:
        self.path, self.of = path, of


class _Derivative:
    """A derivative of a step: the operation, the output and inputs, and the vectors by name."""

    def __init__(
        self, operation: Operation, output: str, inputs: tuple[str, ...], vectors: Mapping[str, Array]
    ) -> None:
        self.operation, self.output, self.inputs, self.vectors = operation, output, inputs, vectors


_WITH_RESPECT_TO = {
    Operation.GRADIENT: ("in_wrt",),
    Operation.APPLY_JACOBIAN: ("in_wrt",),
    Operation.APPLY_HESSIAN: ("in_wrt1", "in_wrt2"),
}


def _added(before: Array | None, more: Array) -> Array:
    if before is None:
        return more
    if before.shape != more.shape:
        raise invalid_output(f"derivatives of shapes {list(before.shape)} and {list(more.shape)} do not add up")
    return before + more


def _shaped(vector: Array, shape: Shape) -> Array:
    """Return a vector in the shape of its tensor. Raise GatewayError if the client's vector has the wrong size."""
    if vector.size != prod(shape):
        text = f"a vector has shape {list(vector.shape)}, but its tensor has shape {list(shape)}"
        raise invalid_input(f"{text}; send one number for each element of the tensor")
    return vector.reshape(shape)


def _has_elements(shape: Shape, wanted: Shape | None, rows: int | None) -> bool:
    """Return True if a vector has the length of a tensor of the shape `wanted`, row by row.

    If the shape is unknown, compare only the number of rows."""
    if rows is not None and shape[:1] != (rows,):
        return False
    return wanted is None or prod(shape) == prod(wanted)


def _position(name: str, specs: Sequence[TensorSpec], step: GraphStep, role: str) -> int:
    names = [each.name for each in specs]
    if name not in names:
        raise invalid_output(f"{step}: the model has no {role} {name!r}")
    return names.index(name)
