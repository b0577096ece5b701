"""`POST /cache/clear` of the status API: clears the caches of the policy `cache`."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from fastapi import FastAPI

Clear: TypeAlias = Callable[[str], Awaitable[list[str]]]
"""Clears the caches of one route or backend, or all caches if the argument is empty. Returns the places whose caches
were cleared."""


class CachesToClear(BaseModel):
    """The caches to clear."""

    model_config = ConfigDict(extra="forbid")

    place: str = ""
    """A route's name or `backends.NAME`, like `place` of a policy in `/status`; empty for all caches."""


class CachesCleared(BaseModel):
    """The caches that were cleared."""

    places: list[str]


def add_clearing(app: "FastAPI", clear: Clear) -> None:
    """Add `POST /cache/clear` to the admin port's application."""
    from fastapi import HTTPException

    @app.get("/cache/clear", include_in_schema=False)
    async def asked_to_read() -> None:
        raise HTTPException(405, "use POST to clear caches: curl -X POST URL", {"allow": "POST"})

    @app.post(
        "/cache/clear",
        summary="Clear caches",
        responses={404: {"description": "No `cache` has this place."}},
    )
    async def clear_caches(asked: CachesToClear | None = None) -> CachesCleared:
        """Clear the caches of one route or backend, or all caches of the gateway. Calls in flight continue, and their
        responses are not stored."""
        place = "" if asked is None else asked.place
        places = await clear(place)
        if place and not places:
            raise HTTPException(404, f"unknown place of a policy `cache`: {place!r}; `GET /status` names the places")
        return CachesCleared(places=places)
