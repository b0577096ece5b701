"""The status API: the state of listeners, backends and endpoints as JSON."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import BaseModel

from gateway.observing.counters import RequestError
from gateway.routing.backend import Backend
from gateway.routing.balancing import LeastLoad
from gateway.routing.draining import DrainState
from gateway.routing.endpoint import Endpoint
from gateway.routing.on_demand import StartedSlots

if TYPE_CHECKING:
    from fastapi import FastAPI


class LastError(BaseModel):
    """Why a call to an endpoint, or a probe, failed. The text is the gateway's own and contains nothing of a call's
    request or reply."""

    text: str
    at: datetime
    """In UTC."""


class DrainStatus(BaseModel):
    """The drain of an endpoint for maintenance of its server."""

    state: Literal["draining", "drained"]
    """`draining`: it gets no new calls, and has some yet. `drained`: it has none, its server can be stopped."""
    since: datetime
    """In UTC."""
    sequences: int
    """Sequences of clients that may go on there, and have not ended."""
    is_moving: bool
    """Its models are being loaded elsewhere; until then it gets calls."""
    failed_moves: list[str]
    """The models that could not be loaded elsewhere, each with the reason."""


class EndpointStatus(BaseModel):
    """One address of a backend."""

    address: str
    in_flight: int
    """Calls that were sent and not yet answered, including those whose clients have disconnected."""
    state: Literal["unknown", "up", "degraded", "down"]
    """`unknown` until the first answer to a call or a probe. `degraded`: the last calls or probes failed, and it is
    still used. `down`: it gets no calls while its backend has other endpoints that work."""
    last_error: LastError | None
    """The last failure, even if later calls succeeded."""
    ejected_until: datetime | None
    """After this time one call is sent as a trial, and an answer to it makes the endpoint up. None while it is not
    down, or down because probes fail."""
    load: float | None = None
    """What the server said last of its load, which `balance: least_load` compares, in a unit that is the same for all
    servers of the backend. None if it has not said anything lately, or is balanced otherwise."""
    drain: DrainStatus | None = None
    """Null while it serves."""


class TracingStatus(BaseModel):
    """Tracing."""

    sent: int
    """Requests whose spans the collector took."""
    dropped: int
    """Recorded requests whose spans were lost: too many were waiting, or the collector did not take them."""


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


class ServerStatus(BaseModel):
    """A model server that the gateway has started, as a job of an engine."""

    name: str
    """The name of the job."""
    id: str
    """The engine's id of the job; empty until it has taken it."""
    state: Literal["starting", "serving", "draining", "ending"]
    job: str
    """What the engine says of the job: `waiting`, `running` and so on."""
    reason: str
    """Why it is so, if that is known."""
    address: str
    """Empty until the server has announced itself."""
    since: datetime
    """When the job was submitted, in UTC."""
    calls: int
    """The calls that it was given."""


class BackendStatus(BaseModel):
    """A backend: its endpoints, and how many calls wait for one."""

    protocol: str
    max_in_flight: int
    """The most calls in flight to each endpoint; 0 means no limit."""
    waiting: int
    requests: dict[str, int] = {}
    """Requests of clients since the start by their status, each at the backend that was asked last."""
    queue: QueueStatus | None
    """Null if any number of calls can be in flight, so that none waits."""
    endpoints: list[EndpointStatus]
    servers: list[ServerStatus] | None = None
    """The servers whose jobs are not over; null if the gateway starts none for this backend."""


class ListenerStatus(BaseModel):
    """A listener: its address, and the protocols that clients may speak there."""

    address: str
    protocols: list[str]
    requests: dict[str, int] = {}
    """Requests since the start, by their status."""
    refused_connections: int
    """Connections refused since the start because `limits.connections` or `limits.connections_per_client` of the
    listener or of the process was reached, or because the gateway was overloaded."""


class SheddingStatus(BaseModel):
    """Load shedding."""

    since: datetime | None
    """Since when new work is refused, in UTC; null while nothing is."""
    refused: int
    """Connections and requests that were refused since the start."""


class PolicyStatus(BaseModel):
    """The state of a policy: which models a `circuit_breaker` refuses, how many calls a `concurrency_limit` counts,
    how many requests a `rate_limit` refused, what differs in the answers to a `mirror`."""

    place: str
    """Where it is configured: a route's name, or `backends.NAME`."""
    policy: str
    state: dict[str, Any]
    """As the page of the policy says."""


class LoadError(BaseModel):
    """Why the configuration could not be read again: every error on a line of its own, and apart in `errors`."""

    text: str
    at: datetime
    """In UTC."""
    errors: list["ConfigurationError"] = []


class ConfigurationStatus(BaseModel):
    """The configuration that is in use."""

    loaded_at: datetime
    """When it was read and found valid, in UTC."""
    reloads: int
    """How often it has changed since the start."""
    last_error: LoadError | None
    """Why the last attempt to read it again failed; `null` if it succeeded."""


class CertificateStatus(BaseModel):
    """The TLS files of listeners, ports and backends with equal settings."""

    used_by: list[str]
    """Where they are used."""
    certificate: str | None
    """The file of the certificate; null for a backend that is shown none."""
    expires: datetime | None
    """When the certificate that is in use expires, in UTC."""
    error: str | None
    """Why the files as they are now cannot be used; null if they are used."""


