"""The status API: the state of listeners, backends and endpoints as JSON."""

from collections.abc import Callable
from datetime import datetime
from typing import Literal

from fastapi import FastAPI
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


MOST_CLIENTS = 20
"""The most clients that the status of a queue names."""


class ClientWaiting(BaseModel):
    """A client with waiting calls."""

    client: str
    """Its host; empty for clients over unix sockets."""
    waiting: int


class QueueStatus(BaseModel):
    """The queue of a backend whose endpoints have a limit of calls in flight."""

    length: int
    """The most calls that may wait."""
    timeout: float | None
    """The seconds that each may wait; null means any time."""
    estimated_wait: float | None
    """Seconds that a call would wait that joined now, behind all others: the mean time for which recent calls held
    their slot, times its place, divided by the number of slots. 0 while a slot is free, null before the first call has
    ended."""
    clients: list[ClientWaiting]
    """The clients with the most waiting calls, at most MOST_CLIENTS."""


class BackendStatus(BaseModel):
    """A backend: its endpoints, and how many calls wait for one."""

    protocol: str
    max_in_flight: int
    """The most calls in flight to each endpoint; 0 means no limit."""
    waiting: int
    queue: QueueStatus | None
    """Null if any number of calls can be in flight, so that none waits."""
    endpoints: list[EndpointStatus]


class ListenerStatus(BaseModel):
    """A listener: its address, and the protocols that clients may speak there."""

    address: str
    protocols: list[str]
    refused_connections: int
    """Connections refused since the start because `limits.connections` of the listener or of the process was
    reached."""


class GatewayStatus(BaseModel):
    """The whole gateway."""

    version: str
    ready: bool
    listeners: dict[str, ListenerStatus]
    backends: dict[str, BackendStatus]


def application(status: Callable[[], GatewayStatus]) -> FastAPI:
    """An application with `GET /status`, its OpenAPI description at `/openapi.json` and a page for people at `/docs`.

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

    return app
