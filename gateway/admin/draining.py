"""`POST /drain` of the status API: drains an endpoint for maintenance of its server, or ends the drain."""

import typing
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from gateway.admin.status import EndpointStatus
from gateway.routing.router import LONGEST_NAME

if TYPE_CHECKING:
    from fastapi import FastAPI

MOST_SECONDS = 86400.0


class EndpointToDrain(BaseModel):
    """The endpoint to drain, or whose drain ends."""

    model_config = ConfigDict(extra="forbid")

    backend: Annotated[str, Field(max_length=LONGEST_NAME)]
    endpoint: Annotated[str, Field(max_length=LONGEST_NAME)]
    """The endpoint's address, as shown in `/status`."""
    seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS, allow_inf_nan=False)] = 60.0
    """Maximum time to drain, in seconds. During this time, open sequences continue on the endpoint, and the endpoint's
    models move to other servers. Calls in flight are not interrupted."""
    undo: bool = False
    """If true, end the drain, so the endpoint gets calls again."""


class UnknownEndpointError(LookupError):
    """The backend or the endpoint does not exist; the message lists the existing ones."""


class UndrainableError(ValueError):
    """The endpoints of this backend cannot be drained; the message explains why."""


class Drains(typing.Protocol):
    """Drains endpoints."""

    async def begin(self, backend: str, address: str, seconds: float) -> EndpointStatus:
        """Drain an endpoint: it gets no new calls, and its calls in flight continue. Open sequences can continue for
        `seconds`.

        Raises:
            UnknownEndpointError: the backend has no endpoint at this address.
            UndrainableError: the gateway starts the backend's servers.
        """

    async def undo(self, backend: str, address: str) -> EndpointStatus:
        """End the drain of an endpoint. Do nothing if the endpoint is not drained.

        Raises:
            UnknownEndpointError: the backend has no endpoint at this address.
        """


def add_draining(app: "FastAPI", drains: Drains) -> None:
    """Add `POST /drain` to the admin port's application."""
    from fastapi import HTTPException

    @app.get("/drain", include_in_schema=False)
    async def asked_to_read() -> None:
        raise HTTPException(405, "endpoints are drained with POST; `GET /status` shows their drains", {"allow": "POST"})

    @app.post(
        "/drain",
        summary="Drain an endpoint for maintenance, or end the drain",
        responses={
            404: {"description": "Unknown backend or endpoint."},
            409: {"description": "The gateway starts the servers of this backend itself."},
        },
    )
    async def drain_endpoint(asked: EndpointToDrain) -> EndpointStatus:
        """Drain an endpoint: it gets no new calls, and its calls in flight continue. `GET /status` shows when it is
        drained. The endpoint stays drained, even if the configuration is reloaded, until the drain is undone or the
        gateway restarts."""
        try:
            if asked.undo:
                return await drains.undo(asked.backend, asked.endpoint)
            return await drains.begin(asked.backend, asked.endpoint, asked.seconds)
        except UnknownEndpointError as error:
            raise HTTPException(404, str(error)) from error
        except UndrainableError as error:
            raise HTTPException(409, str(error)) from error
