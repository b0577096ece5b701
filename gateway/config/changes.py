"""After a reload, list the differences between the old and the new configuration, for the log and for operators. The
list contains key names and the addresses of listeners and endpoints, but no other values, because they might be
secrets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from gateway.config.backends import EndpointConfig
from gateway.config.keys import Config
from gateway.config.listeners import ListenerConfig
from gateway.config.routes import RouteConfig

NEEDS_RESTART = ("reference", "workers")
"""The top-level keys that a reload does not apply."""

_LISTED = frozenset({"listeners", "forms", "backends", "routes", *NEEDS_RESTART})

N = TypeVar("N", ListenerConfig, RouteConfig)


def applicable(running: Config, loaded: Config) -> Config:
    """Return `loaded`, but with the values from `running` for the keys that need a restart."""
    return loaded.model_copy(update={key: getattr(running, key) for key in NEEDS_RESTART})


def changes(old: Config, new: Config) -> tuple[str, ...]:
    """Return a line for each difference between `old` and `new`; empty if the configurations are equal."""
    return (
        *_of_kind("listener", _by_name(old.listeners), _by_name(new.listeners)),
        *_of_kind("form", old.forms, new.forms),
        *_of_kind("backend", old.backends, new.backends),
        *_of_kind("route", _by_name(old.routes), _by_name(new.routes)),
        *_order(_by_name(old.routes), _by_name(new.routes)),
        *(f"{key} changed" for key in _different(old, new) if key not in _LISTED),
    )


def not_applied(running: Config, loaded: Config) -> tuple[str, ...]:
    """Return a line for each changed key that needs a restart."""
    different = (key for key in NEEDS_RESTART if getattr(running, key) != getattr(loaded, key))
    return tuple(f"{key} differs from the file, which needs a restart to take effect" for key in different)


def _by_name(listed: Iterable[N]) -> Mapping[str, N]:
    return {each.name: each for each in listed}


def _of_kind(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Return a line for each difference between listeners, forms, backends or routes, which are given by name."""
    yield from (f"{what} {name!r} added" for name in new if name not in old)
    yield from (f"{what} {name!r} removed" for name in old if name not in new)
    for name, after in new.items():
        if name in old:
            yield from (f"{what} {name!r}: {text}" for text in _changed(old[name], after))


def _changed(before: Any, after: Any) -> Iterator[str]:
    """Return the names of the keys that changed, and the changed addresses."""
    keys = _different(before, after)
    if "endpoints" in keys:
        keys.remove("endpoints")
        yield f"endpoints {_endpoints(before.endpoints, after.endpoints)}"
    if "bind" in keys:
        keys[keys.index("bind")] = f"bind {before.bind} -> {after.bind}"
    if keys:
        yield f"{', '.join(keys)} changed"


def _endpoints(old: Sequence[EndpointConfig], new: Sequence[EndpointConfig]) -> str:
    earlier, later = ({each.address: each.weight for each in endpoints} for endpoints in (old, new))
    added = [f"+ {address}" for address in later if address not in earlier]
    removed = [f"- {address}" for address in earlier if address not in later]
    weighted = [
        f"{address} weight {earlier[address]:g} -> {weight:g}"
        for address, weight in later.items()
        if earlier.get(address, weight) != weight
    ]
    return " ".join((*added, *removed, *weighted)) or "in another order"


def _order(old: Mapping[str, RouteConfig], new: Mapping[str, RouteConfig]) -> Iterator[str]:
    if [name for name in old if name in new] != [name for name in new if name in old]:
        yield "routes in another order"


def _different(old: Any, new: Any) -> list[str]:
    """Return the keys with different values."""
    return [key for key in type(new).model_fields if getattr(old, key) != getattr(new, key)]
