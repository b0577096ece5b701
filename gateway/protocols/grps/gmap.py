"""Converts entries of `gmap`, which consists of six maps from a string key to a value, to and from tensors. Each entry
becomes a tensor `[1]` whose name is the key.

To read entries, the JSON and protobuf codecs call `entry` and `with_distinct_names`. To write entries, they call `fit`
for each tensor, and then `entries`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from gateway.core import bytes_elements
from gateway.core.datatypes import Datatype, sent_as
from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen, replace
from gateway.core.tensors import Tensor
from gateway.protocols.grps.strings import is_utf8

MAPS: dict[str, Datatype] = {
    "s_s": Datatype.BYTES,
    "s_b": Datatype.BYTES,
    "s_i32": Datatype.INT32,
    "s_i64": Datatype.INT64,
    "s_f": Datatype.FP32,
    "s_d": Datatype.FP64,
}
"""The datatype of each map's values. The maps are in the order of their field numbers, which start at 1."""

TEXT = "text"
"""The content type of strings. It distinguishes BYTES of `s_s` from BYTES of `s_b`."""

BYTES_MAP = "s_b"


@frozen
class GmapPlace:
    """The map and the key of an entry."""

    map: str
    key: str


GmapKeys: TypeAlias = Mapping[str, GmapPlace]
"""The map and key of a tensor, by tensor name. The gateway keeps them for tensors whose name is not their key (see
`with_distinct_names`). It also keeps them for tensors of `s_b`, because a model with another protocol does not
distinguish bytes from text."""
NO_KEYS: GmapKeys = MappingProxyType({})

_NUMBER_MAPS = {datatype: name for name, datatype in MAPS.items() if datatype is not Datatype.BYTES}


def entry(map_name: str, key: str, value: object) -> Tensor:
    """Return a map entry as a tensor.

    The codec has already checked that `value` has the map's type and is in its range."""
    datatype = MAPS[map_name]
    if datatype is not Datatype.BYTES:
        return Tensor(key, datatype, (1,), np.array([value], datatype.dtype).tobytes())
    raw = value.encode() if isinstance(value, str) else value
    assert isinstance(raw, bytes)
    return Tensor(key, datatype, (1,), bytes_elements.pack([raw]), TEXT if map_name == "s_s" else "")


def map_of(tensor: Tensor) -> str:
    """Return the name of the map that an entry belongs to."""
    if tensor.datatype is Datatype.BYTES:
        return "s_s" if tensor.content_type == TEXT else "s_b"
    return _NUMBER_MAPS[tensor.datatype]


def fit(tensor: Tensor, keys: GmapKeys = NO_KEYS, *, from_gmap: bool = False) -> Tensor | None:
    """Return `tensor` as an entry, widened to a datatype that has a map.

    Return None if `tensor` has no name or does not have exactly one element.

    The entry's key is the tensor's name, unless `keys` maps this name to a different key. BYTES go to `s_s` if they are
    UTF-8, or else to `s_b`. BYTES that came from `s_b` return to `s_b` even if they are UTF-8. If `from_gmap` is True,
    the tensor comes from a client's gmap, in which BYTES without a content type are from `s_b`. Otherwise, the model's
    protocol might have lost the distinction between text and bytes, so `keys` determines whether the tensor came from
    `s_b`."""
    if tensor.elements != 1 or not tensor.name:
        return None
    place = keys.get(tensor.name)
    if place is not None:
        tensor = replace(tensor, name=place.key)
    if tensor.datatype is Datatype.BYTES:
        were_bytes = not tensor.content_type if from_gmap else place is not None and place.map == BYTES_MAP
        is_string = not were_bytes and is_utf8(tensor)
        return replace(tensor, shape=(1,), content_type=TEXT if is_string else "")
    wide = sent_as(tensor.datatype, _NUMBER_MAPS) or tensor.datatype
    if wide is tensor.datatype:
        return replace(tensor, shape=(1,))
    return Tensor(tensor.name, wide, (1,), tensor.array.astype(wide.dtype).tobytes())


def entries(tensors: Iterable[Tensor]) -> Iterator[tuple[str, str, Any]]:
    """Yield the map, key and value (int, float, str or bytes) of each tensor. The tensors come from `fit`."""
    for tensor in tensors:
        [value] = tensor.array.reshape(-1).tolist()
        name = map_of(tensor)
        yield name, tensor.name, value.decode() if name == "s_s" else value


def with_distinct_names(tensors: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], GmapKeys]:
    """Return a message's entries with distinct names, and the map and key of each entry that was renamed or is in
    `s_b`.

    A key is unique only within its map. If several maps contain the same key (grps' own samples use `key` in all six),
    their entries are named `MAP.KEY`.

    Raises:
        DecodeError: another entry already has this name as its key.
    """
    uses = Counter(tensor.name for tensor in tensors)
    distinct: dict[str, Tensor] = {}
    keys: dict[str, GmapPlace] = {}
    for tensor in tensors:
        place = GmapPlace(map_of(tensor), tensor.name)
        name = f"{place.map}.{place.key}" if uses[place.key] > 1 else place.key
        if name in distinct:
            raise DecodeError(
                f"gmap: two tensors would have the name {name!r}: a key, and a key of several maps with its map; "
                "rename one"
            )
        distinct[name] = tensor if name == place.key else replace(tensor, name=name)
        if name != place.key or place.map == BYTES_MAP:
            keys[name] = place
    return tuple(distinct.values()), keys
