"""Computes a model's missing derivatives by finite differences of its evaluations.

A request for a missing derivative is adapted to the derivative model's signature, like a request for the model's own
derivative. Then the model is evaluated at the points from `finite_differences`. If the model accepts batches, the
points form one batch. Otherwise, each point is a separate call, and the number of parallel calls is the number that the
backend allows for one batch. In the queue, the calls belong to the requesting client, and take turns with its other
calls and with other clients' calls. The first call that fails cancels the rest.

The Hessian is computed from two or more gradients along `vec`: the model's own gradients if the model has them,
otherwise estimated gradients.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from enum import Enum
from math import prod
from time import monotonic
from typing import Any

import ml_dtypes
import numpy as np

from gateway.bridge import derivatives, json_members, names, rows, shapes
from gateway.bridge.backend import BackendSide
from gateway.bridge.finite_differences import (
    STENCILS,
    Array,
    Axes,
    Line,
    Stencil,
    Step,
    along_axes,
    along_line,
    for_second,
    largest_difference,
    points_along_axes,
    relative_step,
)
from gateway.bridge.fitting import FittedRequest, Fittings, is_one_row
from gateway.bridge.request import fit_inputs
from gateway.bridge.response import fit_response
from gateway.bridge.settings import DIFFERENCE_ORDERS, Derivatives, RouteSettings
from gateway.bridge.signature_cache import MOST_KEPT, SECONDS_KEPT, Key
from gateway.bridge.signatures import RouteSignatures, is_unknown
from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import (
    DecodeError,
    GatewayError,
    Reason,
    TransportError,
    invalid_input,
    invalid_output,
    refusal,
    unsupported,
)
from gateway.core.frozen import frozen, replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.offload import LARGE, in_thread
from gateway.core.operations import COMPANION_OUTPUT, DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.protocol import Rows, Traits, Wire, without_codec
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.spans import begin
from gateway.core.tensors import Tensor
from gateway.core.tensors import tensor as make_tensor
from gateway.core.transport import Handler

ERROR_HEADER = "gateway-derivative-error"
"""The header or metadata key that requests an error estimate (value `1`). In the response, the same key contains the
estimate."""
MARK_HEADER = "gateway-derivative"
"""The response header or metadata key that describes how the derivative was computed."""

# Every tensor has rows. A model that accepts no batches is therefore called for each row.
POINTS = without_codec("points", traits=Traits(wire=Wire(rows=Rows.FIRST, unnamed=True)))
"""The client protocol of the Bridge that evaluates models at points."""


class Calls(Enum):
    """The way in which points become model calls."""

    BATCHES = "batches"
    """The model accepts batches, and points are rows."""
    ROWS = "rows"
    """No tensor has a batch dimension, and the Bridge makes a call for each row."""
    POINTS = "points"
    """Only some tensors have a batch dimension, or some tensors are scalars. Each point is a call with the model's own
    shapes."""


@frozen
class DerivativeProblem:
    """The numbers in one request for a derivative. The first dimension of all arrays has the size B (rows)."""

    request: Request
    key: Key
    operation: Operation
    inputs: tuple[Tensor, ...]
    """The model's inputs, by the backend's names, with B rows, except the inputs in `shared`."""
    shared: tuple[Tensor, ...]
    """The inputs without a batch dimension, if the model accepts batches. All points have the same values for these
    inputs."""
    unbatched: frozenset[str]
    """The tensors without a batch dimension in a call for one point."""
    moved: Mapping[str, Array]
    """The inputs that vary, by name, as [B, n] FP64."""
    first: str
    """The input of the gradient: `in_wrt` or `in_wrt1`."""
    second: str
    """The input that varies along `vec`: `in_wrt` of a Jacobian, or `in_wrt2` of a Hessian."""
    output: str
    positions: Mapping[str, int]
    sens: Array | None
    vec: Array | None
    dtype: "np.dtype[Any]"
    """The datatype of the inputs that vary."""
    narrowest: "np.dtype[Any]"
    """The narrower of `dtype` and the output's datatype. It determines the rounding errors of values."""
    calls: "Calls"
    """The way in which points become calls."""

    @property
    def rows(self) -> int:
        return len(self.moved[self.first])


