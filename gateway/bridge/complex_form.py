"""Models in complex form, which take and give imaginary parts in tensors of their own, for the complex step; and the
plain models that their clients see.

No protocol here has a datatype for complex numbers. Such a model takes and gives them in two real tensors: for an input
`x` of floats an input `x_imag` of the same datatype and shape, and for an output `y` an output `y_imag`. Clients of the
route see the model without the imaginary tensors: the gateway sends zeros for them, and takes the imaginary outputs
away.
"""

from collections.abc import Sequence

import numpy as np

from gateway.bridge.backend import BackendSide
from gateway.bridge.derived_signatures import DerivedSignatures
from gateway.bridge.signature_cache import Key, SignatureCache
from gateway.core.datatypes import Kind
from gateway.core.frozen import replace
from gateway.core.operations import DERIVATIVES, Operation
from gateway.core.transport import Handler
from gateway.core.types import Answer, Request, Response, Signature, Tensor, TensorSpec
from gateway.core.types import tensor as make_tensor


def plain_signature(signature: Signature, suffix: str) -> Signature:
    """The signature of a model in complex form as its clients see it. The model's own derivatives are not theirs: they
    take the imaginary tensors as well. A model that is not in this form keeps its signature."""
    inputs, outputs = _plain(signature.inputs, suffix), _plain(signature.outputs, suffix)
    if inputs == signature.inputs and outputs == signature.outputs:
        return signature
    return replace(signature, inputs=inputs, outputs=outputs, operations=signature.operations - {*DERIVATIVES})


def _plain(specs: tuple[TensorSpec, ...], suffix: str) -> tuple[TensorSpec, ...]:
    imaginary = imaginary_names(specs, suffix)
    return tuple(spec for spec in specs if spec.name not in imaginary)


def imaginary_names(specs: Sequence[TensorSpec], suffix: str) -> dict[str, str]:
    """The names of imaginary tensors, each with that of the tensor that it belongs to."""
    by_name = {spec.name: spec for spec in specs}
    return {
        each.name: spec.name
        for spec in specs
        if spec.name and (each := by_name.get(f"{spec.name}{suffix}")) is not None
        if spec.datatype.kind is Kind.FLOAT and (each.datatype, each.shape) == (spec.datatype, spec.shape)
    }


def plain_side(backend: BackendSide, own: Signature | None, suffix: str) -> BackendSide:
    """The backend with its models in complex form as plain ones; `own` is the route's signature. It has no streams."""
    handler = _PlainModels(backend, own, suffix)
    is_form = own is not None and plain_signature(own, suffix) is not own
    signatures = _PlainSignatures(backend.signatures, handler, suffix, is_form)
    return replace(backend, handler=handler, signatures=signatures, responses=None)


class _PlainSignatures(SignatureCache):
    """The signatures of another cache without imaginary tensors. `is_form`: the route says that all its models are in
    complex form, since their servers have no names for tensors."""

    def __init__(self, full: SignatureCache, handler: Handler, suffix: str, is_form: bool) -> None:
        super().__init__(handler, full.traits, full.clock)
        self._full = full
        self._suffix = suffix
        self._is_form = is_form
        self._plain = DerivedSignatures(self._without_imaginary).of

    def kept(self, key: Key) -> Signature | None:
        found = self._full.kept(key)
        return None if found is None else self._plain(found)

    async def get(self, key: Key) -> Signature:
        return self._plain(await self._full.get(key))

    def drop(self, model: str) -> None:
        self._full.drop(model)

    def drop_all(self) -> None:
        self._full.drop_all()

    def _without_imaginary(self, full: Signature) -> Signature:
        plain = plain_signature(full, self._suffix)
        return replace(plain, operations=plain.operations - {*DERIVATIVES}) if self._is_form else plain


class _PlainModels:
    """A Handler for plain models, which are in complex form on the backend."""

    def __init__(self, backend: BackendSide, own: Signature | None, suffix: str) -> None:
        self._backend = backend
        self._own = own
        self._suffix = suffix

    async def __call__(self, request: Request) -> Answer:
        if request.operation is Operation.METADATA:
            answer = await self._backend.handler(request)
            return plain_signature(answer, self._suffix) if isinstance(answer, Signature) else answer
        if request.operation is not Operation.INFER:
            return await self._backend.handler(request)
        inputs, outputs = await self._tensors(request)
        imaginary = imaginary_names(inputs, self._suffix)
        if not imaginary:
            return await self._backend.handler(request)
        given = {each.name: each for each in request.inputs}
        zeros = {name: _zeros(name, given[real]) for name, real in imaginary.items() if real in given}
        ordered = {**given, **zeros}
        names = [spec.name for spec in inputs if spec.name in ordered]
        further = [each for each in request.inputs if each.name not in names]
        all_inputs = (*(ordered[name] for name in names), *further)
        answer = await self._backend.handler(replace(request, inputs=all_inputs, origin=None))
        return self._without_imaginary(answer, outputs) if isinstance(answer, Response) else answer

    async def _tensors(self, request: Request) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
        """All inputs and outputs of the model."""
        own = self._own or Signature()
        if own.inputs and own.outputs:
            return own.inputs, own.outputs
        config = request.parameters.get("config", "") if self._backend.traits.wire.points else ""
        found = await self._backend.signatures.get((request.model, request.version, str(config)))
        return own.inputs or found.inputs, own.outputs or found.outputs

    def _without_imaginary(self, response: Response, specs: Sequence[TensorSpec]) -> Response:
        imaginary = imaginary_names(specs, self._suffix)
        outputs = response.outputs
        if len(outputs) == len(specs):  # some protocols have no names
            named = [each.name or spec.name for each, spec in zip(outputs, specs, strict=True)]
        else:
            named = [each.name for each in outputs]
        kept = tuple(each for each, name in zip(outputs, named, strict=True) if name not in imaginary)
        return replace(response, outputs=kept, origin=None)


def _zeros(name: str, like: Tensor) -> Tensor:
    return make_tensor(name, np.zeros(like.shape, like.datatype.dtype), like.datatype)
