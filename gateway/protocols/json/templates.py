"""Defines the language of templates. `parse_body` converts YAML data to a tree of nodes.

    {"instances": [{"sepal": "$a", "petal": "$b"}, "..."], "request_id?": "$id"}

A string that begins with `$` is a placeholder for a part of the message. Every other scalar is a constant.
docs/forms.md describes all placeholders. Each node stands for a value in a body. Most modules of this package use the
nodes. `types`, `reading` and `writing` compile them.
"""

import json
import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from enum import Enum
from math import isfinite
from typing import Any, Final, TypeAlias

from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.frozen import frozen
from gateway.core.json import INT64_MAX, INT64_MIN, Json
from gateway.protocols.json.form import FormError, Place, Template

MOST_NODES = 1000
DEEPEST = 32
MOST_ALTERNATIVES = 16


class Spelling(Enum):
    """The form in which a tensor is written. The values are the words after `$x|`."""

    NESTED = ""
    FLAT = "flat"
    SHAPE = "shape"
    ITEMS = "items"
    TEXTS = "texts"
    ROW = "row"
    NUMBERS = "numbers"
    COMMAS = "commas"
    SCALAR = "scalar"
    TEXT = "text"
    BYTES = "bytes"
    BASE64 = "base64"
    NPY = "npy"

    # Members are singletons, so equality is identity. Hashing by identity keeps lookups fast.
    __hash__ = object.__hash__


class EverySpelling(Enum):
    """The form in which `$*` writes all tensors of a message. The values are the words after `$*|`."""

    MEMBERS = ""
    NAMES = "names"
    TABLE = "table"


class Word(Enum):
    """A part of a message that is neither a tensor nor a parameter. The values are the placeholders in templates."""

    ID = "$id"
    MODEL = "$model"
    VERSION = "$version"
    INDEX = "$index"
    MESSAGE = "$message"
    CODE = "$code"
    GRPC_CODE = "$code|grpc"

    # Members are singletons, so equality is identity. Hashing by identity keeps lookups fast.
    __hash__ = object.__hash__


class Role(Enum):
    """The part of a message that a template describes. The value is the word for this part in error messages."""

    REQUEST = "a request"
    RESPONSE = "a response"
    ERROR = "an error"
    HEADER = "a header"
    QUERY = "a query parameter"
    LISTING = "a model list"
    MODEL = "one model"
    PROBE = "the answer to a probe"


class _Missing(Enum):
    MISSING = "no value"


MISSING: Final = _Missing.MISSING
"""The `written` of a `$_` without a value to write."""


@frozen
class Constant:
    """A scalar that must be present unchanged."""

    value: str | int | float | bool | None


@frozen
class Anything:
    """`$_`, which stands for any JSON. `written` is the value at this position in bodies that the gateway writes."""

    written: Json = MISSING


@frozen
class Slot:
    """The placeholder of a Word."""

    word: Word


@frozen
class ParameterPlace:
    """`$param.NAME`, the placeholder of one parameter."""

    name: str


@frozen
class ParametersPlace:
    """`$params`, an object with all parameters that have no placeholder of their own."""


@frozen
class TensorPlace:
    """`$x`, the placeholder of a tensor. `datatype` is the datatype in `|base64:DATATYPE`."""

    name: str
    spelling: Spelling = Spelling.NESTED
    datatype: Datatype | None = None


@frozen
class Every:
    """`$*|names` or `$*|table`, the placeholder of the names or the contents of all tensors."""

    spelling: EverySpelling


@frozen
class Member:
    """A member of an object. An `optional` member can be missing."""

    key: str
    node: "Node"
    optional: bool = False


@frozen
class Object:
    """An object with these members. If `every` is set, all other members are tensors (`"$*": $*`)."""

    members: tuple[Member, ...]
    every: bool = False


@frozen
class RowList:
    """`[T, ...]`, a list with one `row` for each index of the first dimension of the tensors in the list."""

    row: "Node"


@frozen
class FixedList:
    """A list of exactly these elements."""

    nodes: tuple["Node", ...]


Node: TypeAlias = (
    Constant | Anything | Slot | ParameterPlace | ParametersPlace | TensorPlace | Every | Object | RowList | FixedList
)


def children(node: Node) -> tuple[Node, ...]:
    """Return the nodes directly below `node`."""
    match node:
        case Object(members):
            return tuple(each.node for each in members)
        case RowList(row):
            return (row,)
        case FixedList(nodes):
            return nodes
    return ()


def walk(node: Node) -> Iterator[Node]:
    """Yield `node` and all nodes below it, in the order of the template."""
    yield node
    for child in children(node):
        yield from walk(child)


