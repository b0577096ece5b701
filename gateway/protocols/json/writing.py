"""Writes bodies by their templates. Every node becomes a writer, which returns the pieces of the node's JSON text."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isfinite, prod
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct

from gateway.core import json
from gateway.core.errors import GatewayError, invalid_input
from gateway.core.frozen import field, frozen
from gateway.core.models import TensorSpec
from gateway.core.tensors import Parameters, Shape, Tensor
from gateway.protocols.json.arrangement import Arrangement
from gateway.protocols.json.templates import (
    MISSING,
    Anything,
    Constant,
    Every,
    EverySpelling,
    FixedList,
    Node,
    Object,
    ParameterPlace,
    ParametersPlace,
    RowList,
    Slot,
    Spelling,
    TensorPlace,
    Word,
    rows_of_tensor,
    walk,
)
from gateway.protocols.json.tensor_form import TensorForm
from gateway.protocols.json.tensor_writing import ElementStyle, write_rows, write_tensor

_JOINED = 64 * 2**10
"""Maximum size of a body whose pieces are joined, in bytes.

Up to this size, copying costs less than handling several parts."""


class MessageContents(ElementStyle, frozen=True):
    """The contents of a message, except its path.

    `elsewhere` are the parameters that have a placeholder outside of the body. `texts` are the original JSON texts of
    parameters that are lists or objects. `alternative` is the index of the template's alternative to try first."""

    tensors: tuple[Tensor, ...] = ()
    words: Mapping[Word, json.Json] = field(default_factory=dict)
    parameters: Parameters = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()
    alternative: int = 0


NO_WORDS: Mapping[Word, json.Json] = MappingProxyType({})
NO_TEXTS: Mapping[str, str] = MappingProxyType({})


class PlacedContents(Struct, frozen=True):
    """The contents of a body to write.

    `tensors` are the tensors by the names of their placeholders, or by their own names if the template contains
    `$*`."""

    tensors: Mapping[str, Tensor]
    said: MessageContents


Pieces: TypeAlias = Sequence[bytes] | None
"""The text of a value in pieces, or None if the template does not write the value."""


@frozen
class _Writer:
    """Two functions that write one node. `whole` writes the node once, and `rows` writes it once for each index of the
    rows around it.

    The Shape contains the numbers of rows."""

    whole: Callable[[PlacedContents], Pieces]
    rows: Callable[[PlacedContents, Shape], list[bytes] | None]


class BodyWriter:
    """Writes the bodies of one template. `role` is the word for the tensors in error messages, `input` or `output`."""

    def __init__(self, node: Node, specs: Mapping[str, TensorSpec], role: str) -> None:
        self.arrangement = Arrangement(node, role, declared=bool(specs))
        self._role = role
        own = frozenset(each.name for each in walk(node) if isinstance(each, ParameterPlace))
        places = [each for each in walk(node) if isinstance(each, TensorPlace)]
        shapes = frozenset(each.name for each in places if each.spelling is Spelling.SHAPE)
        self._write = _Compiler(specs, role, own, shapes).compile(node, 0).whole
        self._parameters = own
        self._has_parameters = any(isinstance(each, ParametersPlace) for each in walk(node))

    def check_parameters(self, parameters: Parameters, elsewhere: frozenset[str]) -> None:
        """Raise GatewayError (INVALID_ARGUMENT) if a parameter has no placeholder in the template and is not in
        `elsewhere`."""
        if self._has_parameters:
            return
        for name in parameters:
            if name not in self._parameters and name not in elsewhere:
                raise invalid_input(f"parameter {name!r} has no place in the form; leave it out")

    def write(self, placed: Mapping[str, Tensor], said: MessageContents) -> tuple[bytes, ...]:
        """Return the body that contains the values in `said`, in parts.

        `placed` are the tensors, as `arrangement` has assigned them.

        Raises:
            GatewayError: INVALID_ARGUMENT if a part is missing, or the template cannot represent it. The message says
                which part.
        """
        pieces = self._write(PlacedContents(placed, said))
        if pieces is None:
            raise invalid_input(f"the {self._role} to write is missing")
        return (b"".join(pieces),) if sum(map(len, pieces)) <= _JOINED else tuple(pieces)


