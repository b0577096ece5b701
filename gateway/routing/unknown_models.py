"""Creates errors for unknown models, with suggestions.

If no route matches a model, the error suggests a similar name or the existing versions. If the servers behind a glob do
not have the model, the error suggests a similar name that another route matches.

Suggestions are models that routes name exactly, for the client's listener and protocol, without conditions on path,
headers or input. The models behind globs are unknown here. Clients choose the names, so the number of lookups per error
must be limited. Therefore the module compares names by looking up their `variants` in a table.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from gateway.core.errors import GatewayError, Reason, invalid_input, not_found
from gateway.core.frozen import frozen
from gateway.core.operations import CONTROL_OPERATIONS, Operation
from gateway.core.principal import Principal
from gateway.core.requests import Answer, Request
from gateway.core.tensors import Tensor
from gateway.core.transport import Handler
from gateway.routing.conditions import Conditions
from gateway.routing.version_names import split_version

MOST_NAMES = 500
LONGEST_SUGGESTED = 64
"""Maximum length of a suggested name, in characters. The table contains at most MOST_NAMES names."""
_SHORTEST_SUGGESTED = 3
_MOST_VERSIONS = 5
_MOST_INPUTS = 5


@frozen
class Visible:
    """The models that routes name for clients of one protocol on one listener.

    `versions` maps each name to the versions in its routes' conditions. `near` maps each variant of a name to the name.
    """

    versions: dict[str, tuple[str, ...]]
    near: dict[str, str]


class UnknownModels:
    """Creates the errors for requests that no route matches. `joined` are the protocols whose clients join a model and
    its version into one name."""

    def __init__(self, routes: Iterable[tuple[Conditions, Iterable[str]]], joined: frozenset[str]) -> None:
        self._routes = tuple((conditions, frozenset(protocols)) for conditions, protocols in routes)
        self._joined = joined
        self._visible = lru_cache(None)(self._find)  # no limit: configurations have few listeners and protocols

    def error(self, request: Request, candidates: Sequence[Conditions] = ()) -> GatewayError:
        """Return the error for `request`: INVALID_ARGUMENT if it meets the conditions of one of `candidates` except
        those on inputs, otherwise NOT_FOUND."""
        if any(each.input and each.holds_but_for_input(request) for each in candidates):
            return invalid_input(_text_for_inputs(request))
        if not request.model:
            return not_found(f"no route for {_without_model(request.operation)}")
        visible = self._visible(request.listener, request.protocol)
        for model, version in self._readings(request):
            if model in visible.versions:
                return not_found(_text_for_known(model, version, visible.versions[model], request))
        near = self.near(request.listener, request.protocol, request.model, request.operation, request.principal)
        return not_found(f"unknown model {request.model!r}{_suggestion(near) if near else ''}")

    def near(
        self, listener: str, protocol: str, model: str, operation: Operation, principal: Principal | None
    ) -> str | None:
        """Return another model that the client might mean by `model`, and that the principal has permission to use.

        Return None if a route names `model` itself, or if there is no similar name."""
        visible = self._visible(listener, protocol)
        if model in visible.versions:
            return None
        names = (visible.near[each] for each in variants(model) if each in visible.near)
        return next((name for name in names if principal is None or principal.may(operation, name, listener)), None)

    def _readings(self, request: Request) -> Iterator[tuple[str, str]]:
        """Yield the models and versions that the request can mean."""
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
                near |= {each: near.get(each, name) for each in variants(name)}
            versions[name] = (*versions.get(name, ()), conditions.version)
        return Visible(versions, near)


def suggesting(handler: Handler, name: str) -> Handler:
    """Wrap `handler` to suggest a similar name in errors about models that the server does not have."""

    async def suggest(request: Request) -> Answer:
        try:
            return await handler(request)
        except GatewayError as error:
            # Do not change the error itself, because clients that share one call get the same object.
            if error.reason is Reason.MODEL_NOT_FOUND and not error.message.endswith(_suggestion(name)):
                error.message += _suggestion(name)
            raise

    return suggest


def _suggestion(name: str) -> str:
    return f"; did you mean {name!r}?"


def _without_model(operation: Operation) -> str:
    if operation in CONTROL_OPERATIONS:
        name = operation.value
        return f"{name} without a model: one with `match: {{operation: {name}}}` says which backend is meant"
    return "a request without a model: name one, or set `model` on the listener"


def variants(name: str) -> Iterator[str]:
    """Yield variants of `name`, in lower case and with `_` for `-`: the whole name, and the name without each one of
    its characters.

    Two names share a variant if they differ by one added, removed or replaced character, or by two swapped adjacent
    characters."""
    if not _SHORTEST_SUGGESTED <= len(name) <= LONGEST_SUGGESTED:
        return
    folded = name.lower().replace("-", "_")
    yield folded
    for at in range(len(folded)):
        yield folded[:at] + folded[at + 1 :]


def _text_for_inputs(request: Request) -> str:
    if request.schemaless:
        return f"model {request.model!r} needs inputs with datatypes and shapes; use a protocol that has them"
    shown = ", ".join(map(_described, request.inputs[:_MOST_INPUTS])) or "none"
    more = ", ..." if len(request.inputs) > _MOST_INPUTS else ""
    return f"model {request.model!r} does not accept these inputs: {shown}{more}"


def _described(tensor: Tensor) -> str:
    name = tensor.name if len(tensor.name) <= LONGEST_SUGGESTED else f"{tensor.name[:LONGEST_SUGGESTED]}..."
    return f"{name!r} {tensor.datatype} {list(tensor.shape)}" if name else f"{tensor.datatype} {list(tensor.shape)}"


def _text_for_known(model: str, version: str, versions: tuple[str, ...], request: Request) -> str:
    """Return the error message for a model that exists, but not in this version or for this operation."""
    wanted = list(dict.fromkeys(versions))
    if "" in wanted or version in wanted:
        return f"model {model!r} does not support {request.operation.value!r}"
    word = "version" if len(wanted) == 1 else "versions"
    shown = ", ".join(map(repr, wanted[:_MOST_VERSIONS])) + (", ..." if len(wanted) > _MOST_VERSIONS else "")
    asked = f", not {version!r}" if version else "; name it" if len(wanted) == 1 else "; name one"
    return f"model {model!r} has {word} {shown}{asked}"
