"""Reads bodies by their templates. msgspec decodes a body with the template's type; then `places` converts each value.

In bodies above `json.CUT_FROM` bytes, the tensors' texts are cut out first, so they are not scanned twice. msgspec
ignores duplicate keys, so the reader counts colons: a body with more colons than members is checked again.
"""

import re
from collections.abc import Callable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any

import msgspec

from gateway.core import json
from gateway.core.errors import DecodeError
from gateway.core.json import BLANKS
from gateway.core.models import TensorSpec
from gateway.core.protocol import Limits
from gateway.protocols.json import literals
from gateway.protocols.json.misfit import MisfitError, Place
from gateway.protocols.json.places import BodyContents, BodyReading, reader_of_place
from gateway.protocols.json.plain import members_of
from gateway.protocols.json.row_memory import memory_of_rows
from gateway.protocols.json.templates import (
    Every,
    EverySpelling,
    Node,
    Object,
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
    """Reads the bodies of one template. `role` is the word for its tensors in errors, `input` or `output`."""

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
            GatewayError: RESOURCE_EXHAUSTED if the body exceeds `limits.message`.
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
        except msgspec.ValidationError as error:
            why = _shortened(str(error))
            raise MisfitError(_explained(why), _place(why, text)) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MisfitError(f"not JSON: {error}") from error
        except RecursionError as error:
            raise MisfitError(f"nested deeper than {json.MAX_DEPTH}") from error
        for read in self._places:
            read(value, reading)
        # more colons: a key occurs twice or is ignored, or a string contains a colon
        if colons != self._members(value) + reading.members:
            members_of(text, colons)
        return reading.found(self._role)

    def _cut(self, text: bytes) -> tuple[bytes, Mapping[str, bytes]]:
        """Return `text` with 0 instead of each tensor that was cut out, and the tensors' texts by key."""
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
    """Return the body as a value of its type. If the text contains NaN or infinities, they are marked first."""
    try:
        return decode(text)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        marked = literals.mark(text)
        if marked is None:
            raise
        reading.is_marked = True
        return decode(marked)


def _is_read_first(node: Node) -> bool:
    """Return True if reading other values depends on this value, such as shapes, the order of rows, and column
    names."""
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
    """Return the beginning and the end of an msgspec error. The end contains the path; the part between can quote a
    long key."""
    return (
        text if len(text) <= _LONGEST_ERROR else f"{text[: _LONGEST_ERROR - _LONGEST_PATH]}...{text[-_LONGEST_PATH:]}"
    )


def _place(text: str, body: bytes) -> Place:
    """Return the position of an msgspec error in the body.

    Because msgspec reads from left to right, it is, for example, at a member of the object at `$.split`, or after that
    object if a member is missing."""
    path, unknown = _PATH.search(text), _UNKNOWN.match(text)
    steps = re.findall(r"\.([^.\[]+)|\[", "" if path is None else path[1])
    if text.startswith("Object missing required field"):
        return len(steps) + 1, len(body)
    names = [unknown[1]] if unknown is not None else [each for each in steps if each]
    at = body.find(json.write(names[-1])) if names else 0
    return len(steps) + (unknown is not None), max(at, 0)


def _explained(text: str) -> str:
    """Return the message of an msgspec error. For a member that is not in the form, add a remedy."""
    return _UNKNOWN.sub(
        r'member `\1` is not in the form, in which `ignore_unknown: true` or `"\1?": $_` ignores it', text
    )