class _Compiler:
    """Creates the writers of a template's nodes.

    `own` are the parameters that have their own placeholder in the template. `shapes` are the tensors whose shape has a
    placeholder."""

    def __init__(self, specs: Mapping[str, TensorSpec], role: str, own: frozenset[str], shapes: frozenset[str]) -> None:
        self._specs = specs
        self._shapes = shapes
        self._role = role
        self._own = own

    def compile(self, node: Node, rows: int) -> _Writer:
        """Return the writer of a node that is nested in `rows` row lists."""
        match node:
            case Constant(value):
                return _constant(json.write(value))
            case Anything(written):
                return _NOTHING if written is MISSING else _constant(json.write(written))
            case Slot(Word.INDEX):
                return _Writer(lambda contents: None, _index_rows)
            case Slot(word):
                return _outside_of_rows(partial(_word, word))
            case ParameterPlace(name):
                return _outside_of_rows(partial(_parameter, name))
            case ParametersPlace():
                return _outside_of_rows(partial(_parameters, self._own))
            case TensorPlace():
                return self._tensor(node, rows)
            case Every(EverySpelling.NAMES):
                return _outside_of_rows(_names)
            case Every():
                return _outside_of_rows(partial(_table, self._role))
            case Object():
                return self._object(node, rows)
            case RowList(row):
                return self._rows(row, rows)
            case FixedList(nodes):
                elements = [self.compile(each, rows) for each in nodes]
                return _Writer(partial(_elements, elements), partial(_elements_rows, elements))
        raise TypeError(node)

    def _tensor(self, place: TensorPlace, rows: int) -> _Writer:
        label, has_shape = f"{self._role} {place.name!r}", place.name in self._shapes
        form = TensorForm(place, place.name, label, self._specs.get(place.name), rows, has_shape)
        return _Writer(partial(_tensor, form), partial(_tensor_rows, form))

    def _object(self, node: Object, rows: int) -> _Writer:
        members = []
        for each in node.members:
            content = _Content.below(each.node)
            if each.optional and not content.is_any:
                continue  # optional constants and `$_` have no content
            is_there = content.is_there if each.optional and isinstance(each.node, _CONTAINERS) else None
            writer = self.compile(each.node, rows)
            members.append(_Member(each.key, json.write(each.key) + b":", writer, each.optional, is_there))
        every = partial(_every_rows, self._role) if node.every else None
        return _Writer(partial(_object, members, every), partial(_object_rows, members, every))

    def _rows(self, row: Node, rows: int) -> _Writer:
        whole = rows_of_tensor(row)
        if whole is not None:
            return self._tensor(whole[0], rows + 1 + whole[1])
        inner = self.compile(row, rows + 1)
        has_every = any(isinstance(each, Object) and each.every for each in walk(row))
        names = None if has_every else tuple(each.name for each in walk(row) if isinstance(each, TensorPlace))
        count = partial(_count if names is not None else _count_of_all, names, self._role)
        return _Writer(partial(_list_of_rows, inner, count), partial(_rows_of_rows, inner, count))


@frozen
class _Member:
    key: str
    text: bytes
    """The key in JSON, with its colon."""
    writer: _Writer
    optional: bool
    is_there: Callable[[PlacedContents], bool] | None
    """A function that returns True if the message contains a value for the list or the object, or None for a member
    that is always written."""


_CONTAINERS = Object | RowList | FixedList


@frozen
class _Content:
    """The placeholders below a node. If none of them has a value, the gateway does not write an optional member."""

    tensors: frozenset[str]
    words: frozenset[Word]
    parameters: frozenset[str]
    every_parameter: bool
    every_tensor: bool

    @classmethod
    def below(cls, node: Node) -> "_Content":
        """Return the placeholders in `node`."""
        nodes = list(walk(node))
        return cls(
            frozenset(each.name for each in nodes if isinstance(each, TensorPlace)),
            frozenset(each.word for each in nodes if isinstance(each, Slot)),
            frozenset(each.name for each in nodes if isinstance(each, ParameterPlace)),
            any(isinstance(each, ParametersPlace) for each in nodes),
            any(isinstance(each, Every) or (isinstance(each, Object) and each.every) for each in nodes),
        )

    @property
    def is_any(self) -> bool:
        """Return True if the node contains a placeholder."""
        return bool(self.tensors or self.words or self.parameters or self.every_parameter or self.every_tensor)

    def is_there(self, contents: PlacedContents) -> bool:
        """Return True if the message contains a value for one of the placeholders."""
        said = contents.said
        return (
            any(name in contents.tensors for name in self.tensors)
            or (self.every_tensor and bool(contents.tensors))
            or any(said.words.get(word) is not None for word in self.words)
            or any(name in said.parameters for name in self.parameters)
            or (self.every_parameter and bool(said.parameters))
        )


