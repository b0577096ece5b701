"""The status API: what runs, what waits, and where."""

from collections.abc import Callable
from datetime import datetime
from typing import Literal

from fastapi import FastAPI
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel


class LastError(BaseModel):
    """Why a call to an endpoint failed: the gateway's own words, without anything of what was sent or received."""

    text: str
    at: datetime
    """In UTC."""


class EndpointStatus(BaseModel):
    """One address of a backend."""

    address: str
    in_flight: int
    """Calls that were sent and not answered, those that their clients gave up included."""
    state: Literal["unknown", "up", "ejected"]
    """`unknown` until it has answered. `ejected`: it failed, and gets no calls as long as its backend has others that
    work."""
    last_error: LastError | None
    """Its last failure, which may be long ago."""
    ejected_until: datetime | None
    """From then on one call is let through as a trial, whose answer ends the ejection."""


class BackendStatus(BaseModel):
    """A backend: where its calls run, and how many wait for a slot."""

    protocol: str
    max_in_flight: int
    """Per endpoint; 0 is any number."""
    waiting: int
    endpoints: list[EndpointStatus]


class ListenerStatus(BaseModel):
    """Where clients arrive."""

    address: str
    protocols: list[str]
    refused_connections: int
    """Since the start, because there were as many as `limits.connections` of the listener or of the process allows."""


class Status(BaseModel):
    """The whole gateway."""

    version: str
    ready: bool
    listeners: dict[str, ListenerStatus]
    backends: dict[str, BackendStatus]


def application(status: Callable[[], Status]) -> FastAPI:
    """`GET /status`, and its OpenAPI description under `/openapi.json` and, for people, `/docs`: a page made of files
    that are installed with the gateway, since a network may have no way to a CDN."""
    app = FastAPIOffline(
        title="Inference gateway: status",
        version=status().version,
        redoc_url=None,
        static_url="/docs/files",
        swagger_ui_oauth2_redirect_url="/docs/oauth2-redirect",
        # by default the page asks a server on the internet whether the description is valid
        swagger_ui_parameters={"validatorUrl": None},
    )

    @app.get("/status")
    async def read() -> Status:
        return status()

    return app