class GatewayStatus(BaseModel):
    """The whole gateway."""

    version: str
    ready: bool
    configuration: ConfigurationStatus
    shedding: SheddingStatus | None = None
    """Null without `limits.shed`."""
    listeners: dict[str, ListenerStatus]
    backends: dict[str, BackendStatus]
    policies: list[PolicyStatus] = []
    """Those that keep a state."""
    last_errors: list[RequestError] = []
    """The last requests that ended with an error, the newest first."""
    tracing: TracingStatus | None = None
    """Null without `tracing`."""
    certificates: list[CertificateStatus] = []
    """All that is used for TLS."""


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
    location: list[str | int] = []
    """The keys and indexes that lead to the place, such as `routes`, 1, `backend`; empty if that is not known."""


class NotReloaded(BaseModel):
    """The configuration cannot be used. The one before is kept, unchanged."""

    errors: list[ConfigurationError]


Reload: TypeAlias = Callable[[], Awaitable[Reloaded | NotReloaded]]
"""Reads the configuration again."""


def backend_status(backend: Backend, requests: Mapping[str, int]) -> BackendStatus:
    """The status of `backend`. `requests`: those of clients that it answered, by their status."""
    return BackendStatus(
        protocol=backend.protocol.name,
        max_in_flight=backend.max_in_flight,
        waiting=len(backend.queue),
        requests=dict(requests),
        queue=_queue_status(backend) if backend.max_in_flight else None,
        endpoints=[endpoint_status(backend, each) for each in backend.endpoints],
        servers=_servers(backend.slots) if isinstance(backend.slots, StartedSlots) else None,
    )


def endpoint_status(backend: Backend, endpoint: Endpoint) -> EndpointStatus:
    """The status of an endpoint of `backend`."""
    last, drain = endpoint.health.last, endpoint.drain
    return EndpointStatus(
        address=endpoint.address,
        in_flight=endpoint.in_flight,
        state=endpoint.health.state.value,
        last_error=LastError(text=last.text, at=last.at) if last else None,
        ejected_until=endpoint.health.ejected_until,
        load=_load(backend, endpoint),
        drain=None
        if drain is None
        else DrainStatus(
            state="drained" if drain.state is DrainState.DRAINED else "draining",
            since=drain.since,
            sequences=backend.local.sequences.count(endpoint) if drain.seconds_left else 0,
            is_moving=drain.is_moving,
            failed_moves=list(drain.failed_moves),
        ),
    )


def _load(backend: Backend, endpoint: Endpoint) -> float | None:
    strategy = backend.choice.strategy
    told = strategy.loads.now(endpoint) if isinstance(strategy, LeastLoad) else None
    return None if told is None else told.load


def _servers(slots: StartedSlots) -> list[ServerStatus]:
    return [
        ServerStatus(
            name=each.name,
            id=each.id,
            state=each.phase,
            job=each.state,
            reason=each.reason,
            address=each.address,
            since=datetime.fromtimestamp(each.since, UTC),
            calls=each.calls,
        )
        for each in (() if slots.starter is None else slots.starter.reports())
    ]


def _queue_status(backend: Backend) -> QueueStatus:
    is_free = any(each.in_flight < backend.max_in_flight for each in backend.serving)
    return QueueStatus(
        length=backend.local.queue_settings.length,
        timeout=backend.local.queue_settings.timeout,
        estimated_wait=0.0 if is_free else backend.local.calls.seconds_until(len(backend.queue) + 1),
        clients=[
            ClientWaiting(client=client, waiting=waiting) for client, waiting in backend.queue.longest(MOST_CLIENTS)
        ],
    )


def application(
    status: Callable[[], GatewayStatus],
    reload: Reload | None = None,
    configuration: Callable[[], object] | None = None,
) -> "FastAPI":
    """An application with `GET /status`, with `POST /reload` if there is a `reload`, with `GET /config` if there is a
    `configuration`, and with its OpenAPI description at `/openapi.json`."""
    # Imported here, since it takes a fifth of a second: commands without an admin port do not wait for it.
    from fastapi import FastAPI

    from gateway.admin.request_body import BoundedBodies

    app = FastAPI(title="Modelglot: admin", version=status().version, docs_url=None, redoc_url=None)
    app.add_middleware(BoundedBodies)

    @app.get("/status", summary="The state of the gateway")
    async def read() -> GatewayStatus:
        """Listeners, backends, endpoints, queues, certificates and the last errors."""
        return status()

    if configuration is not None:
        _add_configuration(app, configuration)
    if reload is not None:
        _add_reload(app, reload)
    return app


def _add_configuration(app: "FastAPI", configuration: Callable[[], object]) -> None:
    @app.get("/config", summary="The configuration in use")
    async def effective() -> dict[str, Any]:
        """The configuration that is in use, with every default; secrets are shown as `***`."""
        found = configuration()
        assert isinstance(found, dict)
        return found


def _add_reload(app: "FastAPI", reload: Reload) -> None:
    from fastapi import HTTPException, Response

    @app.get("/reload", include_in_schema=False)
    async def asked_to_read() -> None:
        raise HTTPException(405, "a reload is asked for with POST: curl -X POST URL", {"allow": "POST"})

    @app.post(
        "/reload",
        summary="Read the configuration again",
        responses={422: {"model": NotReloaded, "description": "The configuration has errors; nothing has changed."}},
    )
    async def read_again(response: Response) -> Reloaded | NotReloaded:
        """Read the configuration again, and change to it if it has no errors."""
        found = await reload()
        if isinstance(found, NotReloaded):
            response.status_code = 422
        return found
