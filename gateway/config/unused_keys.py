"""Warnings about keys that are valid, but have no effect in combination with the rest of the configuration."""

from collections.abc import Iterator

from gateway.config.access import HealthAuthConfig, ListenerAuthConfig
from gateway.config.backends import BackendConfig
from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.keys import Config
from gateway.config.load_checks import unused_load_keys
from gateway.config.problems import Finding
from gateway.config.tls import ListenerTlsConfig


def unused_keys(config: Config, catalog: Catalog) -> Iterator[Finding]:
    """Yield one warning for each unused key."""
    yield from _metrics(config)
    yield from _log(config)
    yield from _certificates(config)
    yield from _permissions(config)
    for name, backend in config.backends.items():
        yield from _backend(("backends", name), backend, catalog)


def _unused(location: Location, why: str) -> Finding:
    return Finding(location, f"{location[-1]!r} has no effect: {why}", at_key=True)


def _metrics(config: Config) -> Iterator[Finding]:
    if "metrics" in config.model_fields_set and config.metrics.enabled and config.health is None:
        yield _unused(("metrics",), "the metrics page is on the health port; add `health: {bind: HOST:PORT}`")
    if not config.metrics.enabled:
        for key in ("models", "buckets"):
            if key in config.metrics.model_fields_set:
                yield _unused(("metrics", key), "`enabled` is false")
        if config.health is not None and config.health.auth is not None:
            yield _unused(("health", "auth"), "it applies to /metrics, but `metrics.enabled` is false")


def _log(config: Config) -> Iterator[Finding]:
    access = config.log.access
    for key in ("sample", "path"):
        if access.when == "never" and key in access.model_fields_set:
            yield _unused(("log", "access", key), "`when` is never")


def _certificates(config: Config) -> Iterator[Finding]:
    """Find entries for client certificates that no listener requests."""
    places = [(each.auth, each.tls) for each in config.listeners]
    asks = any(_asks(auth, tls) for auth, tls in places)
    if config.health is not None:
        asks = asks or _asks(config.health.auth, config.health.tls)
    if config.auth is not None and config.auth.certificates and not asks:
        text = "no listener with `auth` requests certificates; add `client_ca` and `client` to the listener's `tls`"
        yield _unused(("auth", "certificates"), text)


def _asks(auth: ListenerAuthConfig | HealthAuthConfig | None, tls: ListenerTlsConfig | None) -> bool:
    accepts = auth is not None and (auth.accept is None or "certificates" in auth.accept)
    return accepts and tls is not None and tls.client != "none"


def _permissions(config: Config) -> Iterator[Finding]:
    given = {name for principal in config.principals.values() for name in principal.permissions}
    claimed = config.auth is not None and any(each.permissions for each in config.auth.jwt)
    for name in config.permissions:
        if name not in given and not claimed:
            yield _unused(("permissions", name), "no principal uses it; add it to a principal's `permissions`")
    if config.principals and config.auth is None and all(each.auth is None for each in config.listeners):
        yield _unused(("principals",), "authentication is off; add `auth` at the top level and to listeners")


def _backend(location: Location, backend: BackendConfig, catalog: Catalog) -> Iterator[Finding]:
    has_queue = backend.max_in_flight or catalog.protocols[backend.protocol].traits.servers.max_in_flight
    waits = backend.queue.wait_for_endpoints is not None
    if waits and backend.discovery is None:
        yield _unused(
            (*location, "queue", "wait_for_endpoints"),
            "endpoints never change, because `discovery` is missing; remove it",
        )
    if "queue" in backend.model_fields_set and not has_queue and not waits:
        text = "calls wait only if `max_in_flight` limits them; add `max_in_flight`"
        yield _unused((*location, "queue"), text)
    for place, why in unused_load_keys(location, backend):
        yield _unused(place, why)
    health = backend.health
    if health is not None and health.probe == "none":
        for key in ("interval", "timeout", "unhealthy", "healthy", "jitter"):
            if key in health.model_fields_set:
                yield _unused((*location, "health", key), "`probe` is none")
