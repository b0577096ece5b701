"""Toy protocols for the two sides of what the bridge joins, and a backend that records what it is asked."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np

from gateway.bridge.backend import BackendSide
from gateway.bridge.bridge import Bridge
from gateway.bridge.settings import RouteSettings
from gateway.bridge.signature_cache import SignatureCache
from gateway.core.datatypes import NUMBERS, Datatype
from gateway.core.errors import not_found
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.protocol import DEFAULT_LIMITS, GrpcBinding, Limits, Models, Protocol, Rows, Traits, Wire
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import Tensor, tensor
from gateway.core.transport import Handler, StreamHandler
from tests.bridge.values import FP64, INT64


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


def named(name: str, values: Any, datatype: Datatype = FP64) -> Tensor:
    return tensor(name, np.array(values, datatype.dtype), datatype)


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
