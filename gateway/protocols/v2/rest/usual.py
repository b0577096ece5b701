"""Inference documents as most clients and servers write them, in a quarter of the steps that others take.

    {"id": "1", "inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP64", "data": [1.5, 2.5]}]}

Usual are small documents whose tensors hold numbers, flat in `data` or binary behind the document. There is a result
only if it is certain to be the one of `tensors`; all else is left to that, faults above all.
"""

from math import isfinite
from struct import error as StructError  # noqa: N812
from struct import pack, unpack
from typing import Any

import numpy as np
import orjson

from gateway import json
from gateway.core.casting import cast
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError
from gateway.core.types import MAX_RANK, Buffer, Tensor
from gateway.protocols.v2.rest.binary import BinaryTensors
from gateway.protocols.v2.rest.json_bodies import JsonObject

_LARGEST = 8192
"""Bytes of a document up to which Python's numbers cost less than reading its text in bulk."""
_LARGE = 2.0**63
"""orjson turns integers beyond 64 bits into floats; a float of this size may be one."""

_INTEGERS = {
    Datatype.INT8: "b", Datatype.INT16: "h", Datatype.INT32: "i", Datatype.INT64: "q",
    Datatype.UINT8: "B", Datatype.UINT16: "H", Datatype.UINT32: "I", Datatype.UINT64: "Q",
}  # fmt: skip
_FLOATS = {Datatype.FP32: "f", Datatype.FP64: "d"}
# The letters are those of `struct`. It rounds floats to nearest and refuses what is out of range, as `casting` does.
NUMBERS = {each.value: (each, letter, each in _FLOATS, each.size) for each, letter in (_INTEGERS | _FLOATS).items()}
"""By the name of a datatype of numbers: itself, what `packed` needs to know of it, and the bytes of an element."""

WRITTEN = {each: (letter, size) for each, letter, _, size in NUMBERS.values()}
"""By a datatype of numbers: the letter of `struct`, and the bytes of an element."""
_FEW = 32
"""The number of elements up to which Python's numbers cost less than numpy's."""

_INT, _FLOAT, _BOTH = {int}, {float}, {int, float}


def read_usual(
    text: bytes, role: str, binary: BinaryTensors, values: int, limit: int
) -> tuple[JsonObject, tuple[Tensor, ...]] | None:
    """The document in `text` and its tensors, as `read_inference` and `read_tensors` of `tensors` return them, but
    with the tensors' `data` still in the document. None if it is not usual; then nothing is taken from `binary`."""
    if len(text) > _LARGEST or b"\\" in text:
        return None
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if type(document) is not dict:
        return None
    entries = document.get(role)
    if type(entries) is not list:
        return None
    tensors = []
    members, items, taken = len(document), len(entries), 0
    for entry in entries:
        if type(entry) is not dict or len(entry) != 4:
            return None
        name, shape, given, data = entry.get("name"), entry.get("shape"), entry.get("datatype"), entry.get("data")
        if type(name) is not str or type(shape) is not list or type(given) is not str or given not in NUMBERS:
            return None
        datatype, letter, is_float, size = NUMBERS[given]
        count = 1
        for dimension in shape:
            if type(dimension) is not int or dimension < 1:
                return None
            count *= dimension
        if count * size > limit or len(shape) > MAX_RANK:
            return None
        members += 4
        items += len(shape)
        if data is None:
            parameters = entry.get("parameters")
            if type(parameters) is not dict or len(parameters) != 1:
                return None
            announced = parameters.get("binary_data_size")
            if type(announced) is not int or announced != count * size:
                return None
            members += 1
            taken += count * size
            raw: bytes | int | None = announced
        else:
            raw = packed(data, count, letter, is_float)
            if raw is None:
                return None
        tensors.append((name, datatype, tuple(shape), raw))
    if not tensors or taken != binary.left or (len(tensors) > 1 and len({each[0] for each in tensors}) < len(tensors)):
        return None
    for key, item in document.items():
        if key != role and type(item) in _CONTAINERS:
            more = _members(item, 1)
            if more is None:
                return None
            members += more
    # orjson keeps the last of duplicate keys; the number of colons shows that there may be one. Each brace may be that
    # of an item of a list that is not counted here.
    if members != text.count(b":") or 1 + members + items + text.count(b"{") > values:
        return None
    return document, tuple(
        [
            Tensor(name, datatype, shape, raw if type(raw) is bytes else binary.take(raw, name))
            for name, datatype, shape, raw in tensors
        ]
    )


def packed(data: Any, count: int, letter: str, is_float: bool) -> bytes | None:
    """A flat list of numbers in raw form; None if it is anything else, or if `casting` decides what it becomes."""
    if type(data) is not list or len(data) != count:
        return None
    kinds = set(map(type, data))
    if is_float:
        if kinds != _FLOAT and kinds != _BOTH:
            return None
        if not (min(data) > -_LARGE and max(data) < _LARGE):
            return None
    elif kinds != _INT:
        return None
    try:
        return pack(f"<{count}{letter}", *data)
    except (StructError, OverflowError):
        return None


def packed_in_bulk(body: Buffer, start: int, end: int, count: int, datatype: Datatype) -> Buffer | None:
    """The flat list of numbers `body[start:end]` in raw form, as `packed` returns it for the list that orjson makes
    of it, without Python's numbers: faster for 100 numbers and more. None if `casting` or `packed` may refuse it."""
    if 2 * count >= end - start:  # each takes a digit, and a comma or the closing bracket
        return None
    raw, at = np.empty(count, datatype.dtype), 0
    try:
        for numbers in json.flat_pieces(body, start, end, datatype.dtype.kind):
            to = at + len(numbers)
            if to > count:
                return None
            raw[at:to] = cast(numbers, datatype, "")
            at = to
    except DecodeError:
        return None
    return raw.view(np.uint8).data if at == count else None


_CONTAINERS = frozenset({dict, list})


def _members(item: Any, level: int) -> int | None:
    """The members of the objects in `item`: parameters, or a list of requested outputs with theirs. None if it is
    nested deeper, or has a member `data`, or numbers that orjson may not have read exactly."""
    found = 0
    if type(item) is list:
        for each in item:
            more = _members(each, 2) if level == 1 and type(each) is dict else None
            if more is None:
                return None
            found += more
        return found
    if "data" in item:
        return None
    for each in item.values():
        kind = type(each)
        if kind is dict and level == 2:
            more = _members(each, 3)
            if more is None:
                return None
            found += more
        elif kind in _CONTAINERS or (kind is float and not -_LARGE < each < _LARGE):
            return None
    return found + len(item)


def few_numbers(tensor: Tensor) -> list[int] | list[float] | None:
    """The elements of a tensor of few finite numbers, to be placed in a JSON document; None for any other."""
    if tensor.datatype not in WRITTEN:
        return None
    letter, size = WRITTEN[tensor.datatype]
    count = len(tensor.data) // size
    if count > _FEW:
        return None
    found = list(unpack(f"<{count}{letter}", tensor.data))
    return found if isfinite(sum(found)) else None
