"""List the differences between two configurations after a reload, for the log and for operators. The list contains key
names and the addresses of listeners and endpoints, but no other values, because they might be secrets."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from gateway.config.backends import BackendConfig, EndpointConfig
from gateway.config.forms import FormConfig
from gateway.config.keys import Config
from gateway.config.listeners import ListenerConfig
from gateway.config.routes import RouteConfig

NEEDS_RESTART = ("reference", "workers")
"""The top-level keys that a reload does not apply."""

_LISTED = frozenset({"listeners", "forms", "backends", "routes", *NEEDS_RESTART})

K = TypeVar("K", ListenerConfig, FormConfig, BackendConfig, RouteConfig)


def applicable(running: Config, loaded: Config) -> Config:
    """Return `loaded`, but with the values from `running` for the keys that need a restart."""
    return loaded.model_copy(update={key: getattr(running, key) for key in NEEDS_RESTART})


def changes(old: Config, new: Config) -> tuple[str, ...]:
    """Return a line for each difference between `old` and `new`; empty if the configurations are equal."""
    return (
        *_listeners(old.listeners, new.listeners),
        *_forms(old.forms, new.forms),
        *_backends(old.backends, new.backends),
        *_routes(old.routes, new.routes),
        *(f"{key} changed" for key in _different(old, new) if key not in _LISTED),
    )


def not_applied(running: Config, loaded: Config) -> tuple[str, ...]:
    """Return a line for each changed key that needs a restart."""
    different = (key for key in NEEDS_RESTART if getattr(running, key) != getattr(loaded, key))
    return tuple(f"{key} differs from the file, which needs a restart to take effect" for key in different)


def _listeners(old: Iterable[ListenerConfig], new: Iterable[ListenerConfig]) -> Iterator[str]:
    earlier, later = ({each.name: each for each in listeners} for listeners in (old, new))
    yield from _added_and_removed("listener", earlier, later)
    for name, before, after in _kept(earlier, later):
        bind = f"bind {before.bind} -> {after.bind}"
        keys = [bind if key == "bind" else key for key in _different(before, after)]
        if keys:
            yield f"listener {name!r}: {', '.join(keys)} changed"


def _forms(old: Mapping[str, FormConfig], new: Mapping[str, FormConfig]) -> Iterator[str]:
    yield from _added_and_removed("form", old, new)
    for name, before, after in _kept(old, new):
        if keys := _different(before, after):
            yield f"form {name!r}: {', '.join(keys)} changed"


def _backends(old: Mapping[str, BackendConfig], new: Mapping[str, BackendConfig]) -> Iterator[str]:
    yield from _added_and_removed("backend", old, new)
    for name, before, after in _kept(old, new):
        keys = [key for key in _different(before, after) if key != "endpoints"]
        if before.endpoints != after.endpoints:
            yield f"backend {name!r}: endpoints {_endpoints(before.endpoints, after.endpoints)}"
        if keys:
            yield f"backend {name!r}: {', '.join(keys)} changed"


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


def _routes(old: Sequence[RouteConfig], new: Sequence[RouteConfig]) -> Iterator[str]:
    earlier, later = ({each.name: each for each in routes} for routes in (old, new))
    yield from _added_and_removed("route", earlier, later)
    for name, before, after in _kept(earlier, later):
        if keys := _different(before, after):
            yield f"route {name!r}: {', '.join(keys)} changed"
    if [name for name in earlier if name in later] != [name for name in later if name in earlier]:
        yield "routes in another order"


def _added_and_removed(what: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{what} {name!r} added" for name in new if name not in old)
    yield from (f"{what} {name!r} removed" for name in old if name not in new)


def _kept(old: Mapping[str, K], new: Mapping[str, K]) -> Iterator[tuple[str, K, K]]:
    return ((name, old[name], each) for name, each in new.items() if name in old)


def _different(old: Any, new: Any) -> list[str]:
    """Return the keys with different values."""
    return [key for key in type(new).model_fields if getattr(old, key) != getattr(new, key)]
