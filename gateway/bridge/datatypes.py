"""Converts tensors to the datatypes that specifications require.

A tensor with a datatype is converted if the new datatype can represent all values of the old datatype, according to the
table WIDENINGS. All other conversions require the route's `cast`. Numbers without a datatype (from JSON) are converted
if the new datatype can represent these numbers.
"""

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from gateway.core import bytes_elements, json
from gateway.core.casting import cast as cast_untyped
from gateway.core.datatypes import GATEWAY_DATATYPE, NUMBERS, WIDENINGS, Datatype, Kind, sent_as
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.messages import Buffer
from gateway.core.protocol import Traits
from gateway.core.record import CAST_ROUNDED, UNRECORDED, Record
from gateway.core.tensors import Tensor
from gateway.core.tensors import tensor as make_tensor

Array = np.ndarray[Any, Any]


def fit(tensor: Tensor, wanted: Datatype, what: str, cast: str) -> Buffer:
    """Return the data of `tensor`, converted to the datatype `wanted`.

    `cast` is the route's setting for conversions that are not exact: `refuse` rejects them; `round` rounds half to even
    and rejects values out of range; `saturate` also rounds, but clips values out of range.

    Raises:
        DecodeError: the conversion is not exact and `cast` does not allow it, or NaN would become an integer.
    """
    if tensor.datatype is wanted:
        return tensor.data
    if not {tensor.datatype, wanted} <= NUMBERS:
        raise DecodeError(f"{what} is {tensor.datatype}, expected {wanted}")
    if wanted in WIDENINGS[tensor.datatype] or cast != "refuse":
        array = _convert(tensor.array, wanted, what, cast)
    elif tensor.untyped:
        array = _checked(tensor.array, wanted, what)
    else:
        text = f"{what} is {tensor.datatype}, expected {wanted}, which cannot represent every {tensor.datatype}"
        raise DecodeError(f"{text}; send {wanted}, or set `translate: {{cast: round}}` or `saturate` on the route")
    return _raw(array, wanted)


def with_missing(tensor: Tensor, what: str, *, takes_null: bool) -> Tensor:
    """If the tensor contains JSON texts of rows (V1 and MIP encode rows with null in this way), return the numbers,
    with NaN for null. Return any other tensor unchanged.

    Raises:
        DecodeError: the tensor contains null, and `takes_null` is False.
    """
    if tensor.content_type != "json":
        return tensor
    texts = bytes_elements.unpack(tensor.data)
    text = json.missing.as_nan(b"[%b]" % b",".join(texts) if tensor.shape else texts[0], members=False)
    try:
        found = None if text is None else json.array(text, values=len(texts), literals=True)
    except DecodeError:
        return tensor
    if found is None or isinstance(found.values, bytes):
        return tensor
    if not takes_null:
        at = int(np.isnan(found.values).argmax())
        raise DecodeError(json.missing.flaw(DecodeError(f"{what}: element {at}: null is not a number")))
    made = make_tensor(tensor.name, found.values.reshape(found.shape))
    return replace(made, untyped=True, parameters=tensor.parameters)


def note_rounding(tensor: Tensor, data: Buffer, wanted: Datatype, record: Record) -> None:
    """Note in `record` if a value in `data`, the result of `fit`, differs from the tensor's value. Only a `cast` allows
    such changes."""
    if record is UNRECORDED or tensor.datatype is wanted or wanted in WIDENINGS[tensor.datatype]:
        return
    before = tensor.array.reshape(-1)
    with np.errstate(all="ignore"):
        after = np.frombuffer(data, wanted.dtype).astype(before.dtype)
    differs = after != before
    if before.dtype.kind not in "iub":
        differs &= ~(np.isnan(after) & np.isnan(before))
    if differs.any():
        record.lost(CAST_ROUNDED)


def typed(tensor: Tensor, numbers: Datatype, what: str) -> Tensor:
    """Give a tensor without a datatype the datatype `numbers`. If its elements are not numbers, return the tensor
    unchanged.

    Raises:
        DecodeError: the datatype cannot represent one of its values.
    """
    if tensor.datatype not in NUMBERS:
        return replace(tensor, untyped=False)
    return replace(tensor, datatype=numbers, data=fit(tensor, numbers, what, "refuse"), untyped=False)


