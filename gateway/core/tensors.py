"""Canonical tensors: named arrays with a datatype and a shape, independent of the protocol."""

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from gateway.core import bytes_elements
from gateway.core.datatypes import BYTES, DATATYPES, Datatype
from gateway.core.frozen import field
from gateway.core.messages import Buffer

Shape: TypeAlias = tuple[int, ...]


ParameterValue: TypeAlias = bool | int | float | str


Parameters: TypeAlias = Mapping[str, ParameterValue]


MAX_RANK = 32


_MAX_SPAN = 2**63 - 1


def can_exist(shape: Shape, datatype: Datatype) -> bool:
    """Return whether numpy can represent an array of this shape. If dimensions of 0 are ignored, the array must have
    fewer than 2^63 bytes. Only tensors without elements can exceed this limit, because the data of all other tensors
    exists in memory.
    """
    return prod(size or 1 for size in shape) * (datatype.size or 1) <= _MAX_SPAN


class Tensor(Struct, frozen=True):
    """A named array: datatype, shape and data.

    - `name`: The tensor's name; empty if the message contained no name.
    - `shape`: The dimensions. No dimension is negative, and the shape matches `data`. The code that creates a Tensor
      checks both.
    - `data`: The elements in the raw format of V2: little-endian and row-major. A BYTES element consists of a u32
      length and the bytes.
    - `content_type`: The tensor's encoding in protocols with several encodings, or empty. BYTES elements can be `text`,
      `json`, `image`, `strings` (of JSON) or `base64`. Numbers can be `json` or `npy`. V2 content types without a
      special encoding (`np`, `str`) are also possible.
    - `untyped`: True if the tensor came from JSON without a datatype. The datatype is INT64 or UINT64 if every literal
      was an integer, otherwise FP64.
    """

    name: str
    datatype: Datatype
    shape: Shape
    data: Buffer
    content_type: str = ""
    parameters: Parameters = field(default_factory=dict)
    untyped: bool = False

    @property
    def array(self) -> "np.ndarray[Any, Any]":
        """A numpy view of `data` in `shape`. BYTES elements are an object array of bytes, because numpy's type `S`
        drops trailing NULs."""
        if self.datatype is BYTES:
            elements = bytes_elements.unpack(self.data)
            flat = np.empty(len(elements), object)
            flat[:] = elements
            return flat.reshape(self.shape)
        return np.frombuffer(self.data, self.datatype.dtype).reshape(self.shape)

    @property
    def elements(self) -> int:
        """The number of elements."""
        return prod(self.shape)


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the total size of the tensors' data, in bytes."""
    return sum([len(each.data) for each in tensors])


def tensor(name: str, array: "np.ndarray[Any, Any]", datatype: Datatype | None = None) -> Tensor:
    """Return a Tensor with the elements of `array`. By default, the array's dtype determines the datatype. Strings and
    objects become BYTES.

    Raises:
        TypeError: the dtype has no V2 datatype (complex, datetime, ...), or an object is not text or bytes.
    """
    datatype = datatype or datatype_of(array.dtype)
    if datatype is BYTES:
        elements = map(_to_bytes, array.reshape(-1).tolist())
        return Tensor(name, datatype, array.shape, bytes_elements.pack(elements))
    raw = np.ascontiguousarray(array, datatype.dtype)
    return Tensor(name, datatype, array.shape, raw.reshape(-1).view(np.uint8).data)


def _to_bytes(element: object) -> bytes:
    if isinstance(element, str):
        return element.encode()
    if isinstance(element, bytes | bytearray | memoryview):
        return bytes(element)
    raise TypeError(f"an element of BYTES is {type(element).__name__}, expected text or bytes")


def datatype_of(dtype: "np.dtype[Any]") -> Datatype:
    """Return the V2 datatype for a numpy dtype of either byte order. Raises TypeError if V2 has no such datatype."""
    if dtype.kind in "SUO":
        return BYTES
    name = _NUMPY_NAMES.get(dtype.name)
    if name is None:
        raise TypeError(f"numpy dtype {dtype} has no datatype; expected one of {', '.join(_NUMPY_NAMES)} or strings")
    return name


_NUMPY_NAMES = {datatype.dtype.name: datatype for datatype in DATATYPES.values() if datatype is not BYTES}
