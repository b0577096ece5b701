"""The tables with which listeners find the protocol for a request's path, because several protocols can share one HTTP
address.

    pattern                           matches
    POST /v2/models/{model}/infer     `{model}` is exactly one segment, percent-decoded: not empty, not `.` or `..`
    POST /v1/models/{model}:predict   a segment that ends in `:predict`
    GET  /open/*                      every path with this prefix, if no other pattern matches it

If several patterns match, the leftmost segment in which they differ decides. A literal segment takes precedence over
`{capture}:word`, which takes precedence over `{capture}`. The patterns form a tree with one level per segment.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen, replace
from gateway.core.protocol import Protocol

# The cache has limits for the number of entries and their size, because clients choose the paths.
_REMEMBERED_PATHS = 4096
_REMEMBERED_LENGTH = 256

# Dot segments have a special meaning (RFC 3986 section 3.3). As a model name, they would change the path of the request
# to a backend.
_NEVER_CAPTURED = frozenset({"", ".", ".."})


@frozen
class Match:
    """The protocol and the pattern for a path, and the values of the pattern's `{captures}`, percent-decoded once."""

    protocol: Protocol
    pattern: str
    captures: dict[str, str]


@frozen
class Tie:
    """A pattern that two protocols have in common."""

    pattern: str
    first: str
    second: str


@frozen
class _Entry:
    protocol: Protocol
    pattern: str
    captures: tuple[tuple[str, int, int], ...]
    """For each `{capture}`, its name, the index of its segment, and the length of the literal text at the end of the
    segment."""


class _Node:
    """A node of the tree, for the patterns whose first segments are the same."""

    __slots__ = ("captures", "entries", "literals")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.captures: dict[str, _Node] = {}
        """The children for captures, by the literal text at the end of the captured segment, with the longest text
        first.

        The text is empty if the entire segment is captured."""
        self.entries: dict[str, _Entry] = {}

    def child(self, segment: str) -> "_Node":
        """Return the child for a pattern's `segment`, and create the child if it is missing."""
        if not _is_capture(segment):
            return self.literals.setdefault(segment, _Node())
        ending = _ending(segment)
        if ending not in self.captures:
            self.captures = dict(sorted([*self.captures.items(), (ending, _Node())], key=lambda item: -len(item[0])))
        return self.captures[ending]

    def reached(self, segments: list[str], at: int = 0) -> Iterator["_Node"]:
        """Yield the nodes that a path with these `segments` reaches. Nodes with more literal segments come first."""
        if at == len(segments):
            yield self
            return
        literal = self.literals.get(segments[at])
        if literal is not None:
            yield from literal.reached(segments, at + 1)
        for ending, node in self.captures.items():
            if segments[at].endswith(ending) and _captured(segments[at], len(ending)) not in _NEVER_CAPTURED:
                yield from node.reached(segments, at + 1)


