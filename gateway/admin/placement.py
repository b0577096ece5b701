"""`POST /placement` of the status API: load or unload one model on one server of a backend with `placement`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from gateway.core import http_status
from gateway.core.errors import GatewayError
from gateway.routing.backend import Backend
from gateway.routing.placement.slots import PlacedSlots
from gateway.routing.router import LONGEST_NAME

if TYPE_CHECKING:
    from fastapi import FastAPI


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

    @app.get("/placement", include_in_schema=False)
    async def asked_to_read() -> None:
        text = "use POST to load and unload models; `GET /api/placement` shows where they are"
        raise HTTPException(405, text, {"allow": "POST"})

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
                "has no `placement`" if not isinstance(slots, PlacedSlots) else "has a protocol that cannot load models"
            )
            raise HTTPException(409, f"backend {asked.backend!r} {text}")
        endpoint = next((each for each in backend.endpoints if each.address == asked.endpoint), None)
        if endpoint is None:
            raise HTTPException(404, f"backend {asked.backend!r} has no endpoint {asked.endpoint!r}")
        try:
            if asked.do == "load":
                await slots.loader.load_at(asked.model, endpoint)
                return ModelPlaced(state="held")
            await slots.loader.unload_at(asked.model, endpoint)
            return ModelPlaced(state="gone")
        except GatewayError as error:
            status = http_status.number(error)
            raise HTTPException(502 if status == 500 else status, error.message) from error
