"""Functions that read datatypes and shapes in the notation of the configuration, such as `FP64 [-1, 4]`."""

import re
from reprlib import repr as shown

from gateway.core.datatypes import DATATYPES, Datatype, meant_by
from gateway.core.errors import DecodeError
from gateway.core.models import TensorSpec
from gateway.core.tensors import MAX_RANK, Shape

_TEXT = re.compile(r"\s*([A-Za-z0-9_.]+)\s*\[([^\[\]]*)\]\s*")
_SIZE = re.compile(r"-?\d{1,19}", re.ASCII)
_LARGEST = 2**63 - 1


def read_spec(name: str, text: object, *, foreign: bool = False) -> TensorSpec:
    """Return the TensorSpec with this `name` for a text such as `FP64 [-1, 4]`. In the shape, -1 means any size.

    `foreign` has the same meaning as in `read_datatype`.

    Raises:
        DecodeError: the text is malformed, or its datatype or shape is invalid.
    """
    found = _TEXT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise DecodeError(f"expected a datatype and a shape, such as FP64 [-1, 4], got {text!r}")
    written = [each.strip() for each in found[2].split(",")] if found[2].strip() else []
    sizes = [int(each) if _SIZE.fullmatch(each) else each for each in written]
    return TensorSpec(name, read_datatype(found[1], foreign=foreign), read_shape(sizes))


def read_datatype(name: object, *, foreign: bool = False) -> Datatype:
    """Return the datatype with this name.

    If `foreign` is True, also accept names from other systems, such as `float32`. Raises DecodeError if the name is
    unknown. The error message suggests the likely datatype."""
    datatype = DATATYPES.get(name) if isinstance(name, str) else None
    meant = meant_by(name) if isinstance(name, str) else None
    if foreign:
        datatype = datatype or meant
    if datatype is None:
        hint = f"; did you mean {meant.value}?" if meant else f", expected one of {', '.join(DATATYPES)}"
        raise DecodeError(f"no datatype {name!r}{hint}")
    return datatype


def read_shape(sizes: object) -> Shape:
    """Return the shape with these sizes. Raises DecodeError if `sizes` is not a list of sizes, or contains too many."""
    if (
        not isinstance(sizes, list)
        or len(sizes) > MAX_RANK
        or any(type(each) is not int or not -1 <= each <= _LARGEST for each in sizes)
    ):
        raise DecodeError(
            f"{shown(sizes)} is no shape, expected up to {MAX_RANK} sizes, each -1 (any) or more, as in [-1, 4]"
        )
    return tuple(sizes)
