"""Files in the numpy format `.npy` (versions 1 to 3), which contain one array with its datatype and shape. Codecs for
protocols with npy bodies use this module.

numpy parses the header, which is a Python literal of at most 4,096 bytes. This module then compares the header with the
size of the file. By contrast, `numpy.load` allocates memory for any shape in the header, and executes the pickles in
arrays of objects.
"""

from functools import lru_cache
from io import BytesIO
from math import prod
from struct import Struct
from typing import Any

import numpy as np
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, write_array_header_1_0

from gateway.core.datatypes import BYTES, Datatype, Kind
from gateway.core.errors import DecodeError, invalid_input
from gateway.core.messages import Buffer
from gateway.core.tensors import MAX_RANK, Shape, Tensor, can_exist, datatype_of

_MAGIC = b"\x93NUMPY"
_VERSIONS = {
    b"\1\0": (Struct("<H"), read_array_header_1_0),
    b"\2\0": (Struct("<I"), read_array_header_2_0),
    b"\3\0": (Struct("<I"), read_array_header_2_0),  # UTF-8 instead of Latin-1, for field names
}
"""The Struct of the header's length field, and the function that parses the header, by version."""
_MAX_HEADER = 4096


def decode(file: Buffer, what: str) -> Tensor:
    """Return the array in `file` as a tensor without a name.

    If the array is in little-endian and row-major order, the tensor's data is a view of `file`. Otherwise, the data is
    a converted copy.

    Raises:
        DecodeError: the file is not a .npy file, its elements are not numbers or booleans, or its size differs from the
            size in its header. The message contains `what`.
    """
    dtype, is_fortran, shape, start = _decode_header(file, what)
    if len(shape) > MAX_RANK:
        raise DecodeError(f"{what} has {len(shape)} dimensions, expected at most {MAX_RANK}")
    expected = prod(shape) * dtype.itemsize
    if len(file) - start != expected:
        raise DecodeError(
            f"{what} has {len(file) - start} bytes of data, expected {expected} for {dtype} {list(shape)}"
        )
    datatype = _datatype(dtype, what)
    if not can_exist(shape, datatype):
        raise DecodeError(f"{what}: shape {list(shape)} spans more than 2^63 bytes")
    flat = np.frombuffer(file, dtype, offset=start)
    if datatype.kind is Kind.BOOL and (flat.view(np.uint8) > 1).any():
        raise DecodeError(f"{what} holds booleans other than 0 and 1")
    array = flat.reshape(shape, order="F" if is_fortran else "C").astype(datatype.dtype, order="C", copy=False)
    return Tensor("", datatype, shape, array.reshape(-1).view(np.uint8).data)


def encode(tensor: Tensor) -> tuple[Buffer, Buffer]:
    """Return the header and the data of a .npy file for a tensor. BF16, which the format does not support, is widened
    to FP32.

    Raises:
        GatewayError: INVALID_ARGUMENT if the tensor is BYTES, because arrays of objects are pickles, and the numpy
            types for text and bytes lose trailing NULs.
    """
    stored = storable(tensor)
    return header(stored.datatype, stored.shape), stored.data


def storable(tensor: Tensor) -> Tensor:
    """Return `tensor` in a datatype that the format supports: BF16 is widened to FP32. Raises the same errors as
    `encode`."""
    if tensor.datatype is BYTES:
        raise invalid_input(f"{tensor.name} is BYTES, but .npy files hold numbers and booleans")
    if tensor.datatype is not Datatype.BF16:
        return tensor
    wide = np.ascontiguousarray(tensor.array.astype(Datatype.FP32.dtype))
    return Tensor(tensor.name, Datatype.FP32, tensor.shape, wide.reshape(-1).view(np.uint8).data)


@lru_cache(1024)
def header(datatype: Datatype, shape: Shape) -> bytes:
    """Return all bytes that precede the data of an array in row-major order."""
    file = BytesIO()
    write_array_header_1_0(file, {"descr": datatype.dtype.str, "fortran_order": False, "shape": shape})
    return file.getvalue()


def _datatype(dtype: "np.dtype[Any]", what: str) -> Datatype:
    try:
        return datatype_of(dtype)
    except TypeError as error:
        raise DecodeError(f"{what}: {error}") from error


def _decode_header(file: Buffer, what: str) -> tuple["np.dtype[Any]", bool, Shape, int]:
    """Return the dtype, whether the order is column-major (Fortran), the shape, and the offset of the data."""
    version = _VERSIONS.get(bytes(file[6:8])) if bytes(file[:6]) == _MAGIC else None
    if version is None or len(file) < 8 + version[0].size:
        raise DecodeError(f"{what} is no .npy file of version 1, 2 or 3")
    length = version[0]
    start = 8 + length.size + length.unpack_from(file, 8)[0]
    if start > min(len(file), _MAX_HEADER):
        raise DecodeError(f"{what}: the header of the .npy file ends at byte {start}, of {len(file)}")
    try:
        dtype, is_fortran, shape = _parse_header(bytes(file[:start]))
    # a header that is not Python, or is nested too deeply for its parser, can raise nearly any exception
    except Exception as error:
        raise DecodeError(f"{what}: the header of the .npy file is not that of an array of numbers") from error
    return dtype, is_fortran, shape, start


@lru_cache(256)
def _parse_header(header: bytes) -> tuple["np.dtype[Any]", bool, Shape]:
    """Return the dtype, the order and the shape from the bytes before the data.

    The results are cached, because headers recur and numpy takes 20 us to parse a header."""
    _, parse = _VERSIONS[header[6:8]]
    file = BytesIO(header)
    file.seek(8)
    shape, is_fortran, dtype = parse(file, max_header_size=_MAX_HEADER)
    if dtype.kind not in "biuf":
        raise ValueError(f"elements of {dtype}")
    if any(type(size) is not int or size < 0 for size in shape):
        raise ValueError(f"shape {shape}")
    return dtype, is_fortran, shape
