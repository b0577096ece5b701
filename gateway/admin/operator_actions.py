"""Changes that an operator makes to the running gateway on the admin port. `POST /drain` drains an endpoint for
maintenance of its server, or ends the drain. `POST /cache/clear` clears the caches of the `cache` policy. `POST
/placement` loads or unloads one model on one server of a backend with `placement`. `status` handles `POST /reload`, and
`key_changes` handles changes of keys."""

import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from gateway.admin.status import EndpointStatus, refuse_get
from gateway.core import http_status
from gateway.core.errors import GatewayError
from gateway.routing.backend import Backend
from gateway.routing.placement.slots import PlacedSlots
from gateway.routing.router import LONGEST_NAME

if TYPE_CHECKING:
    from fastapi import FastAPI


# --- Draining ---

MOST_SECONDS = 86400.0


class EndpointToDrain(BaseModel):
    """The endpoint to drain, or whose drain to end."""

    model_config = ConfigDict(extra="forbid")

    backend: Annotated[str, Field(max_length=LONGEST_NAME)]
    endpoint: Annotated[str, Field(max_length=LONGEST_NAME)]
    """The endpoint's address, as shown in `/status`."""
    seconds: Annotated[float, Field(ge=0, le=MOST_SECONDS, allow_inf_nan=False)] = 60.0
    """Maximum time to drain, in seconds. During this time, open sequences continue on the endpoint, and the endpoint's
    models move to other servers. Calls in flight are not interrupted."""
    undo: bool = False
    """If true, end the drain, so the endpoint receives calls again."""


class UnknownEndpointError(LookupError):
    """The backend or the endpoint does not exist; the message lists the existing backends or endpoints."""


class UndrainableError(ValueError):
    """The endpoints of this backend cannot be drained; the message explains why."""


class Drains(typing.Protocol):
    """Drains endpoints."""

    async def begin(self, backend: str, address: str, seconds: float) -> EndpointStatus:
        """Drain an endpoint: it receives no new calls, and its calls in flight continue. Open sequences can continue
        for `seconds`.

        Raises:
            UnknownEndpointError: the backend has no endpoint at this address.
            UndrainableError: the gateway starts the backend's servers.
        """

    async def undo(self, backend: str, address: str) -> EndpointStatus:
        """End an endpoint's drain. If the endpoint is not drained, do nothing.

        Raises:
            UnknownEndpointError: the backend has no endpoint at this address.
        """


def add_draining(app: "FastAPI", drains: Drains) -> None:
    """Add `POST /drain` to the admin port's application."""
    from fastapi import HTTPException

    refuse_get(app, "/drain", "endpoints are drained with POST; `GET /status` shows their drains")

    @app.post(
        "/drain",
        summary="Drain an endpoint for maintenance, or end the drain",
        responses={
            404: {"description": "Unknown backend or endpoint."},
            409: {"description": "The gateway starts the servers of this backend itself."},
        },
    )
    async def drain_endpoint(asked: EndpointToDrain) -> EndpointStatus:
        """Drain an endpoint: it receives no new calls, and its calls in flight continue. `GET /status` shows when the
        endpoint is drained. Even after a reload of the configuration, the endpoint stays drained until the drain is
        undone or the gateway restarts."""
        try:
            if asked.undo:
                return await drains.undo(asked.backend, asked.endpoint)
            return await drains.begin(asked.backend, asked.endpoint, asked.seconds)
        except UnknownEndpointError as error:
            raise HTTPException(404, str(error)) from error
        except UndrainableError as error:
            raise HTTPException(409, str(error)) from error


# --- Clearing caches ---

Clear: TypeAlias = Callable[[str], Awaitable[list[str]]]
"""Clears the caches of one route or backend, or all caches if the argument is empty. Returns the places whose caches
were cleared."""


class CachesToClear(BaseModel):
    """The caches to clear."""

    model_config = ConfigDict(extra="forbid")

    place: str = ""
    """A route's name or `backends.NAME`, like a policy's `place` in `/status`; empty for all caches."""


class CachesCleared(BaseModel):
    """The places of the cleared caches."""

    places: list[str]


def add_clearing(app: "FastAPI", clear: Clear) -> None:
    """Add `POST /cache/clear` to the admin port's application."""
    from fastapi import HTTPException

    refuse_get(app, "/cache/clear", "use POST to clear caches: curl -X POST URL")

    @app.post(
        "/cache/clear",
        summary="Clear caches",
        responses={404: {"description": "No `cache` has this place."}},
    )
    async def clear_caches(asked: CachesToClear | None = None) -> CachesCleared:
        """Clear the caches of one route or backend, or all caches of the gateway. Calls in flight continue, but the
        caches do not store their responses."""
        place = "" if asked is None else asked.place
        places = await clear(place)
        if place and not places:
            raise HTTPException(404, f"unknown place of a policy `cache`: {place!r}; `GET /status` names the places")
        return CachesCleared(places=places)


# --- Placing models ---


class ModelToPlace(BaseModel):
    """A model to load or unload."""

    model_config = ConfigDict(extra="forbid")

    do: Literal["load", "unload"]
    backend: Annotated[str, Field(max_length=LONGEST_NAME)]
    model: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
    """The model's name on the backend's servers."""
    endpoint: Annotated[str, Field(max_length=LONGEST_NAME)]
    """The server's address, as shown in `/status`."""


class ModelPlaced(BaseModel):
    """The result of a successful request to load or unload a model."""

    state: Literal["held", "gone"]


def add_placing(app: "FastAPI", backends: Callable[[], Mapping[str, Backend]]) -> None:
    """Add `POST /placement` to the admin port's application. `backends` returns the current backends, by name."""
    from fastapi import HTTPException

    refuse_get(app, "/placement", "use POST to load and unload models; `GET /api/placement` shows where they are")

    @app.post(
        "/placement",
        summary="Load or unload a model on one server",
        responses={
            404: {"description": "Unknown backend or endpoint, or the server does not have the model."},
            409: {"description": "The backend has no `placement`, or its protocol cannot load models."},
            502: {"description": "The server failed; the text has the server's error."},
        },
    )
    async def place_model(asked: ModelToPlace) -> ModelPlaced:
        """Load or unload a model on one server, and wait for the result. If the server lacks capacity (`max_models`,
        `memory`), the gateway first unloads the server's least recently used models that have no calls in flight."""
        backend = backends().get(asked.backend)
        if backend is None:
            raise HTTPException(404, f"unknown backend {asked.backend!r}")
        slots = backend.slots
        if not isinstance(slots, PlacedSlots) or slots.loader is None:
            text = (
                "has no `placement`; add this key to the backend"
                if not isinstance(slots, PlacedSlots)
                else "has a protocol that cannot load models; load them at their servers"
            )
            raise HTTPException(409, f"backend {asked.backend!r} {text}")
        endpoint = next((each for each in backend.endpoints if each.address == asked.endpoint), None)
        if endpoint is None:
            known = ", ".join(repr(each.address) for each in backend.endpoints) or "none at the moment"
            raise HTTPException(404, f"backend {asked.backend!r} has no endpoint {asked.endpoint!r}; expected {known}")
        try:
            if asked.do == "load":
                await slots.loader.load_at(asked.model, endpoint)
                return ModelPlaced(state="held")
            await slots.loader.unload_at(asked.model, endpoint)
            return ModelPlaced(state="gone")
        except GatewayError as error:
            status = http_status.number(error)
            raise HTTPException(502 if status == 500 else status, error.message) from error
