"""`GenericTensor` in protobuf's form, written around the tensors' own buffers."""

from collections.abc import Iterable
from itertools import chain
from typing import TypeAlias

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import invalid_input
from gateway.core.types import Buffer, Tensor
from gateway.protobuf.integers import write_integers
from gateway.protobuf.wire import key, varint
from gateway.protocols.grps.protobuf.fields import write_field, write_text
from gateway.protocols.grps.protobuf.generic_tensor import DTYPE, NAME, NUMBERS, SHAPE, WIDTHS
from gateway.protocols.grps.schema import DATATYPES

Parts: TypeAlias = tuple[Buffer, ...]

_KEYS = {datatype: key(number) for datatype, number in NUMBERS.items()}
_DTYPES = {datatype: bytes((DTYPE << 3, number)) for datatype, (number, _, _) in DATATYPES.items()}
_TENSOR = key(1)


def write_tensors(tensors: Iterable[Tensor]) -> tuple[Parts, int]:
    """A GenericTensorData of `tensors` in parts, the first of which is small, and how many bytes they are. FP32 and
    FP64 stay buffers of their own.

    Raises:
        GatewayError: INVALID_ARGUMENT naming the tensor that has no form on the wire.
    """
    parts: list[Buffer] = []
    written, whole = b"", 0
    for tensor in tensors:
        data = _write_data(tensor)
        head, size = _write_head(tensor, len(data)), len(data)
        start = _TENSOR + varint(len(head) + size)
        whole += len(start) + len(head) + size
        written += start + head
        if size:
            parts += (written, data)
            written = b""
    return (*parts, written) if written or not parts else tuple(parts), whole


def _write_head(tensor: Tensor, size: int) -> bytes:
    """All of a tensor but its list, of which the key and the length are written."""
    head = b""
    if tensor.name:
        head = write_text(NAME, tensor.name, f"the name of tensor {tensor.name!r}")
    head += _DTYPES[tensor.datatype]
    if tensor.shape:
        head += write_field(SHAPE, b"".join(map(_write_dimension, tensor.shape)))
    if size and tensor.datatype is not Datatype.BYTES:
        head += _KEYS[tensor.datatype] + varint(size)
    return head


def _write_dimension(dimension: int) -> bytes:
    if dimension >= 2**32:
        raise invalid_input(f"a dimension of {dimension}; those of grps are less than 2^32")
    return varint(dimension)


def _write_data(tensor: Tensor) -> Buffer:
    datatype = tensor.datatype
    if datatype not in DATATYPES:
        raise invalid_input(f"tensor {tensor.name!r}: grps has no {datatype}, only {', '.join(DATATYPES)}")
    if datatype is Datatype.BYTES:
        return _write_strings(tensor)
    if datatype is Datatype.FP16:
        return np.frombuffer(tensor.data, "<f2").astype("<f4").view(np.uint8).data
    return tensor.data if datatype in WIDTHS else write_integers(tensor.data, datatype)


def _write_strings(tensor: Tensor) -> bytes:
    """Elements, of which `as_text` says that they are UTF-8, with the key of flat_string before each."""
    written = bytearray()
    for element in chain.from_iterable(bytes_elements.pieces(tensor.data)):
        size = len(element)
        written += _STARTS[size] if size < len(_STARTS) else _KEYS[Datatype.BYTES] + varint(size)
        written += element
    return bytes(written)


_STARTS = [_KEYS[Datatype.BYTES] + varint(size) for size in range(128)]
"""The key and the length of short strings."""
