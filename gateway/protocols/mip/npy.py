"""Arrays as .npy files (numpy's format, versions 1 to 3): datatype and shape travel with the numbers.

numpy reads the header, literals of Python of at most 4096 bytes. The header is then checked against the bytes that are
there: `numpy.load` would take memory for whatever shape it says.
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
    b"\3\0": (Struct("<I"), read_array_header_2_0),  # UTF-8 in place of Latin-1, for names of fields
}
"""How each version writes the length of its header, and what reads it."""
_MOST_HEADER = 4096


def stack(files: Sequence[Buffer], name: str, what: str) -> Tensor:
    """The arrays in `files`, of one datatype and shape, as one tensor with a dimension more in front.

    Raises:
        DecodeError: naming `what`: no .npy file, no numbers, fewer or more bytes than it says; or arrays that differ.
    """
    arrays = [_read(file, f"{what} of example {at}") for at, file in enumerate(files)]
    first = arrays[0]
    for at, array in enumerate(arrays):
        if (array.dtype, array.shape) != (first.dtype, first.shape):
            text = f"{what} is {array.dtype} {list(array.shape)} in example {at}"
            raise DecodeError(f"{text} and {first.dtype} {list(first.shape)} in example 0")
    joined = first if len(arrays) == 1 else np.stack(arrays)
    data = np.ascontiguousarray(joined).reshape(-1).view(np.uint8).data
    return Tensor(name, datatype_of(first.dtype), (len(arrays), *first.shape), data, content_type="npy")


def files(tensor: Tensor, rows: int, shape: Shape) -> list[list[Buffer]]:
    """A .npy file, in pieces, of each of the `rows` of a tensor of numbers or BOOL; each has the given shape. BF16,
    which the format lacks, is widened to FP32."""
    dtype, data = tensor.datatype.dtype, tensor.data
    if tensor.datatype is Datatype.BF16:
        dtype = np.dtype("<f4")
        data = np.ascontiguousarray(tensor.array.astype(dtype)).reshape(-1).view(np.uint8).data
    head = _head(dtype.str, shape)
    size = prod(shape) * dtype.itemsize
    view = memoryview(data)
    return [[head, view[row * size : (row + 1) * size]] for row in range(rows)]


@lru_cache(1024)
def _head(descr: str, shape: Shape) -> bytes:
    file = BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


def _read(file: Buffer, what: str) -> "np.ndarray[Any, Any]":
    """A native little-endian array in row-major order, a view of `file` where it is one already."""
    dtype, fortran, shape, start = _header(file, what)
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
    array = flat.reshape(shape, order="F" if fortran else "C")
    return array.astype(datatype.dtype, order="C", copy=False)


def _datatype(dtype: "np.dtype[Any]", what: str) -> Datatype:
    try:
        return datatype_of(dtype)
    except TypeError as error:
        raise DecodeError(f"{what}: {error}") from error


def _header(file: Buffer, what: str) -> tuple["np.dtype[Any]", bool, Shape, int]:
    """The dtype, whether the order is Fortran's, the shape, and where the data begins."""
    version = _VERSIONS.get(bytes(file[6:8])) if bytes(file[:6]) == _MAGIC else None
    if version is None or len(file) < 8 + version[0].size:
        raise DecodeError(f"{what} is no .npy file of version 1, 2 or 3")
    length = version[0]
    start = 8 + length.size + length.unpack_from(file, 8)[0]
    if start > min(len(file), _MOST_HEADER):
        raise DecodeError(f"{what}: the header of the .npy file ends at byte {start}, of {len(file)}")
    try:
        dtype, fortran, shape = _read_header(bytes(file[:start]))
    # what is not Python, or too deep for its parser, raises nearly anything
    except Exception as error:
        raise DecodeError(f"{what}: the header of the .npy file is not that of an array of numbers") from error
    return dtype, fortran, shape, start


@lru_cache(256)
def _read_header(header: bytes) -> tuple["np.dtype[Any]", bool, Shape]:
    """What the file's bytes before the data say. Headers repeat, and numpy takes 20 us to parse one."""
    _, read = _VERSIONS[header[6:8]]
    file = BytesIO(header)
    file.seek(8)
    shape, fortran, dtype = read(file, max_header_size=_MOST_HEADER)
    if dtype.kind not in "biuf":
        raise ValueError(f"elements of {dtype}")
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"shape {shape}")
    return dtype, fortran, shape
