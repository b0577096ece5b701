"""Models of which every derivative is known, for the steps of graphs, and graphs of them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from gateway.bridge.graphs.calls import StepCalls
from gateway.bridge.graphs.graph import GraphKeys, StepKeys, WhenKeys, make_graph
from gateway.bridge.graphs.model import GraphModel
from gateway.bridge.settings import Derivatives
from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.errors import Reason, not_found, refusal, unsupported
from gateway.core.frozen import replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import Parameters, Tensor, tensor
from gateway.core.transport import Destination
from tests.clock import Clock

FP64, FP32, INT64, BYTES = Datatype.FP64, Datatype.FP32, Datatype.INT64, Datatype.BYTES
ALL = frozenset({Operation.INFER, *DERIVATIVES})
Array: TypeAlias = Any
Point: TypeAlias = Sequence[Array]
"""The vectors of one row, one for each input."""


def spec(text: str) -> TensorSpec:
    """`x FP64 [-1, 2]`."""
    name, datatype, shape = text.split(maxsplit=2)
    return TensorSpec(name, DATATYPES[datatype], tuple(map(int, shape.strip("[]").split(","))) if shape != "[]" else ())


class Model:
    """A model of rows of vectors. `value` gives the outputs of one row; `jacobian` those of output `o` with respect to
    input `i`; `hessian` the second derivatives of output `o` weighted by `u`, by inputs `i` and `j`."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    operations: frozenset[Operation] = ALL

    def signature(self) -> Signature:
        return Signature(tuple(map(spec, self.inputs)), tuple(map(spec, self.outputs)), self.operations)

    def value(self, x: Point) -> Point:
        raise NotImplementedError

    def jacobian(self, x: Point, o: int, i: int) -> Array:
        raise NotImplementedError

    def hessian(self, x: Point, o: int, i: int, j: int, u: Array) -> Array:
        raise NotImplementedError

    def answer(self, request: Request) -> Response:
        known, own = self.signature(), {each.name: each for each in request.inputs}
        batched = len(known.inputs[0].shape) > 1
        columns = [own[each.name].array for each in known.inputs]
        points = [[each[row] for each in columns] for row in range(len(columns[0]))] if batched else [columns]
        names = DERIVATIVES.get(request.operation, ())
        extra = {each: own[each].array if batched else own[each].array[None] for each in names}
        found = [
            self._row(request.operation, point, {each: array[row] for each, array in extra.items()})
            for row, point in enumerate(points)
        ]
        outputs = known.outputs if request.operation is Operation.INFER else (TensorSpec("output", FP64, ()),)
        made = []
        for at, each in enumerate(outputs):
            rows = [np.asarray(row[at]) for row in found]
            array = (np.stack(rows) if rows else np.zeros((0, *each.shape[1:]))) if batched else rows[0]
            made.append(tensor(each.name, np.asarray(array, each.datatype.dtype)))
        return Response(tuple(made), request.model)

    def _row(self, operation: Operation, x: Point, own: Mapping[str, Array]) -> Point:
        if operation is Operation.INFER:
            return self.value(x)
        o, at = int(own["out_wrt"][0]), {each: int(own[each][0]) for each in own if each.startswith("in_wrt")}
        if operation is Operation.GRADIENT:
            return [own["sens"] @ self.jacobian(x, o, at["in_wrt"])]
        if operation is Operation.APPLY_JACOBIAN:
            return [self.jacobian(x, o, at["in_wrt"]) @ own["vec"]]
        return [self.hessian(x, o, at["in_wrt1"], at["in_wrt2"], own["sens"]) @ own["vec"]]


class Sine(Model):
    """y = sin(A x)."""

    a = np.array([[1.0, 2.0], [3.0, -1.0], [0.5, 0.25]])
    inputs, outputs = ("x FP64 [-1, 2]",), ("y FP64 [-1, 3]",)

    def value(self, x: Point) -> Point:
        return [np.sin(self.a @ x[0])]

    def jacobian(self, x: Point, o: int, i: int) -> Array:
        return np.diag(np.cos(self.a @ x[0])) @ self.a

    def hessian(self, x: Point, o: int, i: int, j: int, u: Array) -> Array:
        return self.a.T @ np.diag(-u * np.sin(self.a @ x[0])) @ self.a


