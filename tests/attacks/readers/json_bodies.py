"""JSON that makes many values of few bytes, put in each place of a message that is right."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import count, islice, product
from string import ascii_lowercase, digits
from typing import Any

DEPTH = 60
"""Levels of lists within each other; a message has some of its own, and 64 are allowed."""
_LETTERS = ascii_lowercase + digits
_MARK = "here"
_LEVELS = 4


def repeated(item: bytes, size: int) -> bytes:
    """A list of as many of `item` as `size` bytes hold."""
    return b"[" + (item + b",") * max(0, size // (len(item) + 1) - 1) + item + b"]"


def _names(size: int) -> bytes:
    """An object whose members have the shortest names that differ."""
    short = ("".join(letters) for length in count(1) for letters in product(_LETTERS, repeat=length))
    members, taken = [], 0
    for name in short:
        members.append(b'"%b":1' % name.encode())
        taken += len(members[-1]) + 1
        if taken > size:
            return b"{" + b",".join(members) + b"}"
    raise AssertionError("names have no end")


CONTENTS: dict[str, Callable[[int], bytes]] = {
    "empty objects": lambda size: repeated(b"{}", size),
    "empty lists": lambda size: repeated(b"[]", size),
    "empty texts": lambda size: repeated(b'""', size),
    "digits": lambda size: repeated(b"1", size),
    "rows of a digit": lambda size: repeated(b"[1]", size),
    "objects of a member": lambda size: repeated(b'{"a":1}', size),
    "true": lambda size: repeated(b"true", size),
    "deep lists": lambda size: repeated(b"[" * DEPTH + b"]" * DEPTH, size),
    "names": _names,
    "escapes": lambda size: b'"' + b"\\n" * (size // 2) + b'"',
}


def bodies(valid: bytes) -> Iterator[tuple[str, Callable[[int], bytes]]]:
    """By what they have where, functions that make them of a size. They are `valid` but for one place."""
    document = json.loads(valid)
    for place, marked in _places(document, 0):
        before, _, after = json.dumps(marked, separators=(",", ":")).encode().partition(b'"%b"' % _MARK.encode())
        for name, content in CONTENTS.items():
            yield f"{name} {place}", lambda size, content=content, ends=(before, after): content(size).join(ends)  # type: ignore[misc]
    for path, item in _items(document):
        text = json.dumps(item, separators=(",", ":")).encode()
        marked = _with(document, path, _MARK)
        before, _, after = json.dumps(marked, separators=(",", ":")).encode().partition(b'"%b"' % _MARK.encode())
        yield (
            f"its own {path[-1] if path else 'elements'}",
            lambda size, text=text, ends=(before, after): repeated(text, size).join(ends),  # type: ignore[misc]
        )


def _places(node: Any, level: int) -> Iterator[tuple[str, Any]]:
    """The document `node` with a mark in each of its places, and where that is."""
    yield "alone" if level == 0 else "", _MARK
    if level == _LEVELS:
        return
    if isinstance(node, dict):
        for key, each in node.items():
            for where, marked in _places(each, level + 1):
                yield where or f"at {key}", {**node, key: marked}
    elif isinstance(node, list) and node:
        for where, marked in _places(node[0], level + 1):
            yield where or "in a list", [marked, *node[1:]]


def _items(node: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """The path of each list, and its first element."""
    if isinstance(node, list) and node:
        yield path, node[0]
        yield from _items(node[0], (*path, 0))
    elif isinstance(node, dict):
        for key, each in islice(node.items(), 8):
            yield from _items(each, (*path, key))


def _with(node: Any, path: tuple[str | int, ...], value: Any) -> Any:
    if not path:
        return value
    first, rest = path[0], path[1:]
    if isinstance(node, dict):
        return {**node, first: _with(node[first], rest, value)}
    return [_with(node[0], rest, value), *node[1:]]
