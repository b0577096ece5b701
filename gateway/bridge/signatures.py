"""What backends' models take and give, asked once and remembered for a while."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import TypeAlias

from gateway.bridge import shapes
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.operations import COMPANION_OUTPUT, DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.protocol import Traits, merge
from gateway.core.tasks import outlived_by, spawn
from gateway.core.transport import Handler
from gateway.core.types import Request, Signature, TensorSpec

SECONDS_KEPT = 60.0
MOST_KEPT = 1024
"""Clients choose the `config` in the key, so there must be an end to how many are kept."""

LONGEST_CONFIG = 256
"""Characters of a `config` that is kept as it is; a longer one, up to `limits.config`, is kept as its digest."""

Key: TypeAlias = tuple[str, str, str]
"""(model, version, config)"""


class Signatures:
    """One backend's signatures, as batches: a one-point protocol's vector of n is FP64 `[-1, n]` here.

    Fetched when first needed, one fetch at a time for each (model, version, config).
    """

    def __init__(self, backend: Handler, traits: Traits, clock: Callable[[], float]) -> None:
        self._backend = backend
        self._traits = traits
        self._clock = clock
        self._kept: OrderedDict[Key, tuple[float, Signature]] = OrderedDict()
        self._fetching: dict[Key, asyncio.Task[Signature]] = {}

    def kept(self, key: Key) -> Signature | None:
        """What is known without asking."""
        entry = self._kept.get(_compact(key))
        return entry[1] if entry is not None and entry[0] > self._clock() else None

    async def get(self, key: Key) -> Signature:
        """The signature of a model; without tensors where the backend tells none that can be trusted.

        Raises:
            GatewayError: the backend's.
        """
        if not self._traits.trusted_metadata:
            return Signature()
        known = self.kept(key)
        if known is not None:
            return known
        fetch = self._fetching.get(key)
        if fetch is None:
            fetch = self._fetching[key] = spawn(self._fetch(key))
            fetch.add_done_callback(lambda done: self._fetched(key, done))
        return await outlived_by(fetch)

    def drop(self, model: str) -> None:
        """Forget a model: its backend says that it is gone, or takes something else."""
        for kept in (self._kept, self._fetching):
            for key in [key for key in kept if key[0] == model]:
                kept.pop(key)

    def drop_all(self) -> None:
        """Forget everything: an endpoint came back, perhaps with other models."""
        self._kept.clear()

    async def _fetch(self, key: Key) -> Signature:
        model, version, config = key
        parameters = {"config": config} if config else {}
        parts = [
            await self._ask(Request(Operation.METADATA, model, version, parameters=parameters, part=part))
            for part in self._traits.metadata_parts
        ]
        signature = merge(tuple(parts))
        return as_batches(signature) if self._traits.points else signature

    def _fetched(self, key: Key, fetch: "asyncio.Task[Signature]") -> None:
        """Remember what came, unless it was dropped while it was on its way."""
        if self._fetching.get(key) is not fetch:
            return
        del self._fetching[key]
        if fetch.cancelled() or fetch.exception() is not None:
            return
        compact = _compact(key)
        self._kept[compact] = (self._clock() + SECONDS_KEPT, fetch.result())
        self._kept.move_to_end(compact)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)

    async def _ask(self, request: Request) -> Signature:
        answer = await self._backend(request)
        assert isinstance(answer, Signature)
        return answer


def _compact(key: Key) -> Key:
    model, version, config = key
    if len(config) <= LONGEST_CONFIG:
        return key
    return model, version, sha256(config.encode("utf-8", "surrogatepass")).hexdigest()


def is_unknown(signature: Signature) -> bool:
    """Whether nobody tells what the model takes and gives."""
    return not signature.inputs and not signature.outputs


def as_batches(signature: Signature) -> Signature:
    """The signature of a one-point model as tensor protocols see it: named, and batched."""
    return replace(
        signature,
        inputs=_batched(signature.inputs, "input"),
        outputs=_batched(signature.outputs, "output"),
    )


def _batched(specs: tuple[TensorSpec, ...], prefix: str) -> tuple[TensorSpec, ...]:
    return tuple(
        replace(spec, name=spec.name or f"{prefix}{at}", shape=(-1, *spec.shape)) for at, spec in enumerate(specs)
    )


def of_derivative(base: Signature, operation: Operation) -> Signature:
    """The companion's signature, by rule: the model's inputs, then the derivative's own tensors; one output. What is
    as long as an input or an output has a free size where those differ."""
    if is_unknown(base):
        return base
    sizes = {
        **dict.fromkeys(INDEX_TENSORS, 1),
        "sens": _common(base.outputs),
        "vec": _common(base.inputs),
        COMPANION_OUTPUT: _common(base.outputs if operation is Operation.APPLY_JACOBIAN else base.inputs),
    }
    batch = (-1,) if any(shapes.is_batch(spec.shape) for spec in (*base.inputs, *base.outputs)) else ()

    def vector(name: str) -> TensorSpec:
        return TensorSpec(name, Datatype.INT64 if name in INDEX_TENSORS else Datatype.FP64, (*batch, sizes[name]))

    extras = map(vector, DERIVATIVES[operation])
    return replace(
        base,
        inputs=(*base.inputs, *extras),
        outputs=(vector(COMPANION_OUTPUT),),
        # The model may claim its derivatives alone; a companion is inferred.
        operations=frozenset({Operation.INFER}),
    )


def sized(signature: Signature, base: Signature, operation: Operation, positions: Mapping[str, int]) -> Signature:
    """The companion's `signature` with the sizes that it leaves open where those of the model `base` differ: they are
    those of the input and output at `positions`.

    Raises:
        DecodeError: there is no such input or output.
    """
    sizes = {
        name: shapes.point_size(_at(base, index, positions[index]).shape)
        for name, index in _SIZED_BY[operation].items()
    }

    def fixed(spec: TensorSpec) -> TensorSpec:
        size = sizes.get(spec.name, -1)
        return replace(spec, shape=(*spec.shape[:-1], size)) if size >= 0 and spec.shape[-1:] == (-1,) else spec

    return replace(signature, inputs=tuple(map(fixed, signature.inputs)), outputs=tuple(map(fixed, signature.outputs)))


_SIZED_BY: dict[Operation, dict[str, str]] = {
    Operation.GRADIENT: {"sens": "out_wrt", COMPANION_OUTPUT: "in_wrt"},
    Operation.APPLY_JACOBIAN: {"vec": "in_wrt", COMPANION_OUTPUT: "out_wrt"},
    Operation.APPLY_HESSIAN: {"sens": "out_wrt", "vec": "in_wrt2", COMPANION_OUTPUT: "in_wrt1"},
}
"""The index that tells of which input or output each tensor of a derivative has the size."""


def _at(base: Signature, index: str, position: int) -> TensorSpec:
    role, specs = ("output", base.outputs) if index == "out_wrt" else ("input", base.inputs)
    if not 0 <= position < len(specs):
        plural = f"{len(specs)} {role}" if len(specs) == 1 else f"{len(specs)} {role}s"
        raise DecodeError(f"index {index!r} is {position}, but the model has {plural}, counted from 0")
    return specs[position]


def _common(specs: Iterable[TensorSpec]) -> int:
    """The size of each of these, -1 if they differ."""
    sizes = {shapes.point_size(spec.shape) for spec in specs}
    return sizes.pop() if len(sizes) == 1 else -1
