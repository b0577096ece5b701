"""Find the valid parts of an invalid configuration, for additional checks. If the listener in line 3 has a typo, the
gateway can still report errors in the backend in line 9."""

from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import ValidationError

from gateway.config.backends import BackendConfig
from gateway.config.document import Location
from gateway.config.fields import Keys
from gateway.config.forms import FormConfig
from gateway.config.keys import AdminConfig, Config, HealthConfig, ReferenceConfig, ScalerConfig
from gateway.config.listeners import ListenerConfig
from gateway.config.routes import RouteConfig
from gateway.config.tls import BackendTlsConfig, ListenerTlsConfig
from gateway.core.frozen import frozen

Part = TypeVar("Part", bound=Keys)


@frozen
class Parts:
    """The valid parts of a configuration by index or name, and the names of all listeners, forms and backends,
    including the invalid ones."""

    listeners: dict[int, ListenerConfig]
    admin: AdminConfig | None
    health: HealthConfig | None
    scaler: ScalerConfig | None
    reference: dict[int, ReferenceConfig]
    forms: dict[str, FormConfig]
    backends: dict[str, BackendConfig]
    routes: dict[int, RouteConfig]
    listener_names: frozenset[str]
    form_names: frozenset[str]
    backend_names: frozenset[str]

    def tls_sections(self) -> Iterator[tuple[Location, ListenerTlsConfig | BackendTlsConfig]]:
        """Yield each section `tls` of these parts with its location."""
        sections: dict[Location, Any] = {("listeners", at): each for at, each in self.listeners.items()}
        sections |= {("reference", at): each for at, each in self.reference.items()}
        sections |= {("admin",): self.admin, ("health",): self.health, ("scaler",): self.scaler}
        sections |= {("backends", name): each for name, each in self.backends.items()}
        for location, section in sections.items():
            if section is not None and section.tls is not None:
                yield (*location, "tls"), section.tls


def valid_parts(data: Any) -> Parts:
    """Return the valid parts of an invalid configuration."""
    data = data if isinstance(data, dict) else {}
    listeners, backends = _indexed(data.get("listeners")), data.get("backends")
    backends = backends if isinstance(backends, dict) else {}
    forms = data.get("forms")
    forms = forms if isinstance(forms, dict) else {}
    names = (item["name"] for item in listeners.values() if isinstance(item, dict) and "name" in item)
    return Parts(
        listeners=_valid(ListenerConfig, listeners),
        admin=_read(AdminConfig, data.get("admin")),
        health=_read(HealthConfig, data.get("health")),
        scaler=_read(ScalerConfig, data.get("scaler")),
        reference=_valid(ReferenceConfig, _indexed(data.get("reference"))),
        forms=_valid(FormConfig, forms),
        backends=_valid(BackendConfig, backends),
        routes=_valid(RouteConfig, _indexed(data.get("routes"))),
        listener_names=frozenset(map(str, names)),
        form_names=frozenset(forms),
        backend_names=frozenset(backends),
    )


def all_parts(config: Config) -> Parts:
    """Return all parts of a valid configuration."""
    return Parts(
        listeners=dict(enumerate(config.listeners)),
        admin=config.admin,
        health=config.health,
        scaler=config.scaler,
        reference=dict(enumerate(config.reference)),
        forms=dict(config.forms),
        backends=dict(config.backends),
        routes=dict(enumerate(config.routes)),
        listener_names=frozenset(listener.name for listener in config.listeners),
        form_names=frozenset(config.forms),
        backend_names=frozenset(config.backends),
    )


def _indexed(data: Any) -> dict[int, Any]:
    return dict(enumerate(data)) if isinstance(data, list) else {}


def _valid(model: type[Part], items: dict[Any, Any]) -> dict[Any, Part]:
    read = {key: _read(model, item) for key, item in items.items()}
    return {key: part for key, part in read.items() if part is not None}


def _read(model: type[Part], item: Any) -> Part | None:
    """Return `item` without its invalid keys; None if one of these keys is required."""
    if not isinstance(item, dict):
        return None
    try:
        return model.model_validate(item, extra="ignore")
    except ValidationError as error:
        rest = _without(item, [each["loc"] for each in error.errors(include_url=False)])
    return None if rest == item else _read(model, rest)


def _without(item: dict[Any, Any], invalid: list[Location]) -> dict[Any, Any]:
    kept = {}
    by_key: dict[Any, list[Location]] = {}
    for location in invalid:
        by_key.setdefault(location[0], []).append(location[1:])
    for key, each in item.items():
        below = by_key.get(key)
        if not below:
            kept[key] = each
        elif all(below) and isinstance(each, dict):
            kept[key] = _without(each, below)
    return kept
