"""The derivatives of a graph, by the chain rule.

- GRADIENT by reverse accumulation: from the output back to the input, one Gradient call for each pair of an output and
  an input of a step on the way, and the sum where a tensor is used several times.
- APPLY_JACOBIAN by forward accumulation: along the steps, one ApplyJacobian call for each pair.
- APPLY_HESSIAN by both: with x' the tangents, and u the gradient with respect to the outputs of a step with the
  Jacobian J and, for its output weighted by u, the Hessian H(u), the tangent of its gradient is J^T u' + H(u) x'.

Vectors are FP64, flat: `[N, L]` for N rows of a batch, else `[L]`, as `gateway.core.operations` has them. The values at
which derivatives are taken come from a Sweep, which takes only the steps whose values are needed.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.bridge.graphs.expressions import Constant, Expression, First, Reference, Transformed, references
from gateway.bridge.graphs.graph import Graph, Step
from gateway.bridge.graphs.schedule import run_in_order
from gateway.bridge.graphs.sweep import Sweep
from gateway.bridge.graphs.types import moving_steps
from gateway.bridge.shapes import is_batch
from gateway.core.errors import DecodeError, invalid_output
from gateway.core.operations import COMPANION_OUTPUT, DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.types import Signature, Tensor
from gateway.core.types import tensor as make_tensor

Array: TypeAlias = NDArray[Any]
Place: TypeAlias = tuple[str, str]
"""A tensor: the step (empty for the request) and its name."""


class ChainRule:
    """The derivatives of `output` with respect to `inputs`, at the values of a sweep.

    `rows`: those of the request's vectors; None without a batch dimension.
    """

    def __init__(
        self,
        sweep: Sweep,
        signatures: Mapping[str, Signature],
        output: Expression,
        inputs: Iterable[str],
        rows: int | None,
    ) -> None:
        self._sweep = sweep
        self._graph: Graph = sweep.graph
        self._signatures = signatures
        self._output = output
        self._inputs = frozenset(inputs)
        self._rows = rows
        moving = moving_steps(self._graph, self._inputs)
        on_way = self._graph.needed([output])
        self.steps = {name: step for name, step in on_way.items() if name in moving}
        """The steps between the inputs and the output, in order."""

    async def evaluate(self) -> None:
        """Take the steps whose values the derivatives need. Raises GatewayError, as `Sweep.run`."""
        needed = list(self._needed(self._output))
        for step in self.steps.values():
            needed += step.inputs.values()
            if step.when is not None:
                needed.append(Reference(step.name, ""))
        await self._sweep.run(self._graph.needed(needed))
        for step in self.steps.values():
            await self._sweep.inputs_of(step)

    def _needed(self, value: Expression) -> Iterator[Expression]:
        """The values without which a vector cannot be taken back through `value`."""
        if isinstance(value, Transformed) and value.transform.is_elementwise:
            for each in value.arguments:
                yield from self._needed(each)
        elif isinstance(value, Transformed | First):
            yield from value.arguments

    async def gradient(self, sens: Array) -> Mapping[str, Array]:
        """For each of `inputs` the product of `sens` with the Jacobian."""
        [found] = await self._back([sens], {})
        return found

    async def jacobian(self, vectors: Mapping[str, Array]) -> Array:
        """The product of the Jacobian with `vectors`, one for each input."""
        tangents = await self._tangents(vectors)
        found = self._tangent(self._output, tangents)
        if found is not None:
            return self._flat(found)
        array = self._sweep.array(self._output)
        if array is None:
            await self._sweep.run(self._graph.needed([self._output]))
            array = self._sweep.array(self._output)
        assert array is not None
        return np.zeros_like(self._flat(array), np.float64)

    async def hessian(self, sens: Array, vectors: Mapping[str, Array]) -> Mapping[str, Array]:
        """For each of `inputs` the product of `vectors` with the Hessian of the output weighted by `sens`."""
        tangents = await self._tangents(vectors)
        [_, second] = await self._back([sens, np.zeros_like(sens)], tangents)
        return second

    async def _back(self, sens: list[Array], tangents: Mapping[Place, Array]) -> list[Mapping[str, Array]]:
        """Take `sens` from the output back to the inputs: the gradient and, if there are two, its tangent."""
        bars: list[dict[Place, Array]] = [{} for _ in sens]
        for bar, vector in zip(bars, sens, strict=True):
            self._pull(self._output, vector, bar)
        waits_for: dict[str, set[str]] = {name: set() for name in self.steps}
        for name, step in self.steps.items():
            for value in step.inputs.values():
                for each in references(value):
                    if each.step in self.steps:
                        waits_for[each.step].add(name)

        async def work(name: str) -> None:
            await self._back_through(self.steps[name], bars, tangents)

        await run_in_order(waits_for, work, self._graph.steps_at_once)
        return [{name: bar[("", name)] for name in self._inputs if ("", name) in bar} for bar in bars]

    async def _back_through(self, step: Step, bars: list[dict[Place, Array]], tangents: Mapping[Place, Array]) -> None:
        """Take the vectors at the outputs of `step` to its inputs."""
        signature = self._signatures[step.name]
        found: dict[tuple[int, str, str, str], tuple[Operation, tuple[Tensor, ...]]] = {}
        outputs = {name for bar in bars for at, name in bar if at == step.name}
        moved = [name for name, value in step.inputs.items() if self._moves(value)]
        for output in outputs:
            vectors = [bar.get((step.name, output)) for bar in bars]
            for name in moved:
                for order, vector in enumerate(vectors):
                    if vector is not None and vector.any():
                        found[order, name, output, ""] = self._ask(
                            step, signature, Operation.GRADIENT, output, (name,), {"sens": vector}
                        )
                if len(vectors) > 1 and vectors[0] is not None:
                    for other in moved:
                        tangent = self._tangent(step.inputs[other], tangents)
                        if tangent is not None:
                            more = {"sens": vectors[0], "vec": self._flat(tangent)}
                            found[1, name, output, other] = self._ask(
                                step, signature, Operation.APPLY_HESSIAN, output, (name, other), more
                            )
        answers: dict[str, Array] = {}
        keys = {str(at): key for at, key in enumerate(found)}

        async def work(at: str) -> None:
            answers[at] = await self._derived(step, *found[keys[at]])

        await run_in_order(dict.fromkeys(keys, frozenset()), work, self._graph.steps_at_once)
        for at, (order, name, _, _) in keys.items():
            self._pull(step.inputs[name], answers[at], bars[order])

    async def _tangents(self, vectors: Mapping[str, Array]) -> Mapping[Place, Array]:
        """The tangents of the outputs of all steps on the way."""
        tangents: dict[Place, Array] = {("", name): vector for name, vector in vectors.items()}
        used = {each for value in self._used_values() for each in references(value)}

        async def work(name: str) -> None:
            step = self.steps[name]
            outputs = {each.tensor or self._only_output(step) for each in used if each.step == name}
            await self._forward_through(step, outputs, tangents)

        waits_for = {name: {each.step for each in step.needs} for name, step in self.steps.items()}
        await run_in_order(waits_for, work, self._graph.steps_at_once)
        return tangents

    def _used_values(self) -> Iterator[Expression]:
        yield self._output
        for step in self.steps.values():
            yield from step.inputs.values()

    async def _forward_through(self, step: Step, outputs: Iterable[str], tangents: dict[Place, Array]) -> None:
        signature = self._signatures[step.name]
        found: dict[str, tuple[str, tuple[Operation, tuple[Tensor, ...]]]] = {}
        for name, value in step.inputs.items():
            tangent = self._tangent(value, tangents)
            if tangent is None:
                continue
            for output in outputs:
                vector = {"vec": self._flat(tangent)}
                found[f"{len(found)}"] = (
                    output,
                    self._ask(step, signature, Operation.APPLY_JACOBIAN, output, (name,), vector),
                )
        answers: dict[str, Array] = {}

        async def work(at: str) -> None:
            answers[at] = await self._derived(step, *found[at][1])

        await run_in_order(dict.fromkeys(found, frozenset()), work, self._graph.steps_at_once)
        for at, (output, _) in found.items():
            before = tangents.get((step.name, output))
            tangents[step.name, output] = answers[at] if before is None else before + answers[at]

    def _moves(self, value: Expression) -> bool:
        return any(each.step in self.steps if each.step else each.tensor in self._inputs for each in references(value))

    def _pull(self, value: Expression, sens: Array, bar: dict[Place, Array]) -> None:
        """Add `sens`, the vector at `value`, to the vectors of the tensors that it is made of."""
        if not self._moves(value):
            return
        match value:
            case Reference():
                place = self._place(value)
                vector = self._flat(sens)
                bar[place] = bar[place] + vector if place in bar else vector
            case First():
                chosen = self._sweep.chosen(value)
                if chosen is not None:
                    self._pull(chosen, sens, bar)
            case Transformed():
                if value.transform.is_elementwise:
                    parts = value.transform.pull([sens] * len(value.arguments), sens)
                else:
                    arrays = self._sweep.arguments(value)
                    result = self._sweep.array(value)
                    if arrays is None or result is None:
                        return
                    parts = value.transform.pull(arrays, sens.reshape(result.shape))
                for each, part in zip(value.arguments, parts, strict=True):
                    self._pull(each, part, bar)

    def _tangent(self, value: Expression, tangents: Mapping[Place, Array]) -> Array | None:
        """The tangent of a value; None if it is 0."""
        if isinstance(value, Constant) or not self._moves(value):
            return None
        if isinstance(value, Reference):
            return tangents.get(self._place(value))
        if isinstance(value, First):
            chosen = self._sweep.chosen(value)
            return None if chosen is None else self._tangent(chosen, tangents)
        parts = [self._tangent(each, tangents) for each in value.arguments]
        first = next((each for each in parts if each is not None), None)
        if first is None:
            return None
        if value.transform.is_elementwise:
            return value.transform.push([np.zeros_like(first) if each is None else each for each in parts])
        arrays = self._sweep.arguments(value)
        assert arrays is not None
        return value.transform.push(
            [
                np.zeros(array.shape) if part is None else part.reshape(array.shape)
                for part, array in zip(parts, arrays, strict=True)
            ]
        )

    def _place(self, reference: Reference) -> Place:
        if not reference.step or reference.tensor:
            return reference.step, reference.tensor
        return reference.step, self._only_output(self._graph.steps[reference.step])

    def _only_output(self, step: Step) -> str:
        return self._signatures[step.name].outputs[0].name

    def _flat(self, array: Array) -> Array:
        shape = (-1,) if self._rows is None else (self._rows, -1)
        # Without elements numpy cannot tell what -1 is.
        return array.reshape(shape if array.size else (*shape[:-1], 0)).astype(np.float64, copy=False)

    def _ask(
        self,
        step: Step,
        signature: Signature,
        operation: Operation,
        output: str,
        inputs: tuple[str, ...],
        vectors: Mapping[str, Array],
    ) -> tuple[Operation, tuple[Tensor, ...]]:
        """The operation and the derivative's own tensors, after the inputs of the step."""
        positions = {
            "out_wrt": _position(output, signature.outputs, step, "output"),
            **{
                name: _position(each, signature.inputs, step, "input")
                for name, each in zip(_WITH_RESPECT_TO[operation], inputs, strict=True)
            },
        }
        shape = (1,) if self._rows is None else (self._rows, 1)
        own = [
            make_tensor(name, np.full(shape, positions[name], np.int64) if name in INDEX_TENSORS else vectors[name])
            for name in DERIVATIVES[operation]
        ]
        return operation, tuple(own)

    async def _derived(self, step: Step, operation: Operation, own: tuple[Tensor, ...]) -> Array:
        inputs = await self._sweep.inputs_of(step)
        assert inputs is not None
        response = await self._sweep.call(step, operation, (*inputs, *own))
        found = [each for each in response.outputs if each.name in (COMPANION_OUTPUT, "")]
        if len(found) != 1:
            names = ", ".join(each.name for each in response.outputs) or "none"
            text = f"step {step.name!r}: {operation.value} gave outputs {names}, expected {COMPANION_OUTPUT!r}"
            raise invalid_output(text)
        array = found[0].array
        if self._rows is not None and (not array.ndim or array.shape[0] != self._rows):
            text = f"step {step.name!r}: {operation.value} gave shape {list(array.shape)}, expected {self._rows} rows"
            raise invalid_output(text)
        return self._flat(array)