class EstimatedDerivatives:
    """Computes derivatives of one route's models. `evaluate` handles inference and gradient requests with the backend's
    names, in which each row is a point."""

    def __init__(
        self, settings: RouteSettings, fittings: Fittings, signatures: RouteSignatures, evaluate: Handler,
        backend: BackendSide,
    ) -> None:  # fmt: skip
        assert settings.derivatives is not None
        self._how = settings.derivatives
        self._stencil = stencil_of(settings.derivatives)
        self._fittings = fittings
        self._signatures = signatures
        self._evaluate = evaluate
        self._backend = backend
        self._takes_batches = backend.traits.wire.rows is not Rows.ONE
        self._largest_batches: OrderedDict[Key, tuple[float, int | None]] = OrderedDict()
        """For each model, the time until which its maximum batch size is stored, and this size (None: no limit)."""

    async def derive(self, request: Request, key: Key) -> Response:
        """Return the requested derivative. `key` contains the backend's name for the model.

        Raises:
            DecodeError: the client's tensors do not match the model.
            GatewayError: UNIMPLEMENTED if the input or the output is not a float tensor; FAILED_PRECONDITION if the
                model's tensors are unknown; INVALID_ARGUMENT if the derivative requires too many evaluations; otherwise
                the backend's error.
        """
        base = await self._signatures.model(key)
        if is_unknown(base):
            text = f"inputs unknown: {request.operation.value} of model {request.model!r} uses"
            text = f"{text} finite differences; declare the inputs by `signature` on the route"
            raise refusal(Reason.FAILED_PRECONDITION, text)
        if Operation.INFER not in (await self._signatures.described(key)).operations:
            raise unsupported(
                f"{request.operation.value} is not supported by model {request.model!r}: it has no values"
            )
        signature = derivatives.companion_signature(base, request.operation)
        found = derivatives.positions(request.inputs, DERIVATIVES[request.operation])
        if found is not None and not request.schemaless:
            signature = derivatives.sized(signature, base, request.operation, found)
        fitting = self._fittings.to(signature)
        if request.schemaless:
            request = json_members.resolve_inputs(request, signature, fitting.settings)
        inputs = fit_inputs(request.inputs, fitting, request.record)
        outputs = names.requested(request.outputs, signature, fitting.settings)
        fitted = FittedRequest(replace(request, outputs=outputs), inputs.rows, inputs.unbatched)
        problem = _problem(request, key, base, fitting.signature, inputs.tensors)
        estimated = await self._solve(problem)
        shape = estimated.shape if inputs.rows is not None else estimated.shape[1:]
        output = make_tensor(COMPANION_OUTPUT, estimated.reshape(shape), Datatype.FP64)
        return fit_response(Response((output,)), request, fitted, fitting)

    async def _solve(self, problem: DerivativeProblem) -> Array:
        """Return the derivative as [B, n] or [B, m] FP64."""
        record = problem.request.record
        tells = record.telling.route
        wants_error = tells and (self._how.error or problem.request.headers.get(ERROR_HEADER) == "1")
        steps = [self._step(problem, 1.0), self._step(problem, 2.0)] if wants_error else [self._step(problem, 1.0)]
        plans = [await self._plan(problem, step) for step in steps]
        count = sum(plan.count for plan in plans)
        self._check(problem, count)
        if record.events is not None:
            with begin(record, "finite differences") as span:
                span.facts = {"how": self._how_text(steps[0], count), "evaluations": count}
                results = [await plan.solve() for plan in plans]
        else:
            results = [await plan.solve() for plan in plans]
        if tells:
            fields = [(MARK_HEADER.encode(), self._how_text(steps[0], count).encode())]
            if wants_error:
                fields.append((ERROR_HEADER.encode(), b"%.2g" % largest_difference(results[0], results[1])))
            record.tell(*fields)
        result: Array = results[0]
        return result

    def _how_text(self, step: Step, count: int) -> str:
        evaluations = "1 evaluation" if count == 1 else f"{count} evaluations"
        return f"{self._how.method}, order {self._stencil.order}, step {step.size:.2g}, {evaluations}"

    def _step(self, problem: DerivativeProblem, scale: float) -> Step:
        how, order = self._how, self._stencil.order
        is_second = problem.operation is Operation.APPLY_HESSIAN
        size = relative_step(order, problem.narrowest, second=is_second)
        if how.step is not None:
            size = for_second(how.step, order) if is_second else how.step
        return Step(size, how.typical, scale)

    def _check(self, problem: DerivativeProblem, count: int) -> None:
        """Reject a problem that requires too many points or too much memory, before any points are created."""
        what = f"{problem.operation.value} of model {problem.request.model!r} by finite differences"
        if count > self._how.max_evaluations:
            text = f"{what} takes {count} evaluations, and the route allows {self._how.max_evaluations}"
            raise invalid_input(f"{text}; `translate: {{derivatives: {{max_evaluations: {count}}}}}` allows them")
        size = sum(len(tensor.data) for tensor in problem.inputs) // max(problem.rows, 1) * count
        limit = self._backend.limits.message
        if size > limit:
            text = f"{what} takes {count} points of {size} bytes together; limits.message of the backend is {limit}"
            raise refusal(Reason.TOO_LARGE, text)

    async def _plan(self, problem: DerivativeProblem, step: Step) -> "_Plan":
        count = problem.rows
        points = points_along_axes(problem.moved[problem.first].shape[1], self._stencil)
        match problem.operation:
            case Operation.APPLY_JACOBIAN:
                return _Plan(count * len(self._stencil.offsets), lambda: self._jacobian(problem, step))
            case Operation.GRADIENT:
                return _Plan(count * points, lambda: self._gradient(problem, problem.moved, step))
            case _:
                replaced = Operation.GRADIENT in self._how.replace
                is_exact = not replaced and await self._signatures.has_own(problem.key, Operation.GRADIENT)
                if is_exact:
                    # The model's own gradient is available, so one level of differences is enough.
                    step = replace(self._first_step(problem), scale=step.scale)
                total = count * len(self._stencil.offsets) * (1 if is_exact else points)
                return _Plan(total, lambda: self._hessian(problem, step, is_exact))

    def _first_step(self, problem: DerivativeProblem) -> Step:
        return self._step(replace(problem, operation=Operation.GRADIENT), 1.0)

    async def _jacobian(self, problem: DerivativeProblem, step: Step) -> Array:
        assert problem.vec is not None
        line: Line = await _made(self._line, problem, problem.vec, step)
        values = await self._values(problem, {problem.second: line.points})
        return line.combine(values)

    async def _gradient(self, problem: DerivativeProblem, at: Mapping[str, Array], step: Step) -> Array:
        """Return the gradient [B, n] at the values `at` of the inputs that vary, each [B, n]."""
        assert problem.sens is not None
        x = at[problem.first]
        axes: Axes = await _made(along_axes, x, step, self._stencil, problem.dtype, size=x.nbytes * x.shape[1])
        moved = {
            name: axes.points if name == problem.first else np.repeat(each[:, None], axes.points.shape[1], axis=1)
            for name, each in at.items()
        }
        jacobian = axes.combine(await self._values(problem, moved))
        if jacobian.shape[2] != problem.sens.shape[1]:
            lengths = f"has length {problem.sens.shape[1]}, expected {jacobian.shape[2]}"
            raise DecodeError(f"input 'sens' {lengths}, the length of output {problem.output!r}")
        with np.errstate(all="ignore"):
            gradient: Array = np.einsum("bnm,bm->bn", jacobian, problem.sens)
            return gradient

    async def _hessian(self, problem: DerivativeProblem, step: Step, is_exact: bool) -> Array:
        assert problem.vec is not None
        assert problem.sens is not None
        line: Line = await _made(self._line, problem, problem.vec, step)
        many = line.points.shape[1]
        if is_exact:
            gradients = await self._own_gradients(problem, {problem.second: line.points})
            return line.combine(gradients)
        # Each point on the line is a separate row with its own gradient.
        at = {name: np.repeat(each, many, axis=0) for name, each in problem.moved.items()}
        at[problem.second] = line.points.reshape(-1, line.points.shape[2])
        sens = np.repeat(problem.sens, many, axis=0)
        spread = replace(problem, inputs=_repeated(problem.inputs, many), moved=at, sens=sens)
        gradients = await self._gradient(spread, at, step)
        return line.combine(gradients.reshape(problem.rows, many, -1))

    def _line(self, problem: DerivativeProblem, direction: Array, step: Step) -> Line:
        return along_line(problem.moved[problem.second], direction, step, self._stencil, problem.dtype)

    async def _values(self, problem: DerivativeProblem, moved: Mapping[str, Array]) -> Array:
        """Return the output [B, P, m] for the values `moved` of the inputs that vary, each [B, P, n]."""
        points = next(iter(moved.values())).shape[1]
        inputs = await _made(_at_points, problem.inputs, moved, points)
        ask = _outgoing(problem.request, problem.key, Operation.INFER, inputs)
        ask = replace(ask, outputs=() if problem.calls is Calls.ROWS else (RequestedOutput(problem.output),))
        return await self._answers(problem, ask, problem.output, points)

    async def _own_gradients(self, problem: DerivativeProblem, moved: Mapping[str, Array]) -> Array:
        """Return the model's own gradients [B, K, n] for the values `moved` of the inputs that vary."""
        assert problem.sens is not None
        points = next(iter(moved.values())).shape[1]
        inputs = await _made(_at_points, problem.inputs, moved, points)
        count = problem.rows * points
        where = {"out_wrt": problem.positions["out_wrt"], "in_wrt": problem.positions["in_wrt1"]}
        extras = [make_tensor(name, np.full((count, 1), at, np.int64)) for name, at in where.items()]
        extras.append(make_tensor("sens", np.repeat(problem.sens, points, axis=0)))
        ask = _outgoing(problem.request, problem.key, Operation.GRADIENT, (*inputs, *extras))
        return await self._answers(problem, ask, COMPANION_OUTPUT, points)

    async def _answers(self, problem: DerivativeProblem, ask: Request, output: str, points: int) -> Array:
        """Evaluate all rows of `ask` and return one output as [B, P, ...]."""
        count = problem.rows * points
        most = await self._most_points(problem) if count > 1 else 1

        async def call(piece: tuple[Tensor, ...]) -> Array:
            rows = None if problem.calls is Calls.POINTS else piece[0].shape[0]
            return await self._answer(replace(ask, inputs=(*piece, *problem.shared)), output, rows)

        try:
            if problem.calls is Calls.POINTS:
                pieces = [tuple(_point(each, at, problem.unbatched) for each in ask.inputs) for at in range(count)]
            elif most is None or count <= most:
                pieces = [ask.inputs]
            else:
                pieces = [tuple(_piece(each, at, at + most) for each in ask.inputs) for at in range(0, count, most)]
            if len(pieces) == 1:
                answers = [await call(pieces[0])]
            else:
                answers = await rows.each(pieces, call, self._backend.rows_at_once())
        except GatewayError as error:
            raise _explained(error, problem) from error
        if len({answer.shape[1] for answer in answers}) > 1:
            raise invalid_output(f"output {output!r} has different lengths at different points")
        return np.concatenate(answers).reshape(problem.rows, points, answers[0].shape[1])

    async def _most_points(self, problem: DerivativeProblem) -> int | None:
        """Return the maximum number of points per call: the route's `batch` or the model's own limit, whichever is
        smaller."""
        if problem.calls is not Calls.BATCHES or not self._takes_batches:
            return None
        known = await self._largest_batch(problem.key)
        limits = [each for each in (self._how.batch, known) if each is not None]
        return min(limits, default=None)

    async def _largest_batch(self, key: Key) -> int | None:
        """Return `max_batch_size` from the model's Triton configuration. The result is stored for as long as
        signatures."""
        if Operation.CONFIG not in self._backend.traits.servers.extensions:
            return None
        kept, now = self._largest_batches, monotonic()
        entry = kept.get(key)
        if entry is not None and entry[0] > now:
            return entry[1]
        found: int | None = None
        with suppress(GatewayError):
            config = await self._backend.handler(Request(Operation.CONFIG, key[0], key[1]))
            size = config.get("max_batch_size") if isinstance(config, Mapping) else None
            found = size if type(size) is int and size > 0 else None
        kept[key] = now + SECONDS_KEPT, found
        kept.move_to_end(key)
        if len(kept) > MOST_KEPT:
            kept.popitem(last=False)
        return found

    async def _answer(self, ask: Request, output: str, count: int | None) -> Array:
        """Return one output as [count, ...].

        For a single-point call, whose output might have no batch dimension, return the output as [1, ...]."""
        response = await self._evaluate(ask)
        assert isinstance(response, Response)
        for each in response.outputs:
            if each.name != output or each.datatype is Datatype.BYTES:
                continue
            if count is None:
                return each.array.reshape(1, -1).astype(np.float64)
            if each.shape[:1] == (count,):
                return each.array.reshape(count, -1).astype(np.float64)
        what = "" if count is None else f" with {count} rows"
        raise invalid_output(f"the model gave no output {output!r}{what} of numbers")


