"""`gmap`: maps from string to values, each entry a named tensor of one element."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.frozen import replace
from gateway.core.types import Tensor
from gateway.protocols.grps.schema import MAPS
from gateway.protocols.grps.strings import is_text

TEXT = "text"

Keys: TypeAlias = Mapping[str, str]
"""The key of each tensor whose name is not its key, since that stands in several maps."""
NO_KEYS: Keys = {}

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


def fit(tensor: Tensor, keys: Keys = NO_KEYS, *, told_apart: bool = False) -> Tensor | None:
    """`tensor` as an entry, of the datatype that a map has; None for one that is none. BYTES are one of `s_s` if they
    are text; where they come from a gmap they are `told_apart`, and without a content type of `s_b` whatever they hold.
    Its name is its key, unless `keys` has another.
    """
    if tensor.elements != 1 or not tensor.name:
        return None
    if tensor.name in keys:
        tensor = replace(tensor, name=keys[tensor.name])
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
        name = map_of(tensor)
        yield name, tensor.name, value.decode() if name == "s_s" else value


_MAPS = {datatype: name for name, datatype in MAPS.items() if datatype is not Datatype.BYTES}


def named_apart(tensors: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Keys]:
    """The entries of a message under names of their own. Keys are per map: one that stands in several (grps' own
    samples use `key` in all six) becomes `MAP.KEY` in each. With these names goes the key of each.

    Raises:
        DecodeError: another entry has the key that such a name would be.
    """
    found = Counter(tensor.name for tensor in tensors)
    if len(found) == len(tensors):
        return tensors, NO_KEYS
    named: dict[str, Tensor] = {}
    keys: dict[str, str] = {}
    for tensor in tensors:
        key = tensor.name
        name = f"{map_of(tensor)}.{key}" if found[key] > 1 else key
        if name in named:
            raise DecodeError(
                f"gmap: {name!r} is a key, and what a key that stands in two maps is called in {map_of(tensor)}"
            )
        named[name] = tensor if name == key else replace(tensor, name=name)
        if name != key:
            keys[name] = key
    return tuple(named.values()), keys


def map_of(tensor: Tensor) -> str:
    """The map in which an entry stands."""
    if tensor.datatype is Datatype.BYTES:
        return "s_s" if tensor.content_type == TEXT else "s_b"
    return _MAPS[tensor.datatype]
