"""The parts of a configuration, one by one, so that a fault in one does not hide what is wrong with the others."""

from typing import Any, TypeVar

from pydantic import ValidationError

from gateway.config.document import Location
from gateway.config.fields import Keys
from gateway.config.models import AdminConfig, BackendConfig, Config, HealthConfig, ListenerConfig, ReferenceConfig
from gateway.config.routes import RouteConfig
from gateway.core.frozen import frozen

Part = TypeVar("Part", bound=Keys)


@frozen
class Parts:
    """The sound parts of a configuration by index or name, and the names of all listeners and backends."""

    listeners: dict[int, ListenerConfig]
    admin: AdminConfig | None
    health: HealthConfig | None
    reference: dict[int, ReferenceConfig]
    backends: dict[str, BackendConfig]
    routes: dict[int, RouteConfig]
    listener_names: frozenset[str]
    backend_names: frozenset[str]


def sound_parts(data: Any) -> Parts:
    """The sound parts of what is not sound as a whole."""
    data = data if isinstance(data, dict) else {}
    listeners, backends = _listed(data.get("listeners")), data.get("backends")
    backends = backends if isinstance(backends, dict) else {}
    names = (item["name"] for item in listeners.values() if isinstance(item, dict) and "name" in item)
    return Parts(
        _sound(ListenerConfig, listeners),
        _read(AdminConfig, data.get("admin")),
        _read(HealthConfig, data.get("health")),
        _sound(ReferenceConfig, _listed(data.get("reference"))),
        _sound(BackendConfig, backends),
        _sound(RouteConfig, _listed(data.get("routes"))),
        frozenset(map(str, names)),
        frozenset(backends),
    )


def all_parts(config: Config) -> Parts:
    """All parts of a sound configuration."""
    return Parts(
        dict(enumerate(config.listeners)),
        config.admin,
        config.health,
        dict(enumerate(config.reference)),
        dict(config.backends),
        dict(enumerate(config.routes)),
        frozenset(listener.name for listener in config.listeners),
        frozenset(config.backends),
    )


def _listed(data: Any) -> dict[int, Any]:
    return dict(enumerate(data)) if isinstance(data, list) else {}


def _sound(model: type[Part], items: dict[Any, Any]) -> dict[Any, Part]:
    read = {key: _read(model, item) for key, item in items.items()}
    return {key: part for key, part in read.items() if part is not None}


def _read(model: type[Part], item: Any) -> Part | None:
    """`item`, without the keys that are at fault if it can do without them."""
    if not isinstance(item, dict):
        return None
    try:
        return model.model_validate(item, extra="ignore")
    except ValidationError as error:
        rest = _without(item, [each["loc"] for each in error.errors()])
    return None if rest == item else _read(model, rest)


def _without(item: dict[Any, Any], faulty: list[Location]) -> dict[Any, Any]:
    kept = {}
    for key, each in item.items():
        below = [location[1:] for location in faulty if location[0] == key]
        if not below:
            kept[key] = each
        elif all(below) and isinstance(each, dict):
            kept[key] = _without(each, below)
    return kept
