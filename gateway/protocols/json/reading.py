"""Reads bodies by their templates. msgspec decodes a body with the template's type, and then `places` converts each
value.

In bodies above `json.CUT_FROM` bytes, the reader first cuts out the tensors' texts, to scan them only once. Because
msgspec ignores duplicate keys, the reader counts colons. If a body has more colons than members, the reader checks it
again.

Rows can take far more memory than their text: `{}` and `[]` have two bytes, but an object or a list takes 50 to 250
bytes. Before any row becomes an object, the reader therefore estimates the memory of all rows from the body's text. The
estimate counts the characters that open or separate rows, including characters within strings.
"""

import re
from collections.abc import Callable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

import msgspec

from gateway.core import json
from gateway.core.errors import DecodeError, Reason, refusal
from gateway.core.frozen import frozen
from gateway.core.json import BLANKS
from gateway.core.models import TensorSpec
from gateway.core.protocol import Limits
from gateway.protocols.json import plain
from gateway.protocols.json.misfit import MisfitError, Place
from gateway.protocols.json.places import BodyContents, BodyReading, reader_of_place
from gateway.protocols.json.plain import members_of
from gateway.protocols.json.templates import (
    Every,
    EverySpelling,
    FixedList,
    Node,
    Object,
    RowList,
    Slot,
    Spelling,
    TensorPlace,
    Word,
    rows_of_tensor,
    walk,
)
from gateway.protocols.json.types import body_type

_BACKSLASH = ord("\\")
_MOST_CUT = 16
"""Maximum number of keys to search for in a body. The values of other keys remain in the body."""
_NO_CUTS: Mapping[str, bytes] = MappingProxyType({})


class BodyReader:
    """Reads the bodies of one template. `role` is the word for its tensors in error messages, `input` or `output`."""

    def __init__(self, node: Node, specs: Mapping[str, TensorSpec], role: str, *, ignore_unknown: bool) -> None:
        self._type = body_type(node, ignore_unknown=ignore_unknown)
        self._members = self._type.members
        self._role = role
        keys = _cut_keys(node)
        self._keys = tuple((key, b'"%b"' % key.encode()) for key in keys.values())
        self._rows = memory_of_rows(node)
        leaves = sorted(self._type.leaves, key=lambda leaf: not _is_read_first(leaf.node))
        self._places = [reader_of_place(each, specs, keys, role) for each in leaves]

    def read(self, text: bytes, limits: Limits) -> BodyContents:
        """Return the contents of the body `text`.

        Raises:
            MisfitError: the body does not match the template.
            DecodeError: the body matches the template, but has an error.
            GatewayError: RESOURCE_EXHAUSTED if the values of the body exceed `limits.message`.
        """
        decode = self._type.decode
        if decode is None:
            reading = BodyReading(limits, _NO_CUTS)
            for read in self._places:
                read(text.strip(BLANKS), reading)
            return reading.found(self._role)
        rest, cuts = self._cut(text) if len(text) > json.CUT_FROM else (text, _NO_CUTS)
        reading = BodyReading(limits, cuts)
        found = self._read(decode, rest, reading)
        if reading.cuts_read != len(cuts):  # one of the cut texts came from another position
            found = self._read(decode, text, BodyReading(limits, _NO_CUTS))
        return found

    def _read(self, decode: Callable[[bytes], Any], text: bytes, reading: BodyReading) -> BodyContents:
        colons, limits = text.count(b":"), reading.limits
        # before any row becomes an object
        if self._rows is not None:
            self._rows.check(text, limits)
        elif colons > limits.json_values:
            members_of(text, limits.json_values)
        try:
            value = _decoded(decode, text, reading)
            members = self._members(value)  # decodes members in an object with `$*`, and raises the same errors
        except msgspec.ValidationError as error:
            why = _shortened(str(error))
            raise MisfitError(_explained(why), _place(why, text)) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MisfitError(f"not JSON: {error}") from error
        except RecursionError as error:
            raise MisfitError(f"nested deeper than {json.MAX_DEPTH}") from error
        for read in self._places:
            read(value, reading)
        # If the text has more colons, a key occurs twice or is ignored, or a string contains a colon.
        if colons != members + reading.members:
            members_of(text, colons)
        return reading.found(self._role)

    def _cut(self, text: bytes) -> tuple[bytes, Mapping[str, bytes]]:
        """Return `text` with 0 instead of each tensor that was cut out. Also return the tensors' texts by key."""
        if not self._keys or _BACKSLASH in text:
            return text, _NO_CUTS
        rest, cuts = text, {}
        for key, quoted in self._keys:
            if quoted not in rest:
                continue
            try:
                rest, found = json.cut_out(rest, key.encode(), 1)
            except DecodeError:
                continue
            if found:
                cuts[key] = found[0].bytes.rstrip(BLANKS)
        return rest, cuts


