"""Which protocol a path belongs to, on an address that several share.

A pattern is `METHOD /literal/{capture}/literal`; `{name}` stands for exactly one segment, `{name}:word` for one that
ends in `:word`. The most literal pattern wins, compared segment by segment from the left. One that ends in `*` takes
what begins so and nothing else has.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import unquote_to_bytes

from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen, replace
from gateway.core.protocol import Protocol

# Paths are the clients' choice, so what is remembered of them is bounded in number and in size.
_REMEMBERED_PATHS = 1024
_REMEMBERED_LENGTH = 256

# RFC 3986 section 3.3 gives these a meaning of their own; passed on as a name they would climb in a backend's paths.
_NEVER_CAPTURED = frozenset({"", ".", ".."})


@frozen
class Match:
    """A path's pattern and what its `{segments}` hold, percent-decoded once."""

    protocol: Protocol
    pattern: str
    captures: dict[str, str]


@frozen
class Tie:
    """Two protocols that claim the same paths equally."""

    pattern: str
    first: str
    second: str


@frozen
class _Claim:
    protocol: Protocol
    pattern: str
    captures: tuple[tuple[str, int, int], ...]
    """The name of each `{segment}`, where in the path it stands, and how long the literal text at its end is."""


class _Node:
    """The patterns that share their first segments."""

    __slots__ = ("captures", "claims", "literals")

    def __init__(self) -> None:
        self.literals: dict[str, _Node] = {}
        self.captures: dict[str, _Node] = {}
        """By the literal text that the captured segment ends in, the longest first; empty for any segment."""
        self.claims: dict[str, _Claim] = {}

    def child(self, segment: str) -> "_Node":
        """The node below for a pattern's `segment`, made where there is none."""
        if not _is_capture(segment):
            return self.literals.setdefault(segment, _Node())
        ending = _ending(segment)
        if ending not in self.captures:
            self.captures = dict(sorted([*self.captures.items(), (ending, _Node())], key=lambda item: -len(item[0])))
        return self.captures[ending]

    def ends(self, segments: list[str], at: int = 0) -> Iterator["_Node"]:
        """The nodes where `segments` can end, the most literal first."""
        if at == len(segments):
            yield self
            return
        literal = self.literals.get(segments[at])
        if literal is not None:
            yield from literal.ends(segments, at + 1)
        for ending, node in self.captures.items():
            if segments[at].endswith(ending) and _captured(segments[at], len(ending)) not in _NEVER_CAPTURED:
                yield from node.ends(segments, at + 1)


class PathTable:
    """The patterns of the protocols of one listener, each below its prefix."""

    ties: tuple[Tie, ...]

    def __init__(self, rows: Iterable[tuple[Protocol, str]]) -> None:
        rows = tuple(rows)
        self._first = rows[0][0]
        self._owners: dict[str, Protocol] = {}
        self._root = _Node()
        self._open: dict[str, _Node] = {}
        self._depth = 0
        self.ties = tuple(
            tie
            for protocol, prefix in rows
            for pattern in protocol.patterns
            for tie in self._add(protocol, prefix, pattern)
        )
        self._open = dict(sorted(self._open.items(), key=lambda item: -len(item[0])))
        self._recall = lru_cache(_REMEMBERED_PATHS)(self._find)

    def match(self, method: str, path: str) -> Match | tuple[str, ...]:
        """The Match of a raw path (no query); without one the methods that the path has under another pattern, none
        if it is unknown. HEAD matches GET patterns.

        Raises:
            DecodeError: a segment is not percent-encoded UTF-8.
        """
        if len(path) <= _REMEMBERED_LENGTH:
            return self._recall(method, path)
        return self._find(method, path)

    def protocol_for_error(self, path: str) -> Protocol:
        """Whose error form an unknown path gets: the protocol that has a pattern with the same first segment, else the
        first."""
        first_segment = path.lstrip("/").partition("/")[0]
        return self._owners.get(first_segment, self._first)

    def _add(self, protocol: Protocol, prefix: str, pattern: str) -> tuple[Tie, ...]:
        method, _, path = pattern.rpartition(" ")  # gRPC's have no method
        if prefix.strip("/"):
            path = f"/{prefix.strip('/')}{path.rstrip('/')}"
        segments = path.split("/")[1:]
        node = self._node(path, segments)
        captures = tuple(
            (segment[1 : segment.index("}")], at, len(_ending(segment)))
            for at, segment in enumerate(segments)
            if _is_capture(segment)
        )
        claim = _Claim(protocol, pattern, captures)
        holder = node.claims.setdefault(method, claim)
        self._owners.setdefault(segments[0], protocol)
        self._depth = max(self._depth, len(segments))
        return () if holder is claim else (Tie(f"{method} {path}".lstrip(), holder.protocol.name, protocol.name),)

    def _node(self, path: str, segments: list[str]) -> _Node:
        """Where the claims of a pattern's `path` stand."""
        if path.endswith("*"):
            return self._open.setdefault(path[:-1], _Node())
        node = self._root
        for segment in segments:
            node = node.child(segment)
        return node

    def _ends(self, path: str, segments: list[str]) -> Iterable[_Node]:
        """The nodes that `path` leads to; the open ones only where it is nobody's."""
        own = [end for end in self._root.ends(segments) if end.claims] if segments else []
        if own or not self._open or _climbs(path):
            return own
        return (node for beginning, node in self._open.items() if path.startswith(beginning))

    def _find(self, method: str, path: str) -> Match | tuple[str, ...]:
        # MATLAB's and other clients that are given a URL with a trailing slash ask for `//Info`.
        path = path.lstrip("/")
        raw = path.split("/", self._depth)
        segments = [_decode(segment) for segment in raw] if len(raw) <= self._depth else []
        wanted = "GET" if method == "HEAD" else method
        others: dict[str, None] = {}
        for end in self._ends(f"/{path}", segments):
            claim = end.claims.get(wanted)
            if claim is not None:
                captures = {name: _captured(segments[at], ending) for name, at, ending in claim.captures}
                return Match(claim.protocol, claim.pattern, captures)
            others |= dict.fromkeys(end.claims)
        return _with_head(others)


