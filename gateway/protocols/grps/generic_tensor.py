"""`GenericTensor`, the tensors of `gtensors`: definitions for all transports."""

from collections.abc import Sequence
from reprlib import repr as shown
from typing import NamedTuple

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.tensors import MAX_RANK, Shape


class DType(NamedTuple):
    """A grps datatype: its number and name in `dtype`, and the `member` that contains the elements."""

    number: int
    name: str
    member: str


DTYPES: dict[Datatype, DType] = {
    Datatype.UINT8: DType(1, "DT_UINT8", "flat_uint8"),
    Datatype.INT8: DType(2, "DT_INT8", "flat_int8"),
    Datatype.INT16: DType(3, "DT_INT16", "flat_int16"),
    Datatype.INT32: DType(4, "DT_INT32", "flat_int32"),
    Datatype.INT64: DType(5, "DT_INT64", "flat_int64"),
    Datatype.FP16: DType(6, "DT_FLOAT16", "flat_float16"),
    Datatype.FP32: DType(7, "DT_FLOAT32", "flat_float32"),
    Datatype.FP64: DType(8, "DT_FLOAT64", "flat_float64"),
    Datatype.BYTES: DType(9, "DT_STRING", "flat_string"),
}

_UINT32_MAX = 2**32 - 1


def read_shape(dimensions: Sequence[object], what: str) -> Shape:
    """Return the shape with these dimensions: at most 32, each a uint32.

    The product of the nonzero dimensions must be less than 2^60, so the tensor takes less than 2^63 bytes with any
    datatype. `what` identifies the tensor in error messages.

    Raises:
        DecodeError: the dimensions exceed these limits.
    """
    if len(dimensions) > MAX_RANK:
        raise DecodeError(f"{what}: shape has {len(dimensions)} dimensions, expected at most {MAX_RANK}")
    shape: list[int] = []
    size = 1
    for each in dimensions:
        if type(each) is not int or not 0 <= each <= _UINT32_MAX:
            raise DecodeError(f"{what}: shape {shown(list(dimensions))}, expected integers from 0 to 2^32 - 1")
        shape.append(each)
        size *= each or 1
    if size >= 2**60:
        raise DecodeError(f"{what}: shape {shown(list(dimensions))} spans more than 2^63 bytes")
    return tuple(shape)