class Product(Model):
    """Of inputs a and b: p = a b, and s = the sum of a a b."""

    inputs, outputs = ("a FP64 [-1, 3]", "b FP64 [-1, 3]"), ("p FP64 [-1, 3]", "s FP64 [-1, 1]")

    def value(self, x: Point) -> Point:
        a, b = x
        return [a * b, [(a * a * b).sum()]]

    def jacobian(self, x: Point, o: int, i: int) -> Array:
        a, b = x
        if o == 0:
            return np.diag(b if i == 0 else a)
        return (2 * a * b if i == 0 else a * a)[None]

    def hessian(self, x: Point, o: int, i: int, j: int, u: Array) -> Array:
        a, b = x
        if o == 0:
            return np.zeros((3, 3)) if i == j else np.diag(u)
        return u[0] * np.diag(2 * b if (i, j) == (0, 0) else np.zeros(3) if (i, j) == (1, 1) else 2 * a)


class Norm(Model):
    """log = -|x|^2 / 2, of vectors of any length."""

    inputs, outputs = ("x FP64 [-1, -1]",), ("log FP64 [-1, 1]",)

    def value(self, x: Point) -> Point:
        return [[-x[0] @ x[0] / 2]]

    def jacobian(self, x: Point, o: int, i: int) -> Array:
        return -x[0][None]

    def hessian(self, x: Point, o: int, i: int, j: int, u: Array) -> Array:
        return -u[0] * np.eye(len(x[0]))


class Scaled(Model):
    """y = n x^2 of floats x and an integer n, which has no derivatives."""

    inputs, outputs = ("x FP64 [-1, 2]", "n INT64 [-1, 1]"), ("y FP64 [-1, 2]",)

    def value(self, x: Point) -> Point:
        return [x[1][0] * x[0] ** 2]

    def jacobian(self, x: Point, o: int, i: int) -> Array:
        assert i == 0
        return np.diag(2 * x[1][0] * x[0])

    def hessian(self, x: Point, o: int, i: int, j: int, u: Array) -> Array:
        assert i == j == 0
        return np.diag(2 * x[1][0] * u)


class Vector(Model):
    """y = exp(x), without rows."""

    inputs, outputs = ("x FP64 [2]",), ("y FP64 [2]",)

    def value(self, x: Point) -> Point:
        return [np.exp(x[0])]

    def jacobian(self, x: Point, o: int, i: int) -> Array:
        return np.diag(np.exp(x[0]))

    def hessian(self, x: Point, o: int, i: int, j: int, u: Array) -> Array:
        return np.diag(u * np.exp(x[0]))


class Plain(Model):
    """A model without derivatives, that computes its outputs of whole tensors."""

    operations = frozenset({Operation.INFER})

    def __init__(self, inputs: Sequence[str], outputs: Sequence[str], compute: Callable[..., Any]) -> None:
        self.inputs, self.outputs, self._compute = tuple(inputs), tuple(outputs), compute

    def answer(self, request: Request) -> Response:
        found = self._compute(*(each.array for each in request.inputs))
        arrays = found if isinstance(found, tuple) else (found,)
        return Response(
            tuple(tensor(spec(text).name, np.asarray(each)) for text, each in zip(self.outputs, arrays, strict=True))
        )


MODELS: Mapping[str, Model] = {
    "sine": Sine(),
    "product": Product(),
    "norm": Norm(),
    "scaled": Scaled(),
    "vector": Vector(),
}