def walk_all(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield all of `nodes` and the nodes below them."""
    for node in nodes:
        yield from walk(node)


def rows_of_tensor(node: Node) -> tuple[TensorPlace, int] | None:
    """If `node` is a tensor surrounded only by row lists, return the tensor and the number of these lists. For example,
    the number is 2 for `[[$x, ...], ...]`. The text of such a node is the nested list of the tensor itself. Return None
    for every other node."""
    rows = 0
    while isinstance(node, RowList):
        node, rows = node.row, rows + 1
    return (node, rows) if isinstance(node, TensorPlace) and node.spelling is Spelling.NESTED else None


# --- reading templates ---

_ROW_MARK = "..."
_EVERY_KEY = "$*"
ANY = "$any"
_ALLOWED = {
    Role.REQUEST: frozenset({Word.ID, Word.MODEL, Word.VERSION, Word.INDEX}),
    Role.RESPONSE: frozenset({Word.ID, Word.MODEL, Word.VERSION, Word.INDEX}),
    Role.ERROR: frozenset({Word.ID, Word.MODEL, Word.MESSAGE, Word.CODE, Word.GRPC_CODE}),
    Role.HEADER: frozenset({Word.ID, Word.MODEL, Word.VERSION}),
    Role.QUERY: frozenset({Word.ID, Word.MODEL, Word.VERSION}),
    Role.LISTING: frozenset({Word.MODEL, Word.VERSION, Word.INDEX}),
    Role.MODEL: frozenset({Word.MODEL}),
    Role.PROBE: frozenset[Word](),
}
_WORDS = {word.value: word for word in Word}
_HAVE_TENSORS = frozenset({Role.REQUEST, Role.RESPONSE, Role.QUERY})
_HAVE_PARAMETERS = frozenset({Role.REQUEST, Role.RESPONSE, Role.HEADER, Role.QUERY})
_NAME = re.compile(r"[^\s|$*]+")
_PARAMETER = "$param."
RESERVED_NAMES = frozenset({"any", "param", "params", *(word.value[1:].partition("|")[0] for word in Word)})
"""Names that a tensor cannot have in a template, because they have another meaning after the `$`."""


def parse_body(template: Template, role: Role, place: Place) -> tuple[Node, ...]:
    """Return the alternatives of a body's template. The result is the template itself, or the templates in `{$any:
    [...]}`.

    Raises:
        FormError: the template contains an error. The message gives its position and a remedy.
    """
    if not isinstance(template, dict) or ANY not in template:
        return (_Parser(role).parse(template, place),)
    alternatives = template[ANY]
    if len(template) > 1:
        raise FormError(place, "`$any` stands alone: it is the whole of a body")
    if not isinstance(alternatives, list) or not 0 < len(alternatives) <= MOST_ALTERNATIVES:
        raise FormError((*place, ANY), f"expected a list of 1 to {MOST_ALTERNATIVES} templates")
    return tuple(_Parser(role).parse(each, (*place, ANY, at)) for at, each in enumerate(alternatives))


class _Parser:
    """Reads one template, and counts its nodes."""

    def __init__(self, role: Role) -> None:
        self._role = role
        self._nodes = 0

    def parse(self, template: Template, place: Place, level: int = 1, rows: int = 0) -> Node:
        """Return the node of `template`, which is nested in `rows` row lists."""
        self._nodes += 1
        if self._nodes > MOST_NODES or level > DEEPEST:
            raise FormError(place, f"expected a template of at most {MOST_NODES} nodes, nested at most {DEEPEST} deep")
        if isinstance(template, dict):
            return self._object(template, place, level, rows)
        if isinstance(template, list):
            return self._list(template, place, level, rows)
        if isinstance(template, str) and template.startswith("$"):
            return self._word(template, place, rows)
        return Constant(_constant(template, place))

    def _object(self, template: dict[Any, Template], place: Place, level: int, rows: int) -> Object:
        members: list[Member] = []
        every = False
        for given, inner in template.items():
            if not isinstance(given, str):
                raise FormError((*place, str(given)), f"{given!r} is not a JSON key; write it as text: {str(given)!r}")
            within = (*place, given)
            if given == _EVERY_KEY:
                if inner != _EVERY_KEY:
                    raise FormError(within, '`$*` as a key means all tensors by name; write `"$*": $*`')
                self._check_tensors(within)
                every = True
                continue
            key, optional = _key(given, within)
            if any(each.key == key for each in members):
                raise FormError(within, f"{key!r} is here twice, with and without `?`")
            members.append(Member(key, self.parse(inner, within, level + 1, rows), optional))
        return Object(tuple(members), every)

    def _list(self, template: list[Template], place: Place, level: int, rows: int) -> Node:
        if _ROW_MARK not in template:
            nodes = (self.parse(each, (*place, at), level + 1, rows) for at, each in enumerate(template))
            return FixedList(tuple(nodes))
        if len(template) != 2 or template[1] != _ROW_MARK:
            raise FormError(place, "expected `[T, ...]` for rows: one template, and the text `...` after it")
        return RowList(self.parse(template[0], (*place, 0), level + 1, rows + 1))

    def _word(self, text: str, place: Place, rows: int) -> Node:
        if text.startswith("$$"):
            return Constant(text[1:])
        if text == "$_" or text.startswith("$_="):
            return Anything(_given(text[3:]) if text != "$_" else MISSING)
        if text in _WORDS:
            return self._slot(_WORDS[text], place, rows)
        if text == "$params" or text.startswith(_PARAMETER):
            return self._parameter(text, place, rows)
        self._check_tensors(place)
        name, _, spelling = text[1:].partition("|")
        if name == "*":
            return _every(spelling, place)
        if not _NAME.fullmatch(name) or name in RESERVED_NAMES:
            raise FormError(place, f"{text!r} is no name of a tensor; a text that begins with $ is written `$${name}`")
        return _tensor(name, spelling, place)

    def _slot(self, word: Word, place: Place, rows: int) -> Node:
        if word not in _ALLOWED[self._role]:
            words = ", ".join(sorted(each.value for each in _ALLOWED[self._role])) or "no words"
            raise FormError(place, f"{word.value} has no meaning in {self._role.value}; expected {words}")
        if word is Word.INDEX and not rows:
            raise FormError(place, "$index is the number of a row: it stands inside of `[T, ...]`")
        if self._role is Role.LISTING and word is not Word.INDEX:  # a list of models has a name in each row
            return TensorPlace(word.value[1:])
        if rows and word is not Word.INDEX:
            raise FormError(place, f"{word.value} is one for the whole message: it cannot stand in `[T, ...]`")
        return Slot(word)

    def _parameter(self, text: str, place: Place, rows: int) -> Node:
        if self._role not in _HAVE_PARAMETERS:
            raise FormError(place, f"{text} has no meaning in {self._role.value}, which has no parameters")
        if rows:
            raise FormError(place, f"{text} is one for the whole message: it cannot stand in `[T, ...]`")
        if text == "$params":
            return ParametersPlace()
        name = text.removeprefix(_PARAMETER)
        if not name:
            raise FormError(place, "$param. lacks the name of the parameter, expected such as $param.top_k")
        return ParameterPlace(name)

    def _check_tensors(self, place: Place) -> None:
        if self._role not in _HAVE_TENSORS:
            raise FormError(place, f"{self._role.value} has no tensors; a text that begins with $ is written `$$...`")


def _key(given: str, place: Place) -> tuple[str, bool]:
    """Return the key of a member, and whether the member is optional."""
    optional = given.endswith("?")
    key = given.removesuffix("?")
    if key.startswith("$"):
        if not key.startswith("$$"):
            raise FormError(place, f"{given!r} is no key; one that begins with $ is written `$${key[1:]}`")
        key = key[1:]
    if any(each in key for each in '"\\') or any(ord(each) < 0x20 for each in key):
        raise FormError(place, f"{key!r}: keys with quotes, backslashes or control characters are not supported")
    return key, optional


def _constant(template: Template, place: Place) -> str | int | float | bool | None:
    if isinstance(template, str | bool) or template is None:
        return template
    if isinstance(template, int) and INT64_MIN <= template <= INT64_MAX:
        return template
    if isinstance(template, float) and isfinite(template):
        return template
    raise FormError(place, f"{template!r} is no constant: expected a text, a finite number, true, false or null")


def _given(text: str) -> Json:
    """Return the value of `$_=text`: the JSON value, or the text itself if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _every(spelling: str, place: Place) -> Every:
    if not spelling:
        raise FormError(place, 'write `$*` in an object, `{"$*": $*}`; or as `$*|names` and `$*|table`')
    return Every(_spelled(EverySpelling, spelling, place))


def _tensor(name: str, text: str, place: Place) -> TensorPlace:
    text, _, wanted = text.partition(":")
    spelling = _spelled(Spelling, text, place)
    if not wanted:
        return TensorPlace(name, spelling)
    if spelling is not Spelling.BASE64 or wanted not in DATATYPES or DATATYPES[wanted] is Datatype.BYTES:
        raise FormError(place, f"{wanted!r}: only |base64 has a datatype, such as |base64:FP32")
    return TensorPlace(name, spelling, DATATYPES[wanted])


def _spelled(kind: Any, text: str, place: Place) -> Any:
    known = [each.value for each in kind if each.value]
    if text and text not in known:
        close = get_close_matches(text, known, 1)
        meant = f"did you mean |{close[0]}?" if close else "expected one of |" + ", |".join(known)
        raise FormError(place, f"|{text} is not a spelling of a tensor; {meant}")
    return kind(text)
