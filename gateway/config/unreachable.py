"""Routes that no request can reach, because those before them take everything that they would take."""

from collections.abc import Iterator
from itertools import product

from gateway.config.catalog import Catalog
from gateway.config.globs import covers
from gateway.config.keys import Config
from gateway.config.problems import Finding, listed
from gateway.config.routes import MatchConfig, RouteConfig
from gateway.core.operations import SERVER_OPERATIONS, Operation

_OPERATIONS = tuple(operation for operation in Operation if operation not in SERVER_OPERATIONS)


def unreachable_routes(config: Config, catalog: Catalog) -> Iterator[Finding]:
    """Routes that are certain to be reached by nothing, or by nothing but names made of their model's."""
    for at, route in enumerate(config.routes):
        # messages that pass untouched have routes of their own
        earlier = {i: each for i, each in enumerate(config.routes[:at]) if each.passthrough == route.passthrough}
        takers = _takers(route, earlier, config, catalog)
        if takers:
            yield Finding(("routes", at, "match"), _told(route, at, takers, earlier))


def _takers(route: RouteConfig, earlier: dict[int, RouteConfig], config: Config, catalog: Catalog) -> list[int]:
    """The earlier routes that take, together, every request that `route` would take; none if something is left.

    Listeners, protocols and operations can be counted, so each combination of them may have a taker of its own.
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
            and _takes_all(each.match, wanted)
        ]
        if not found:
            return []
        takers.add(next((at for at in found if is_exact(earlier[at].match)), found[0]))
    return sorted(takers)


def _arrivals(route: RouteConfig, config: Config, catalog: Catalog) -> list[tuple[str, str]]:
    """The listeners and protocols where requests for `route` can arrive."""
    passed = config.backends[route.backend].protocol if route.passthrough else None
    return [
        (listener.name, name)
        for listener in config.listeners
        for name in listener.protocols
        if route.match.listener in (None, listener.name)
        and route.match.protocol in (None, name)
        and passed in (None, name)
    ]


def _takes_all(one: MatchConfig, other: MatchConfig) -> bool:
    """Whether `one` takes what `other` takes, as far as path, model, version and headers go."""
    return (
        _path_takes_all(one.path, other.path)
        and _model_takes_all(one, other)
        and one.version in (None, other.version)
        and one.header.items() <= other.header.items()
    )


def _path_takes_all(one: str | None, other: str | None) -> bool:
    if one is None or one == other:
        return True
    return other is not None and one.endswith("*") and other.removesuffix("*").startswith(one[:-1])


def _model_takes_all(one: MatchConfig, other: MatchConfig) -> bool:
    if one.model is None or one.model == other.model:
        return True
    # requests that name no model take only routes without one
    return other.model is not None and covers(one.model, other.model)


def is_exact(match: MatchConfig) -> bool:
    """Whether `match` is for one model's name."""
    return match.model is not None and not any(mark in match.model for mark in "*?[")


def _told(route: RouteConfig, at: int, takers: list[int], earlier: dict[int, RouteConfig]) -> str:
    names = listed(f"routes[{each}]" for each in takers).replace(" or ", " and ")
    verb = "takes" if len(takers) == 1 else "together take"
    if is_exact(route.match) and not all(is_exact(earlier[each].match) for each in takers):
        # The router tries exact names first for the names that are made of them.
        model = route.match.model
        return (
            f"{names} {verb} every request for {model!r}, so this route gets only names made of it, such as "
            f"{model}.gradient; put it before {names}"
        )
    return f"{names} {verb} everything that this route would take, so no request reaches it; put it before {names}"
