"""`POST /cache/clear` of the status API: lets the policies `cache` forget their answers."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from pydantic import BaseModel, ConfigDict

if TYPE_CHECKING:
    from fastapi import FastAPI

Clear: TypeAlias = Callable[[str], Awaitable[list[str]]]
"""Lets the caches at a place forget their answers, or all caches if it is empty. Returns the places of those that
did."""


class CachesToClear(BaseModel):
    """Which caches are cleared."""

    model_config = ConfigDict(extra="forbid")

    place: str = ""
    """A route's name or `backends.NAME`, as `/status` names the places of policies; empty for all caches."""


class CachesCleared(BaseModel):
    """The caches that have forgotten their answers."""

    places: list[str]


def add_clearing(app: "FastAPI", clear: Clear) -> None:
    """Add `POST /cache/clear` to the admin port's application."""
    from fastapi import HTTPException

    @app.get("/cache/clear", include_in_schema=False)
    async def asked_to_read() -> None:
        raise HTTPException(405, "caches are cleared with POST: curl -X POST URL", {"allow": "POST"})

    @app.post(
        "/cache/clear",
        summary="Forget the answers that caches keep",
        responses={404: {"description": "There is no `cache` at this place."}},
    )
    async def clear_caches(asked: CachesToClear | None = None) -> CachesCleared:
        """Let the policies `cache` forget their answers: those at one place, or all. Calls in flight go on, and their
        answers are not kept."""
        place = "" if asked is None else asked.place
        places = await clear(place)
        if place and not places:
            raise HTTPException(
                404, f"there is no policy `cache` at {place!r}; `GET /status` names the places of policies"
            )
        return CachesCleared(places=places)
