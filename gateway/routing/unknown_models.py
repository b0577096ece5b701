"""What a client is told of a model that no route has for it: a near name, or the versions that there are.

Clients choose the names, so each answer costs a bounded handful of lookups, and speaks only of models that routes name
exactly for this listener and protocol, without conditions on paths or headers. What globs stand for is not known here.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache

from gateway.core.errors import GatewayError, not_found
from gateway.core.frozen import frozen
from gateway.core.operations import CONTROL_OPERATIONS, Operation
from gateway.core.types import Request
from gateway.routing.conditions import Conditions
from gateway.routing.version_names import split_version

MOST_NAMES = 500
LONGEST_SUGGESTED = 64
"""Names beyond these bounds are not suggested."""
_SHORTEST_SUGGESTED = 3
_MOST_VERSIONS = 5


@frozen
class Visible:
    """The models that routes name for the clients of one protocol at one listener: each with the versions that its
    routes want, and each under every `trimmed` form of its name."""

    versions: dict[str, tuple[str, ...]]
    near: dict[str, str]


class UnknownModels:
    """Makes the error of a request that no route takes. `joined` are the protocols whose clients write a model and its
    version as one name."""

    def __init__(self, routes: Iterable[tuple[Conditions, Iterable[str]]], joined: frozenset[str]) -> None:
        self._routes = tuple((conditions, frozenset(protocols)) for conditions, protocols in routes)
        self._joined = joined
        self._visible = lru_cache(None)(self._find)  # by listener and protocol, of which the configuration has few

    def error(self, request: Request) -> GatewayError:
        """NOT_FOUND, in words that help."""
        if not request.model:
            return not_found(f"no route for {_nameless(request.operation)}")
        visible = self._visible(request.listener, request.protocol)
        for model, version in self._readings(request):
            if model in visible.versions:
                return not_found(_of_known(model, version, visible.versions[model], request))
        near = next((visible.near[each] for each in trimmed(request.model) if each in visible.near), None)
        suggestion = f"; did you mean {near!r}?" if near else ""
        return not_found(f"no model {request.model!r} here{suggestion}")

    def _readings(self, request: Request) -> Iterator[tuple[str, str]]:
        """The model and the version that the request names."""
        yield request.model, request.version
        split = split_version(request.model) if request.protocol in self._joined and not request.version else None
        if split:
            yield split

    def _find(self, listener: str, protocol: str) -> Visible:
        versions: dict[str, tuple[str, ...]] = {}
        near: dict[str, str] = {}
        for conditions, protocols in self._routes:
            if (
                not conditions.exact
                or conditions.per_request
                or conditions.listener not in ("", listener)
                or conditions.protocol not in ("", protocol)
                or protocol not in protocols
            ):
                continue
            name = conditions.model
            if name not in versions and len(versions) < MOST_NAMES:
                near |= {each: near.get(each, name) for each in trimmed(name)}
            versions[name] = (*versions.get(name, ()), conditions.version)
        return Visible(versions, near)


def _nameless(operation: Operation) -> str:
    if operation in CONTROL_OPERATIONS:
        name = operation.value
        return f"{name} without a model: one with `match: {{operation: {name}}}` says which backend is meant"
    return "a request without a model: name one, or set `model` on the listener"


def trimmed(name: str) -> Iterator[str]:
    """`name` without regard to case and to `-` or `_`: whole, and without one of its characters. Names that share one
    of these differ by a character more, less or other, or by two neighbours in the other order."""
    if not _SHORTEST_SUGGESTED <= len(name) <= LONGEST_SUGGESTED:
        return
    folded = name.lower().replace("-", "_")
    yield folded
    for at in range(len(folded)):
        yield folded[:at] + folded[at + 1 :]


def _of_known(model: str, version: str, versions: tuple[str, ...], request: Request) -> str:
    """Of a model that is here, but not as it was asked for."""
    wanted = list(dict.fromkeys(versions))
    if "" in wanted or version in wanted:
        return f"model {model!r} does not take {request.operation.value!r} here"
    word = "version" if len(wanted) == 1 else "versions"
    shown = ", ".join(map(repr, wanted[:_MOST_VERSIONS])) + (", ..." if len(wanted) > _MOST_VERSIONS else "")
    asked = f", not {version!r}" if version else "; name it" if len(wanted) == 1 else "; name one"
    return f"model {model!r} has {word} {shown} here{asked}"
