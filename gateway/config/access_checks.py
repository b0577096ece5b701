"""Checks of authentication and permissions across sections: `auth`, `permissions`, `principals`, and the `auth` keys of
listeners and ports. `loading` calls them if all parts of the configuration are valid."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from gateway.config.access import AdminAuthConfig, AuthConfig, HealthAuthConfig, ListenerAuthConfig
from gateway.config.catalog import Catalog
from gateway.config.document import Location
from gateway.config.fields import VALUE
from gateway.config.keys import Config
from gateway.config.problems import Finding, suggestion, unknown
from gateway.core.protocol import StreamBinding

BUILT_IN = ("use", "all")
"""The sets of permissions that every configuration has; `gateway/auth/permissions.py` defines them."""


def access_findings(config: Config, catalog: Catalog) -> list[Finding]:
    """Return all findings of these checks."""
    return [
        *_permission_sets(config),
        *_principals(config),
        *_listeners(config, catalog),
        *_admin(config),
        *_health(config),
        *(config.auth.findings(("auth",), catalog) if config.auth is not None else ()),
    ]


def _permission_sets(config: Config) -> Iterator[Finding]:
    names = [listener.name for listener in config.listeners]
    for name, grants in config.permissions.items():
        if name in BUILT_IN:
            yield Finding(("permissions", name), f"{name!r} is built in; choose another name", at_key=True)
        for at, grant in enumerate(grants):
            for i, glob in enumerate(grant.listeners):
                if not any(fnmatchcase(each, glob) for each in names):
                    text = f"unknown listener {VALUE}{suggestion(glob, names)}"
                    yield Finding(("permissions", name, at, "listeners", i), text)


def _principals(config: Config) -> Iterator[Finding]:
    known = (*config.permissions, *BUILT_IN)
    for name, principal in config.principals.items():
        for at, each in enumerate(principal.permissions):
            yield from unknown(("principals", name, "permissions", at), "set of permissions", each, known)


def _listeners(config: Config, catalog: Catalog) -> Iterator[Finding]:
    for at, listener in enumerate(config.listeners):
        auth = listener.auth
        if auth is None:
            continue
        location: Location = ("listeners", at, "auth")
        yield from _accepted(location, auth, config.auth)
        if auth.anonymous is not None and not any(fnmatchcase(auth.anonymous, glob) for glob in config.principals):
            text = f"unknown principal {VALUE}{suggestion(auth.anonymous, config.principals)}"
            yield Finding((*location, "anonymous"), text)
        ways = auth.accept or (config.auth.ways if config.auth else ())
        if auth.anonymous is None and "certificates" not in ways:
            for name in listener.protocols:
                protocol = catalog.protocols.get(name)  # None: an unknown name, which another check reports
                binding = protocol and protocol.binding
                if isinstance(binding, StreamBinding) and binding.credential is None:
                    text = f"clients of {name} cannot send keys or tokens; use certificates, or anonymous: PRINCIPAL"
                    yield Finding(location, text, at_key=True)


def _admin(config: Config) -> Iterator[Finding]:
    if config.admin is not None and config.admin.auth is not None:
        location: Location = ("admin", "auth")
        yield from _accepted(location, config.admin.auth, config.auth)
        if config.auth is not None and config.auth.keys is None and not config.auth.jwt:
            yield Finding(location, "the status API needs keys or tokens: `auth: {keys: ...}` or `jwt`", at_key=True)


def _health(config: Config) -> Iterator[Finding]:
    if config.health is not None and config.health.auth is not None:
        yield from _accepted(("health", "auth"), config.health.auth, config.auth)


def _accepted(
    location: Location, auth: ListenerAuthConfig | AdminAuthConfig | HealthAuthConfig, whole: AuthConfig | None
) -> Iterator[Finding]:
    ways = whole.ways if whole is not None else ()
    if not ways and getattr(auth, "anonymous", None) is None:
        text = "no credentials are configured; add `auth: {keys: {file: PATH}}` at the top level"
        yield Finding(location, text, at_key=True)
    for at, way in enumerate(auth.accept or ()):
        if ways and way not in ways:
            yield Finding(
                (*location, "accept", at), f"the top-level `auth` has no {VALUE}; add it there, or remove it here"
            )


# Warnings.


def access_warnings(config: Config, catalog: Catalog) -> Iterator[Finding]:
    """Find access that the configuration probably allows by mistake."""
    asking = [listener for listener in config.listeners if listener.auth is not None]
    if config.auth is not None and asking:
        for at, listener in enumerate(config.listeners):
            if listener.auth is None:
                text = (
                    f"listener {listener.name!r} has no `auth`: its clients need no credentials; add `auth: {{}}` to "
                    "require them"
                )
                yield Finding(("listeners", at), text)
    ports = (config.admin, config.health)
    if config.auth is not None and not asking and all(each is None or each.auth is None for each in ports):
        text = "no listener has `auth`, so the gateway requires no credentials; add `auth: {}` to listeners"
        yield Finding(("auth",), text, at_key=True)
    claimed = config.auth is not None and any(each.permissions for each in config.auth.jwt)
    if asking and not config.principals and not claimed:
        text = "`principals` is missing, so clients have no permissions; add `principals: {'*': {permissions: [use]}}`"
        yield Finding(("auth",), text, at_key=True)
    yield from _forwarded(config)
    if config.auth is not None:
        yield from config.auth.warnings(("auth",))


def _forwarded(config: Config) -> Iterator[Finding]:
    if config.auth is None:
        return
    names = {"authorization", *([config.auth.keys.header] if config.auth.keys else [])}
    for name, backend in config.backends.items():
        for at, header in enumerate(backend.forward_headers):
            if header in names:
                text = (
                    f"forwards clients' gateway credentials to backend {name!r}; remove it unless the servers check "
                    "them"
                )
                yield Finding(("backends", name, "forward_headers", at), f"{VALUE} {text}")