# --- everything except tensors ---


def _constant(text: bytes) -> _Writer:
    return _Writer(lambda contents: (text,), lambda contents, lead: [text] * prod(lead))


def _outside_of_rows(whole: Callable[[PlacedContents], Pieces]) -> _Writer:
    """Return a writer for a value that templates cannot have in rows."""
    return _Writer(whole, lambda contents, lead: None)


_NOTHING = _Writer(lambda contents: None, lambda contents, lead: None)


def _index_rows(contents: PlacedContents, lead: Shape) -> list[bytes] | None:
    return [b"%d" % at for at in range(lead[-1])] * prod(lead[:-1])


def _word(word: Word, contents: PlacedContents) -> Pieces:
    value = contents.said.words.get(word)
    return None if value is None else (json.write(value),)


def _parameter(name: str, contents: PlacedContents) -> Pieces:
    if name not in contents.said.parameters:
        return None
    value = contents.said.parameters[name]
    if isinstance(value, float) and not isfinite(value):
        raise invalid_input(f"parameter {name!r} is {value}, for which JSON has no number; send a finite one")
    if isinstance(value, str) and contents.said.texts.get(name) == value:
        return (value.encode(),)
    return (json.write(value),)


def _parameters(own: frozenset[str], contents: PlacedContents) -> Pieces:
    """Return the object of all parameters, except `own` and the parameters with a placeholder outside of the body."""
    said = contents.said
    names = [name for name in said.parameters if name not in own and name not in said.elsewhere]
    if not names:
        return None
    members = []
    for name in names:
        (text,) = _parameter(name, contents) or (b"",)
        members.append(b"%b:%b" % (json.write(name), text))
    return (b"{%b}" % b",".join(members),)


# --- tensors ---


def _tensor(form: TensorForm, contents: PlacedContents) -> Pieces:
    tensor = contents.tensors.get(form.place.name)
    return None if tensor is None else write_tensor(form, tensor, contents.said)


def _tensor_rows(form: TensorForm, contents: PlacedContents, lead: Shape) -> list[bytes] | None:
    tensor = contents.tensors.get(form.place.name)
    return None if tensor is None else write_rows(form, tensor, lead, contents.said)


def _names(contents: PlacedContents) -> Pieces:
    return (json.write(list(contents.tensors)),)


def _table(role: str, contents: PlacedContents) -> Pieces:
    """Write a RowList of cells, in which each row contains one element of each tensor."""
    tensors = contents.tensors
    if not tensors:
        raise invalid_input(f"expected at least one {role} for the columns of the table")
    count = _count(None, role, contents, ())
    columns = []
    for name, tensor in tensors.items():
        if tensor.elements != count or len(tensor.shape) > 2:
            raise invalid_input(
                f"{role} {name!r} has the shape {list(tensor.shape)}, but a column has one element a row"
            )
        place = TensorPlace(name, Spelling.SCALAR)
        columns.append(
            write_rows(TensorForm(place, name, f"{role} {name!r}", None, 1), tensor, (count,), contents.said)
        )
    return (b"[%b]" % b",".join([b"[%b]" % b",".join(row) for row in zip(*columns, strict=True)]),)


def _every_form(name: str, role: str) -> TensorForm:
    return TensorForm(TensorPlace(name), name, f"{role} {name!r}", None, 0)


_Every: TypeAlias = Callable[[PlacedContents, Shape | None], list[tuple[bytes, list[bytes]]]]


def _every_rows(role: str, contents: PlacedContents, lead: Shape | None) -> list[tuple[bytes, list[bytes]]]:
    """Return the key and the texts of each tensor. The texts are the pieces of one text, or one text for each row."""
    found = []
    for name, tensor in contents.tensors.items():
        form = _every_form(name, role)
        if lead is None:
            texts = list(write_tensor(form, tensor, contents.said))
        else:
            texts = write_rows(form, tensor, lead, contents.said)
        found.append((json.write(name) + b":", texts))
    return found


# --- objects and lists ---


def _object(members: Sequence[_Member], every: _Every | None, contents: PlacedContents) -> Pieces:
    pieces: list[bytes] = []
    before = b"{"
    for member in members:
        if member.is_there is not None and not member.is_there(contents):
            continue
        inner = member.writer.whole(contents)
        if inner is not None:
            pieces += (before + member.text, *inner)
            before = b","
        elif not member.optional:
            raise _nothing_for(member)
    for key, texts in every(contents, None) if every else ():
        _check_key(key, members)
        pieces += (before + key, *texts)
        before = b","
    pieces.append(b"}" if pieces else b"{}")
    return pieces


