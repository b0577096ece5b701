"""Routes that no request can reach, because earlier routes take every request that they would take.

For each combination of listener, protocol and operation that a route can get, one earlier route must take everything:
its conditions on path, model, version, headers and input must include those of the later route. Nothing is reported
that is not certain, and not all that is: whether one glob includes another is decided by a comparison of their
wildcards (`covers`), and after MOST_COMPARISONS of two routes nothing more is reported.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase, translate
from itertools import chain
from typing import TypeAlias

from gateway.config.catalog import Catalog
from gateway.config.keys import Config
from gateway.config.problems import Finding, listed
from gateway.config.routes import ANY_VALUE, InputMatchConfig, MatchConfig, RouteConfig
from gateway.core.globs import TOKEN
from gateway.core.operations import CALLS, SERVER_OPERATIONS, Operation
from gateway.core.types import Shape

_OPERATIONS = tuple(operation for operation in Operation if operation not in SERVER_OPERATIONS)

MOST_COMPARISONS = 200_000
"""The most comparisons of a route with an earlier one, and of the wildcards of two globs. A thousand routes for exact
names take a thousand; some hundred globs, of which each must be compared with all others, some ten thousand."""


def unreachable_routes(config: Config, catalog: Catalog) -> Iterator[Finding]:
    """Routes that no request reaches, or only requests for names made of the model's, such as `M.gradient`."""
    # Routes with `passthrough` are tried for other requests than routes without it.
    found = {passthrough: _EarlierRoutes() for passthrough in (False, True)}
    for at, route in enumerate(config.routes):
        earlier = found[route.passthrough]
        takers = _takers(route, earlier, config)
        if earlier.left < 0:
            return
        if takers:
            yield Finding(("routes", at, "match"), _message(route, takers, config))
        earlier.add(at, route.match)


_Place: TypeAlias = tuple[int, MatchConfig]
"""A route's place in the configuration, and its `match`."""


class _EarlierRoutes:
    """The routes before one, found by the models that they take. `left` are the comparisons that may still be made;
    below 0 the answers are worth nothing."""

    def __init__(self) -> None:
        self.left = MOST_COMPARISONS
        self._by_model: dict[str | None, list[_Place]] = defaultdict(list)
        """Those for each model or glob as it is written; None: those for all models."""
        self._takes: dict[str, Callable[[str], object]] = {}
        """For each glob whether it takes a name."""

    def add(self, at: int, match: MatchConfig) -> None:
        """The route at `at` comes before those that are asked for next."""
        self._by_model[match.model].append((at, match))
        if match.model is not None and not is_exact(match):
            self._takes[match.model] = re.compile(translate(match.model)).match

    def taking(self, match: MatchConfig) -> Iterator[_Place]:
        """The routes that take all models that `match` takes. A request that does not name a model takes only routes
        without the key `model`."""
        models: list[str | None] = [None]
        if match.model is not None:
            models += [match.model, *self._covering(match)]
        for at, each in chain.from_iterable(self._by_model.get(model, ()) for model in models):
            self.left -= 1
            if self.left < 0:
                return
            yield at, each

    def _covering(self, match: MatchConfig) -> Iterator[str]:
        """The globs that include the one of `match`, or take its name."""
        wanted = match.model or ""
        exact = is_exact(match)
        for glob, takes in self._takes.items():
            self.left -= 1 if exact else len(glob)
            if self.left < 0:
                return
            if glob != wanted and (takes(wanted) if exact else covers(glob, wanted)):
                yield glob


def _takers(route: RouteConfig, earlier: _EarlierRoutes, config: Config) -> list[int]:
    """The earlier routes that together take every request that `route` would take; none if a request is left.

    There are few listeners, protocols and operations, so each combination of them can have another taker.
    """
    wanted = route.match
    able = sorted((place for place in earlier.taking(wanted) if _takes_all(place[1], wanted)), key=lambda each: each[0])
    if not able:
        return []
    takers: set[int] = set()
    operations = _OPERATIONS if wanted.operation is None else (wanted.operation,)
    for listener, protocol in _arrivals(route, config):
        here = [
            (at, each) for at, each in able if each.listener in (None, listener) and each.protocol in (None, protocol)
        ]
        for operation in operations:
            found = [
                (at, each)
                for at, each in here
                if each.operation in (None, operation)
                and (operation not in CALLS or _input_takes_all(each.input, wanted.input))
            ]
            if not found:
                return []
            takers.add(next((at for at, each in found if is_exact(each)), found[0][0]))
    return sorted(takers)


