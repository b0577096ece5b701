"""Finds the values that the gateway must process in a body that is relayed without decoding: the model's name, its
version, and constants, which clients cannot change. `relay` uses it.

The body is decoded with a type that contains only these members; other members are skipped. A body that contains a
member's name in two spellings must be read completely, because the model server could use the other spelling.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from gateway.core.frozen import frozen
from gateway.core.messages import Buffer
from gateway.core.offload import LARGE
from gateway.core.words import has_byte
from gateway.protocols.json.bodies import JsonBody, MessageBody
from gateway.protocols.json.form import Place
from gateway.protocols.json.templates import (
    MISSING,
    Anything,
    Constant,
    Member,
    Node,
    Object,
    Slot,
    Word,
    children,
)
from gateway.protocols.json.types import BodyType, body_type

_ESCAPE = re.compile(rb"\\u(?:00[0-7]|017[fF]|212[aA])")
"""Escapes that can encode a letter of a member's name."""
_MOST_QUOTES = 32
"""Number of quotes that are searched for one at a time. For more quotes, a regular expression is faster."""
_OTHER_LETTERS = {"k": "\u212a", "s": "\u017f"}
"""Letters that case-insensitive comparison treats as equal to these, as in Go's JSON."""


@frozen
class ActedUpon:
    """Finds words (see `templates.Word`) in bodies that match one of some templates.

    A body must match one of `types`. `names` is a pattern for every spelling of the members' names; None if bodies
    contain no words."""

    types: tuple[BodyType, ...] = ()
    names: re.Pattern[bytes] | None = None
    words: frozenset[Word] = frozenset()
    """The words that a body can contain."""

    def find(self, body: Buffer) -> Mapping[Word, str] | None:
        """Return the words in a body.

        Return None if the body must be read completely because it does not match, is ambiguous, or is too long to
        search on the event loop."""
        if self.names is None:
            return {}
        if len(body) > LARGE:  # a thread decodes it
            return None
        if has_byte(body, b"\\") and _ESCAPE.search(body) is not None:
            return None
        seen: set[int | None] = set()
        for name in _found(self.names, body):
            if name.lastindex in seen:
                return None
            seen.add(name.lastindex)
        for each in self.types:
            words = _words(each, body)
            if words is not None:
                return words
        return None


def _found(names: re.Pattern[bytes], body: Buffer) -> Iterator[re.Match[bytes]]:
    """Yield each match of a pattern that begins with a quote. Bodies of numbers contain few quotes, which `find` finds
    much faster."""
    at = 0
    for _ in range(_MOST_QUOTES if type(body) is bytes else 0):
        at = body.find(b'"', at)  # type: ignore[union-attr]
        if at < 0:
            return
        name = names.match(body, at)
        if name is not None:
            yield name
        at += 1
    yield from names.finditer(body, at)


def acted_upon(bodies: Sequence[MessageBody]) -> ActedUpon | None:
    """Return an ActedUpon that finds the words in bodies that match one of the templates of `bodies`.

    Return None if such bodies must be read completely."""
    kept: list[Node | None] = []
    for body in bodies:
        for node in body.nodes:
            if not _is_kept_in_objects(node):
                return None
            found = _kept(node)
            if found is not None and (type(body) is not JsonBody or not isinstance(found, Object)):
                return None
            kept.append(found)
    # otherwise only the rest of the body would show the right template
    places = [dict(_places(each)) if each is not None else {} for each in kept]
    if any(each != places[0] for each in places):
        return None
    nodes = [each for each in kept if each is not None]
    if not nodes:
        return ActedUpon()
    keys = {key for place in places[0] for key in place}
    if not all(key.isascii() and "/" not in key for key in map(str, keys)):
        return None
    types = {repr(each): body_type(each, ignore_unknown=True) for each in nodes}
    words = frozenset(word for word in places[0].values() if word is not None)
    return ActedUpon(tuple(types.values()), _pattern(sorted(map(str, keys))), words)


def is_acted_upon(node: Node) -> bool:
    """Return True if the node is a name, a constant, or something that the form writes."""
    match node:
        case Slot(word):
            return word is Word.MODEL or word is Word.VERSION
        case Anything(written):
            return written is not MISSING
    return isinstance(node, Constant)


def _is_kept_in_objects(node: Node) -> bool:
    """Return True if the gateway acts only upon values in objects (never in lists) and leaves all of them unchanged."""
    if isinstance(node, Object):
        return all(_is_kept_in_objects(each.node) for each in node.members if not _is_dropped(each))
    if isinstance(node, Anything):
        return node.written is MISSING
    return not any(_has_any(each) for each in children(node))


def _has_any(node: Node) -> bool:
    return is_acted_upon(node) or any(map(_has_any, children(node)))


def _is_dropped(member: Member) -> bool:
    """Return True if the member is never written, whatever the client sends."""
    return member.optional and isinstance(member.node, Anything)


def _kept(node: Node) -> Node | None:
    """Return the parts of `node` that the gateway acts upon; None if there are none."""
    if not isinstance(node, Object):
        return node if is_acted_upon(node) else None
    members = [(each, _kept(each.node)) for each in node.members if not _is_dropped(each)]
    kept = tuple(Member(each.key, inner, each.optional) for each, inner in members if inner is not None)
    return Object(kept) if kept else None


def _places(node: Node, at: Place = ()) -> Iterator[tuple[Place, Word | None]]:
    """Yield the path of each value that the gateway acts upon, with its word."""
    if isinstance(node, Object):
        for each in node.members:
            yield from _places(each.node, (*at, each.key))
    else:
        yield at, node.word if isinstance(node, Slot) else None


def _pattern(keys: Sequence[str]) -> re.Pattern[bytes]:
    """Return a pattern that matches any of `keys` as a JSON string in any letter case. The pattern begins with a quote,
    which a search finds quickly."""
    found = "|".join(f"({''.join(map(_letter, key))})" for key in keys)
    return re.compile(f'"(?:{found})"'.encode())


def _letter(letter: str) -> str:
    ways = {letter.lower(), letter.upper(), *_OTHER_LETTERS.get(letter.lower(), "")}
    return f"(?:{'|'.join(map(re.escape, sorted(ways)))})"


def _words(kind: BodyType, body: Buffer) -> Mapping[Word, str] | None:
    """Return the words in a body, or None if it does not match."""
    assert kind.decode is not None
    try:
        value = kind.decode(body)  # type: ignore[arg-type]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    words: dict[Word, str] = {}
    for leaf in kind.leaves:
        given: Any = leaf.get(value)
        if given is UNSET or given is None:
            continue
        if isinstance(leaf.node, Slot):
            if words.setdefault(leaf.node.word, given) != given:
                return None
        elif isinstance(leaf.node, Constant) and given != leaf.node.value:
            return None
    return words
