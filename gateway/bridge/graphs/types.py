"""Derives the datatypes and shapes of a graph's values, and the signature of the resulting model."""

from collections.abc import Iterable, Mapping

from gateway.bridge.graphs.expressions import ConstantTensor, Expression, First, Reference, Transformed, references
from gateway.bridge.graphs.graph import Graph, GraphStep
from gateway.bridge.graphs.transforms import GraphError
from gateway.bridge.shapes import is_batch
from gateway.core.casting import cast
from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.tensors import datatype_of


class UnknownSignatureError(GraphError):
    """A type is unknown because a step's model has no metadata and its route has no `signature`."""


class Types:
    """The types in a graph. `signatures` contains the signatures of the models that the steps call, by step.

    `signatures` does not contain steps whose models have unknown inputs and outputs. The tensors of these steps cannot
    be checked."""

    def __init__(self, graph: Graph, signatures: Mapping[str, Signature]) -> None:
        self.graph = graph
        self.signatures = signatures
        self._moving = moving_steps(graph, (each.name for each in graph.inputs if _is_float(each)))

    def of(self, expression: Expression, place: tuple[str | int, ...] = ()) -> TensorSpec:
        """Return the datatype and shape of a value.

        Raises:
            GraphError: a model has no such output, or the tensors of a transform do not match.
            UnknownSignatureError: the type depends on an output whose type is unknown.
        """
        match expression:
            case Reference(step="", tensor=name):
                return next(each for each in self.graph.inputs if each.name == name)
            case Reference():
                return self._output(expression, place)
            case ConstantTensor(array):
                return TensorSpec("", datatype_of(array.dtype), array.shape)
            case First():
                return self._first(expression, place)
        return self._transformed(expression)

    def _output(self, reference: Reference, place: tuple[str | int, ...]) -> TensorSpec:
        step = self.graph.steps[reference.step]
        signature = self.signatures.get(step.name)
        if signature is None:
            raise UnknownSignatureError(_unknown_tensors(step), *place)
        outputs = signature.outputs
        if not reference.tensor:
            if len(outputs) != 1:
                names = ", ".join(f"'${step.name}.{each.name}'" for each in outputs) or "none"
                raise GraphError(f"model {step.model!r} has {len(outputs)} outputs; expected one of {names}", *place)
            return outputs[0]
        for each in outputs:
            if each.name == reference.tensor:
                return each
        names = ", ".join(each.name for each in outputs)
        text = (
            f"model {step.model!r} of step {step.name!r} has no output {reference.tensor!r}; expected {names or 'none'}"
        )
        raise GraphError(text, *place)

    def _first(self, expression: First, place: tuple[str | int, ...]) -> TensorSpec:
        first, *others = [self.of(each, place) for each in expression.arguments]
        for each in others:
            if each.datatype is not first.datatype or len(each.shape) != len(first.shape):
                raise GraphError(f"'first' needs equal tensors, got {first} and {each}", *expression.place)
        shape = tuple(
            sizes[0] if len(set(sizes)) == 1 else -1
            for sizes in zip(first.shape, *(each.shape for each in others), strict=True)
        )
        return replace(first, shape=shape)

    def _transformed(self, expression: Transformed) -> TensorSpec:
        arguments = self.arguments(expression)
        try:
            return expression.transform.spec(arguments)
        except GraphError as error:
            raise GraphError(f"{expression.name!r}: {error.message}", *expression.place, *error.place) from error

    def arguments(self, expression: Transformed) -> list[TensorSpec]:
        """Return the datatypes and shapes of a transform's arguments.

        Constants get the datatype of the other arguments. If the transform is elementwise, constants also get the shape
        of these arguments, otherwise their number of rows."""
        specs = [self.of(each, expression.place) for each in expression.arguments]
        pairs = list(zip(specs, expression.arguments, strict=True))
        others = [spec for spec, each in pairs if not isinstance(each, ConstantTensor)]
        if not others:
            return specs
        return [
            _constant(each, others[0], in_its_shape=expression.transform.is_elementwise)
            if isinstance(each, ConstantTensor)
            else spec
            for spec, each in pairs
        ]

    def check(self) -> None:
        """Raise GraphError if a tensor does not match the input that it is used for, or if the graph mixes batch rows
        although its `derivatives` do not allow mixing."""
        for step in self.graph.steps.values():
            self._check_step(step)
        for name, value in self.graph.outputs.items():
            self._known(value, ("outputs", name))
        if self.graph.keys.derivatives is not None:
            self._check_rows()

    def _check_rows(self) -> None:
        """Raise GraphError if the types show that the value of a row depends on other rows. Rows must be independent,
        because finite differences use the rows of one batch as points."""
        for step in self.graph.steps.values():
            self._check_rows_of(step)
            for value in step.inputs.values():
                self._check_rows_in(value)
            if step.when is not None and step.when.value is not None:
                self._check_rows_in(step.when.value)
        for value in self.graph.outputs.values():
            self._check_rows_in(value)

    def _check_rows_of(self, step: GraphStep) -> None:
        signature = self.signatures.get(step.name)
        if signature is None:
            return
        specs = {name: self._known(value, ()) for name, value in step.inputs.items()}
        batched = {name for name, spec in specs.items() if spec is not None and is_batch(spec.shape)}
        taken = [each for each in signature.inputs if each.name in batched]
        for each in (*taken, *signature.outputs) if batched else ():
            if not is_batch(each.shape):
                text = f"model {step.model!r} turns a batch into one value: its {each} has no rows"
                raise GraphError(f"{text}; {_ROWS_APART}", "steps", step.name)

    def _check_rows_in(self, expression: Expression) -> None:
        if not isinstance(expression, Transformed | First):
            return
        for each in expression.arguments:
            self._check_rows_in(each)
        if isinstance(expression, Transformed) and self._known(expression, ()) is not None:
            specs = self.arguments(expression)
            if any(is_batch(each.shape) for each in specs) and not expression.transform.keeps_rows(specs):
                text = f"{expression.name!r} mixes the rows of a batch; {_ROWS_APART}"
                raise GraphError(text, *expression.place, expression.name)

    def _known(self, value: Expression, place: tuple[str | int, ...]) -> TensorSpec | None:
        """Return the type of a value, or None if the type is unknown. Raises GraphError like `of`."""
        try:
            return self.of(value, place)
        except UnknownSignatureError:
            return None

    def _check_step(self, step: GraphStep) -> None:
        place = ("steps", step.name, "inputs")
        signature = self.signatures.get(step.name)
        wanted = None if signature is None else {each.name: each for each in signature.inputs}
        for name, value in step.inputs.items():
            spec = self._known(value, (*place, name))
            if wanted is None:
                continue
            if name not in wanted:
                names = ", ".join(wanted) or "none"
                raise GraphError(f"model {step.model!r} has no input {name!r}; expected {names}", *place, name)
            if spec is not None:
                _check_fits(spec, wanted[name], value, (*place, name))
        for name in wanted or ():
            if wanted is not None and name not in step.inputs:
                raise GraphError(f"model {step.model!r} needs the input {wanted[name]}", *place)
        if step.when is not None and step.when.value is not None:
            self._check_condition(step.when.value, ("steps", step.name, "when", "value"))

    def _check_condition(self, value: Expression, place: tuple[str | int, ...]) -> None:
        spec = self._known(value, place)
        if spec is not None and any(size not in (-1, 1) for size in spec.shape):
            raise GraphError(f"expected one element for a condition, but {value} is {spec}", *place)

    def signature(self) -> Signature:
        """Return the graph's own signature, including its derivatives.

        Raises:
            GraphError, UnknownSignatureError: same as `of`; also UnknownSignatureError if `derivatives` are configured
                and it is unknown whether the graph mixes batch rows.
        """
        if self.graph.keys.derivatives is not None:
            self._check_known()
        outputs = tuple(
            replace(self.of(value, ("outputs", name)), name=name, content_type="", description="")
            for name, value in self.graph.outputs.items()
        )
        operations = {Operation.INFER, *(each for each in DERIVATIVES if self._has(each))}
        return Signature(
            self.graph.inputs, outputs, frozenset(operations), self.graph.name, platform="graph",
            description=self.graph.description,
        )  # fmt: skip

    def _check_known(self) -> None:
        for name, step in self.graph.steps.items():
            if name not in self.signatures:
                raise UnknownSignatureError(_unknown_tensors(step), "steps", name)

    def _has(self, operation: Operation) -> bool:
        """Return True if the derivative of every float output exists with respect to every float input. For batches,
        the derivative must exist row by row."""
        inputs = [each for each in self.graph.inputs if _is_float(each)]
        outputs = [each for each in self.graph.outputs.values() if _is_float(self.of(each))]
        has_rows = any(is_batch(each.shape) for each in self.graph.inputs)
        if not inputs or not outputs or any(each.name in DERIVATIVES[operation] for each in self.graph.inputs):
            return False
        if not _all_have_rows((*self.graph.inputs, *map(self.of, outputs)), has_rows):
            return False
        if not all(self._is_differentiable(each, has_rows) for each in outputs):
            return False
        return all(
            self._has_derivative(step, operation, has_rows)
            for name, step in self.graph.needed(outputs).items()
            if name in self._moving
        )

    def _has_derivative(self, step: GraphStep, operation: Operation, has_rows: bool) -> bool:
        """Return True if a step, whose outputs depend on the graph's inputs, has the derivatives that the graph's
        derivative requires."""
        signature = self.signatures.get(step.name)
        return (
            signature is not None
            and _NEEDED[operation] <= signature.operations
            and _all_have_rows((*signature.inputs, *signature.outputs), has_rows)
            and all(self._is_differentiable(each, has_rows) for each in step.inputs.values())
        )

    def _is_differentiable(self, expression: Expression, has_rows: bool) -> bool:
        """Return True if a value is a differentiable function of its tensors. If `has_rows` is True, the function must
        be differentiable row by row."""
        match expression:
            case Transformed() if self._depends(expression):
                specs = self.arguments(expression)
                return (
                    expression.transform.has_derivative
                    and _is_float(self.of(expression))
                    and (not has_rows or expression.transform.keeps_rows(specs))
                    and all(self._is_differentiable(each, has_rows) for each in expression.arguments)
                )
            case First():
                return all(self._is_differentiable(each, has_rows) for each in expression.arguments)
            case Reference() if self._depends(expression):
                return _is_float(self.of(expression))
        return True

    def _depends(self, expression: Expression) -> bool:
        """Return True if a value depends on a float input of the graph."""
        return any(
            each.step in self._moving if each.step else _is_float(self.of(each)) for each in references(expression)
        )


