"""Authentication of the parts that require credentials: listeners with `auth`, the status API, and the metrics page."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from gateway.assembly.listener_authentication import Access, ListenerAuthentication
from gateway.auth.authenticator import Authenticator
from gateway.config.access import AdminAuthConfig, HealthAuthConfig
from gateway.config.keys import Config

Asked: TypeAlias = tuple[Authenticator, Callable[[str], Awaitable[None]]]
"""For one port: a function that authenticates its clients, and a function that waits for issuer keys."""


class Authentication:
    """Authenticates clients according to one Config. `previous` is the Authentication of the previous configuration."""

    def __init__(self, config: Config, clock: Callable[[], float], previous: "Authentication | None" = None) -> None:
        self.access: Access = Access(config, clock, None if previous is None else previous.access)
        """The permissions of the clients."""
        self.guards = {
            each.name: ListenerAuthentication(each.name, self.access, self.access.authenticator(each.auth))
            for each in config.listeners
            if each.auth is not None
        }
        """For each listener that requires credentials, by name: its authentication."""
        self.of_admin = self._asked(None if config.admin is None else config.admin.auth)
        """Authenticates clients of the status API; None if it requires no credentials."""
        self.of_metrics = self._asked(None if config.health is None else config.health.auth)
        """Authenticates clients of the metrics page; None if it requires no credentials."""

    def _asked(self, config: AdminAuthConfig | HealthAuthConfig | None) -> Asked | None:
        return None if config is None else (self.access.authenticator(config), self.access.wait_for_keys)
