"""Checks of configurations for several workers. Settings that workers cannot share are errors, because they would
silently lead to wrong results."""

from collections.abc import Iterator

from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.keys import Config
from gateway.config.policies import Policies
from gateway.config.problems import Finding


def worker_findings(config: Config, catalog: Catalog) -> list[Finding]:
    """Return findings about keys that several workers cannot share."""
    return [] if config.workers == 1 else list(_not_shared(config))


def _not_shared(config: Config) -> Iterator[Finding]:
    for at, listener in enumerate(config.listeners):
        place = ("listeners", at)
        if listener.bind.path:
            yield _finding(*place, "bind", what="the address of a unix socket")
        if listener.metrics_page:
            yield _finding(*place, "metrics_page", what="a listener's metrics page")
        for key in ("connections", "connections_per_client"):
            if getattr(listener.limits, key) is not None:
                yield _finding(*place, "limits", key, what=f"limits.{key} of a listener")
    if config.scaler is not None:
        yield _finding("scaler", what="the load that the scaler reports")
    for key in ("connections_per_client", "memory_per_client"):
        if getattr(config.limits, key) is not None:
            yield _finding("limits", key, what=f"limits.{key}")
    for name, backend in config.backends.items():
        if backend.discovery is not None:
            yield _finding("backends", name, "discovery", what="discovered endpoints")
        if backend.servers is not None:
            yield _finding("backends", name, "servers", what="servers that the gateway starts")
    places: list[tuple[Location, Policies]] = [
        (("backends", name), each.policies) for name, each in config.backends.items()
    ]
    places += [(("routes", at), each.policies) for at, each in enumerate(config.routes)]
    for location, policies in places:
        for at, policy in enumerate(policies):
            if getattr(policy.settings, "not_shared", False):
                yield _finding(*location, "policies", at, policy.name, what=f"the state of a policy {policy.name}")


def _finding(*location: str | int, what: str) -> Finding:
    return Finding(location, f"{what} cannot be shared between workers yet; set workers: 1", at_key=True)