class Lab:
    """A router whose models are these: it finds the handler of every step. `errors` are raised for a model in place of
    an answer; a model in `gates` waits for its event; `calls` are the requests that ran a model; `safe` are models
    whose calls may be repeated."""

    def __init__(self, models: Mapping[str, Model]) -> None:
        self.models = dict(models)
        self.errors: dict[str, Exception] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.untold: set[str] = set()
        self.calls: list[Request] = []
        self.questions: list[Request] = []
        self.running: list[str] = []
        self.most = 0
        self.both = asyncio.Event()
        """Set once two calls run at once."""
        self.safe: set[str] = set()
        self.streams: dict[str, list[Response]] = {}

    def select(self, request: Request) -> Destination:
        if request.model not in self.models:
            raise not_found(f"no route for {request.model!r}")
        return Destination(self.handle, stream=self.stream, route=f"to {request.model}")

    def is_safe(self, destination: Destination) -> bool:
        return destination.route.removeprefix("to ") in self.safe

    async def handle(self, request: Request) -> Answer:
        model = self.models[request.model]
        if request.operation is Operation.METADATA:
            self.questions.append(request)
            if request.model in self.untold:
                raise unsupported("no metadata here")
            return replace(model.signature(), name=request.model)
        if request.operation is Operation.MODEL_READY:
            return request.model not in self.errors
        self.calls.append(request)
        self.running.append(request.model)
        self.most = max(self.most, len(self.running))
        if self.most > 1:
            self.both.set()
        try:
            if request.model in self.gates:
                await self.gates[request.model].wait()
            else:
                await asyncio.sleep(0)
            if request.model in self.errors:
                raise self.errors[request.model]
            return model.answer(request)
        finally:
            self.running.remove(request.model)

    async def stream(self, request: Request) -> AsyncGenerator[Response, None]:
        self.calls.append(request)
        for each in self.streams[request.model]:
            yield each
        if request.model in self.errors:
            raise self.errors[request.model]

    def called(self) -> list[tuple[str, str]]:
        """What was called so far, and nothing from now on."""
        found = [(each.model, each.operation.value) for each in self.calls]
        self.calls.clear()
        return found


class Counted:
    """Memory without a bound that matters, or with `limit`."""

    def __init__(self, limit: int = 2**62) -> None:
        self.used = self.peak = 0
        self.limit = limit

    def add(self, size: int) -> None:
        if self.used + size > self.limit:
            raise refusal(Reason.OVERLOADED, f"no memory for {size} bytes more")
        self.used += size
        self.peak = max(self.peak, self.used)

    def free(self, size: int) -> None:
        self.used -= size


def keys(data: Mapping[str, Any]) -> GraphKeys:
    """The keys of `models.NAME`, as YAML has them."""
    steps = {}
    for name, each in data.get("steps", {}).items():
        if isinstance(each, dict) and "model" in each:
            when = each.get("when")
            made = {**each, "when": None if when is None else WhenKeys(**when)}
            made["fallback"] = tuple(each.get("fallback", ()))
            steps[name] = StepKeys(**made)
        else:
            steps[name] = each
    given = data.get("derivatives")
    return GraphKeys(**{**data, "steps": steps, "derivatives": None if given is None else Derivatives(**given)})


class Graphed:
    """A graph of the models of a Lab."""

    def __init__(self, data: Mapping[str, Any], lab: Lab | None = None, memory: Counted | None = None) -> None:
        self.lab = lab or Lab(MODELS)
        self.memory = memory or Counted()
        self.clock = Clock()
        calls = StepCalls(self.lab.select, self.lab.is_safe, 1000)
        self.model = GraphModel(make_graph("posterior", keys(data)), calls, lambda peer: self.memory, self.clock)

    async def ask(
        self, operation: Operation, inputs: Iterable[Tensor] = (), parameters: Parameters | None = None, **more: Any
    ) -> Answer:
        return await self.model(
            Request(operation, "posterior", inputs=tuple(inputs), parameters=parameters or {}, **more)
        )

    async def infer(
        self, inputs: Mapping[str, Any], parameters: Parameters | None = None, **more: Any
    ) -> dict[str, Any]:
        """The outputs by name."""
        answer = await self.ask(Operation.INFER, _tensors(inputs), parameters, **more)
        assert isinstance(answer, Response)
        return {each.name: each.array for each in answer.outputs}

    async def derive(self, operation: Operation, inputs: Mapping[str, Any], **more: Any) -> Array:
        answer = await self.ask(operation, _tensors({**inputs, **more}))
        assert isinstance(answer, Response)
        [output] = answer.outputs
        assert output.name == "output"
        assert output.datatype is FP64
        return output.array

    async def signature(self) -> Signature:
        answer = await self.ask(Operation.METADATA)
        assert isinstance(answer, Signature)
        return answer


def _tensors(inputs: Mapping[str, Any]) -> list[Tensor]:
    return [tensor(name, np.asarray(each)) for name, each in inputs.items()]
