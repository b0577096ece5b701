"""The principals of a configuration, and the permissions of each."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from gateway.core.frozen import frozen
from gateway.core.principal import EVERYTHING, Grant, Principal

BUILT_IN: Mapping[str, tuple[Grant, ...]] = {
    "use": (Grant(frozenset({"infer", "metadata"})),),
    "all": (EVERYTHING,),
}
"""Permission sets that every configuration includes."""

_MOST_REMEMBERED = 4096
"""Maximum number of cached principals. The number is limited because token issuers choose the names."""


@frozen
class PrincipalEntry:
    """An entry of `principals`: a name or a glob of names, and the names of its permission sets."""

    pattern: str
    sets: tuple[str, ...]


class Principals:
    """Creates the Principal for a name.

    - `sets`: the configured permission sets by name, in addition to BUILT_IN.
    - `named`: the names of the permission sets for each principal name or glob of names.
    """

    def __init__(self, sets: Mapping[str, tuple[Grant, ...]], named: Mapping[str, Iterable[str]]) -> None:
        self._sets = {**BUILT_IN, **sets}
        self._named = {name: tuple(names) for name, names in named.items()}
        self._made: dict[tuple[str, frozenset[str]], Principal] = {}

    def find(self, name: str, claimed: Iterable[str] = ()) -> Principal:
        """Return the principal with this name. The principal has the permissions of the entry with its name or of the
        first matching glob, and the configured permission sets that `claimed` lists."""
        key = name, frozenset(each for each in claimed if each in self._sets)
        principal = self._made.get(key)
        if principal is None:
            if len(self._made) >= _MOST_REMEMBERED:
                self._made.clear()
            names = dict.fromkeys((*self._own(name), *sorted(key[1])))
            principal = Principal(name, (grant for each in names for grant in self._sets[each]))
            self._made[key] = principal
        return principal

    def knows(self, name: str) -> bool:
        """Return True if the configuration contains an entry for this name."""
        return bool(self._own(name))

    def entry(self, name: str) -> PrincipalEntry | None:
        """Return the entry with exactly this name, or the first entry whose glob matches."""
        globs = (glob for glob in self._named if fnmatchcase(name, glob))
        pattern = name if name in self._named else next(globs, None)
        return None if pattern is None else PrincipalEntry(pattern, self._named[pattern])

    def grants(self, name: str) -> tuple[Grant, ...]:
        """Return the grants of a permission set. Raises KeyError if the name is unknown."""
        return self._sets[name]

    def _own(self, name: str) -> tuple[str, ...]:
        entry = self.entry(name)
        return () if entry is None else entry.sets
