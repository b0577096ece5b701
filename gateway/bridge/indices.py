"""The index tensors of derivatives: which input and which output is meant."""

from collections.abc import Sequence

import numpy as np

from gateway.bridge import datatypes, shapes
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.operations import INDEX_TENSORS
from gateway.core.types import Signature, Tensor, TensorSpec
from gateway.core.types import tensor as make_tensor


def declared(given: Sequence[Tensor], signature: Signature) -> Sequence[Tensor]:
    """Without the index tensors that a companion does not declare: it knows one input and one output, number 0.

    Raises:
        DecodeError: naming an index tensor that is dropped and not 0.
    """
    if not any(tensor.name in INDEX_TENSORS for tensor in given):
        return given
    known = {spec.name for spec in signature.inputs}
    kept = []
    for tensor in given:
        if tensor.name in known or tensor.name not in INDEX_TENSORS:
            kept.append(tensor)
        elif tensor.datatype is Datatype.BYTES or tensor.array.any():
            raise DecodeError(f"{tensor.name!r} is not 0, and the model's companion takes no {tensor.name!r}")
    return kept


def positions(given: Sequence[Tensor], names: Sequence[str]) -> dict[str, int] | None:
    """The position that each of the index tensors `names` says, 0 for one that is left out. None where they are not
    the same for all rows, or cannot be told by name."""
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


def fit(tensor: Tensor | None, spec: TensorSpec, rows: int | None, limit: int) -> Tensor:
    """An index as the companion declares it. Left out it means 0, and one index holds for all rows. Any integer
    datatype that holds the value will do.

    Raises:
        DecodeError: naming the index, and the shapes that it may have.
        GatewayError: RESOURCE_EXHAUSTED, one for each row takes more than `limit` bytes.
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


_INTEGERS = frozenset({Datatype.INT64.kind, Datatype.UINT64.kind})


def _for_all_rows(tensor: Tensor, what: str) -> Tensor:
    if tensor.elements != 1:
        raise DecodeError(f"{what} has {tensor.elements} elements, the model takes one for all rows")
    return tensor
