"""What every V2 wire form demands of a tensor's shape and of its raw bytes. Here ends what would kill a real server."""

from math import prod
from reprlib import repr as shown

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.types import MAX_RANK, Buffer, Shape

# Triton 2.51 multiplies dimensions without looking: [1, 2^62] with three elements is its last request.
MAX_BYTES = 2**63 - 1


def read_datatype(given: object, what: str) -> Datatype:
    """The Datatype called `given`, in capitals as the specification has them. Raises DecodeError for other names."""
    datatype = DATATYPES.get(given) if isinstance(given, str) else None
    if datatype is None:
        raise DecodeError(f"{what}: datatype must be one of {', '.join(DATATYPES)}, not {shown(given)}")
    return datatype


def read_shape(given: object, datatype: Datatype, what: str) -> Shape:
    """The shape in `given`: at most 32 integers of at least 0 that, zeros aside, span less than 2^63 bytes.

    Raises:
        DecodeError: anything else.
    """
    if not isinstance(given, list) or len(given) > MAX_RANK:
        raise DecodeError(f"{what}: shape must be a list of at most {MAX_RANK} integers, not {shown(given)}")
    size = datatype.size or 1
    for dimension in given:
        if type(dimension) is not int or dimension < 0:
            raise DecodeError(f"{what}: each dimension must be an integer of at least 0, not {shown(dimension)}")
        size *= dimension or 1
    if size > MAX_BYTES:
        raise DecodeError(f"{what}: shape {shown(given)} spans more than 2^63 bytes")
    return tuple(given)


def read_dimensions(given: object, what: str) -> Shape:
    """The shape of a model's metadata, where -1 is a free dimension. Raises DecodeError for anything else."""
    if not isinstance(given, list) or any(type(each) is not int or each < -1 for each in given):
        raise DecodeError(f"{what}: shape must be a list of integers of at least -1, not {shown(given)}")
    return tuple(given)


def check_size(shape: Shape, datatype: Datatype, limit: int, what: str) -> None:
    """Whether a tensor that is not raw on the wire stays within `limit` bytes once it is: the two bytes of `0,` become
    eight of FP64, and so does the one of a protobuf zero. An element of BYTES takes at least its length.

    Raises:
        GatewayError: RESOURCE_EXHAUSTED.
    """
    size = prod(shape) * (datatype.size or 4)
    if size > limit:
        raise refusal(Reason.TOO_LARGE, f"{what} takes {size} bytes, limits.message is {limit}")


def check_raw(data: Buffer, datatype: Datatype, shape: Shape, what: str) -> None:
    """Whether `data` is the raw form of a `datatype` tensor of this shape.

    Raises:
        DecodeError: another number of bytes or elements, a BYTES element cut short, a BOOL byte other than 0 and 1.
    """
    if datatype is Datatype.BYTES:
        return _check_elements(data, shape, what)
    expected = prod(shape) * datatype.size
    if len(data) != expected:
        raise DecodeError(f"{what}: {len(data)} bytes, but {datatype} of shape {list(shape)} takes {expected}")
    if datatype is Datatype.BOOL and expected:
        _check_booleans(data, what)
    return None


def _check_elements(data: Buffer, shape: Shape, what: str) -> None:
    try:
        found = bytes_elements.count(data)
    except DecodeError as error:
        raise DecodeError(f"{what}: {error}") from error
    if found != prod(shape):
        raise DecodeError(f"{what}: {found} BYTES elements, but shape {list(shape)} takes {prod(shape)}")


def _check_booleans(data: Buffer, what: str) -> None:
    octets = np.frombuffer(data, np.uint8)
    # Triton reads 2 as true; other servers crash on it or pass it on
    if octets.max() > 1:
        at = int(np.argmax(octets > 1))
        raise DecodeError(f"{what}: element {at} of BOOL is the byte {octets[at]}, expected 0 or 1")
