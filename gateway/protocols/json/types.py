"""Converts templates to types. The nodes of a template become types with which msgspec decodes a body in one pass.
`reading` and `relay` use these types.

    {"instances": [{"sepal": "$a"}, "..."]}  ──▶  class Body: instances: list[Row];  class Row: sepal: Raw

Tensors, parameters and `$_` have the type `Raw`, which keeps the text unchanged. A Leaf returns one value of the
decoded body. Within rows, it returns a list of values, nested like the rows.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gateway.core.frozen import frozen
from gateway.protocols.json.templates import (
    Anything,
    Constant,
    Every,
    EverySpelling,
    FixedList,
    Member,
    Node,
    Object,
    ParameterPlace,
    ParametersPlace,
    RowList,
    Slot,
    Word,
    rows_of_tensor,
)

Get: TypeAlias = Callable[[Any], Any]
"""A function that returns one value of a decoded body, or UNSET if the value is missing."""

EVERY_MEMBER = Every(EverySpelling.MEMBERS)
"""The members of an object that are tensors (`"$*": $*`)."""


@frozen
class Leaf:
    """One value in a body. `rows` is the number of row lists around the value."""

    node: Node
    get: Get
    rows: int


@frozen
class BodyType:
    """The type of a body, with its decoder, its leaves, and a function that counts the members of a decoded value."""

    decode: Callable[[bytes], Any] | None
    """None if the body is one tensor, because the text of the body is the value."""
    leaves: tuple[Leaf, ...]
    members: Callable[[Any], int]


def body_type(node: Node, *, ignore_unknown: bool) -> BodyType:
    """Return the type of a body with this template.

    If `ignore_unknown` is True, the type ignores members that are not in the template."""
    compiled = _Compiler(ignore_unknown).compile(node, 0)
    decode = None if compiled.kind is Raw else msgspec.json.Decoder(compiled.kind).decode
    members = compiled.members
    return BodyType(decode, compiled.leaves, members if callable(members) else lambda value: members)


@frozen
class _Compiled:
    """The type of a node, its leaves, and a function that counts the members in a value of that type."""

    kind: Any
    leaves: tuple[Leaf, ...] = ()
    members: int | Callable[[Any], int] = 0


class _Compiler:
    def __init__(self, ignore_unknown: bool) -> None:
        self._ignore_unknown = ignore_unknown

    def compile(self, node: Node, rows: int) -> _Compiled:
        match node:
            case Object(every=True):
                return self._open_object(node, rows)
            case Object(members):
                return self._object(members, rows)
            case RowList(row):
                whole = rows_of_tensor(node)
                if whole is not None:
                    return _Compiled(Raw, (Leaf(whole[0], _itself, rows + whole[1]),))
                return self._rows(row, rows)
            case FixedList(nodes):
                return self._elements(nodes, rows)
            case ParametersPlace():
                return _Compiled(dict[str, Raw], (Leaf(node, _itself, rows),), len)
            case Constant(value):
                return _constant(node, value, Leaf(node, _itself, rows))
            case Slot(word):
                return _Compiled(_WORD_TYPES.get(word, Raw), (Leaf(node, _itself, rows),))
        return _Compiled(Raw, (Leaf(node, _itself, rows),))

    def _object(self, members: tuple[Member, ...], rows: int) -> _Compiled:
        fields: list[Any] = []
        leaves: list[Leaf] = []
        names: dict[str, str] = {}
        counts: list[tuple[str, bool, int | Callable[[Any], int]]] = []
        for at, member in enumerate(members):
            name = f"f{at}"
            names[name] = member.key
            inner = self.compile(member.node, rows)
            kind = _kind(member, inner)
            fields.append((name, kind | UnsetType, UNSET) if member.optional else (name, kind))
            leaves += [_within(each, _member(name, member.optional, each.get)) for each in inner.leaves]
            counts.append((name, member.optional, inner.members))
        struct = msgspec.defstruct(
            "Body", fields, rename=names, kw_only=True, gc=False, forbid_unknown_fields=not self._ignore_unknown
        )
        return _Compiled(struct, tuple(leaves), _count(counts))

    def _open_object(self, node: Object, rows: int) -> _Compiled:
        known = frozenset(each.key for each in node.members)
        leaves = [Leaf(EVERY_MEMBER, _others(known), rows)]
        counts: list[Callable[[Any], int]] = []
        for member in node.members:
            inner = self.compile(member.node, rows)
            get = _decoded_member(member, msgspec.json.Decoder(_kind(member, inner)).decode)
            leaves += [_within(each, _chained(get, each.get)) for each in inner.leaves]
            counts.append(_counted(get, inner.members))
        return _Compiled(
            dict[str, Raw], tuple(leaves), lambda value: len(value) + sum(count(value) for count in counts)
        )

    def _rows(self, row: Node, rows: int) -> _Compiled:
        inner = self.compile(row, rows + 1)
        leaves = tuple(_within(each, _each(each.get)) for each in inner.leaves)
        members = inner.members
        if callable(members):
            return _Compiled(list[inner.kind], leaves, lambda value: sum(map(members, value)))  # type: ignore[name-defined]
        return _Compiled(list[inner.kind], leaves, lambda value: members * len(value))  # type: ignore[name-defined]

    def _elements(self, nodes: tuple[Node, ...], rows: int) -> _Compiled:
        inner = [self.compile(each, rows) for each in nodes]
        leaves = tuple(_within(leaf, _element(at, leaf.get)) for at, each in enumerate(inner) for leaf in each.leaves)
        kinds = tuple(each.kind for each in inner)
        counts = [_counted(_element(at, _itself), each.members) for at, each in enumerate(inner) if each.members]
        kind: Any = tuple[kinds] if kinds else tuple[()]  # type: ignore[valid-type]
        return _Compiled(kind, leaves, (lambda value: sum(count(value) for count in counts)) if counts else 0)


def _kind(member: Member, compiled: _Compiled) -> Any:
    """Return the type of a member's values. For an optional member without tensors, null means that the member is
    missing, because many clients and servers write missing members as null."""
    nullable = member.optional and compiled.kind not in (None, Raw) and _has_no_tensor(member.node)
    return compiled.kind | None if nullable else compiled.kind


def _has_no_tensor(node: Node) -> bool:
    if isinstance(node, Object):
        return not node.every and all(_has_no_tensor(each.node) for each in node.members)
    return isinstance(node, Slot | ParameterPlace | ParametersPlace | Constant | Anything)


def _constant(node: Constant, value: object, leaf: Leaf) -> _Compiled:
    """Return the type of a constant. msgspec itself compares strings, integers and null; the reader compares other
    constants later."""
    if type(value) in (str, int):
        return _Compiled(Literal[value])
    return _Compiled(None) if value is None else _Compiled(type(value), (leaf,))


_WORD_TYPES: dict[Word, Any] = {
    Word.ID: str,
    Word.MODEL: str,
    Word.VERSION: str,
    Word.INDEX: int,
    Word.GRPC_CODE: str,
}
"""The types of words. Messages and codes can be any JSON, because servers differ."""


def _itself(value: Any) -> Any:
    return value


def _within(leaf: Leaf, get: Get) -> Leaf:
    return Leaf(leaf.node, get, leaf.rows)


def _member(name: str, optional: bool, inner: Get) -> Get:
    own = attrgetter(name)
    if inner is _itself:
        return own
    return _chained(own, inner) if optional else lambda value: inner(own(value))


def _chained(outer: Get, inner: Get) -> Get:
    def get(value: Any) -> Any:
        found = outer(value)
        return found if found is UNSET or found is None else inner(found)

    return get


def _each(inner: Get) -> Get:
    if inner is _itself:
        return _itself
    return lambda rows: [inner(row) for row in rows]


def _element(at: int, inner: Get) -> Get:
    return lambda value: inner(value[at])


def _others(known: frozenset[str]) -> Get:
    if not known:
        return _itself
    return lambda value: {name: each for name, each in value.items() if name not in known}


_PATH = " - at `$"
"""The text before the path in a msgspec error message."""


def _decoded_member(member: Member, decode: Callable[[bytes], Any]) -> Get:
    """Return a function that decodes one member of an object with any members. It raises the errors of msgspec."""

    def get(value: dict[str, Raw]) -> Any:
        if member.key in value:
            try:
                return decode(value[member.key])
            except msgspec.ValidationError as error:
                why, _, path = str(error).partition(_PATH)
                raise msgspec.ValidationError(f"{why}{_PATH}.{member.key}{path or '`'}") from error
        if member.optional:
            return UNSET
        raise msgspec.ValidationError(f"Object missing required field `{member.key}`")

    return get


def _count(counts: list[tuple[str, bool, int | Callable[[Any], int]]]) -> int | Callable[[Any], int]:
    """Return the number of members in an object with these fields, counting the fields themselves."""
    fixed = sum(1 + inner for _, optional, inner in counts if not optional and not callable(inner))
    further = [(attrgetter(name), inner) for name, optional, inner in counts if optional or callable(inner)]
    if not further:
        return fixed

    def count(value: Any) -> int:
        total = fixed
        for get, inner in further:
            found = get(value)
            if found is not UNSET:
                total += 1
                if found is not None:
                    total += inner(found) if callable(inner) else inner
        return total

    return count


def _counted(get: Get, members: int | Callable[[Any], int]) -> Callable[[Any], int]:
    def count(value: Any) -> int:
        found = get(value)
        if found is UNSET or found is None:
            return 0
        return members(found) if callable(members) else members

    return count
