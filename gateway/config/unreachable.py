"""Routes that no request can reach, because earlier routes take every request that they would take.

For each combination of listener, protocol and operation that a route can get, one earlier route must take everything:
its conditions on path, model, version, headers and input must include those of the later route. Whether one model glob
includes another is decided on their automata (`covers`). Nothing is reported that is not certain.
"""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import product

from gateway.config.catalog import Catalog
from gateway.config.keys import Config
from gateway.config.problems import Finding, listed
from gateway.config.routes import ANY_VALUE, InputMatchConfig, MatchConfig, RouteConfig
from gateway.core.globs import TOKEN, wildcards
from gateway.core.operations import CALLS, SERVER_OPERATIONS, Operation
from gateway.core.types import Shape

_OPERATIONS = tuple(operation for operation in Operation if operation not in SERVER_OPERATIONS)

MOST_STEPS = 100_000
"""The most states that are compared for two globs. Globs that people write take hundreds; beyond that nothing is
reported."""


def unreachable_routes(config: Config, catalog: Catalog) -> Iterator[Finding]:
    """Routes that no request reaches, or only requests for names made of the model's, such as `M.gradient`."""
    for at, route in enumerate(config.routes):
        # Routes with `passthrough` are tried for other requests than routes without it.
        earlier = {i: each for i, each in enumerate(config.routes[:at]) if each.passthrough == route.passthrough}
        takers = _takers(route, earlier, config, catalog)
        if takers:
            yield Finding(("routes", at, "match"), _message(route, takers, earlier))


def _takers(route: RouteConfig, earlier: dict[int, RouteConfig], config: Config, catalog: Catalog) -> list[int]:
    """The earlier routes that together take every request that `route` would take; none if a request is left.

    There are few listeners, protocols and operations, so each combination of them can have another taker.
    """
    wanted = route.match
    takers: set[int] = set()
    for (listener, protocol), operation in product(_arrivals(route, config, catalog), _OPERATIONS):
        if wanted.operation not in (None, operation):
            continue
        found = [
            at
            for at, each in earlier.items()
            if each.match.listener in (None, listener)
            and each.match.protocol in (None, protocol)
            and each.match.operation in (None, operation)
            and _takes_all(each.match, wanted, operation)
        ]
        if not found:
            return []
        takers.add(next((at for at in found if is_exact(earlier[at].match)), found[0]))
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


def _takes_all(one: MatchConfig, other: MatchConfig, operation: Operation) -> bool:
    """Whether `one` takes all requests for `operation` that `other` takes, by path, model, version, headers and
    input."""
    return (
        _path_takes_all(one.path, other.path)
        and _model_takes_all(one, other)
        and one.version in (None, other.version)
        and _headers_take_all(one.header, other.header)
        and (operation not in CALLS or _input_takes_all(one.input, other.input))
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
    # A request that does not name a model takes only routes without the key `model`.
    return other.model is not None and covers(one.model, other.model)


def is_exact(match: MatchConfig) -> bool:
    """Whether `match` is for exactly one model name."""
    return match.model is not None and not any(mark in match.model for mark in "*?[")


def _message(route: RouteConfig, takers: list[int], earlier: dict[int, RouteConfig]) -> str:
    names = listed(f"routes[{each}]" for each in takers).replace(" or ", " and ")
    verb = "takes" if len(takers) == 1 else "together take"
    if is_exact(route.match) and not all(is_exact(earlier[each].match) for each in takers):
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

    Both globs are automata; a state is the number of tokens that have been matched. The function searches for a name
    that only `narrow` takes: it visits each state of `narrow` together with the set of states that `wide` can be in
    after the same characters, and tries one character for each class that the two globs distinguish. Exact names, which
    most routes have, need no search: a thousand routes are half a million pairs.
    """
    if not wildcards(narrow):
        return fnmatchcase(narrow, wide)
    if not wildcards(wide) and ("*" in narrow or "?" in narrow):
        return False
    wide_tokens, narrow_tokens = (TOKEN.findall(re.sub(r"\*+", "*", glob)) for glob in (wide, narrow))
    alphabet = sorted(_alphabet([*wide_tokens, *narrow_tokens]))
    todo = [(at, _after_stars(wide_tokens, {0})) for at in _after_stars(narrow_tokens, {0})]
    seen = set(todo)
    steps = 0
    while todo:
        at, wide_states = todo.pop()
        for character in alphabet:
            steps += 1 + len(wide_states)
            if steps > MOST_STEPS:
                return False
            reached = _after(narrow_tokens, {at}, character)
            if not reached:
                continue
            states = _after(wide_tokens, wide_states, character)
            if len(narrow_tokens) in reached and len(wide_tokens) not in states:
                return False
            new = {(each, states) for each in reached} - seen
            seen |= new
            todo += new
    return True


def _after(tokens: list[str], states: "set[int] | frozenset[int]", character: str) -> frozenset[int]:
    """The states after one more character."""
    moved = {
        at if tokens[at] == "*" else at + 1
        for at in states
        if at < len(tokens) and (tokens[at] == "*" or fnmatchcase(character, tokens[at]))
    }
    return _after_stars(tokens, moved)


def _after_stars(tokens: list[str], states: set[int]) -> frozenset[int]:
    """`states` and those behind stars, which may match nothing."""
    found = set(states)
    for at in states:
        while at < len(tokens) and tokens[at] == "*":
            at += 1
            found.add(at)
    return frozenset(found)


def _alphabet(tokens: list[str]) -> Iterator[str]:
    """Each character in a token, its neighbours (outside of a range that it ends), and one that is in no token."""
    named = {ord(character) for token in tokens for character in token}
    near = {code + step for code in named for step in (-1, 0, 1)}
    near.add(next(code for code in range(ord("a"), 0x10FFFF) if code not in near))
    return (chr(code) for code in near if 0 <= code <= 0x10FFFF)