class PathTable:
    """The patterns of all protocols of one listener, with their path prefixes. `ties` are the patterns that two
    protocols share."""

    ties: tuple[Tie, ...]

    def __init__(self, rows: Iterable[tuple[Protocol, str]]) -> None:
        rows = tuple(rows)
        self._first = rows[0][0]
        self._spoken = tuple(
            dict.fromkeys(f"{each.name} below {prefix}" if prefix.strip("/") else each.name for each, prefix in rows)
        )
        self._by_first_segment: dict[str, Protocol] = {}
        self._root = _Node()
        self._wildcards: dict[str, _Node] = {}
        self._max_depth = 0
        self.ties = tuple(
            tie
            for protocol, prefix in rows
            for pattern in protocol.patterns
            for tie in self._add(protocol, prefix, pattern)
        )
        self._wildcards = dict(sorted(self._wildcards.items(), key=lambda item: -len(item[0])))
        self._cached_find = lru_cache(_REMEMBERED_PATHS)(self._find)

    def match(self, method: str, path: str) -> Match | tuple[str, ...]:
        """Return the Match of a raw path (without its query). If no pattern matches, return the methods that the path
        supports; the result is empty for an unknown path. HEAD matches the patterns of GET.

        Raises:
            DecodeError: a segment is not percent-encoded UTF-8.
        """
        if len(path) <= _REMEMBERED_LENGTH:
            return self._cached_find(method, path)
        return self._find(method, path)

    def protocol_for_error(self, path: str) -> Protocol:
        """Return the protocol in which to encode an error about an unknown `path`. The result is a protocol with a
        pattern that has the same first segment, or else the listener's first protocol."""
        first_segment = path.lstrip("/").partition("/")[0]
        return self._by_first_segment.get(first_segment, self._first)

    @property
    def spoken(self) -> str:
        """The listener's protocols as text for a message, such as `v2-rest, umbridge below /science`."""
        return ", ".join(self._spoken)

    def _add(self, protocol: Protocol, prefix: str, pattern: str) -> tuple[Tie, ...]:
        method, _, path = pattern.rpartition(" ")  # gRPC patterns have no method
        if prefix.strip("/"):
            path = f"/{prefix.strip('/')}{path.rstrip('/')}"
        segments = path.split("/")[1:]
        node = self._node(path, segments)
        captures = tuple(
            (segment[1 : segment.index("}")], at, len(_ending(segment)))
            for at, segment in enumerate(segments)
            if _is_capture(segment)
        )
        entry = _Entry(protocol, pattern, captures)
        earlier = node.entries.setdefault(method, entry)
        self._by_first_segment.setdefault(segments[0], protocol)
        self._max_depth = max(self._max_depth, len(segments))
        return () if earlier is entry else (Tie(f"{method} {path}".lstrip(), earlier.protocol.name, protocol.name),)

    def _node(self, path: str, segments: list[str]) -> _Node:
        """Return the node for a pattern's `path`."""
        if path.endswith("*"):
            return self._wildcards.setdefault(path[:-1], _Node())
        node = self._root
        for segment in segments:
            node = node.child(segment)
        return node

    def _reached(self, path: str, segments: list[str]) -> Iterable[_Node]:
        """Return the nodes that match `path`. Nodes of patterns with `*` are returned only if no other node matches."""
        own = [node for node in self._root.reached(segments) if node.entries] if segments else []
        if own or not self._wildcards or _has_dot_segments(path):
            return own
        return (node for beginning, node in self._wildcards.items() if path.startswith(beginning))

    def _find(self, method: str, path: str) -> Match | tuple[str, ...]:
        # Clients whose configured URL ends in a slash, such as UM-Bridge's MATLAB client, request `//Info`.
        path = path.lstrip("/")
        raw = path.split("/", self._max_depth)
        segments = [_decode(segment) for segment in raw] if len(raw) <= self._max_depth else []
        wanted = "GET" if method == "HEAD" else method
        others: dict[str, None] = {}
        for node in self._reached(f"/{path}", segments):
            entry = node.entries.get(wanted)
            if entry is not None:
                captures = {name: _captured(segments[at], ending) for name, at, ending in entry.captures}
                return Match(entry.protocol, entry.pattern, captures)
            others |= dict.fromkeys(node.entries)
        return _with_head(others)


