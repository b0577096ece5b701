"""Parse YAML text into a tree of nodes with line and column, for `loading`.

This module composes the tree from the parser's events. Scalars follow the core schema, keys are text and unique, and
aliases are allowed up to a small total size. Tags, merge keys and several documents are errors.

This module does not use `yaml.compose`. Its C loader crashes the process on 100,000 opening brackets, loses the
positions of aliases, accepts a list that contains itself, and refuses to redefine an anchor. Working around this would
need a pass over the events before `yaml.compose`, and a pass over the nodes after it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import yaml
from yaml import events

from gateway.config.scalars import Referenced, Scalar, interpolate, other_words, resolve
from gateway.config.syntax import explained, quoted
from gateway.core.frozen import frozen

MAX_BYTES = 2**20
MAX_NODES = 100_000
"""Maximum number of nodes after aliases are expanded, because a few lines of nested aliases can expand to billions of
nodes."""
MAX_DEPTH = 64
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"

Location: TypeAlias = tuple[str | int, ...]


@frozen
class Mark:
    """A position in the text, counted from 1."""

    line: int
    column: int


@frozen
class YamlFault:
    """An error at one position of a document. `location` contains the keys and indexes of the position, if known."""

    mark: Mark
    message: str
    location: Location = ()


class DocumentError(Exception):
    """The text is not a valid document. `fault` is the only error in it that can be reported."""

    def __init__(self, mark: Mark, message: str) -> None:
        super().__init__(message)
        self.fault = YamlFault(mark, message)


@dataclass(slots=True)
class Node:
    """One value. `keys` contains the positions of a map's keys. `size` is the number of nodes, and `height` the number
    of levels, with aliases expanded."""

    mark: Mark
    value: "Scalar | list[Node] | dict[str, Node]"
    keys: dict[str, Mark] = field(default_factory=dict)
    size: int = 1
    height: int = 1

    def plain(self) -> Any:
        """Return the value as lists, dicts and scalars."""
        match self.value:
            case dict(items):
                return {key: node.plain() for key, node in items.items()}
            case list(items):
                return [node.plain() for node in items]
            case scalar:
                return scalar

    def referenced(self) -> Iterator[Referenced]:
        """Yield the strings in which references were replaced."""
        match self.value:
            case dict(items):
                for node in items.values():
                    yield from node.referenced()
            case list(items):
                for node in items:
                    yield from node.referenced()
            case Referenced() as text:
                yield text

    def find(self, location: Location) -> "Node":
        """Return the node at `location`, or its closest existing ancestor."""
        node = self
        for step in location:
            child = node.child(step)
            if child is None:
                break
            node = child
        return node

    def location_of(self, mark: Mark) -> Location:
        """Return the location of the node that starts at `mark`; empty if no node starts there."""
        below: list[tuple[str | int, Mark | None, Node]]
        match self.value:
            case dict(items):
                below = [(key, self.keys.get(key), node) for key, node in items.items()]
            case list(items):
                below = [(at, None, node) for at, node in enumerate(items)]
            case _:
                return ()
        for step, key_mark, node in below:
            if key_mark == mark:
                return (step,)
            further = node.location_of(mark)
            if further or node.mark == mark:
                return (step, *further)
        return ()

    def child(self, step: str | int) -> "Node | None":
        """Return the node at a key or an index, or None."""
        match self.value, step:
            case dict(items), str():
                return items.get(step)
            case list(items), int() if step < len(items):
                return items[step]
            case dict(), 0:  # a single map instead of a list of maps
                return self
        return None


def compose(text: str, environ: Mapping[str, str]) -> tuple[Node, tuple[YamlFault, ...]]:
    """Return the document in `text`, with references resolved, and the errors in single keys and scalars.

    Raises:
        DocumentError: the text is not YAML, contains several documents, or exceeds the limits.
    """
    if len(text.encode(errors="replace")) > MAX_BYTES:
        raise DocumentError(
            Mark(1, 1), f"the configuration is larger than {MAX_BYTES} bytes; shorten it, or use several gateways"
        )
    try:
        composer = _Composer(text, environ)
        return composer.document(), tuple(composer.faults)
    except yaml.MarkedYAMLError as error:
        if "maximum nesting depth" in (error.problem or ""):  # libyaml's own limit, in newer versions
            raise DocumentError(_mark(error.problem_mark), _TOO_DEEP) from error
        place, message = explained(text, error)
        raise DocumentError(Mark(place.line + 1, place.column + 1), message) from error
    except yaml.reader.ReaderError as error:
        raise DocumentError(_mark_of_offset(text, error.position), f"not YAML: {error.reason}") from error
    except UnicodeEncodeError as error:
        raise DocumentError(
            _mark_of_offset(text, error.start), "not YAML: a lone surrogate; remove this character"
        ) from error


class _Composer:
    def __init__(self, text: str, environ: Mapping[str, str]) -> None:
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=yaml.CSafeLoader))
        self._environ = environ
        self._anchors: dict[str, Node] = {}
        self.faults: list[YamlFault] = []

    def document(self) -> Node:
        next(self._events)  # the stream's start
        if isinstance(next(self._events), events.StreamEndEvent):
            return Node(Mark(1, 1), {})
        root = self._node(next(self._events), 1)
        next(self._events)  # the document's end
        after = next(self._events)
        if not isinstance(after, events.StreamEndEvent):
            raise DocumentError(_mark(after.start_mark), "a second document begins here; expected only one")
        return root

    def _node(self, event: Any, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise DocumentError(_mark(event.start_mark), _TOO_DEEP)
        if isinstance(event, events.AliasEvent):
            return self._alias(event)
        if event.tag is not None:
            self._fault(event, f"the tag {event.tag!r} is not supported; remove the tag")
        node = self._BUILDERS[type(event)](self, event, depth)
        _check_bounds(node)
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _alias(self, event: Any) -> Node:
        # An anchor is known only when its node is complete, so a node cannot contain itself.
        if event.anchor not in self._anchors:
            text = quoted(f"*{event.anchor}")
            message = f"the alias *{event.anchor} has no anchor before it; if it is text, quote it: {text}"
            raise DocumentError(_mark(event.start_mark), message)
        return self._anchors[event.anchor]

    def _scalar(self, event: Any, depth: int) -> Node:
        mark = _mark(event.start_mark)
        try:
            text = interpolate(event.value, self._environ)
        except ValueError as error:
            self.faults.append(YamlFault(mark, str(error)))
            return Node(mark, event.value)
        plain = event.implicit[0] and text is event.value
        return Node(mark, resolve(text) if plain else text)

    def _sequence(self, event: Any, depth: int) -> Node:
        items: list[Node] = []
        node = Node(_mark(event.start_mark), items)
        while not isinstance(item := next(self._events), events.SequenceEndEvent):
            items.append(_grown(node, self._node(item, depth + 1)))
        return node

    def _mapping(self, event: Any, depth: int) -> Node:
        items: dict[str, Node] = {}
        node = Node(_mark(event.start_mark), items)
        while not isinstance(key := next(self._events), events.MappingEndEvent):
            name = self._key(key, depth + 1)
            child = _grown(node, self._node(next(self._events), depth + 1))
            if name is not None and self._is_first(node, name, key):
                items[name], node.keys[name] = child, _mark(key.start_mark)
        return node

    def _key(self, event: Any, depth: int) -> str | None:
        """Return a key as a string. If the key is invalid, record an error and return None."""
        if not isinstance(event, events.ScalarEvent):
            self._node(event, depth)
            self._fault(event, "a key must be text")
        elif event.tag is not None:
            self._fault(event, f"the tag {event.tag!r} is not supported; remove the tag")
        elif event.implicit[0] and event.value == "<<":
            self._fault(event, "merge keys are not supported; write the keys out, or use an alias for the whole map")
        elif event.implicit[0] and not isinstance(resolve(event.value), str):
            value = resolve(event.value)
            hint = f"; {other_words(value)}" if isinstance(value, bool) else ""
            self._fault(event, f"a key must be text, got {event.value or 'nothing'}; quote it if it is meant{hint}")
        else:
            return str(event.value)
        return None

    def _is_first(self, node: Node, name: str, event: Any) -> bool:
        first = node.keys.get(name)
        if first is not None:
            self._fault(
                event, f"the key {name!r} occurs twice, first at line {first.line}, column {first.column}; remove one"
            )
        return first is None

    def _fault(self, event: Any, message: str) -> None:
        self.faults.append(YamlFault(_mark(event.start_mark), message))

    _BUILDERS = {  # noqa: RUF012 - a table, never changed
        events.ScalarEvent: _scalar,
        events.SequenceStartEvent: _sequence,
        events.MappingStartEvent: _mapping,
    }


def _grown(node: Node, child: Node) -> Node:
    node.size += child.size
    node.height = max(node.height, child.height + 1)
    _check_bounds(node)
    return child


def _check_bounds(node: Node) -> None:
    if node.size > MAX_NODES:
        raise DocumentError(node.mark, f"more than {MAX_NODES} values, aliases expanded; use fewer aliases")
    if node.height > MAX_DEPTH:
        raise DocumentError(node.mark, f"{_TOO_DEEP}, aliases expanded")


def _mark(mark: Any) -> Mark:
    return Mark(mark.line + 1, mark.column + 1) if mark else Mark(1, 1)


def _mark_of_offset(text: str, offset: int) -> Mark:
    before = text[:offset].split("\n")
    return Mark(len(before), len(before[-1]) + 1)
