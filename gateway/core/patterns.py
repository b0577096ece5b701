"""Which protocol a path belongs to, on an address that several share.

A pattern is `METHOD /literal/{capture}/literal`; `{name}` stands for exactly one segment. The most literal pattern wins,
compared segment by segment from the left.
"""

from collections.abc import Iterable

from gateway.core.protocol import Protocol
from gateway.core.values import value


@value
class Match:
    """A path's pattern and what its `{segments}` hold, percent-decoded once."""

    protocol: Protocol
    pattern: str
    captures: dict[str, str]


@value
class Tie:
    """Two protocols that claim the same paths equally."""

    pattern: str
    first: str
    second: str


class PathTable:
    """The patterns of the protocols of one listener, each below its prefix."""

    def __init__(self, rows: Iterable[tuple[Protocol, str]]) -> None:
        raise NotImplementedError

    ties: tuple[Tie, ...]

    def match(self, method: str, path: str) -> Match | tuple[str, ...]:
        """The Match of a raw path (no query); without one the methods that the path has under another pattern, none
        if it is unknown. HEAD matches GET patterns."""
        raise NotImplementedError

    def blame(self, path: str) -> Protocol:
        """Whose error form an unknown path gets: the protocol that has a pattern with the same first segment, else the
        first."""
        raise NotImplementedError
