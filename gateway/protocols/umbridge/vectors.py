"""Converts UM-Bridge vectors, which are JSON arrays of numbers, to Tensors and back."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from msgspec import Raw

from gateway.core.datatypes import BOOL, BYTES, Datatype
from gateway.core.errors import DecodeError, GatewayError, unsupported
from gateway.core.json import Array, placed, written
from gateway.core.json.contents import untyped_numbers
from gateway.core.tensors import Tensor

_DATATYPES = {
    np.dtype(np.int64): Datatype.INT64,
    np.dtype(np.uint64): Datatype.UINT64,
    np.dtype(np.float64): Datatype.FP64,
}
"""The datatype of a vector, by the dtype that the JSON reader derived from its literals."""


def read_vector(name: str, raw: Raw) -> Tensor:
    """Return the Tensor in `raw`, a list of JSON numbers, like `decode_vector`.

    Raises:
        DecodeError: the general reader must read the text.
    """
    datatype, data, shape = untyped_numbers(bytes(raw))
    if len(shape) > 1:
        raise DecodeError
    return Tensor(name, datatype, shape, data, "", {}, True)


def decode_vector(name: str, vector: Array, what: str) -> Tensor:
    """Return an untyped Tensor of rank 1. Its datatype is INT64, UINT64 or FP64, depending on the literals.

    A scalar, which MATLAB writes for a vector of one number, becomes `[1]`.

    Raises:
        DecodeError: the vector contains anything except numbers, or is nested. The message contains `what`.
    """
    values = vector.values
    datatype = None if isinstance(values, bytes) else _DATATYPES.get(values.dtype)
    if datatype is None or isinstance(values, bytes):
        kind = "strings" if isinstance(values, bytes) else "booleans"
        raise DecodeError(f"{what} holds {kind}, expected a vector of numbers")
    if len(vector.shape) > 1:
        raise DecodeError(f"{what} has shape {list(vector.shape)}, expected a vector of numbers")
    return Tensor(name, datatype, (values.size,), values.view(np.uint8).data, untyped=True)


def encode_vector(tensor: Tensor, nan: str, what: str) -> Any:
    """Return the JSON array of all elements in row-major order, for insertion into a message for `write_message`.

    BOOL becomes 1 and 0, because a vector contains only numbers.

    Raises:
        GatewayError: UNIMPLEMENTED if the tensor is BYTES; INVALID_ARGUMENT if it contains NaN or an infinity and `nan`
        is `error`.
    """
    datatype = tensor.datatype
    if datatype is BYTES:
        raise no_numbers(what)
    return placed(written(tensor.data, Datatype.UINT8 if datatype is BOOL else datatype, nan, what))


def encode_vectors(tensors: Iterable[Tensor], nan: str, role: str) -> list[Any]:
    """Apply `encode_vector` to each tensor.

    `role` (`input` or `output`) is the word for the tensors in error messages."""
    return [encode_vector(tensor, nan, _label(tensor, at, role)) for at, tensor in enumerate(tensors)]


def no_numbers(what: str) -> GatewayError:
    """Return the error for BYTES, which UM-Bridge cannot represent."""
    return unsupported(f"{what} is BYTES, but UM-Bridge carries numbers only")


def _label(tensor: Tensor, at: int, role: str) -> str:
    return f"{role} {tensor.name!r}" if tensor.name else f"{role} {at}"