def rows(
    protocols: Iterable[tuple[Protocol, str]],
    model: str,
    routed: Iterable[tuple[str, str]],
    passed: Iterable[tuple[str, str]] = (),
    *,
    pages: bool = False,
) -> tuple[tuple[Protocol, str], ...]:
    """Return the protocols and prefixes from which to build a listener's PathTable.

    In addition to their own patterns, protocols with `any_path` serve the paths of routes. These protocols also serve
    `/` if `model` is set on the listener and their clients cannot send a model name.

    - `protocols`: Each protocol of the listener with its prefix.
    - `routed`: The paths in the `match` keys of the listener's routes, each with the name of the protocol that the
      route requires; empty if any protocol is allowed.
    - `passed`: The paths of `passthrough` routes, with their protocol names. The protocols themselves do not serve
      these paths.
    - `pages`: True if the listener serves metrics pages.

    If a routed path already matches a pattern, the pattern takes precedence. A route with `*` in its path must set the
    protocol, unless the listener has only one.
    """
    own = tuple((_with_pages(_with_root(protocol, model), pages), prefix) for protocol, prefix in protocols)
    own = _with_passthrough(own, tuple(passed))
    if not any(protocol.http.any_path and not protocol.http.is_passthrough for protocol, _ in own):
        return own  # a PathTable is only for HTTP: the patterns of other transports are not paths
    table, is_only = PathTable(own), len(own) == 1
    paths = dict.fromkeys(
        (name, path) for name, path in routed if (name or is_only if path.endswith("*") else _is_free(path, table))
    )
    return own + tuple(
        (replace(protocol, patterns=patterns), "")
        for protocol, _ in own
        if not protocol.http.is_passthrough
        if (patterns := _patterns(protocol, (path for name, path in paths if name in ("", protocol.name))))
    )


def _with_passthrough(
    own: tuple[tuple[Protocol, str], ...], passed: tuple[tuple[str, str], ...]
) -> tuple[tuple[Protocol, str], ...]:
    """Return `own`, followed by the passthrough variants of its protocols. The `passed` paths move from the protocols
    to these variants."""
    forms = {
        protocol.name: replace(
            form,
            binding=replace(form.http, is_passthrough=True),
            patterns=_patterns(form, (path for name, path in passed if name == protocol.name)),
        )
        for protocol, _ in own
        if (form := protocol.http.passthrough) and protocol.name in (name for name, _ in passed)
    }
    return (
        *((_without(protocol, forms.get(protocol.name), prefix), prefix) for protocol, prefix in own),
        *((protocol, "") for protocol in forms.values()),
    )


def _without(protocol: Protocol, form: Protocol | None, prefix: str) -> Protocol:
    if form is None or prefix:
        return protocol
    return replace(protocol, patterns=tuple(each for each in protocol.patterns if each not in form.patterns))


def _is_free(path: str, table: PathTable) -> bool:
    try:
        return not table.match("POST", path)
    except DecodeError:
        return False


def _with_root(protocol: Protocol, model: str) -> Protocol:
    if not model or protocol.traits.models.may_be_named:
        return protocol
    return replace(protocol, patterns=(*protocol.patterns, *_patterns(protocol, ("/",))))


def _with_pages(protocol: Protocol, pages: bool) -> Protocol:
    return replace(protocol, patterns=(*protocol.patterns, *protocol.http.pages)) if pages else protocol


def _patterns(protocol: Protocol, paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{method} {path}" for path in paths for method in protocol.http.any_path))


def _has_dot_segments(path: str) -> bool:
    """Return True if a backend might resolve `path` to another path. Many servers remove dot segments (RFC 3986 section
    5.2.4), even if they are percent-encoded."""
    return any(unquote_to_bytes(segment) in (b".", b"..") for segment in re.split(r"/|%2f|\\|%5c", path, flags=re.I))


def _is_capture(segment: str) -> bool:
    return segment.startswith("{")


def _ending(segment: str) -> str:
    """Return the literal text after the `{capture}` in a pattern's segment."""
    return segment.partition("}")[2]


def _captured(segment: str, ending: int) -> str:
    """Return a path's segment without the literal text at its end."""
    return segment[:-ending] if ending else segment


def _with_head(methods: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for method in methods for name in (("GET", "HEAD") if method == "GET" else (method,)))


def _decode(segment: str) -> str:
    if "%" not in segment:
        return segment
    encoded = segment.split("%")[1:]
    if not all(len(rest) >= 2 and _is_hex(rest[:2]) for rest in encoded):
        raise DecodeError(f"path segment {segment[:100]!r} has a % without two hexadecimal digits; write % as %25")
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError as error:
        raise DecodeError(
            f"path segment {segment[:100]!r} is not percent-encoded UTF-8; encode the name in UTF-8"
        ) from error


def _is_hex(digits: str) -> bool:
    return all(digit in "0123456789abcdefABCDEF" for digit in digits)
