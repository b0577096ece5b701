"""Evaluates a graph for one request, and computes each value once. Each step runs as soon as its inputs are available,
in parallel with other steps. A step does not run, and has no outputs, if its condition is false or an input is missing
because another step did not run.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from math import prod
from threading import Lock
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.bridge.graphs.expressions import ConstantTensor, Expression, First, Reference, Transformed, references
from gateway.bridge.graphs.graph import Condition, Graph, GraphStep
from gateway.bridge.graphs.schedule import Order
from gateway.bridge.graphs.transforms import GraphError
from gateway.bridge.shapes import is_batch, matches
from gateway.core.casting import cast
from gateway.core.datatypes import BYTES
from gateway.core.errors import DecodeError, GatewayError, Reason, invalid_input, invalid_output, refusal
from gateway.core.frozen import replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.offload import LARGE, in_thread
from gateway.core.operations import Operation
from gateway.core.requests import Response
from gateway.core.tensors import Parameters, Tensor, datatype_of
from gateway.core.tensors import tensor as make_tensor

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[[GraphStep, Operation, tuple[Tensor, ...]], Awaitable[Response]]
"""Calls the model of a step. Raises a GatewayError that contains the step's name."""

MIN_COUNTED = 16 * 2**10
"""The minimum size of a tensor that counts against memory limits, in bytes."""


class MemoryCounter(Protocol):
    """Counts the bytes that this process uses, and enforces the limit."""

    def add(self, size: int) -> None:
        """Add `size` bytes. Raises GatewayError (RESOURCE_EXHAUSTED, overloaded) if the sum exceeds the limit."""

    def free(self, size: int) -> None:
        """Subtract `size` bytes."""


class EvaluationPlan:
    """The order in which steps of a graph run.

    `steps` must include all dependencies that have not run yet. A step's outputs are dropped after their last use,
    unless the step is in `kept`. If `kept` is None, all outputs are kept."""

    def __init__(self, graph: Graph, steps: Iterable[str], kept: Collection[str] | None = None) -> None:
        waits_for = graph.waits_for(steps)
        self.order = Order(waits_for)
        self.users: Counter[str] | None = None
        """For each step, the number of other steps that wait for its outputs, plus 1 for steps in `kept`."""
        if kept is not None:
            self.users = Counter(kept)
            for needed in waits_for.values():
                self.users.update(needed)