def _object_rows(
    members: Sequence[_Member], every: _Every | None, contents: PlacedContents, lead: Shape
) -> list[bytes] | None:
    columns: list[tuple[bytes, list[bytes]]] = []
    for member in members:
        if member.is_there is not None and not member.is_there(contents):
            continue
        texts = member.writer.rows(contents, lead)
        if texts is not None:
            columns.append((member.text, texts))
        elif not member.optional:
            raise _nothing_for(member)
    for key, texts in every(contents, lead) if every else ():
        _check_key(key, members)
        columns.append((key, texts))
    if not columns:
        return [b"{}"] * prod(lead)
    # one format string for all rows, because keys are constants
    row = b"{%b}" % b",".join([key.replace(b"%", b"%%") + b"%b" for key, _ in columns])
    return [row % texts for texts in zip(*[texts for _, texts in columns], strict=True)]


def _check_key(key: bytes, members: Sequence[_Member]) -> None:
    if any(member.text == key for member in members):
        raise invalid_input(f"the tensor name {key[:-1].decode()} is a member of the form; rename the tensor")


def _nothing_for(member: _Member) -> GatewayError:
    text = f"the form requires {member.key!r}, but the message has nothing for it"
    return invalid_input(f"{text}; write `{member.key}?` in the form to make it optional")


def _elements(elements: Sequence[_Writer], contents: PlacedContents) -> Pieces:
    pieces: list[bytes] = []
    for writer in elements:
        inner = writer.whole(contents)
        if inner is None:
            raise invalid_input("the form requires an element of a list, but the message has nothing for it")
        pieces += (b"," if pieces else b"[", *inner)
    pieces.append(b"]" if pieces else b"[]")
    return pieces


def _elements_rows(elements: Sequence[_Writer], contents: PlacedContents, lead: Shape) -> list[bytes] | None:
    columns = []
    for writer in elements:
        texts = writer.rows(contents, lead)
        if texts is None:
            raise invalid_input("the form requires an element of a row, but the message has nothing for it")
        columns.append(texts)
    return [b"[%b]" % b",".join(texts) for texts in zip(*columns, strict=True)] if columns else [b"[]"] * prod(lead)


_Count: TypeAlias = Callable[[PlacedContents, Shape], int]


def _count(names: tuple[str, ...] | None, role: str, contents: PlacedContents, lead: Shape) -> int:
    """Return the number of rows nested in the rows `lead`, which is the next dimension of the tensors in these rows.
    This dimension must be equal for all of these tensors. `names` are the tensors in the rows; None means all
    tensors."""
    tensors, at = contents.tensors, len(lead)
    shapes = {name: tensors[name].shape for name in (tensors if names is None else names) if name in tensors}
    for name, shape in shapes.items():
        if len(shape) <= at:
            raise invalid_input(f"{role} {name!r} has the shape {list(shape)}, expected {at + 1} dimensions or more")
    counts = {shape[at] for shape in shapes.values()}
    if len(counts) != 1:
        found = ", ".join(f"{name!r} {list(shape)}" for name, shape in shapes.items()) or "there are none"
        raise invalid_input(f"the {role}s in rows must have one number of rows: {found}")
    return counts.pop()


def _count_of_all(names: tuple[str, ...] | None, role: str, contents: PlacedContents, lead: Shape) -> int:
    """Return the number of rows whose members are named after the tensors.

    The function requires at least one row, because a body without rows would lose the names."""
    count = _count(names, role, contents, lead)
    if not count:
        raise invalid_input(
            f"the {role}s have no rows, so the form has no place for their names; send at least one row"
        )
    return count


def _list_of_rows(inner: _Writer, count: _Count, contents: PlacedContents) -> Pieces:
    texts = inner.rows(contents, (count(contents, ()),))
    return (b"[%b]" % b",".join(texts or ()),)


def _rows_of_rows(inner: _Writer, count: _Count, contents: PlacedContents, lead: Shape) -> list[bytes] | None:
    rows = count(contents, lead)
    if not rows:
        return [b"[]"] * prod(lead)
    texts = inner.rows(contents, (*lead, rows)) or []
    return [b"[%b]" % b",".join(texts[at : at + rows]) for at in range(0, len(texts), rows)]