_WITH_RESPECT_TO = {
    Operation.GRADIENT: ("in_wrt",),
    Operation.APPLY_JACOBIAN: ("in_wrt",),
    Operation.APPLY_HESSIAN: ("in_wrt1", "in_wrt2"),
}


def _position(name: str, specs: Iterable[Any], step: Step, role: str) -> int:
    names = [each.name for each in specs]
    if name not in names:
        raise invalid_output(f"step {step.name!r}: model {step.model!r} has no {role} {name!r}")
    return names.index(name)


def has_rows(signature: Signature) -> bool:
    """Whether the tensors of a model have a batch dimension."""
    return any(is_batch(each.shape) for each in (*signature.inputs, *signature.outputs))


def index(tensors: Mapping[str, Tensor], name: str, count: int, role: str) -> int:
    """The position in an index tensor, 0 if it is left out.

    Raises:
        DecodeError: it differs in some rows, or the model has no such input or output.
    """
    if name not in tensors:
        return 0
    found = set(tensors[name].array.reshape(-1).tolist())
    if len(found) != 1:
        raise DecodeError(f"index {name!r} differs in some rows; send one request for each")
    [at] = found
    if not 0 <= at < count:
        raise DecodeError(f"index {name!r} is {at}, but the model has {count} {role}s, counted from 0")
    return int(at)
