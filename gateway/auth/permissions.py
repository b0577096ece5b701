"""The principals of a configuration: which permissions a name has."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from gateway.core.principal import EVERYTHING, Grant, Principal

BUILT_IN: Mapping[str, tuple[Grant, ...]] = {
    "use": (Grant(frozenset({"infer", "metadata"})),),
    "all": (EVERYTHING,),
}
"""Sets of permissions that every configuration has."""

_MOST_REMEMBERED = 4096
"""Principals that are remembered; an issuer of tokens chooses their names."""


class Principals:
    """Makes Principals of names.

    - `sets`: the sets of permissions by name, beside BUILT_IN.
    - `named`: for each principal's name, or glob of names, the names of its sets.
    """

    def __init__(self, sets: Mapping[str, tuple[Grant, ...]], named: Mapping[str, Iterable[str]]) -> None:
        self._sets = {**BUILT_IN, **sets}
        self._named = {name: tuple(names) for name, names in named.items()}
        self._made: dict[tuple[str, frozenset[str]], Principal] = {}

    def find(self, name: str, claimed: Iterable[str] = ()) -> Principal:
        """The principal of this name: with the sets of its own entry, else of the first glob that matches, and with
        those of the `claimed` names that are sets of the configuration."""
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
        """Whether the configuration has an entry for this name."""
        return bool(self._own(name))

    def _own(self, name: str) -> tuple[str, ...]:
        if name in self._named:
            return self._named[name]
        return next((sets for glob, sets in self._named.items() if fnmatchcase(name, glob)), ())
