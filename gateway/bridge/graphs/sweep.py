"""The forward sweep of a graph: the values of one request, each computed once.

A step runs as soon as its inputs are there, beside others. It is not taken if its condition does not hold, or if an
input is missing because another step was not taken; then it has no outputs.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.bridge.graphs.expressions import Constant, Expression, First, Reference, Transformed, references
from gateway.bridge.graphs.graph import Condition, Graph, Step
from gateway.bridge.graphs.schedule import run_in_order
from gateway.bridge.graphs.transforms import GraphError
from gateway.bridge.shapes import is_batch
from gateway.core.casting import cast
from gateway.core.datatypes import BYTES
from gateway.core.errors import DecodeError, GatewayError, invalid_input, invalid_output
from gateway.core.frozen import replace
from gateway.core.offload import LARGE, in_thread
from gateway.core.operations import Operation
from gateway.core.types import Parameters, Response, Signature, Tensor, TensorSpec
from gateway.core.types import tensor as make_tensor

Array: TypeAlias = NDArray[Any]
Call: TypeAlias = Callable[[Step, Operation, tuple[Tensor, ...]], Awaitable[Response]]
"""Calls the model of a step. Raises GatewayError, which names the step."""
SignatureOf: TypeAlias = Callable[[Step], Awaitable[Signature]]
"""The signature of a step's model. Raises GatewayError."""