@frozen
class _Plan:
    """The number of evaluations that a result requires, and the function that computes the result."""

    count: int
    solve: Callable[[], Any]


def stencil_of(settings: Derivatives) -> Stencil:
    """Return the stencil for these settings."""
    method = settings.method
    return STENCILS[method, settings.order or DIFFERENCE_ORDERS[method][0]]


def _problem(
    request: Request, key: Key, base: Signature, signature: Signature, tensors: Sequence[Tensor]
) -> DerivativeProblem:
    """Return the numbers in `tensors`, which are the inputs of a derivative request, adapted to `signature`.

    Raises:
        DecodeError: an index is out of range or differs between rows, or a vector has the wrong length.
        GatewayError: UNIMPLEMENTED if the input or the output is not a float tensor, or if only some tensors have rows.
    """
    fitted = {tensor.name: tensor for tensor in tensors}
    batched = {spec.name: shapes.is_batch(spec.shape) for spec in signature.inputs}
    operation = request.operation
    positions = {name: _index(fitted[name]) for name in DERIVATIVES[operation] if name in INDEX_TENSORS}
    derivatives.sized(signature, base, operation, positions)  # checks that they are in range
    own = list(base.inputs)
    output = base.outputs[positions.get("out_wrt", 0)]
    first = own[positions.get("in_wrt", positions.get("in_wrt1", 0))]
    second = own[positions.get("in_wrt2", positions.get("in_wrt", 0))]
    for role, spec in (("input", first), ("input", second), ("output", output)):
        if spec.datatype.kind is not Kind.FLOAT:
            text = f"{operation.value} of model {request.model!r}: {role} {spec.name!r} is {spec.datatype}"
            raise unsupported(f"{text}, and finite differences need floats")
    calls = _calls(base, {first.name, second.name}, output)
    found = {spec.name: _as_row(fitted[spec.name], is_rows=batched[spec.name]) for spec in own}
    count = max((tensor.shape[0] for name, tensor in found.items() if batched[name]), default=1)
    shared = {name for name in found if calls is Calls.BATCHES and not batched[name]}
    for name, tensor in found.items():
        if name not in shared and tensor.shape[0] != count:
            [found[name]] = _repeated([tensor], count)
    inputs = tuple(tensor for name, tensor in found.items() if name not in shared)
    moved = {name: _flat(found[name]) for name in {first.name, second.name}}
    if not all(each.size for each in moved.values()):
        raise DecodeError(f"{operation.value} by finite differences needs inputs with elements, and a row at least")
    needed = {"sens": shapes.point_size(output.shape), "vec": moved[second.name].shape[1]}
    vectors = {name: _flat(_as_row(fitted[name], is_rows=batched[name])) for name in needed if name in fitted}
    for name, vector in vectors.items():
        if needed[name] >= 0 and vector.shape[1] != needed[name]:
            raise DecodeError(f"input {name!r} has length {vector.shape[1]}, expected {needed[name]}")
    dtypes = [found[name].datatype.dtype for name in moved]
    return DerivativeProblem(
        request=request,
        key=key,
        operation=operation,
        inputs=inputs,
        shared=tuple(fitted[name] for name in found if name in shared),
        unbatched=frozenset(name for name, is_rows in batched.items() if not is_rows),
        moved=moved,
        first=first.name,
        second=second.name,
        output=output.name,
        positions=positions,
        sens=vectors.get("sens"),
        vec=vectors.get("vec"),
        dtype=_narrowest(dtypes),
        narrowest=_narrowest([*dtypes, output.datatype.dtype]),
        calls=calls,
    )


