"""Who asks for credentials: the listeners with `auth`, the status API, and the page of metrics."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from gateway.assembly.listener_authentication import Access, ListenerAuthentication
from gateway.auth.authenticator import Authenticator
from gateway.config.access import AdminAuthConfig, HealthAuthConfig
from gateway.config.keys import Config

Asked: TypeAlias = tuple[Authenticator, Callable[[str], Awaitable[None]]]
"""Finds out who the clients of a port are, and waits for the keys of an issuer."""


class Authentication:
    """Finds out who clients are, by one Config. `previous` is what the configuration before had."""

    def __init__(self, config: Config, clock: Callable[[], float], previous: "Authentication | None" = None) -> None:
        self.access: Access = Access(config, clock, None if previous is None else previous.access)
        """Who may do what."""
        self.guards = {
            each.name: ListenerAuthentication(each.name, self.access, self.access.authenticator(each.auth))
            for each in config.listeners
            if each.auth is not None
        }
        """The Guards of the listeners that ask for credentials, by name."""
        self.of_admin = self._asked(None if config.admin is None else config.admin.auth)
        """Finds out who clients of the status API are; None if they are not asked."""
        self.of_metrics = self._asked(None if config.health is None else config.health.auth)
        """The same, of clients that want the page of metrics."""

    def _asked(self, config: AdminAuthConfig | HealthAuthConfig | None) -> Asked | None:
        return None if config is None else (self.access.authenticator(config), self.access.wait_for_keys)