_ROWS_APART = "`derivatives` of the graph need each row of a batch by itself"


def _unknown_tensors(step: GraphStep) -> str:
    text = f"tensors unknown for model {step.model!r} of step {step.name!r}"
    return f"{text}; declare them by `signature` on its route"


def _is_float(spec: TensorSpec) -> bool:
    return spec.datatype.kind is Kind.FLOAT


def _all_have_rows(specs: Iterable[TensorSpec], has_rows: bool) -> bool:
    return all(is_batch(each.shape) is has_rows for each in specs)


def moving_steps(graph: Graph, inputs: Iterable[str]) -> frozenset[str]:
    """Return the steps whose outputs depend on these graph inputs through the steps' own inputs, and not only through
    `when`."""
    moving: set[str] = set()
    moved = frozenset(inputs)
    for name, step in graph.steps.items():
        used = (each for value in step.inputs.values() for each in references(value))
        if any(each.step in moving if each.step else each.tensor in moved for each in used):
            moving.add(name)
    return frozenset(moving)


_NEEDED = {
    Operation.GRADIENT: {Operation.GRADIENT},
    Operation.APPLY_JACOBIAN: {Operation.APPLY_JACOBIAN},
    Operation.APPLY_HESSIAN: {Operation.GRADIENT, Operation.APPLY_JACOBIAN, Operation.APPLY_HESSIAN},
}
"""For each derivative of a graph, the required derivatives of its steps."""


