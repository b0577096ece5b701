"""Checks of policies against their backends and routes. Class attributes of a policy's `Settings` describe its behavior
(`gateway/policies/__init__.py`), so this module depends on no policy."""

from collections.abc import Iterator, Sequence

from gateway.config.backends import BackendConfig
from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.keys import Config
from gateway.config.policies import PolicyConfig
from gateway.config.problems import Finding
from gateway.core.protocol import Rows, resolve_batch


def policy_findings(config: Config, catalog: Catalog) -> list[Finding]:
    """Return findings about policies that have no effect at their position."""
    return [
        *_second_calls(config),
        *_calls_saved(config),
        *_beside_backends(config),
        *_beside_passthrough(config),
        *_within_tries(config),
        *_before_fitting(config),
        *_without_batches(config, catalog),
    ]


def _second_calls(config: Config) -> Iterator[Finding]:
    """Find policies that send calls twice, but apply to backends whose calls must not be repeated."""
    for location, policy, name in _repeating(config, "sent"):
        text = f"{policy.name} sends calls twice, which needs safe: true on the backend {name!r}"
        yield Finding(location, text, at_key=True)


def _calls_saved(config: Config) -> Iterator[Finding]:
    """Find policies that make fewer calls than clients do, but apply to backends whose calls have side effects."""
    for location, policy, name, backend in _placed(config):
        does = getattr(policy.settings, "needs_safe", "")
        if does and not backend.safe:
            text = f"{policy.name} {does}, which needs safe: true on the backend {name!r}"
            yield Finding(location, text, at_key=True)


def _beside_backends(config: Config) -> Iterator[Finding]:
    """Find backend policies that call other backends. Only routes can convert requests for other backends."""
    for name, backend in config.backends.items():
        for at, policy in enumerate(backend.policies):
            if policy.other_backends:
                text = f"{policy.name} is a policy for routes; move it to a route to the backend {name!r}"
                yield Finding(("backends", name, "policies", at, policy.name), text, at_key=True)


def _beside_passthrough(config: Config) -> Iterator[Finding]:
    """Find policies that call other backends, on routes whose messages are not decoded."""
    for number, route in enumerate(config.routes):
        for at, policy in enumerate(route.policies):
            if route.passthrough and policy.other_backends:
                text = (
                    f"{policy.name} does nothing on a route with passthrough, whose messages the gateway does not "
                    "decode; remove it"
                )
                yield Finding(("routes", number, "policies", at, policy.name), text, at_key=True)


def _within_tries(config: Config) -> Iterator[Finding]:
    """Find policies that must get each call once, inside policies that repeat calls."""
    places: list[tuple[Location, Sequence[PolicyConfig]]] = [
        *((("backends", name, "policies"), backend.policies) for name, backend in config.backends.items()),
        *((("routes", number, "policies"), route.policies) for number, route in enumerate(config.routes)),
    ]
    for location, policies in places:
        repeating = ""
        for at, policy in enumerate(policies):
            if repeating and getattr(policy.settings, "sees_one_try", False):
                text = f"{policy.name} would see every attempt of a call; put this policy before {repeating}"
                yield Finding((*location, at, policy.name), text, at_key=True)
            if getattr(policy.settings, "repeats", ""):
                repeating = policy.name


def _before_fitting(config: Config) -> Iterator[Finding]:
    """Find policies that need requests in the model's format, but are set on routes instead of backends."""
    for number, route in enumerate(config.routes):
        for at, policy in enumerate(route.policies):
            if getattr(policy.settings, "sees_fitted_requests", False):
                text = f"{policy.name} is a policy for backends; move it to the backend {route.main_backend!r}"
                yield Finding(("routes", number, "policies", at, policy.name), text, at_key=True)


def _without_batches(config: Config, catalog: Catalog) -> Iterator[Finding]:
    """Find policies that combine requests into batches, for servers that take one row per call."""
    for name, backend in config.backends.items():
        if backend.protocol not in catalog.protocols:
            continue
        _, traits = resolve_batch(catalog.protocols[backend.protocol], backend.batch)
        for at, policy in enumerate(backend.policies):
            if getattr(policy.settings, "sees_fitted_requests", False) and traits.wire.rows is Rows.ONE:
                text = (
                    f"{policy.name} does nothing for a backend of {backend.protocol}, because each call is one row; "
                    "remove it"
                )
                yield Finding(("backends", name, "policies", at, policy.name), text, at_key=True)


def retries_of_unsent_calls(config: Config, catalog: Catalog) -> Iterator[Finding]:
    """Find policies that repeat fewer calls than operators might expect."""
    for location, policy, name in _repeating(config, "unsent"):
        text = f"{policy.name} repeats only calls that were not sent at all, because the backend {name!r}"
        yield Finding(location, f"{text} does not have safe: true; add it if calls can be repeated", at_key=True)


def unbounded_backends(config: Config, catalog: Catalog) -> Iterator[Finding]:
    """Find backends whose calls have no time limit. Protocols whose calls can take hours are excluded, because their
    servers finish every call."""
    for name, backend in config.backends.items():
        routes = [route for route in config.routes if name in route.called_backends]
        if catalog.protocols[backend.protocol].traits.servers.runs_to_the_end or _is_bounded(backend.policies):
            continue
        if not all(_is_bounded(route.policies) for route in routes):
            text = f"no policy limits the duration of calls to the backend {name!r}"
            yield Finding(("backends", name), f"{text}; add policies: [{{timeout: {{seconds: 60}}}}]", at_key=True)


def _is_bounded(policies: Sequence[PolicyConfig]) -> bool:
    return any(getattr(policy.settings, "bounds_time", False) for policy in policies)


def _repeating(config: Config, what: str) -> Iterator[tuple[Location, PolicyConfig, str]]:
    """Yield the location and the backend's name of each policy that repeats calls to a backend without `safe: true`."""
    for location, policy, name, backend in _placed(config):
        if getattr(policy.settings, "repeats", "") == what and not backend.safe:
            yield location, policy, name


def _placed(config: Config) -> Iterator[tuple[Location, PolicyConfig, str, BackendConfig]]:
    """Yield each policy with its location and the backend that its calls go to."""
    for name, backend in config.backends.items():
        for at, policy in enumerate(backend.policies):
            yield ("backends", name, "policies", at, policy.name), policy, name, backend
    for number, route in enumerate(config.routes):
        for at, policy in enumerate(route.policies):
            for name in route.called_backends:
                if name in config.backends:
                    yield ("routes", number, "policies", at, policy.name), policy, name, config.backends[name]
