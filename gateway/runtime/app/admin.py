"""The web application of the admin port.

The gateway imports this module only if the admin port is enabled, because FastAPI and its dependencies take a third of
the startup time.
"""

from collections.abc import Callable, Mapping

from fastapi import FastAPI

from gateway.admin import register, status
from gateway.admin.console.api import add_api
from gateway.admin.console.configuration import FindWarnings
from gateway.admin.console.page import add_page
from gateway.admin.key_changes import add_key_changes
from gateway.admin.openapi.admin import add_page as add_documents_page
from gateway.admin.openapi.admin import describe_errors
from gateway.admin.openapi.api import add_api as add_documents
from gateway.admin.operator_actions import Clear, Drains, add_clearing, add_draining, add_placing
from gateway.admin.state import GatewayState
from gateway.config.effective import effective
from gateway.servers.discovery.register import Registrations


def application(
    state: GatewayState,
    registrations: Mapping[str, Registrations],
    clear_caches: Clear,
    draining: Drains,
    reload_file: status.Reload | None,
    find_warnings: FindWarnings,
    clock: Callable[[], float],
) -> FastAPI:
    """Return the application that serves the status API, the console and the OpenAPI documents for the gateway with
    this `state`. `registrations` maps backend names to the objects that handle server registrations. For the other
    arguments, see Gateway and Ports."""
    made = status.application(state.status, reload_file, lambda: effective(state.config), state.refresh_counts)
    register.add_routes(made, registrations)
    add_clearing(made, clear_caches)
    add_draining(made, draining)
    add_placing(made, lambda: state.assembly.backends)
    add_key_changes(made, state)
    add_page(made)
    add_api(made, state, find_warnings, clock)
    add_documents(made, state, clock)
    add_documents_page(made)
    describe_errors(made, state)
    return made