def _constant(constant: ConstantTensor, other: TensorSpec, *, in_its_shape: bool) -> TensorSpec:
    """Return the type that a constant gets from an argument of the type `other`."""
    shape = constant.array.shape
    datatype = other.datatype if _may_be(constant, other.datatype) else datatype_of(constant.array.dtype)
    behind = other.shape[len(other.shape) - len(shape) :] if len(shape) <= len(other.shape) else None
    if (
        in_its_shape
        and behind is not None
        and all(have in (1, want) or want == -1 for have, want in zip(shape, behind, strict=True))
    ):
        shape = other.shape
    elif len(shape) == len(other.shape) - 1 and is_batch(other.shape):
        shape = (-1, *shape)
    return TensorSpec("", datatype, shape)


def _may_be(constant: ConstantTensor, datatype: Datatype) -> bool:
    """Return True if this datatype can represent a constant."""
    own = datatype_of(constant.array.dtype)
    if own is datatype or {own.kind, datatype.kind} & {Kind.BYTES, Kind.BOOL}:
        return own is datatype
    try:
        cast(constant.array, datatype, "a constant")
    except DecodeError:
        return False
    return True


def _check_fits(spec: TensorSpec, wanted: TensorSpec, value: Expression, place: tuple[str | int, ...]) -> None:
    """Raise GraphError if a value of the type `spec` cannot be the input `wanted` of a step."""
    if isinstance(value, ConstantTensor):
        fits = _may_be(value, wanted.datatype)
        shape = spec.shape if len(spec.shape) == len(wanted.shape) else (-1, *spec.shape)
    else:
        fits, shape = spec.datatype is wanted.datatype, spec.shape
    if not fits:
        raise GraphError(f"{value} is {spec.datatype}, and the input is {wanted}; `cast` changes it", *place)
    if len(shape) != len(wanted.shape) or any(
        have != want and -1 not in (have, want) for have, want in zip(shape, wanted.shape, strict=True)
    ):
        raise GraphError(f"{value} is {spec.datatype} {list(spec.shape)}, and the input is {wanted}", *place)