def _calls(base: Signature, moved: Set[str], output: TensorSpec) -> Calls:
    """Return the way in which points become calls of a model with the signature `base`, whose inputs `moved` vary."""
    if is_one_row(base):
        return Calls.ROWS
    differ = [*(spec for spec in base.inputs if spec.name in moved), output]
    return Calls.BATCHES if all(shapes.is_batch(spec.shape) for spec in differ) else Calls.POINTS


def _index(tensor: Tensor) -> int:
    found = set(tensor.array.reshape(-1).tolist())
    if len(found) > 1:
        raise DecodeError(f"index {tensor.name!r} differs in some rows; send one request for each")
    return int(found.pop()) if found else 0  # a batch without rows, which is rejected later


def _as_row(tensor: Tensor, *, is_rows: bool) -> Tensor:
    return tensor if is_rows else shapes.one_row(tensor)


def _flat(tensor: Tensor) -> Array:
    return tensor.array.reshape(tensor.shape[0], prod(tensor.shape[1:])).astype(np.float64)


def _narrowest(dtypes: "Sequence[np.dtype[Any]]") -> "np.dtype[Any]":
    return max(dtypes, key=lambda dtype: float(ml_dtypes.finfo(dtype).eps))  # type: ignore[no-untyped-call]


def _at_points(inputs: Sequence[Tensor], moved: Mapping[str, Array], points: int) -> tuple[Tensor, ...]:
    """Return the inputs at the P = `points` points of each row: B rows become B * P rows. Inputs in `moved` take their
    values, of the shape [B, P, n], from `moved`. In all other inputs, each row is repeated P times."""
    return tuple(
        make_tensor(
            each.name,
            moved[each.name].reshape(-1, *each.shape[1:]).astype(each.datatype.dtype),
            each.datatype,
        )
        if each.name in moved
        else _repeated((each,), points)[0]
        for each in inputs
    )


