"""Examples as .npy files (numpy's format, versions 1 to 3), which carry the datatype and the shape with the numbers.

numpy parses the header, a Python literal of at most 4096 bytes. The header is then checked against the size of the
file: `numpy.load` would allocate memory for whatever shape it states.
"""

from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from math import prod
from struct import Struct
from typing import Any

import numpy as np
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0

from gateway.core.datatypes import Datatype, Kind
from gateway.core.errors import DecodeError
from gateway.core.types import MAX_RANK, Buffer, Shape, Tensor, datatype_of

_MAGIC = b"\x93NUMPY"
_VERSIONS = {
    b"\1\0": (Struct("<H"), read_array_header_1_0),
    b"\2\0": (Struct("<I"), read_array_header_2_0),
    b"\3\0": (Struct("<I"), read_array_header_2_0),  # UTF-8 instead of Latin-1, for names of fields
}
"""For each version: how the length of the header is written, and what parses it."""
_MAX_HEADER = 4096


def decode(files: Sequence[Buffer], what: str) -> Tensor:
    """The arrays in `files`, which have one datatype and shape, as one Tensor with an added first dimension.

    Raises:
        DecodeError: not a .npy file, not numbers, fewer or more bytes than the header states, or arrays that differ;
            names `what`.
    """
    arrays = [_decode_file(file, f"{what} of example {at}") for at, file in enumerate(files)]
    first = arrays[0]
    for at, array in enumerate(arrays):
        if (array.dtype, array.shape) != (first.dtype, first.shape):
            text = f"{what} is {array.dtype} {list(array.shape)} in example {at}"
            raise DecodeError(f"{text} and {first.dtype} {list(first.shape)} in example 0")
    joined = first if len(arrays) == 1 else np.stack(arrays)
    data = np.ascontiguousarray(joined).reshape(-1).view(np.uint8).data
    return Tensor("", datatype_of(first.dtype), (len(arrays), *first.shape), data, content_type="npy")


def encode(tensor: Tensor) -> list[list[Buffer]]:
    """A .npy file, in pieces, for each row of a tensor of numbers or BOOL. BF16, which the format does not have, is
    widened to FP32."""
    rows, *shape = tensor.shape
    dtype, data = tensor.datatype.dtype, tensor.data
    if tensor.datatype is Datatype.BF16:
        dtype = np.dtype("<f4")
        data = np.ascontiguousarray(tensor.array.astype(dtype)).reshape(-1).view(np.uint8).data
    header = _encode_header(dtype.str, tuple(shape))
    size = prod(shape) * dtype.itemsize
    view = memoryview(data)
    return [[header, view[row * size : (row + 1) * size]] for row in range(rows)]


@lru_cache(1024)
def _encode_header(descr: str, shape: Shape) -> bytes:
    file = BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


def _decode_file(file: Buffer, what: str) -> "np.ndarray[Any, Any]":
    """The array in little-endian and row-major order; a view of `file` if it is written so."""
    dtype, is_fortran, shape, start = _decode_header(file, what)
    if len(shape) > MAX_RANK:
        raise DecodeError(f"{what} has {len(shape)} dimensions, expected at most {MAX_RANK}")
    expected = prod(shape) * dtype.itemsize
    if len(file) - start != expected:
        raise DecodeError(
            f"{what} has {len(file) - start} bytes of data, expected {expected} for {dtype} {list(shape)}"
        )
    flat = np.frombuffer(file, dtype, offset=start)
    datatype = _datatype(dtype, what)
    if datatype.kind is Kind.BOOL and (flat.view(np.uint8) > 1).any():
        raise DecodeError(f"{what} holds booleans other than 0 and 1")
    array = flat.reshape(shape, order="F" if is_fortran else "C")
    return array.astype(datatype.dtype, order="C", copy=False)


def _datatype(dtype: "np.dtype[Any]", what: str) -> Datatype:
    try:
        return datatype_of(dtype)
    except TypeError as error:
        raise DecodeError(f"{what}: {error}") from error


def _decode_header(file: Buffer, what: str) -> tuple["np.dtype[Any]", bool, Shape, int]:
    """The dtype, whether the order is Fortran's (column-major), the shape, and the offset of the data."""
    version = _VERSIONS.get(bytes(file[6:8])) if bytes(file[:6]) == _MAGIC else None
    if version is None or len(file) < 8 + version[0].size:
        raise DecodeError(f"{what} is no .npy file of version 1, 2 or 3")
    length = version[0]
    start = 8 + length.size + length.unpack_from(file, 8)[0]
    if start > min(len(file), _MAX_HEADER):
        raise DecodeError(f"{what}: the header of the .npy file ends at byte {start}, of {len(file)}")
    try:
        dtype, is_fortran, shape = _parse_header(bytes(file[:start]))
    # a header that is not Python, or too deep for its parser, raises nearly anything
    except Exception as error:
        raise DecodeError(f"{what}: the header of the .npy file is not that of an array of numbers") from error
    return dtype, is_fortran, shape, start


@lru_cache(256)
def _parse_header(header: bytes) -> tuple["np.dtype[Any]", bool, Shape]:
    """The same from the bytes before the data. Cached: headers repeat, and numpy takes 20 us to parse one."""
    _, parse = _VERSIONS[header[6:8]]
    file = BytesIO(header)
    file.seek(8)
    shape, is_fortran, dtype = parse(file, max_header_size=_MAX_HEADER)
    if dtype.kind not in "biuf":
        raise ValueError(f"elements of {dtype}")
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"shape {shape}")
    return dtype, is_fortran, shape