class GraphEvaluation:
    """One evaluation of the steps of a graph, with the values of one request.

    - `inputs`: The graph's inputs, by name. `parameters`: The request's parameters.
    - `signatures`: The known signatures of the steps' models.
    - `memory`: Counts the bytes of step outputs and transform results, until `close`.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Tensor],
        parameters: Parameters,
        call: Call,
        signatures: Mapping[str, Signature],
        memory: MemoryCounter,
    ) -> None:
        self.graph = graph
        self.call = call
        self._inputs = inputs
        self._parameters = parameters
        self._signatures = signatures
        self._memory = memory
        self._rows = next((inputs[each.name].shape[0] for each in graph.inputs if is_batch(each.shape)), 1)
        """The number of rows in the request, for steps whose inputs are all constants."""
        self._held: list[int] = []
        """The counted sizes, in bytes."""
        self._is_closed = False
        self._holding = Lock()
        """A lock for the counting. Transforms of large tensors run in threads, which continue after the client has
        disconnected."""
        self._outputs: dict[str, Mapping[str, Tensor]] = {}
        """The outputs of each completed step, by step name."""
        self._taken: dict[str, tuple[Tensor, ...]] = {}
        """The inputs of each completed or prepared step, if they might be needed again."""
        self._arrays: dict[int, Array] = {}
        """The computed transforms, by identity, because two outputs can share a transform."""
        self._users: dict[str, int] | None = None
        """For each step, the number of other steps that still wait for its outputs. If this attribute is None, all
        outputs are kept."""

    def hold(self, size: int) -> None:
        """Count `size` bytes for this request.

        Raises GatewayError: RESOURCE_EXHAUSTED (overloaded) if the limit is exceeded, or CANCELLED after `close`,
        because the bytes would never be subtracted."""
        if size < MIN_COUNTED:
            return
        with self._holding:
            if self._is_closed:
                raise refusal(Reason.CANCELLED, f"the request for model {self.graph.name!r} has ended")
            self._memory.add(size)
            self._held.append(size)

    def close(self) -> None:
        """Release all memory that the request holds."""
        with self._holding:
            self._is_closed = True
            if self._held:
                self._memory.free(sum(self._held))
                self._held.clear()

    async def run(self, plan: EvaluationPlan) -> None:
        """Run the steps of a plan.

        Raises:
            GatewayError: the error of a step that failed. All other steps are then cancelled.
        """
        if plan.users is not None:
            self._users = dict(plan.users)
        await plan.order.run(self._take, self.graph.steps_at_once)

    async def _take(self, name: str) -> None:
        step = self.graph.steps[name]
        if step.when is None or self._holds(step.when):
            inputs = await self.inputs_of(step)
            if inputs is not None:
                response = await self.call(step, Operation.INFER, inputs)
                outputs = {each.name: each for each in response.outputs}
                self._check_promised(step, response.outputs)
                self.hold(sum(len(each.data) for each in response.outputs))
                self._outputs[name] = outputs
        if self._users is not None:
            self._drop_unused(step)

    def _drop_unused(self, step: GraphStep) -> None:
        """Drop the outputs for which only `step` was still waiting."""
        assert self._users is not None
        for name in step.waits_for:
            self._users[name] -= 1
            outputs = None if self._users[name] else self._outputs.pop(name, None)
            size = 0 if outputs is None else sum(len(each.data) for each in outputs.values())
            if size >= MIN_COUNTED:
                with self._holding:
                    self._held.remove(size)
                    self._memory.free(size)

    def _check_promised(self, step: GraphStep, outputs: Iterable[Tensor]) -> None:
        """Raise GatewayError if an output contradicts the model's metadata."""
        signature = self._signatures.get(step.name)
        promised = {} if signature is None else {each.name: each for each in signature.outputs}
        for each in outputs:
            spec = promised.get(each.name)
            if spec is not None and (each.datatype is not spec.datatype or not matches(each.shape, spec.shape)):
                text = f"output {each.name!r} is {each.datatype} {list(each.shape)}, but the model's metadata has"
                text = f"{text} {spec.datatype} {list(spec.shape)}; correct the model or its metadata"
                raise invalid_output(f"{step}: {text}")

    def _holds(self, condition: Condition) -> bool:
        if condition.value is None:
            return condition.holds(self._parameters.get(condition.parameter))
        array = self.array(condition.value)
        if array is None:
            return condition.holds(None)
        if array.size != 1:
            text = f"{condition.value} has shape {list(array.shape)}, and a condition compares one element"
            raise self._error(text, condition.value)
        element = array.reshape(-1)[0]
        if isinstance(element, bytes):
            return condition.holds(element.decode(errors="replace"))
        return condition.holds(element.item() if isinstance(element, np.generic) else element)

    async def inputs_of(self, step: GraphStep) -> tuple[Tensor, ...] | None:
        """Return the inputs of a step, or None if an input is missing. Raise GatewayError if a transform does not fit
        its tensors."""
        known = self._taken.get(step.name)
        if known is not None:
            return known
        if step.has_transforms and self._is_large(step.inputs.values()):
            found = await in_thread(self._inputs_of, step)
        else:
            found = self._inputs_of(step)
        if found is not None and self._users is None:
            self._taken[step.name] = found
        return found

    def _inputs_of(self, step: GraphStep) -> tuple[Tensor, ...] | None:
        found = self._tensors(step.inputs)
        signature = self._signatures.get(step.name)
        if not step.has_constants or found is None or signature is None:
            return found
        specs = {each.name: each for each in signature.inputs}
        rows = next(
            (
                each.shape[0]
                for each in found
                if not isinstance(step.inputs[each.name], ConstantTensor)
                and each.name in specs
                and is_batch(specs[each.name].shape)
                and each.shape
            ),
            self._rows,
        )
        return tuple(
            self._fitted(value, specs[each.name], rows)
            if isinstance(value := step.inputs[each.name], ConstantTensor) and each.name in specs
            else each
            for each in found
        )

    def _fitted(self, constant: ConstantTensor, spec: TensorSpec, rows: int) -> Tensor:
        """Convert a constant to the datatype of the step input `spec`, which has its values (`Types.check`). If the
        input has rows and the constant does not, repeat the constant `rows` times."""
        array = constant.array
        if spec.datatype is not BYTES and array.dtype != spec.datatype.dtype:
            array = cast(array, spec.datatype, f"the constant for input {spec.name!r}")
        if is_batch(spec.shape) and array.ndim == len(spec.shape) - 1:
            self.hold(array.nbytes * rows)
            array = np.repeat(array[np.newaxis], rows, 0)
        return make_tensor(spec.name, array, spec.datatype)

    def streamed(self, step: GraphStep, response: Response, values: Mapping[str, Expression]) -> tuple[Tensor, ...]:
        """Return the values of one response in the stream of `step`.

        All `values` must be outputs of `step`. Raise GatewayError if an output is missing or contradicts the model's
        metadata."""
        self._check_promised(step, response.outputs)
        self._outputs[step.name] = {each.name: each for each in response.outputs}
        found = self._tensors(values)
        assert found is not None
        return found

    def _is_large(self, values: Iterable[Expression]) -> bool:
        """Return True if computing these values would block the event loop for too long."""
        used = (self._referred(each) for value in values if isinstance(value, Transformed) for each in value.parts)
        return sum(len(each.data) for each in used if each is not None) > LARGE

    def _tensors(self, values: Mapping[str, Expression]) -> tuple[Tensor, ...] | None:
        found = [self.tensor(value, name) for name, value in values.items()]
        present = tuple(each for each in found if each is not None)
        return present if len(present) == len(found) else None

    async def outputs(self, values: Mapping[str, Expression]) -> tuple[Tensor, ...]:
        """Return these values, by name."""
        is_large = self._is_large(values.values())
        found = await in_thread(self._tensors, values) if is_large else self._tensors(values)
        assert found is not None, "`make_graph` rules out that an output is missing"
        return found

    def tensor(self, value: Expression, name: str) -> Tensor | None:
        """Return a value as a tensor named `name`, or None if the value is missing."""
        if isinstance(value, First):
            return next((one for each in value.arguments if (one := self.tensor(each, name)) is not None), None)
        if isinstance(value, Reference):
            found = self._referred(value)
            if found is None or (found.name == name and not found.parameters):
                return found
            return replace(found, name=name, parameters={})
        array = self.array(value)
        if array is None:
            return None
        made = make_tensor(name, array)
        return replace(made, untyped=True) if isinstance(value, ConstantTensor) and made.datatype is not BYTES else made

    def array(self, value: Expression) -> Array | None:
        """Return a value as an array, or None if the value is missing."""
        match value:
            case Reference():
                found = self._referred(value)
                return None if found is None else found.array
            case ConstantTensor():
                return value.array
            case First():
                return next((one for each in value.arguments if (one := self.array(each)) is not None), None)
        if id(value) not in self._arrays:
            arrays = self.arguments(value)
            if arrays is None:
                return None
            self._arrays[id(value)] = self._applied(value, arrays)
        return self._arrays[id(value)]

    def arguments(self, value: Transformed) -> list[Array] | None:
        """Return the arguments of a transform as arrays, or None if an argument is missing."""
        found = [self.array(each) for each in value.arguments]
        arrays = [each for each in found if each is not None]
        if len(arrays) < len(found):
            return None
        others = [
            array for array, each in zip(arrays, value.arguments, strict=True) if not isinstance(each, ConstantTensor)
        ]
        if not others:
            return arrays
        return [
            self._constant(value, array, others[0]) if isinstance(each, ConstantTensor) else array
            for array, each in zip(arrays, value.arguments, strict=True)
        ]

    def _constant(self, value: Transformed, array: Array, other: Array) -> Array:
        """Return a constant, converted to the datatype of another argument. If the transform is elementwise, the
        constant also gets that argument's shape, otherwise its number of rows."""
        try:
            if array.dtype != other.dtype and "O" not in (array.dtype.kind, other.dtype.kind):
                array = cast(array, datatype_of(other.dtype), "the constant")
            if value.transform.is_elementwise:
                return np.broadcast_to(array, other.shape)
            is_row = array.ndim == other.ndim - 1 and other.ndim > 1
            return np.broadcast_to(array, (other.shape[0], *array.shape)) if is_row else array
        except DecodeError as error:
            raise self._error(f"{value}: {error}", value) from error
        except ValueError as error:
            text = f"{value}: a constant of shape {list(array.shape)} and a tensor of shape {list(other.shape)}"
            raise self._error(text, value) from error

    def _applied(self, value: Transformed, arrays: list[Array]) -> Array:
        # Check the types again, because signatures can be unknown, or outputs can contradict them. Count bytes before
        # creating a result, because a tensor without elements can have any number of rows.
        specs = [TensorSpec("", datatype_of(each.dtype), each.shape) for each in arrays]
        try:
            result = value.transform.spec(specs)
            self.hold(prod(result.shape) * (result.datatype.size or _BYTES_ELEMENT))
            with np.errstate(all="ignore"):
                return value.transform.apply(arrays)
        except (GraphError, DecodeError) as error:
            raise self._error(f"{value}: {error}", value) from error

    def _error(self, text: str, value: Expression) -> GatewayError:
        """Return the error for a value that does not match. If the value depends only on the request, the error is the
        client's."""
        from_steps = any(each.step for each in references(value))
        return (invalid_output if from_steps else invalid_input)(f"model {self.graph.name!r}: {text}")

    def chosen(self, value: First) -> Expression | None:
        """Return the value that `first` selects, or None if all values are missing."""
        return next((each for each in value.arguments if self.array(each) is not None), None)

    def was_run(self, step: str) -> bool:
        """Return True if the outputs of a step are available."""
        return step in self._outputs

    def is_taken(self, step: GraphStep) -> bool:
        """Return True if a step runs. For a step with a condition, the result is known only after the plan has run."""
        return step.when is None or step.name in self._outputs

    def _referred(self, reference: Reference) -> Tensor | None:
        if not reference.step:
            return self._inputs[reference.tensor]
        outputs = self._outputs.get(reference.step)
        if outputs is None:
            return None
        signature = self._signatures.get(reference.step)
        name = reference.tensor or ("" if signature is None else signature.outputs[0].name)
        if name in outputs:
            return outputs[name]
        names = ", ".join(outputs) or "none"
        if name:
            raise self._error(f"step {reference.step!r} has no output {name!r}; expected one of {names}", reference)
        if len(outputs) > 1:
            raise self._error(f"{reference} means the only output, but the step has {names}; name one", reference)
        return next(iter(outputs.values()))


_BYTES_ELEMENT = 8
"""The size of a reference to a BYTES element in an array, in bytes. The element itself is not copied."""
