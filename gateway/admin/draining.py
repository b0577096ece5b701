"""`POST /drain` of the status API: drains an endpoint for maintenance of its server, and lets it serve again."""

import typing
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from gateway.admin.status import EndpointStatus

if TYPE_CHECKING:
    from fastapi import FastAPI

LONGEST_NAME = 1024
MOST_SECONDS = 86400.0


class EndpointToDrain(BaseModel):
    """The endpoint that is to be drained, or to serve again."""

    model_config = ConfigDict(extra="forbid")

    backend: Annotated[str, Field(max_length=LONGEST_NAME)]
    endpoint: Annotated[str, Field(max_length=LONGEST_NAME)]
    """Its address, as `/status` shows it."""
    seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS, allow_inf_nan=False)] = 60.0
    """How long sequences may go on there, and models may take to be loaded elsewhere. Calls in flight are not cut."""
    undo: bool = False
    """Let it serve again."""


class UnknownEndpointError(LookupError):
    """There is no such backend, or it has no such endpoint; the text says which there are."""


class UndrainableError(ValueError):
    """The endpoints of this backend cannot be drained; the text says why."""


class Drains(typing.Protocol):
    """Drains endpoints."""

    async def begin(self, backend: str, address: str, seconds: float) -> EndpointStatus:
        """Drain an endpoint: its calls go on, new ones do not come. Its sequences may go on for so many seconds.

        Raises:
            UnknownEndpointError: there is none at this address.
            UndrainableError: the gateway starts the servers of the backend.
        """

    async def undo(self, backend: str, address: str) -> EndpointStatus:
        """Let an endpoint serve again; nothing happens if it does.

        Raises:
            UnknownEndpointError: there is none at this address.
        """


def add_draining(app: "FastAPI", drains: Drains) -> None:
    """Add `POST /drain` to the admin port's application."""
    from fastapi import HTTPException

    @app.get("/drain", include_in_schema=False)
    async def asked_to_read() -> None:
        raise HTTPException(405, "endpoints are drained with POST; `GET /status` shows their drains", {"allow": "POST"})

    @app.post(
        "/drain",
        summary="Drain an endpoint for maintenance, or let it serve again",
        responses={
            404: {"description": "There is no such backend or endpoint."},
            409: {"description": "The gateway starts the servers of this backend itself."},
        },
    )
    async def drain_endpoint(asked: EndpointToDrain) -> EndpointStatus:
        """Drain an endpoint: it gets no new calls, those that it has go on. `GET /status` shows when it is drained. It
        stays so over a reload of the configuration, until it is undone or the gateway restarts."""
        try:
            if asked.undo:
                return await drains.undo(asked.backend, asked.endpoint)
            return await drains.begin(asked.backend, asked.endpoint, asked.seconds)
        except UnknownEndpointError as error:
            raise HTTPException(404, str(error)) from error
        except UndrainableError as error:
            raise HTTPException(409, str(error)) from error