class Sweep:
    """The values of one request. `inputs`: the graph's, by name."""

    def __init__(
        self,
        graph: Graph,
        inputs: Mapping[str, Tensor],
        parameters: Parameters,
        call: Call,
        signature: SignatureOf,
    ) -> None:
        self.graph = graph
        self.call = call
        self.signature = signature
        self._inputs = inputs
        self._parameters = parameters
        self._outputs: dict[str, Mapping[str, Tensor]] = {}
        """Of each step that was taken, by its name."""
        self._taken: dict[str, tuple[Tensor, ...]] = {}
        """The inputs that each step was called with, or would be."""
        self._arrays: dict[int, Array] = {}
        """The transforms that are known, by identity: two outputs may share one."""

    async def run(self, steps: Iterable[str]) -> None:
        """Take these steps, which include all that they need.

        Raises:
            GatewayError: the error of a step; the others are cancelled.
        """
        wanted = list(steps)
        waits_for = {name: {each.step for each in self.graph.steps[name].needs} for name in wanted}
        await run_in_order(waits_for, self._take, self.graph.steps_at_once)

    async def _take(self, name: str) -> None:
        step = self.graph.steps[name]
        if step.when is not None and not self._holds(step.when):
            return
        inputs = await self.inputs_of(step)
        if inputs is None:
            return
        response = await self.call(step, Operation.INFER, inputs)
        self._outputs[name] = {each.name: each for each in response.outputs}

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

    async def inputs_of(self, step: Step) -> tuple[Tensor, ...] | None:
        """The inputs of a step; None if one is missing. Raises GatewayError if a transform does not fit."""
        known = self._taken.get(step.name)
        if known is not None:
            return known
        size = sum(len(each.data) for value in step.inputs.values() for each in self._used(value))
        if size > LARGE and any(isinstance(each, Transformed) for each in step.inputs.values()):
            found = await in_thread(self._tensors, step.inputs)
        else:
            found = self._tensors(step.inputs)
        if found is not None and step.has_constants:
            found = _fitted(step, found, await self.signature(step))
        if found is not None:
            self._taken[step.name] = found
        return found

    def streamed(self, step: Step, response: Response, values: Mapping[str, Expression]) -> tuple[Tensor, ...]:
        """The values, all of which are outputs of `step`, of one response of its stream. Raises GatewayError if one is
        missing."""
        self._outputs[step.name] = {each.name: each for each in response.outputs}
        found = self._tensors(values)
        assert found is not None
        return found

    def _used(self, value: Expression) -> Iterable[Tensor]:
        return (tensor for each in references(value) if (tensor := self._referred(each)) is not None)

    def _tensors(self, values: Mapping[str, Expression]) -> tuple[Tensor, ...] | None:
        found = [self.tensor(value, name) for name, value in values.items()]
        present = tuple(each for each in found if each is not None)
        return present if len(present) == len(found) else None

    async def outputs(self, values: Mapping[str, Expression]) -> tuple[Tensor, ...]:
        """These values, by name. Raises GatewayError if one is missing."""
        size = sum(len(each.data) for value in values.values() for each in self._used(value))
        found = await in_thread(self._tensors, values) if size > LARGE else self._tensors(values)
        if found is None:
            raise invalid_output(f"an output of model {self.graph.name!r} is missing")  # which `read_graph` rules out
        return found

    def tensor(self, value: Expression, name: str) -> Tensor | None:
        """A value as a tensor called `name`; None if it is missing."""
        if isinstance(value, First):
            return next((one for each in value.arguments if (one := self.tensor(each, name)) is not None), None)
        if isinstance(value, Reference):
            found = self._referred(value)
            return found if found is None or found.name == name else replace(found, name=name, parameters={})
        array = self.array(value)
        if array is None:
            return None
        made = make_tensor(name, array)
        return replace(made, untyped=True) if isinstance(value, Constant) and made.datatype is not BYTES else made

    def array(self, value: Expression) -> Array | None:
        """A value as an array; None if it is missing."""
        match value:
            case Reference():
                found = self._referred(value)
                return None if found is None else found.array
            case Constant():
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
        """The arrays that a transform is of; None if one is missing."""
        found = [self.array(each) for each in value.arguments]
        arrays = [each for each in found if each is not None]
        if len(arrays) < len(found):
            return None
        others = [array for array, each in zip(arrays, value.arguments, strict=True) if not isinstance(each, Constant)]
        if not others or others[0].dtype.kind == "O":
            return arrays
        return [
            self._constant(value, array, others[0]) if isinstance(each, Constant) else array
            for array, each in zip(arrays, value.arguments, strict=True)
        ]

    def _constant(self, value: Transformed, array: Array, other: Array) -> Array:
        """A constant in the datatype of another argument and, where the transform is elementwise, in its shape:
        the same for all rows."""
        array = array.astype(other.dtype)
        if not value.transform.is_elementwise:
            return array
        try:
            return np.broadcast_to(array, other.shape)
        except ValueError as error:
            text = f"{value}: a constant of shape {list(array.shape)} and a tensor of shape {list(other.shape)}"
            raise self._error(text, value) from error

    def _applied(self, value: Transformed, arrays: list[Array]) -> Array:
        # Also where signatures were not known, or promised other things than came.
        if value.transform.takes is None and len({each.dtype for each in arrays}) > 1:
            raise self._error(f"{value}: tensors of different datatypes", value)
        try:
            with np.errstate(all="ignore"):
                return value.transform.apply(arrays)
        except (GraphError, DecodeError, IndexError, np.exceptions.AxisError) as error:
            raise self._error(f"{value}: {error}", value) from error

    def _error(self, text: str, value: Expression) -> GatewayError:
        """The error for a value that does not fit: the client's if it comes from the request alone."""
        from_steps = any(each.step for each in references(value))
        return (invalid_output if from_steps else invalid_input)(f"model {self.graph.name!r}: {text}")

    def chosen(self, value: First) -> Expression | None:
        """The value that `first` takes; None if there is none."""
        return next((each for each in value.arguments if self.array(each) is not None), None)

    def was_taken(self, step: str) -> bool:
        """Whether the step ran."""
        return step in self._outputs

    def _referred(self, reference: Reference) -> Tensor | None:
        if not reference.step:
            return self._inputs[reference.tensor]
        outputs = self._outputs.get(reference.step)
        if outputs is None:
            return None
        if reference.tensor in outputs:
            return outputs[reference.tensor]
        names = ", ".join(outputs) or "none"
        if reference.tensor:
            raise self._error(f"step {reference.step!r} gave no output {reference.tensor!r}, but {names}", reference)
        if len(outputs) > 1:
            raise self._error(f"{reference} is the only output, but the step gave {names}", reference)
        return next(iter(outputs.values()))


def _fitted(step: Step, inputs: tuple[Tensor, ...], signature: Signature) -> tuple[Tensor, ...]:
    """The inputs, with constants as the model has them."""
    specs = {each.name: each for each in signature.inputs}
    rows = next(
        (
            each.shape[0]
            for each in inputs
            if not isinstance(step.inputs[each.name], Constant)
            and each.name in specs
            and is_batch(specs[each.name].shape)
            and each.shape
        ),
        1,
    )
    return tuple(
        _constant(value, specs[each.name], rows)
        if isinstance(value := step.inputs[each.name], Constant) and each.name in specs
        else each
        for each in inputs
    )


def _constant(constant: Constant, spec: TensorSpec, rows: int) -> Tensor:
    """A constant as the input `spec`: in its datatype and, if only the input has rows, once for each of `rows`."""
    array = constant.array
    if spec.datatype is not BYTES:
        array = cast(array, spec.datatype, f"the constant for input {spec.name!r}")
    if is_batch(spec.shape) and array.ndim == len(spec.shape) - 1:
        array = np.repeat(array[np.newaxis], rows, 0)
    return make_tensor(spec.name, array, spec.datatype)
