"""The status API: the state of listeners, backends and endpoints as JSON."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Literal, TypeAlias

from fastapi import FastAPI, Response
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel


class LastError(BaseModel):
    """Why a call to an endpoint failed. The text is the gateway's own and contains nothing of the request or the
    reply."""

    text: str
    at: datetime
    """In UTC."""


class EndpointStatus(BaseModel):
    """One address of a backend."""

    address: str
    in_flight: int
    """Calls that were sent and not yet answered, including those whose clients have disconnected."""
    state: Literal["unknown", "up", "ejected"]
    """`unknown` until the first answer. `ejected`: it failed, and gets no calls while its backend has other endpoints
    that work."""
    last_error: LastError | None
    """The last failure, even if later calls succeeded."""
    ejected_until: datetime | None
    """After this time one call is sent as a trial; an answer to it ends the ejection."""


class BackendStatus(BaseModel):
    """A backend: its endpoints, and how many calls wait for one."""

    protocol: str
    max_in_flight: int
    """The most calls in flight to each endpoint; 0 means no limit."""
    waiting: int
    endpoints: list[EndpointStatus]


class ListenerStatus(BaseModel):
    """A listener: its address, and the protocols that clients may speak there."""

    address: str
    protocols: list[str]
    refused_connections: int
    """Connections refused since the start because `limits.connections` of the listener or of the process was
    reached."""


class LoadError(BaseModel):
    """Why the configuration could not be read again: every error on a line of its own."""

    text: str
    at: datetime
    """In UTC."""


class ConfigurationStatus(BaseModel):
    """The configuration that is in use."""

    loaded_at: datetime
    """When it was read and found valid, in UTC."""
    reloads: int
    """How often it has changed since the start."""
    last_error: LoadError | None
    """Why the last attempt to read it again failed; `null` if it succeeded."""


class GatewayStatus(BaseModel):
    """The whole gateway."""

    version: str
    ready: bool
    configuration: ConfigurationStatus
    listeners: dict[str, ListenerStatus]
    backends: dict[str, BackendStatus]


class Reloaded(BaseModel):
    """The configuration was read again."""

    changes: list[str]
    """What has changed, and what differs but needs a restart; empty if the file says what is in use."""


class ConfigurationError(BaseModel):
    """One error of a configuration."""

    text: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    """The place, counted from 1; `null` for what is not in the file, such as an address that cannot be bound."""


class NotReloaded(BaseModel):
    """The configuration cannot be used. The one before is kept, unchanged."""

    errors: list[ConfigurationError]


Reload: TypeAlias = Callable[[], Awaitable[Reloaded | NotReloaded]]
"""Reads the configuration again."""


def application(status: Callable[[], GatewayStatus], reload: Reload | None = None) -> FastAPI:
    """An application with `GET /status`, with `POST /reload` if there is a `reload`, with its OpenAPI description at
    `/openapi.json` and a page for people at `/docs`.

    The page uses only files that are installed with the gateway, since the network may not reach a CDN.
    """
    app = FastAPIOffline(
        title="Inference gateway: status",
        version=status().version,
        redoc_url=None,
        static_url="/docs/files",
        swagger_ui_oauth2_redirect_url="/docs/oauth2-redirect",
        # by default the page sends the description to a validator on the internet
        swagger_ui_parameters={"validatorUrl": None},
    )

    @app.get("/status")
    async def read() -> GatewayStatus:
        return status()

    if reload is not None:
        _add_reload(app, reload)
    return app


def _add_reload(app: FastAPI, reload: Reload) -> None:
    @app.post("/reload", responses={422: {"model": NotReloaded}})
    async def read_again(response: Response) -> Reloaded | NotReloaded:
        """Read the configuration again, and change to it if it has no errors."""
        found = await reload()
        if isinstance(found, NotReloaded):
            response.status_code = 422
        return found
