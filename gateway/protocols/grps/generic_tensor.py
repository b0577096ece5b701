"""What every wire form demands of a tensor's shape."""

from collections.abc import Sequence
from math import prod
from reprlib import repr as shown

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.types import MAX_RANK, Shape

_UINT32_MAX = 2**32 - 1


def read_shape(given: Sequence[object], what: str) -> Shape:
    """The shape in `given`: at most 32 of uint32, zeros aside less than 2^63 bytes of the largest datatype.

    Raises:
        DecodeError: anything else.
    """
    if len(given) > MAX_RANK:
        raise DecodeError(f"{what}: shape has {len(given)} dimensions, expected at most {MAX_RANK}")
    dimensions = tuple([each for each in given if type(each) is int and 0 <= each <= _UINT32_MAX])
    if len(dimensions) < len(given):
        raise DecodeError(f"{what}: shape {shown(list(given))}, expected integers from 0 to 2^32 - 1")
    if prod([each or 1 for each in dimensions]) >= 2**60:
        raise DecodeError(f"{what}: shape {shown(list(given))} spans more than 2^63 bytes")
    return dimensions


def check_count(count: int, shape: Shape, datatype: Datatype, limit: int, what: str) -> None:
    """Whether a list of `count` elements fills `shape`, within `limit` bytes of the tensor that it makes: the two bytes
    of `0,` become eight of FP64.

    Raises:
        DecodeError: more or fewer elements.
        GatewayError: RESOURCE_EXHAUSTED.
    """
    if count != prod(shape):
        raise DecodeError(f"{what}: {count} elements, but shape {list(shape)} takes {prod(shape)}")
    size = count * (datatype.size or 4)
    if size > limit:
        raise refusal(Reason.TOO_LARGE, f"{what} takes {size} bytes, limits.message is {limit}")
