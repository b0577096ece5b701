"""Routes that no request can reach, because earlier routes take every request that they would take.

For each combination of listener, protocol and operation that a route can get, one earlier route must take everything:
its conditions on path, model, version, headers and input must include those of the later route. Nothing is reported
that is not certain, and globs that include each other in less obvious ways than `covers` knows are not reported.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby, product

from gateway.config.catalog import Catalog
from gateway.config.keys import Config
from gateway.config.problems import Finding, listed
from gateway.config.routes import ANY_VALUE, InputMatchConfig, MatchConfig, RouteConfig
from gateway.core.globs import TOKEN, wildcards
from gateway.core.operations import CALLS, SERVER_OPERATIONS, Operation
from gateway.core.types import Shape

_OPERATIONS = tuple(operation for operation in Operation if operation not in SERVER_OPERATIONS)

MOST_COMPARISONS = 50_000
"""Pairs of routes that are compared for one configuration: a second, if all are globs. Of the routes behind those
nothing is reported."""


def unreachable_routes(config: Config, catalog: Catalog, most: int = MOST_COMPARISONS) -> Iterator[Finding]:
    """Routes that no request reaches, or only requests for names made of the model's, such as `M.gradient`.

    After `most` comparisons nothing more is reported.
    """
    # Routes with `passthrough` are tried for other requests than routes without it.
    before = {False: _Earlier(), True: _Earlier()}
    for at, route in enumerate(config.routes):
        earlier = before[route.passthrough]
        candidates = earlier.candidates(route.match)
        most -= len(candidates)
        if most < 0:
            return
        takers = _takers(route, candidates, config, catalog)
        if takers:
            yield Finding(("routes", at, "match"), _message(route, takers, config.routes))
        earlier.add(at, route)


class _Earlier:
    """The routes before the one that is looked at, by the plain text with which their models begin.

    A glob takes no name that begins otherwise, so that a thousand routes for a thousand names need no comparison.
    """

    def __init__(self) -> None:
        self._any_model: list[tuple[int, RouteConfig]] = []
        self._by_text: defaultdict[str, list[tuple[int, RouteConfig]]] = defaultdict(list)

    def add(self, at: int, route: RouteConfig) -> None:
        model = route.match.model
        (self._any_model if model is None else self._by_text[_plain_text(model)]).append((at, route))

    def candidates(self, match: MatchConfig) -> list[tuple[int, RouteConfig]]:
        """The routes that may take all requests that `match` takes, in their order."""
        # A request that does not name a model takes only routes without the key `model`.
        text = None if match.model is None else _plain_text(match.model)
        texts = () if text is None else (text[:end] for end in range(len(text) + 1))
        named = (each for start in texts if start in self._by_text for each in self._by_text[start])
        return sorted([*self._any_model, *named], key=lambda each: each[0])


def _plain_text(glob: str) -> str:
    """The text before the first wildcard."""
    return glob[: next((at for at, character in enumerate(glob) if character in "*?["), len(glob))]


def _takers(
    route: RouteConfig, candidates: Sequence[tuple[int, RouteConfig]], config: Config, catalog: Catalog
) -> list[int]:
    """The earlier routes that together take every request that `route` would take; none if a request is left.

    There are few listeners, protocols and operations, so each combination of them can have another taker.
    """
    wanted = route.match
    takers: set[int] = set()
    fitting = [(at, each) for at, each in candidates if _takes_all(each.match, wanted)]
    if not fitting:
        return []
    for (listener, protocol), operation in product(_arrivals(route, config, catalog), _OPERATIONS):
        if wanted.operation not in (None, operation):
            continue
        found = [
            (at, each)
            for at, each in fitting
            if each.match.listener in (None, listener)
            and each.match.protocol in (None, protocol)
            and each.match.operation in (None, operation)
            and (operation not in CALLS or _input_takes_all(each.match.input, wanted.input))
        ]
        if not found:
            return []
        takers.add(next((at for at, each in found if is_exact(each.match)), found[0][0]))
    return sorted(takers)


def _arrivals(route: RouteConfig, config: Config, catalog: Catalog) -> list[tuple[str, str]]:
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
    """Whether `one` takes all requests that `other` takes, by path, model, version and headers."""
    return (
        _path_takes_all(one.path, other.path)
        and _model_takes_all(one, other)
        and one.version in (None, other.version)
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


def _model_takes_all(one: MatchConfig, other: MatchConfig) -> bool:
    if one.model is None or one.model == other.model:
        return True
    return other.model is not None and covers(one.model, other.model)


def is_exact(match: MatchConfig) -> bool:
    """Whether `match` is for exactly one model name."""
    return match.model is not None and not any(mark in match.model for mark in "*?[")


def _message(route: RouteConfig, takers: Sequence[int], routes: Sequence[RouteConfig]) -> str:
    names = listed(f"routes[{each}]" for each in takers).replace(" or ", " and ")
    verb = "takes" if len(takers) == 1 else "together take"
    if is_exact(route.match) and not all(is_exact(routes[each].match) for each in takers):
        # For a name such as M.gradient the router first tries routes for exactly M.
        model = route.match.model
        return (
            f"{names} {verb} every request for {model!r}, so this route gets only names made of it, such as "
            f"{model}.gradient; put it before {names}"
        )
    return f"{names} {verb} everything that this route would take, so no request reaches it; put it before {names}"


def covers(wide: str, narrow: str) -> bool:
    """Whether the glob `wide` takes every name (of at least one character) that the glob `narrow` takes. False if that
    is not certain.

    `wide` is matched with the tokens of `narrow`, as globs are with the characters of names.
    """
    if not wildcards(narrow):
        return fnmatchcase(narrow, wide)
    tokens = _tokens(wide)
    states = _behind_stars(tokens, {0})
    for token in _tokens(narrow):
        fitting = (at for at in states if at < len(tokens) and _token_takes_all(tokens[at], token))
        states = _behind_stars(tokens, {at if tokens[at] == "*" else at + 1 for at in fitting})
    return len(tokens) in states


def _tokens(glob: str) -> list[str]:
    """The wildcards and characters, in one form for globs that take the same names: `*?**` becomes `?*`."""
    found: list[str] = []
    for is_open, run in groupby(TOKEN.findall(glob), lambda token: token in ("*", "?")):
        tokens = list(run)
        found += tokens if not is_open else [*(["?"] * tokens.count("?")), *(["*"] * ("*" in tokens))]
    return ["*"] if found == ["?", "*"] else found  # no name is empty


def _behind_stars(tokens: Sequence[str], states: set[int]) -> set[int]:
    """`states` and those behind their stars, which may match nothing."""
    return states | {at + 1 for at in states if at < len(tokens) and tokens[at] == "*"}


def _token_takes_all(one: str, other: str) -> bool:
    """Whether `one` takes all characters that `other` stands for."""
    if one == other or one == "*":
        return True
    if other in ("*", "?") or (one != "?" and len(one) == len(other) == 1):
        return False
    return all(fnmatchcase(each, one) for each in _alphabet(one + other) if fnmatchcase(each, other))


def _alphabet(tokens: str) -> Iterator[str]:
    """Each character in `tokens`, its neighbours (outside of a range that it ends), and one that is in none."""
    near = {ord(character) + step for character in tokens for step in (-1, 0, 1)}
    near.add(next(code for code in range(ord("a"), 0x10FFFF) if code not in near))
    return (chr(code) for code in near if 0 <= code <= 0x10FFFF)