def carry(tensor: Tensor, carried: frozenset[Datatype], what: str, protocol: str) -> Tensor:
    """Return the tensor in a datatype that `protocol` supports: its own datatype, or the narrowest one that can
    represent all its values. In the second case, the parameter `gateway_datatype` contains the name of the original
    datatype.

    Raises:
        DecodeError: the protocol supports no datatype that can represent all values of the tensor.
    """
    wanted = sent_as(tensor.datatype, carried)
    if wanted is tensor.datatype:
        return tensor
    if wanted is None:
        raise DecodeError(f"{what} is {tensor.datatype}, which {protocol} cannot carry")
    parameters = {**tensor.parameters, GATEWAY_DATATYPE: tensor.datatype.value}
    raw = _raw(tensor.array.astype(wanted.dtype), wanted)
    return replace(tensor, datatype=wanted, data=raw, parameters=parameters, untyped=False)


def carry_all(tensors: Sequence[Tensor], protocol: str, traits: Traits) -> tuple[Tensor, ...]:
    """Return the tensors in datatypes that the protocol supports.

    Raises:
        DecodeError: same as `carry`.
    """
    carried = traits.wire.datatypes
    for tensor in tensors:
        if tensor.datatype not in carried:
            break
    else:
        return tuple(tensors)
    return tuple(carry(tensor, carried, f"tensor {tensor.name or at!r}", protocol) for at, tensor in enumerate(tensors))


def restore(tensor: Tensor, wanted: Datatype, what: str) -> Tensor:
    """Undo `carry` for a client whose protocol does not support `wanted`. If BOOL is wanted, UINT8 becomes BOOL.

    Raises:
        DecodeError: an element is not 0 or 1.
    """
    if wanted is not Datatype.BOOL or tensor.datatype is not Datatype.UINT8:
        return tensor
    beyond = tensor.array.reshape(-1) > 1
    if beyond.any():
        at = int(np.argmax(beyond))
        raise DecodeError(f"{what}: element {at} is {tensor.data[at]}, expected 0 or 1 for BOOL")
    return replace(tensor, datatype=wanted)


def _raw(array: Array, datatype: Datatype) -> Buffer:
    return make_tensor("", array, datatype).data


def _checked(array: Array, wanted: Datatype, what: str) -> Array:
    try:
        return cast_untyped(array, wanted, what)
    except DecodeError as error:
        remedy = "`translate: {cast: round}` rounds, `{cast: saturate}` also clips"
        if array.dtype.kind == "f" and np.isnan(array).any():
            remedy = "no cast converts NaN: send a number for each missing value"
        raise DecodeError(f"{error}; {remedy}") from error


def _convert(array: Array, wanted: Datatype, what: str, cast: str) -> Array:
    if wanted.kind is Kind.FLOAT:
        with np.errstate(over="ignore"):
            converted = array.astype(wanted.dtype)
        return _within_floats(array, converted, wanted, what, cast)
    return _to_integers(array, wanted, what, cast)


def _within_floats(array: Array, converted: Array, wanted: Datatype, what: str, cast: str) -> Array:
    overflown = np.isinf(converted.astype(np.float64)) & np.isfinite(array.astype(np.float64))
    if not overflown.any():
        return converted
    if cast != "saturate":
        raise DecodeError(_beyond(array, overflown, wanted, what))
    largest = np.float64(ml_dtypes.finfo(wanted.dtype).max)  # type: ignore[no-untyped-call]
    return np.where(overflown, np.copysign(largest, array.astype(np.float64)), array).astype(wanted.dtype)


def _to_integers(array: Array, wanted: Datatype, what: str, cast: str) -> Array:
    bounds = np.iinfo(wanted.dtype)
    if array.dtype.kind not in "iu":
        array = np.rint(array.astype(np.float64))
        if np.isnan(array).any():
            raise DecodeError(f"{what} holds NaN, which {wanted} cannot hold under any cast")
    # As a double, 2**64 - 1 becomes 2**64. Therefore, a float is in range only if it is below the next power of two.
    beyond = (array < bounds.min) | (array >= float(bounds.max) + 1 if array.dtype.kind == "f" else array > bounds.max)
    if not beyond.any():
        return array.astype(wanted.dtype)
    if cast != "saturate":
        raise DecodeError(_beyond(array, beyond, wanted, what))
    ends = np.where(array < 0, wanted.dtype.type(bounds.min), wanted.dtype.type(bounds.max))
    return np.where(beyond, ends, np.where(beyond, 0, array).astype(wanted.dtype))


def _beyond(array: Array, beyond: Array, wanted: Datatype, what: str) -> str:
    at = int(np.argmax(beyond.reshape(-1)))
    number = array.reshape(-1)[at]
    return (
        f"{what}: element {at}, {number!s}, is out of the range of {wanted}; `translate: {{cast: saturate}}` clips it"
    )
