"""UM-Bridge's vectors of numbers to tensors without a datatype, and tensors to vectors."""

from collections.abc import Iterable
from itertools import chain

import numpy as np

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, unsupported
from gateway.core.types import Tensor
from gateway.json import Array, number_pieces

_UNTYPED = {
    np.dtype(np.int64): Datatype.INT64,
    np.dtype(np.uint64): Datatype.UINT64,
    np.dtype(np.float64): Datatype.FP64,
}


def to_tensor(name: str, vector: Array, what: str) -> Tensor:
    """An untyped Tensor of rank 1: INT64, UINT64 or FP64, as the literals were. A bare scalar is a vector of one, as
    MATLAB writes it.

    Raises:
        DecodeError: naming `what`, if it holds anything but numbers, or is nested.
    """
    values = vector.values
    datatype = None if isinstance(values, bytes) else _UNTYPED.get(values.dtype)
    if datatype is None or isinstance(values, bytes):
        kind = "strings" if isinstance(values, bytes) else "booleans"
        raise DecodeError(f"{what} holds {kind}, expected a vector of numbers")
    if len(vector.shape) > 1:
        raise DecodeError(f"{what} has shape {list(vector.shape)}, expected a vector of numbers")
    return Tensor(name, datatype, (values.size,), values.view(np.uint8).data, untyped=True)


def to_json(tensor: Tensor, nan: str, what: str) -> tuple[bytes, ...]:
    """The JSON array of all elements, in pieces, row-major; BOOL as 1 and 0, since the wire has numbers only.

    Raises:
        GatewayError: BYTES, which are no numbers; NaN and infinities if `nan` is `error`.
    """
    if tensor.datatype is Datatype.BYTES:
        raise unsupported(f"{what} is BYTES, but UM-Bridge carries numbers only")
    dtype = np.uint8 if tensor.datatype is Datatype.BOOL else tensor.datatype.dtype
    return tuple(number_pieces(np.frombuffer(tensor.data, dtype), nan, what))


def all_to_json(tensors: Iterable[Tensor], nan: str, what: str) -> tuple[bytes, ...]:
    """The JSON list of their vectors, in pieces. `what` they are is `input` or `output`."""
    vectors = [to_json(tensor, nan, _label(tensor, at, what)) for at, tensor in enumerate(tensors)]
    if sum(map(len, vectors)) == len(vectors):
        return (b"[%b]" % b",".join([text for [text] in vectors]),)
    return (b"[", *[piece for at, vector in enumerate(vectors) for piece in (b"," * (at > 0), *vector)], b"]")


def _label(tensor: Tensor, at: int, what: str) -> str:
    return f"{what} {tensor.name!r}" if tensor.name else f"{what} {at}"


def members(pairs: Iterable[tuple[str, tuple[bytes, ...]]]) -> tuple[bytes, ...]:
    """The parts of a JSON object of keys and texts in pieces: big numbers are not copied again to join them."""
    keyed = list(chain.from_iterable((b',"%b":' % key.encode(), *pieces) for key, pieces in pairs))
    return (b"{" + keyed[0][1:], *keyed[1:], b"}")
