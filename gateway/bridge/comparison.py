"""Compares the tensors of a request before and after adaptation, for explanations."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from gateway.bridge.settings import Renaming
from gateway.core.datatypes import BYTES, NUMBERS
from gateway.core.frozen import frozen
from gateway.core.models import TensorSpec
from gateway.core.tensors import Tensor

MOST_SHOWN = 64
"""The maximum number of tensors that an explanation lists."""


@frozen
class TensorShown:
    """A tensor without its data. `untyped` is True if the JSON did not specify a datatype."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    bytes: int
    untyped: bool = False


@frozen
class CastShown:
    """A conversion from one datatype to another.

    `error` is the largest difference that the conversion has made to an element, or None if no element has changed.
    `element` is the position of that element; `before` and `after` are its values as text."""

    from_datatype: str
    to_datatype: str
    error: float | None = None
    element: int = 0
    before: str = ""
    after: str = ""


@frozen
class TensorChange:
    """The change to one tensor. `before` is None for a tensor that the gateway adds, and `after` is None for a tensor
    that it removes."""

    before: TensorShown | None
    after: TensorShown | None
    cast: CastShown | None = None


def shown(tensor: Tensor) -> TensorShown:
    """Return `tensor` without its data."""
    return TensorShown(tensor.name, tensor.datatype.value, tensor.shape, len(tensor.data), tensor.untyped)


_FIRST = 4
"""The number of elements shown in a line about a tensor."""


def as_text(tensors: Sequence[Tensor]) -> str:
    """Return a line about the tensors and their first elements, such as `x FP64[1,2] 0.5 2`."""
    return "; ".join(map(_as_text, tensors))


def _as_text(tensor: Tensor) -> str:
    head = str(TensorSpec(tensor.name, tensor.datatype, tensor.shape))
    if tensor.datatype is BYTES:
        return head
    elements = tensor.array.reshape(-1)[:_FIRST].tolist()
    more = " ..." if tensor.elements > _FIRST else ""
    return f"{head} {' '.join(f'{each:.6g}' for each in elements)}{more}".rstrip()


def compare(
    before: Sequence[Tensor], after: Sequence[Tensor], renamings: Sequence[Renaming]
) -> tuple[TensorChange, ...]:
    """Return the changes between the tensors `before` and `after`. Pair them by name, or by position if they have no
    names."""
    client = {each.backend: each.client for each in renamings}
    left = list(before)
    changes: list[TensorChange] = []
    unpaired: list[Tensor] = []
    for tensor in after:
        wanted = client.get(tensor.name, tensor.name)
        found = next((each for each in left if each.name and each.name == wanted), None)
        if found is None:
            unpaired.append(tensor)
        else:
            left.remove(found)
            changes.append(TensorChange(shown(found), shown(tensor), cast(found, tensor)))
    for tensor in unpaired:
        found = next((each for each in left if not each.name or not tensor.name), None)
        if found is not None:
            left.remove(found)
        pair = None if found is None else shown(found)
        changes.append(TensorChange(pair, shown(tensor), None if found is None else cast(found, tensor)))
    changes += [TensorChange(shown(each), None) for each in left]
    return tuple(changes[:MOST_SHOWN])


def rows_before(changes: Sequence[TensorChange]) -> int:
    """Return the number of rows before the change if the tensors after it are one row, or 0 if no tensor was divided
    into rows."""
    shapes = [(each.before.shape, prod(each.after.shape)) for each in changes if each.before and each.after]
    return max((before[0] for before, row in shapes if row and before and prod(before[1:]) == row), default=0)


def cast(before: Tensor, after: Tensor) -> CastShown | None:
    """Return the conversion between the datatypes of two tensors, or None if both have the same datatype. Both tensors
    must have the same elements, or `after` must contain the first rows of `before`."""
    if before.datatype is after.datatype:
        return None
    change = CastShown(before.datatype.value, after.datatype.value)
    if not {before.datatype, after.datatype} <= NUMBERS or not 0 < after.elements <= before.elements:
        return change
    old, new = before.array.reshape(-1)[: after.elements], after.array.reshape(-1)
    with np.errstate(invalid="ignore"):
        difference = np.abs(_wide(old) - _wide(new))
    difference[np.isnan(difference)] = 0  # both are NaN or infinite
    at = int(np.argmax(difference))
    if not difference[at]:
        return change
    return CastShown(
        change.from_datatype, change.to_datatype, float(difference[at]), at, str(old[at].item()), str(new[at].item())
    )


def _wide(array: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Convert numbers to a type that can represent the values of every datatype. The type can represent 64-bit integers
    if the significand of the machine's long double has 64 bits."""
    return (
        array.astype(np.float64).astype(np.longdouble) if array.dtype.kind not in "iu" else array.astype(np.longdouble)
    )
