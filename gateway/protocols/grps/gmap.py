"""`gmap`: maps from string to values, each entry a named tensor of one element."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.types import Tensor
from gateway.core.values import replace
from gateway.protocols.grps.texts import is_text
from gateway.protocols.grps.words import MAPS

TEXT = "text"

_NARROWER = {
    Datatype.UINT8: Datatype.INT32,
    Datatype.INT8: Datatype.INT32,
    Datatype.INT16: Datatype.INT32,
    Datatype.FP16: Datatype.FP32,
}
"""Datatypes without a map of their own, and the one that holds all their values."""


def entry(map_name: str, key: str, value: object) -> Tensor:
    """The entry of one map. `value` is of the map's type, in its range: a codec has checked it."""
    datatype = MAPS[map_name]
    if datatype is not Datatype.BYTES:
        return Tensor(key, datatype, (1,), np.array([value], datatype.dtype).tobytes())
    raw = value.encode() if isinstance(value, str) else value
    assert isinstance(raw, bytes)
    return Tensor(key, datatype, (1,), bytes_elements.pack([raw]), TEXT if map_name == "s_s" else "")


def fit(tensor: Tensor, *, told_apart: bool = False) -> Tensor | None:
    """`tensor` as an entry, of the datatype that a map has; None for one that is none. BYTES are one of `s_s` if they
    are text; where they come from a gmap they are `told_apart`, and without a content type of `s_b` whatever they hold.
    """
    if tensor.elements != 1 or not tensor.name:
        return None
    if tensor.datatype is Datatype.BYTES:
        is_string = (bool(tensor.content_type) or not told_apart) and is_text(tensor)
        return replace(tensor, shape=(1,), content_type=TEXT if is_string else "")
    wide = _NARROWER.get(tensor.datatype, tensor.datatype)
    if wide is tensor.datatype:
        return replace(tensor, shape=(1,))
    return Tensor(tensor.name, wide, (1,), tensor.array.astype(wide.dtype).tobytes())


def entries(tensors: Iterable[Tensor]) -> Iterator[tuple[str, str, Any]]:
    """Map, key and value (int, float, str, bytes) of each of a message's tensors, as `fit` makes them."""
    for tensor in tensors:
        [value] = tensor.array.reshape(-1).tolist()
        if tensor.datatype is not Datatype.BYTES:
            yield _MAPS[tensor.datatype], tensor.name, value
        elif tensor.content_type == TEXT:
            yield "s_s", tensor.name, value.decode()
        else:
            yield "s_b", tensor.name, value


_MAPS = {datatype: name for name, datatype in MAPS.items() if datatype is not Datatype.BYTES}


def check_keys(tensors: Iterable[Tensor]) -> None:
    """Raises DecodeError for a key that stands in two maps: it would be two inputs of one name."""
    seen: set[str] = set()
    for tensor in tensors:
        if tensor.name in seen:
            raise DecodeError(f"gmap: key {tensor.name!r} stands in two maps, expected one value for each key")
        seen.add(tensor.name)