def rows(
    protocols: Iterable[tuple[Protocol, str]],
    model: str,
    routed: Iterable[tuple[str, str]],
    passed: Iterable[tuple[str, str]] = (),
    *,
    pages: bool = False,
) -> tuple[tuple[Protocol, str], ...]:
    """What a listener's PathTable is made of: `protocols`, each with its prefix, and what those take beside their own
    patterns that take any path. `model` is the listener's; `routed` are the paths that its routes match, each with the
    protocol's name that the route wants, or none; `passed` those of `passthrough` routes, each with the name of
    their protocol; `pages`: the pages of metrics are served.

    A path that another pattern has stays with it, but not where its protocol's messages pass through. A route that
    wants any protocol gives away no more than one path, unless there is only one protocol.
    """
    own = tuple((_with_pages(_with_root(protocol, model), pages), prefix) for protocol, prefix in protocols)
    own = _with_passthrough(own, tuple(passed))
    if not any(protocol.http.any_path and not protocol.http.is_passthrough for protocol, _ in own):
        return own  # a PathTable is for HTTP: the patterns of other transports are no paths of its
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
    """`own`, and its forms for the paths that are `passed`, which are then not its own any more."""
    forms = {
        protocol.name: replace(
            form,
            carrier=replace(form.http, is_passthrough=True),
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


def _climbs(path: str) -> bool:
    """Whether a backend might take `path` for another one: RFC 3986 section 5.2.4 removes dot segments, and many
    servers decode first."""
    return any(unquote_to_bytes(segment) in (b".", b"..") for segment in re.split(r"/|%2f|\\|%5c", path, flags=re.I))


def _is_capture(segment: str) -> bool:
    return segment.startswith("{")


def _ending(segment: str) -> str:
    """The literal text behind a pattern's `{capture}`."""
    return segment.partition("}")[2]


def _captured(segment: str, ending: int) -> str:
    """A path's segment without the literal text at its end."""
    return segment[:-ending] if ending else segment


def _with_head(methods: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for method in methods for name in (("GET", "HEAD") if method == "GET" else (method,)))


def _decode(segment: str) -> str:
    if "%" not in segment:
        return segment
    encoded = segment.split("%")[1:]
    if not all(len(rest) >= 2 and _is_hex(rest[:2]) for rest in encoded):
        raise DecodeError(f"path segment {segment[:100]!r} has a % without two hexadecimal digits")
    try:
        return unquote_to_bytes(segment).decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"path segment {segment[:100]!r} is not percent-encoded UTF-8") from error


def _is_hex(digits: str) -> bool:
    return all(digit in "0123456789abcdefABCDEF" for digit in digits)
