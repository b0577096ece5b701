"""Find unreachable routes: an earlier route accepts every request that they would accept.

A route is unreachable if every request that meets its conditions also meets the conditions of an earlier route. The
check reports only certain cases. It compares only the globs `TEXT*`, `*TEXT` and `*`, and does not find routes that are
unreachable only because of several earlier routes together.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from gateway.config.catalog import Catalog
from gateway.config.keys import Config
from gateway.config.problems import Finding
from gateway.config.routes import ANY_VALUE, InputMatchConfig, MatchConfig, RouteConfig
from gateway.core.operations import CALLS
from gateway.core.tensors import Shape

MOST_COMPARISONS = 50_000
"""Maximum number of pairs of routes that are compared for one configuration, which takes a fraction of a second. Later
routes are not checked."""


def unreachable_routes(config: Config, _: Catalog, most: int = MOST_COMPARISONS) -> Iterator[Finding]:
    """Find routes that are unreachable, except perhaps for requests for derivative models such as `M.gradient`.

    The check stops after `most` comparisons."""
    index = RouteIndex(config.routes)
    for at, route in enumerate(config.routes):
        wanted = route.match
        earlier = index.earlier(at, wanted.model)
        most -= len(earlier)
        if most < 0:
            return
        takers = [each for each in earlier if takes_all(config.routes[each].match, wanted)]
        if takers:
            exact = (each for each in takers if _is_exact(config.routes[each].match))
            taker = next(exact, takers[0])
            yield Finding(("routes", at, "match"), _message(wanted, taker, config.routes[taker].match))


class RouteIndex:
    """Routes by the literal text at the start of their globs. A glob matches only names with this start, so a thousand
    routes for a thousand names need no comparisons."""

    def __init__(self, routes: Sequence[RouteConfig]) -> None:
        self._routes = routes
        # Routes with `passthrough` and routes without it apply to different requests.
        self._places: defaultdict[tuple[bool, str | None], list[int]] = defaultdict(list)
        for at, route in enumerate(routes):
            self._places[route.passthrough, _beginnings(route.match.model)[-1]].append(at)

    def earlier(self, at: int, model: str | None) -> list[int]:
        """Return the indexes of the routes before route `at` that could accept all requests of route `at` for `model`,
        a name or a glob."""
        keys = [(self._routes[at].passthrough, text) for text in _beginnings(model)]
        places = (self._places[key] for key in keys if key in self._places)
        return sorted(each for found in places for each in found[: bisect_left(found, at)])


def _beginnings(model: str | None) -> list[str | None]:
    """Return the literal start of each glob in an earlier route that could accept all names of `model`. The last item
    is the literal start of `model` itself. None stands for routes without a model, which are the only routes for
    requests without a model name."""
    if model is None:
        return [None]
    text = _plain_text(model)
    return [None, *(text[:end] for end in range(len(text) + 1))]


def _plain_text(glob: str) -> str:
    """Return the text before the first wildcard."""
    return glob[: next((at for at, character in enumerate(glob) if character in "*?["), len(glob))]


def _is_plain(glob: str) -> bool:
    return _plain_text(glob) == glob


def takes_all(one: MatchConfig, other: MatchConfig) -> bool:
    """Return whether `one` accepts all requests that `other` accepts."""
    return (
        (one.model in (None, other.model) or (other.model is not None and covers(one.model, other.model)))
        and one.listener in (None, other.listener)
        and one.protocol in (None, other.protocol)
        and one.operation in (None, other.operation)
        and one.version in (None, other.version)
        and path_takes_all(one.path, other.path)
        and _headers_take_all(one.header, other.header)
        # Only calls have inputs.
        and (other.operation not in (None, *CALLS) or _input_takes_all(one.input, other.input))
    )


def _headers_take_all(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return all(name in other and wanted in (ANY_VALUE, other[name]) for name, wanted in one.items())


def _input_takes_all(one: InputMatchConfig | None, other: InputMatchConfig | None) -> bool:
    """Return whether every input that meets `other` meets `one`."""
    if one is None or other is None:
        return one is None
    return (
        one.name in (None, other.name)
        and one.datatype in (None, other.datatype)
        and (one.shape is None or (other.shape is not None and _shape_takes_all(one.shape, other.shape)))
    )


def _shape_takes_all(one: Shape, other: Shape) -> bool:
    return len(one) == len(other) and all(size in (-1, each) for size, each in zip(one, other, strict=True))


def path_takes_all(one: str | None, other: str | None) -> bool:
    """Return whether a route's path `one`, exact or with `*`, accepts every path that `other` accepts. None accepts all
    paths."""
    if one is None or one == other:
        return True
    return other is not None and one.endswith("*") and other.removesuffix("*").startswith(one[:-1])


def covers(wide: str, narrow: str) -> bool:
    """Return whether the glob `wide` matches every name (of at least one character) that the glob `narrow` matches.
    False if that is not certain."""
    if wide in ("*", narrow):
        return True
    if _is_plain(narrow):
        return fnmatchcase(narrow, wide)
    if wide.endswith("*") and _is_plain(wide[:-1]):
        return _plain_text(narrow).startswith(wide[:-1])
    last = max(narrow.rfind(character) for character in "*?[]")
    return wide.startswith("*") and _is_plain(wide[1:]) and narrow[last + 1 :].endswith(wide[1:])


def _is_exact(match: MatchConfig) -> bool:
    """Return True if `match` has exactly one model name."""
    return match.model is not None and _is_plain(match.model)


def _message(wanted: MatchConfig, at: int, taker: MatchConfig) -> str:
    if _is_exact(wanted) and not _is_exact(taker):
        # For a name such as M.gradient, the router first tries routes for exactly M.
        return (
            f"routes[{at}] takes every request for {wanted.model!r}, so this route gets only derived names such as "
            f"{wanted.model}.gradient; put it before routes[{at}]"
        )
    return f"routes[{at}] takes all requests that this route would take; put this route before routes[{at}]"