def _arrivals(route: RouteConfig, config: Config) -> list[tuple[str, str]]:
    """The listeners and protocols of the requests that `route` can get."""
    passed = config.backends[route.main_backend].protocol if route.passthrough else None
    return [
        (listener.name, name)
        for listener in config.listeners
        for name in listener.protocols
        if route.match.listener in (None, listener.name)
        and route.match.protocol in (None, name)
        and passed in (None, name)
    ]


def _takes_all(one: MatchConfig, other: MatchConfig) -> bool:
    """Whether `one` takes all requests that `other` takes, by path, version and headers."""
    return (
        one.version in (None, other.version)
        and _path_takes_all(one.path, other.path)
        and _headers_take_all(one.header, other.header)
    )


def _headers_take_all(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return all(name in other and wanted in (ANY_VALUE, other[name]) for name, wanted in one.items())


def _input_takes_all(one: InputMatchConfig | None, other: InputMatchConfig | None) -> bool:
    """Whether every input that meets `other` meets `one`."""
    if one is None or other is None:
        return one is None
    return (
        one.name in (None, other.name)
        and one.datatype in (None, other.datatype)
        and (one.shape is None or (other.shape is not None and _shape_takes_all(one.shape, other.shape)))
    )


def _shape_takes_all(one: Shape, other: Shape) -> bool:
    return len(one) == len(other) and all(size in (-1, each) for size, each in zip(one, other, strict=True))


def _path_takes_all(one: str | None, other: str | None) -> bool:
    if one is None or one == other:
        return True
    return other is not None and one.endswith("*") and other.removesuffix("*").startswith(one[:-1])


def is_exact(match: MatchConfig) -> bool:
    """Whether `match` is for exactly one model name."""
    return match.model is not None and not any(mark in match.model for mark in "*?[")


def _message(route: RouteConfig, takers: list[int], config: Config) -> str:
    names = listed(f"routes[{each}]" for each in takers).replace(" or ", " and ")
    verb = "takes" if len(takers) == 1 else "together take"
    if is_exact(route.match) and not all(is_exact(config.routes[each].match) for each in takers):
        # For a name such as M.gradient the router first tries routes for exactly M.
        model = route.match.model
        return (
            f"{names} {verb} every request for {model!r}, so this route gets only names made of it, such as "
            f"{model}.gradient; put it before {names}"
        )
    return f"{names} {verb} everything that this route would take, so no request reaches it; put it before {names}"


def covers(wide: str, narrow: str) -> bool:
    """Whether the glob `wide` takes every name (of at least one character) that the glob `narrow` takes. False if that
    is not certain, as it is not for two different `[...]` of several characters.

    The tokens of `narrow` are matched by those of `wide` as characters would be: a star matches any of them, `?` each
    that is one character, `[...]` the characters in it. Stars match as few as they can, and more where that does not
    lead on.
    """
    wanted, tokens = _tokens(narrow), _tokens(wide)
    if tokens[-1:] == ["*"] and set(tokens) <= {"?", "*"}:  # any name of so many characters
        return len(tokens) - 1 <= max(1, len(wanted) - wanted.count("*"))
    at = place = 0
    star, kept = -1, 0
    while place < len(wanted):
        if at < len(tokens) and tokens[at] == "*":
            star, kept = at, place
            at += 1
        elif at < len(tokens) and _takes_token(tokens[at], wanted[place]):
            at, place = at + 1, place + 1
        elif star >= 0:
            kept += 1
            at, place = star + 1, kept
        else:
            return False
    return all(token == "*" for token in tokens[at:])


def _tokens(glob: str) -> list[str]:
    """The tokens of a glob, with one star at most between others, behind the question marks there: `?*` for `*?`, and
    `a` for `[a]`."""
    tokens: list[str] = []
    for token in TOKEN.findall(glob):
        if len(token) == 3 and token[1] not in "*?":
            token = token[1]
        if token == "?" and tokens and tokens[-1] == "*":
            tokens.insert(-1, token)
        elif token != "*" or not tokens or tokens[-1] != "*":
            tokens.append(token)
    return tokens


def _takes_token(wide: str, narrow: str) -> bool:
    """Whether a token of one character takes all that another token takes."""
    if wide == narrow:
        return True
    return narrow != "*" and (wide == "?" or (len(narrow) == 1 and narrow != "?" and fnmatchcase(narrow, wide)))
