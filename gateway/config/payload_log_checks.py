"""Checks of `log.payloads` against the other parts of a configuration."""

from collections.abc import Iterator

from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE
from gateway.config.keys import Config
from gateway.config.observing import PayloadLogConfig
from gateway.config.problems import Finding, unknown
from gateway.config.tls_checks import client_tls_findings

_PLACE: Location = ("log", "payloads")
_OF_REQUESTS = ("events", "headers", "tls", "timeout")
"""Keys that apply only if events are sent to a URL."""


def payload_log_findings(config: Config, catalog: Catalog) -> list[Finding]:
    """Return all findings of these checks."""
    settings = config.log.payloads
    if settings is None:
        return []
    return [*_routes(settings, config), *_requests(settings, catalog)]


def _routes(settings: PayloadLogConfig, config: Config) -> Iterator[Finding]:
    """Find routes that do not exist, or whose messages are not decoded."""
    known: dict[str, bool] = dict.fromkeys(config.models, True)
    for route in config.routes:
        known[route.name] = known.get(route.name, False) or not route.passthrough
    for at, name in enumerate(settings.routes or ()):
        location: Location = (*_PLACE, "routes", at)
        yield from unknown(location, "route or graph", name, known)
        if not known.get(name, True):
            yield Finding(location, f"{VALUE} has passthrough, so the gateway does not decode its messages; remove it")


def _requests(settings: PayloadLogConfig, catalog: Catalog) -> Iterator[Finding]:
    if settings.is_file:
        for key in _OF_REQUESTS:
            if key in settings.model_fields_set:
                yield Finding((*_PLACE, key), "is for a URL in `to`, but `to` is a file; remove it", at_key=True)
    elif settings.tls is not None and not settings.to.startswith("https:"):
        yield Finding((*_PLACE, "tls"), "needs https in `to`", at_key=True)
    elif settings.tls is not None:
        yield from client_tls_findings((*_PLACE, "tls"), settings.tls, catalog)
