"""UM-Bridge's vectors, which are JSON arrays of numbers, to Tensors and back."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from struct import Struct

import numpy as np
import orjson

from gateway.core.datatypes import BOOL, BYTES, Datatype
from gateway.core.errors import DecodeError, GatewayError, unsupported
from gateway.core.types import Tensor
from gateway.json import Array, number_pieces

_DATATYPES = {
    np.dtype(np.int64): Datatype.INT64,
    np.dtype(np.uint64): Datatype.UINT64,
    np.dtype(np.float64): Datatype.FP64,
}
"""The datatype of a vector by the dtype that the JSON reader chose from its literals."""


def decode_vector(name: str, vector: Array, what: str) -> Tensor:
    """An untyped Tensor of rank 1: INT64, UINT64 or FP64, depending on the literals. A bare scalar, which MATLAB writes
    for a vector of one, becomes `[1]`.

    Raises:
        DecodeError: `what` holds anything but numbers, or is nested.
    """
    values = vector.values
    datatype = None if isinstance(values, bytes) else _DATATYPES.get(values.dtype)
    if datatype is None or isinstance(values, bytes):
        kind = "strings" if isinstance(values, bytes) else "booleans"
        raise DecodeError(f"{what} holds {kind}, expected a vector of numbers")
    if len(vector.shape) > 1:
        raise DecodeError(f"{what} has shape {list(vector.shape)}, expected a vector of numbers")
    return Tensor(name, datatype, (values.size,), values.view(np.uint8).data, untyped=True)


def encode_vector(tensor: Tensor, nan: str, what: str) -> tuple[bytes, ...]:
    """The JSON array of all elements in row-major order, in pieces. BOOL is written as 1 and 0, since a vector has
    numbers only.

    Raises:
        GatewayError: UNIMPLEMENTED, the tensor is BYTES; INVALID_ARGUMENT, NaN or an infinity if `nan` is `error`.
    """
    if tensor.datatype is BYTES:
        raise no_numbers(what)
    dtype = np.uint8 if tensor.datatype is BOOL else tensor.datatype.dtype
    return tuple(number_pieces(np.frombuffer(tensor.data, dtype), nan, what))


_FEW = 256
"""Vectors of at most so many bytes are written faster from floats of Python than from an array of numpy."""
_FP64 = Datatype.FP64


def few_doubles(tensors: tuple[Tensor, ...]) -> bytes | None:
    """The vector of the only tensor, the text that `encode_vector` writes. None for several tensors, for other
    datatypes, for many numbers, for NaN and infinities, and for a tensor with parameters: they are written by
    `encode_vector`, or refused."""
    if len(tensors) != 1:
        return None
    tensor = tensors[0]
    data = tensor.data
    if tensor.datatype is not _FP64 or tensor.parameters or len(data) > _FEW:
        return None
    text = orjson.dumps(doubles(len(data) // 8).unpack(data))
    return None if b"n" in text else text  # a null is NaN or an infinity


@lru_cache(1024)
def doubles(count: int) -> Struct:
    """Reads and writes so many doubles in raw form."""
    return Struct(f"<{count}d")


def encode_vectors(tensors: Iterable[Tensor], nan: str, role: str) -> tuple[bytes, ...]:
    """The JSON list of the tensors' vectors, in pieces. `role` is `input` or `output`; errors name the tensor by it."""
    vectors = [encode_vector(tensor, nan, _label(tensor, at, role)) for at, tensor in enumerate(tensors)]
    if sum(map(len, vectors)) == len(vectors):
        return (b"[%b]" % b",".join([text for [text] in vectors]),)
    return (b"[", *[piece for at, vector in enumerate(vectors) for piece in (b"," * (at > 0), *vector)], b"]")


def no_numbers(what: str) -> GatewayError:
    """The error for BYTES, which UM-Bridge cannot carry."""
    return unsupported(f"{what} is BYTES, but UM-Bridge carries numbers only")


def _label(tensor: Tensor, at: int, role: str) -> str:
    return f"{role} {tensor.name!r}" if tensor.name else f"{role} {at}"


def encode_object(members: Iterable[tuple[str, tuple[bytes, ...]]]) -> tuple[bytes, ...]:
    """The JSON object of keys and values in pieces, as the parts of a message: large vectors are not copied again."""
    pieces = list(chain.from_iterable((b',"%b":' % key.encode(), *value) for key, value in members))
    return (b"{" + pieces[0][1:], *pieces[1:], b"}")