def _repeated(inputs: Sequence[Tensor], times: int) -> tuple[Tensor, ...]:
    """Return the inputs with each row repeated."""
    return tuple(make_tensor(each.name, np.repeat(each.array, times, axis=0), each.datatype) for each in inputs)


def _piece(tensor: Tensor, begin: int, end: int) -> Tensor:
    """Return some rows of a tensor."""
    return make_tensor(tensor.name, tensor.array[begin:end], tensor.datatype)


def _point(tensor: Tensor, at: int, unbatched: Set[str]) -> Tensor:
    """Return one row of a tensor for a single-point call."""
    array = tensor.array[at] if tensor.name in unbatched else tensor.array[at : at + 1]
    return make_tensor(tensor.name, array, tensor.datatype)


def _outgoing(request: Request, key: Key, operation: Operation, inputs: tuple[Tensor, ...]) -> Request:
    """Convert the client's request to a request for `operation`, with the backend's names and other inputs."""
    return replace(
        request,
        operation=operation,
        model=key[0],
        version=key[1],
        inputs=inputs,
        outputs=(),
        origin=None,
        schemaless=False,
    )


async def _made(make: Callable[..., Any], *arguments: Any, size: int | None = None) -> Any:
    """Return the result of `make`. Run `make` in a thread if it copies a lot of data."""
    if size is None:
        arrays = [each for one in arguments for each in (one.values() if isinstance(one, Mapping) else (one,))]
        size = sum(each.nbytes for each in arrays if isinstance(each, np.ndarray))
    return await in_thread(lambda: make(*arguments)) if size > 4 * LARGE else make(*arguments)


def _explained(error: GatewayError, problem: DerivativeProblem) -> GatewayError:
    """Add the purpose of an evaluation to its error message, and return the error."""
    text = f"{problem.operation.value} by finite differences: {error.message}"
    if isinstance(error, TransportError):
        return TransportError(
            error.status, error.reason, text, sent=error.sent, answered=error.answered, retry_after=error.retry_after
        )
    return GatewayError(error.status, error.reason, text, error.retry_after)