def _decoded(decode: Callable[[bytes], Any], text: bytes, reading: BodyReading) -> Any:
    """Return the body as a value of its type. If the text contains NaN or infinities, mark them first."""
    try:
        return decode(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        marked = plain.mark_literals(text)
        if marked is None:
            raise
        reading.is_marked = True
        return decode(marked)


def _is_read_first(node: Node) -> bool:
    """Return True if other values depend on the value at this node, for example on a shape, the order of rows, or
    column names."""
    if isinstance(node, TensorPlace):
        return node.spelling is Spelling.SHAPE
    if isinstance(node, Slot):
        return node.word is Word.INDEX
    return isinstance(node, Every) and node.spelling is EverySpelling.NAMES


def _cut_keys(node: Node) -> Mapping[TensorPlace, str]:
    """Return the keys of number lists outside of rows, if no other member has the same key."""
    keys = [member.key for each in walk(node) if isinstance(each, Object) for member in each.members]
    places = {place: key for place, key in _cuttable(node).items() if keys.count(key) == 1}
    return dict(islice(places.items(), _MOST_CUT))


def _cuttable(node: Node) -> dict[TensorPlace, str]:
    places: dict[TensorPlace, str] = {}
    if not isinstance(node, Object) or node.every:
        return places
    for member in node.members:
        inner = member.node
        whole = rows_of_tensor(inner)
        if whole is not None:
            places[whole[0]] = member.key
        elif isinstance(inner, TensorPlace) and inner.spelling is Spelling.FLAT:
            places[inner] = member.key
        places |= _cuttable(inner)
    return places


_LONGEST_ERROR = 2000
_LONGEST_PATH = 500

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`")
_PATH = re.compile(r" - at `\$(.*)`$")


def _shortened(text: str) -> str:
    """Return the beginning and the end of an msgspec error message. The end contains the path. The omitted middle can
    quote a long key."""
    return (
        text if len(text) <= _LONGEST_ERROR else f"{text[: _LONGEST_ERROR - _LONGEST_PATH]}...{text[-_LONGEST_PATH:]}"
    )


def _place(text: str, body: bytes) -> Place:
    """Return the position of an msgspec error in the body.

    Because msgspec reads from left to right, the position is, for example, at a member of the object at `$.split`, or
    after this object if a member is missing."""
    path, unknown = _PATH.search(text), _UNKNOWN.match(text)
    steps = re.findall(r"\.([^.\[]+)|\[", "" if path is None else path[1])
    if text.startswith("Object missing required field"):
        return len(steps) + 1, len(body)
    names = [unknown[1]] if unknown is not None else [each for each in steps if each]
    at = body.find(json.write(names[-1])) if names else 0
    return len(steps) + (unknown is not None), max(at, 0)


def _explained(text: str) -> str:
    """Return the message of an msgspec error. If the error is about a member that is not in the form, add a remedy."""
    return _UNKNOWN.sub(
        r'member `\1` is not in the form, in which `ignore_unknown: true` or `"\1?": $_` ignores it', text
    )


# --- Memory of rows ---

# Bytes of memory, measured with tracemalloc.
_MEMBER = 96
_OPTIONAL, _REQUIRED = 32, 8
"""Memory that a missing optional member takes, and that a required member takes in addition to _MEMBER, in bytes."""
_OBJECT, _OPEN_OBJECT = 72, 248
"""Memory that an object takes without its members, in bytes. The first number applies if the members are declared, and
the second if any members are allowed (`"$*": $*`)."""
_LIST, _ELEMENT = 264, 72


@frozen
class RowMemory:
    """The maximum memory for each `{`, `[` and `,` in a body, in bytes; 0 if the character creates no value in this
    template."""

    brace: int = 0
    bracket: int = 0
    comma: int = 0

    def check(self, text: bytes, limits: Limits) -> None:
        """Raise GatewayError (RESOURCE_EXHAUSTED) if the rows in `text` would need more than `limits.message`."""
        if len(text) * max(self.brace, self.bracket, self.comma, _MEMBER) <= limits.message:
            return
        size = text.count(b":") * _MEMBER
        for sign, each in ((b"{", self.brace), (b"[", self.bracket), (b",", self.comma)):
            size += each and each * text.count(sign)
        if size > limits.message:
            raise refusal(
                Reason.TOO_LARGE,
                f"rows and members of the body take {size} bytes of memory, limits.message is {limits.message}; "
                "send less, or raise the limit",
            )


def memory_of_rows(node: Node) -> RowMemory | None:
    """Return the RowMemory of a template, or None if the template has no rows."""
    rows = [each.row for each in walk(node) if isinstance(each, RowList) and rows_of_tensor(each) is None]
    inside = [each for row in rows for each in walk(row) if rows_of_tensor(each) is None]
    if not rows:
        return None
    return RowMemory(
        max([_of_object(each) for each in inside if isinstance(each, Object)], default=0),
        max([_of_list(each) for each in inside if isinstance(each, RowList | FixedList)], default=0),
        0 if all(isinstance(row, Object | RowList | FixedList) for row in rows) else _ELEMENT,
    )


def _of_object(node: Object) -> int:
    size = _OPEN_OBJECT if node.every else _OBJECT
    return size + sum(_OPTIONAL if each.optional else _REQUIRED for each in node.members)


def _of_list(node: RowList | FixedList) -> int:
    return _LIST + (_MEMBER * len(node.nodes) if isinstance(node, FixedList) else 0)
