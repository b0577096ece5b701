"""Fitting one tensor's datatype to another: by type and a written table, never by looking at values, except for
numbers that came without a type."""

from typing import Any

import ml_dtypes
import numpy as np

from gateway.core.casting import cast as cast_untyped
from gateway.core.datatypes import DATATYPES, GATEWAY_DATATYPE, NUMBERS, WIDENINGS, Datatype, Kind
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.types import Buffer, Tensor
from gateway.core.types import tensor as make_tensor

Array = np.ndarray[Any, Any]


def fit(tensor: Tensor, wanted: Datatype, what: str, cast: str) -> Buffer:
    """The data of `tensor` as `wanted`: as it is, widened where every value is exact, or (if untyped) checked by value.

    `cast` is the route's: `refuse`, `round` (half to even; to integers within their range) or `saturate` (the same, and
    values beyond the range become its ends).

    Raises:
        DecodeError: naming the tensor, both datatypes and the key that would allow the cast.
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
        text = f"{what} is {tensor.datatype}, expected {wanted}, which does not hold every value"
        raise DecodeError(f"{text}; `translate: {{cast: round}}` or `{{cast: saturate}}` on the route allows it")
    return _raw(array, wanted)


def typed(tensor: Tensor, numbers: Datatype, what: str) -> Tensor:
    """A tensor that came without a datatype: its numbers as `numbers`, checked by value, anything else as it is.

    Raises:
        DecodeError: naming the tensor, a number that `numbers` does not hold.
    """
    if tensor.datatype not in NUMBERS:
        return replace(tensor, untyped=False)
    return replace(tensor, datatype=numbers, data=fit(tensor, numbers, what, "refuse"), untyped=False)


def carry(tensor: Tensor, carried: frozenset[Datatype], what: str, protocol: str) -> Tensor:
    """`tensor` in the narrowest datatype that a wire carries and that holds every value, marked with the parameter
    `gateway_datatype` if that is another one. Raises DecodeError where there is none."""
    if tensor.datatype in carried:
        return tensor
    wider = [Datatype.UINT8] if tensor.datatype is Datatype.BOOL else WIDENINGS[tensor.datatype]
    # Of two that are as wide an integer stays an integer: INT32 before FP32 for UINT16.
    fitting = [datatype for datatype in DATATYPES.values() if datatype in wider and datatype in carried]
    wanted = min(fitting, key=lambda each: (each.size, each.kind is Kind.FLOAT), default=None)
    if wanted is None:
        raise DecodeError(f"{what} is {tensor.datatype}, which {protocol} cannot carry")
    parameters = {**tensor.parameters, GATEWAY_DATATYPE: tensor.datatype.value}
    raw = _raw(tensor.array.astype(wanted.dtype), wanted)
    return replace(tensor, datatype=wanted, data=raw, parameters=parameters, untyped=False)


def restored(tensor: Tensor, wanted: Datatype, what: str) -> Tensor:
    """`tensor` of a client whose wire lacks `wanted`: UINT8 as the BOOL that `carry` would have made it of.

    Raises:
        DecodeError: an element that is neither 0 nor 1.
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
        raise DecodeError(f"{error}; `translate: {{cast: round}}` rounds, `{{cast: saturate}}` clips too") from error


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
    # A bound such as 2**64 - 1 rounds up as a double, so "not below the next power of two" is the exact test.
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
