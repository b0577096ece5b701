"""The application of the admin port. Only a gateway with the port imports this module: FastAPI and its dependencies
take a third of the gateway's startup time."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from fastapi import FastAPI

from gateway.admin import register, status
from gateway.admin.caches import add_clearing
from gateway.admin.console.api import add_api
from gateway.admin.console.configuration import FindWarnings
from gateway.admin.console.page import add_page
from gateway.admin.draining import add_draining
from gateway.admin.key_changes import add_key_changes
from gateway.admin.openapi.admin import describe_errors
from gateway.admin.openapi.api import add_api as add_documents
from gateway.admin.openapi.page import add_page as add_documents_page
from gateway.admin.placement import add_placing
from gateway.config.effective import effective
from gateway.servers.discovery.register import Registrations

if TYPE_CHECKING:
    from gateway.runtime.app.gateway import Gateway


def application(
    gateway: "Gateway",
    registrations: Mapping[str, Registrations],
    reload_file: status.Reload | None,
    find_warnings: FindWarnings,
    clock: Callable[[], float],
) -> FastAPI:
    """Return the status API, the console and the OpenAPI documents of `gateway`. Servers register at `registrations`,
    by the backend's name. The other arguments are the same as in Ports."""
    made = status.application(gateway.status, reload_file, lambda: effective(gateway.config))
    register.add_routes(made, registrations)
    add_clearing(made, gateway.clear_caches)
    add_draining(made, gateway.draining)
    add_placing(made, gateway)
    add_key_changes(made, gateway)
    add_page(made)
    add_api(made, gateway, find_warnings, clock)
    add_documents(made, gateway, clock)
    add_documents_page(made)
    describe_errors(made, gateway)
    return made
