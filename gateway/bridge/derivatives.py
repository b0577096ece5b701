"""A derivative model, such as `M.gradient`, computes a derivative of `M` for protocols without derivative operations.
This module determines the signatures and index tensors of derivative models.

UM-Bridge has gradient, apply_jacobian and apply_hessian as operations. In other protocols, a separate model, the
derivative model (`M.gradient`, ...), computes a derivative of `M`. A derivative model takes the inputs of `M` and the
derivative's own tensors (DERIVATIVES lists them in order), and returns one output named `output`:

- index tensors (`out_wrt`, `in_wrt`, `in_wrt1`, `in_wrt2`): the positions of the derivative's output and inputs, from
  0; INT64 `[-1, 1]`, 0 by default;
- vectors (`sens`, `vec`) and the output: FP64, with the length of the input or output to which an index refers.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from gateway.bridge import datatypes, shapes
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import COMPANION_OUTPUT, DERIVATIVES, INDEX_TENSORS, Operation
from gateway.core.tensors import Tensor
from gateway.core.tensors import tensor as make_tensor

_INTEGERS = frozenset({Datatype.INT64.kind, Datatype.UINT64.kind})


def companion_signature(base: Signature, operation: Operation) -> Signature:
    """Derive the signature of the derivative model from the base model's signature. The inputs are the base model's
    inputs, followed by the derivative's own tensors; the model has one output. A vector's length is free if the inputs
    (or outputs) that the vector could belong to have different lengths."""
    if not base.inputs and not base.outputs:
        return base
    sizes = {
        **dict.fromkeys(INDEX_TENSORS, 1),
        "sens": _common_length(base.outputs),
        "vec": _common_length(base.inputs),
        COMPANION_OUTPUT: _common_length(base.outputs if operation is Operation.APPLY_JACOBIAN else base.inputs),
    }
    batch = (-1,) if any(shapes.is_batch(spec.shape) for spec in (*base.inputs, *base.outputs)) else ()

    def vector(name: str) -> TensorSpec:
        return TensorSpec(name, Datatype.INT64 if name in INDEX_TENSORS else Datatype.FP64, (*batch, sizes[name]))

    extras = map(vector, DERIVATIVES[operation])
    return replace(
        base,
        inputs=(*base.inputs, *extras),
        outputs=(vector(COMPANION_OUTPUT),),
        # A model can have derivatives but no inference, while a derivative model is always called by inference.
        operations=frozenset({Operation.INFER}),
    )


def sized(signature: Signature, base: Signature, operation: Operation, positions: Mapping[str, int]) -> Signature:
    """Set the free lengths in the derivative model's `signature` to the lengths of the `base` model's inputs and
    outputs at `positions`.

    Raises:
        DecodeError: a position is out of range.
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
"""For each vector of a derivative, the index tensor that refers to the input or output with the vector's length."""


def _at(base: Signature, index: str, position: int) -> TensorSpec:
    role, specs = ("output", base.outputs) if index == "out_wrt" else ("input", base.inputs)
    if not 0 <= position < len(specs):
        plural = f"{len(specs)} {role}" if len(specs) == 1 else f"{len(specs)} {role}s"
        raise DecodeError(f"index {index!r} is {position}, but the model has {plural}; count from 0")
    return specs[position]


def _common_length(specs: Iterable[TensorSpec]) -> int:
    """Return the common length of these tensors, or -1 if their lengths differ."""
    sizes = {shapes.point_size(spec.shape) for spec in specs}
    return sizes.pop() if len(sizes) == 1 else -1


def without_undeclared_indices(given: Sequence[Tensor], signature: Signature) -> Sequence[Tensor]:
    """Remove the index tensors that the derivative model does not declare because it supports only input 0 and output
    0.

    Raises:
        DecodeError: a removed index tensor is not 0.
    """
    if not any(tensor.name in INDEX_TENSORS for tensor in given):
        return given
    known = {spec.name for spec in signature.inputs}
    kept = []
    for tensor in given:
        if tensor.name in known or tensor.name not in INDEX_TENSORS:
            kept.append(tensor)
        elif tensor.datatype is Datatype.BYTES or tensor.array.any():
            raise DecodeError(f"{tensor.name!r} is not 0, and the companion model has no input {tensor.name!r}")
    return kept


def positions(given: Sequence[Tensor], names: Sequence[str]) -> dict[str, int] | None:
    """Return the position in each of the index tensors `names`, or 0 for a missing tensor.

    Return None if the positions differ between rows, or if tensors have no names."""
    if any(not tensor.name for tensor in given) and not any(tensor.name in INDEX_TENSORS for tensor in given):
        return None
    found = dict.fromkeys((name for name in names if name in INDEX_TENSORS), 0)
    for tensor in given:
        if tensor.name not in found:
            continue
        if tensor.datatype.kind not in _INTEGERS or not tensor.elements:
            return None
        first, *others = set(tensor.array.reshape(-1).tolist())
        if others:
            return None
        found[tensor.name] = first
    return found


def fit_index(tensor: Tensor | None, spec: TensorSpec, rows: int | None, limit: int) -> Tensor:
    """Convert an index tensor to the form that the derivative model declares.

    If the tensor is missing, the index is 0. A single index is repeated for all rows. Any integer datatype is accepted.

    Raises:
        DecodeError: the number of elements is neither 1 nor the number of rows, or an element is not an integer.
        GatewayError: RESOURCE_EXHAUSTED if the indices for all rows take more than `limit` bytes.
    """
    count = 1 if rows is None else rows
    what = f"index {spec.name!r}"
    if tensor is None:
        tensor = make_tensor(spec.name, np.zeros(1, np.int64))
    if tensor.elements not in (1, count):
        raise DecodeError(f"{what} has shape {list(tensor.shape)}, expected [1] or [{count}, 1]")
    whole = tensor.datatype.kind in _INTEGERS
    data = datatypes.fit(replace(tensor, untyped=True) if whole else tensor, spec.datatype, what, "refuse")
    single = Tensor(spec.name, spec.datatype, (tensor.elements,), data)
    if len(spec.shape) == 1:
        return _for_all_rows(single, what)
    repeated = single.array if tensor.elements == count else shapes.repeat(single, count, limit, what)
    return make_tensor(spec.name, repeated.reshape(count, 1), spec.datatype)


def _for_all_rows(tensor: Tensor, what: str) -> Tensor:
    if tensor.elements != 1:
        raise DecodeError(f"{what} has {tensor.elements} elements, expected 1, for all rows")
    return tensor
