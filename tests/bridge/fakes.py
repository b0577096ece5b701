"""Two toy protocols, one on each side of what the bridge joins, and a backend that records what it is asked."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pytest

from gateway.bridge.backend import BackendSide
from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signature_cache import SignatureCache
from gateway.core.datatypes import NUMBERS, Datatype
from gateway.core.errors import not_found
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.protocol import DEFAULT_LIMITS, GrpcBinding, Limits, Models, Protocol, Rows, Traits, Wire
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import Tensor, tensor
from gateway.core.transport import Handler, StreamHandler
from tests.bridge.traits import adapted

FP64, FP32, INT32, INT64 = Datatype.FP64, Datatype.FP32, Datatype.INT32, Datatype.INT64


def _not_on_a_wire(*_: object) -> NoReturn:
    raise NotImplementedError


def _protocol(name: str, traits: Traits) -> Protocol:
    codec = _not_on_a_wire
    return Protocol(name, GrpcBinding(), (), codec, codec, codec, codec, codec, traits)


TENSORS = _protocol("tensors", Traits(models=Models(versions=str.isdigit, platform="toy")))
"""Named and typed tensors with a batch dimension, as V2 has them."""

POINTS = _protocol(
    "points",
    Traits(wire=Wire(
        datatypes=NUMBERS | {Datatype.BOOL}, untyped=True, unnamed=True, selects=False, rows=Rows.ONE, points=True,
        derivatives=True), models=Models( operations_part="ModelInfo", platform="points"),),
)  # fmt: skip
"""Vectors of numbers without names and datatypes, one point per call, as UM-Bridge has them."""

COUNTERS = _protocol(
    "counters",
    Traits(wire=Wire(datatypes=frozenset({FP64, INT64}), derivatives=True), models=Models(platform="counters")),
)
"""Named tensors of few datatypes, with derivatives as operations."""


TELLS_CONFIGS = adapted(TENSORS, servers={"extensions": {Operation.CONFIG: "model_configuration"}})
"""As TENSORS, from servers that tell the configuration of a model."""

SERVERS = pytest.mark.parametrize("server", [POINTS, TENSORS], ids=["points", "batches"])
"""For tests of models behind both."""

Compute: TypeAlias = Callable[[Request], Response | Awaitable[Response]]


class Backend:
    """A Handler that keeps what it was asked: metadata from a table, everything else by `compute`."""

    def __init__(
        self,
        signatures: Mapping[str, Signature | Exception],
        compute: Compute = lambda request: Response(request.inputs),
    ) -> None:
        self.signatures = dict(signatures)
        self.compute = compute
        self.asked: list[Request] = []
        self.ready = True

    @property
    def calls(self) -> list[Request]:
        """What it was asked to compute."""
        return [request for request in self.asked if request.operation not in _ABOUT]

    @property
    def questions(self) -> list[str]:
        """The models whose metadata was asked."""
        return [request.model for request in self.asked if request.operation is Operation.METADATA]

    async def __call__(self, request: Request) -> Answer:
        self.asked.append(request)
        if request.operation is _READY:
            return self.ready
        if request.operation is Operation.MODELS:
            return ()
        if request.operation is Operation.METADATA:
            found = self.signatures.get(request.model, not_found(f"unknown model {request.model}"))
            if isinstance(found, Exception):
                raise found
            return found
        answer = self.compute(request)
        return answer if isinstance(answer, Response) else await answer

    async def stream(self, request: Request) -> AsyncGenerator[Response, None]:
        yield await call(self, request)


class Configured(Backend):
    """A Backend that tells the configuration of each model in `configs`, or fails to with the error there. All have the
    signature `known`."""

    def __init__(
        self, configs: Mapping[str, Mapping[str, object] | Exception], known: Signature, *compute: Compute
    ) -> None:
        super().__init__(dict.fromkeys(configs, known), *compute)
        self._configs = configs

    async def __call__(self, request: Request) -> Answer:
        if request.operation is not Operation.CONFIG:
            return await super().__call__(request)
        self.asked.append(request)
        found = self._configs[request.model]
        if isinstance(found, Exception):
            raise found
        return dict(found)

    @property
    def configs_asked(self) -> list[str]:
        """The models whose configuration was asked."""
        return [request.model for request in self.asked if request.operation is Operation.CONFIG]


_READY = Operation.MODEL_READY
_ABOUT = (Operation.METADATA, Operation.MODELS, _READY)


def bridge(
    client: Protocol,
    server: Protocol,
    backend: Handler,
    settings: RouteSettings | None = None,
    window: int = 2,
    stream: StreamHandler | None = None,
    limits: Limits = DEFAULT_LIMITS,
    clock: Callable[[], float] = lambda: 0.0,
) -> Bridge:
    """A Bridge from `client` to `backend`, which speaks `server` and cannot be asked for streams without a `stream`."""
    signatures = SignatureCache(backend, server.traits, clock)
    upstream = BackendSide("lab", server.name, server.traits, backend, signatures, window, stream, limits)
    return Bridge(settings or RouteSettings(), client, upstream)


def spec(name: str, *shape: int, datatype: Datatype = FP64) -> TensorSpec:
    return TensorSpec(name, datatype, shape)


def signature(
    *inputs: TensorSpec, gives: tuple[TensorSpec, ...], offers: frozenset[Operation] | None = None
) -> Signature:
    return Signature(inputs, gives, offers or frozenset({Operation.INFER}))


def point(*numbers: float, name: str = "") -> Tensor:
    """A vector as the points' wire has it: without a name, and INT64 if every literal was an integer."""
    whole = all(isinstance(number, int) for number in numbers)
    values = tensor(name, np.array(numbers, np.int64 if whole else np.float64))
    return Tensor(name, values.datatype, values.shape, values.data, untyped=True)


def named(name: str, values: Any, datatype: Datatype = FP64) -> Tensor:
    return tensor(name, np.array(values, datatype.dtype), datatype)


THETA = (0.5, 2.0)


def vector(name: str, *values: float) -> Tensor:
    return tensor(name, np.array(values))


def derivative(operation: Operation, *extras: Tensor, theta: Iterable[float] = THETA) -> Request:
    """A question for a derivative at `theta`, as UM-Bridge's codec makes it: the model's inputs have no names."""
    given = {each.name for each in extras}
    indices = [name for name in DERIVATIVES[operation] if name in INDEX_TENSORS and name not in given]
    zeros = [tensor(name, np.array([0])) for name in indices]
    return Request(operation, "m", inputs=(*zeros, *extras, point(*map(float, theta))))


def infer(*inputs: Tensor, **fields: Any) -> Request:
    return Request(**{"operation": Operation.INFER, "model": "m", **fields}, inputs=inputs)


async def call(handler: Callable[[Request], Awaitable[Answer]], request: Request) -> Response:
    answer = await handler(request)
    assert isinstance(answer, Response)
    return answer


async def describe(handler: Callable[[Request], Awaitable[Answer]], model: str = "m", part: str = "") -> Signature:
    answer = await handler(Request(Operation.METADATA, model, part=part))
    assert isinstance(answer, Signature)
    return answer


def shown(tensors: tuple[Tensor, ...]) -> list[tuple[str, str, Any]]:
    """Name, datatype and nested values of each."""
    return [(each.name, each.datatype.value, each.array.tolist()) for each in tensors]
