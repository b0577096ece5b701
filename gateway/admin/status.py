"""The status API: the state of listeners, backends and endpoints as JSON."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import BaseModel

from gateway.config.listeners import ListenerConfig
from gateway.core.transport import ListenerCounts
from gateway.observing.counters import RequestCounts, RequestError
from gateway.routing.backend import Backend
from gateway.routing.balancing import LeastLoad
from gateway.routing.endpoint import Endpoint
from gateway.routing.on_demand import StartedSlots

if TYPE_CHECKING:
    from fastapi import FastAPI


class LastError(BaseModel):
    """The cause of a failed call or probe of an endpoint. The gateway writes the message itself, without any part of a
    call's request or response."""

    text: str
    at: datetime
    """The time of the failure, in UTC."""


class DrainStatus(BaseModel):
    """The drain of an endpoint for maintenance of its server."""

    state: Literal["draining", "drained"]
    """`draining`: the endpoint receives no new calls, but still has calls in flight. `drained`: the endpoint has no
    calls, and you can stop its server."""
    since: datetime
    """The time when the drain began, in UTC."""
    sequences: int
    """Number of open client sequences that can continue on the endpoint."""
    is_moving: bool
    """True while the gateway is loading the endpoint's models on other servers. During this time, the endpoint still
    receives calls."""
    failed_moves: list[str]
    """The models that the gateway could not load on other servers, with the reasons."""


class EndpointStatus(BaseModel):
    """One address of a backend."""

    address: str
    in_flight: int
    """Number of calls in flight, including calls of disconnected clients."""
    state: Literal["unknown", "up", "degraded", "down"]
    """`unknown`: the endpoint has not yet responded to a call or a probe. `degraded`: the last calls or probes failed,
    but the endpoint still receives calls. `down`: the endpoint receives no calls while the backend has other endpoints
    that work."""
    last_error: LastError | None
    """The last failure, even if later calls succeeded."""
    ejected_until: datetime | None
    """The time after which the gateway sends one trial call; if the endpoint responds, it is up again. None if the
    endpoint is not down, or if it is down because probes fail."""
    load: float | None = None
    """The last load that the server reported, in a unit that all the backend's servers share. `balance: least_load`
    compares these loads. None without a recent report, or with a different `balance`."""
    drain: DrainStatus | None = None
    """The endpoint's drain; null if the endpoint is not being drained."""


class TracingStatus(BaseModel):
    """The state of tracing."""

    sent: int
    """Number of requests whose spans the collector accepted."""
    dropped: int
    """Number of recorded requests whose spans were lost because too many spans were waiting or the collector did not
    accept them."""


MOST_CLIENTS = 20
"""Maximum number of clients in the status of a queue."""


class ClientWaiting(BaseModel):
    """A client with waiting calls."""

    client: str
    """The client's host; empty for clients over unix sockets."""
    waiting: int


class QueueStatus(BaseModel):
    """The queue of a backend whose endpoints have a limit on calls in flight."""

    length: int
    """Maximum number of waiting calls."""
    timeout: float | None
    """Maximum wait of a call, in seconds; null means no limit."""
    estimated_wait: float | None
    """Estimated wait of a call that joins the queue now, in seconds: the mean time for which recent calls occupied a
    slot, times the call's position, divided by the number of slots. 0 while a slot is free; null before the first call
    has ended."""
    clients: list[ClientWaiting]
    """The clients with the most waiting calls, up to MOST_CLIENTS."""


class ServerStatus(BaseModel):
    """A model server that the gateway has started, as a job of an engine."""

    name: str
    """The name of the job."""
    id: str
    """The id that the engine assigned to the job; empty until the engine has accepted it."""
    state: Literal["starting", "serving", "draining", "ending"]
    job: str
    """The state of the job, as the engine reports it: `waiting`, `running` and so on."""
    reason: str
    """The engine's reason for the state, or empty."""
    address: str
    """The server's address; empty until the server has announced itself."""
    since: datetime
    """The time when the job was submitted, in UTC."""
    calls: int
    """Number of calls that the server has received."""


class BackendStatus(BaseModel):
    """The state of a backend, its endpoints, and its queue."""

    protocol: str
    max_in_flight: int
    """Maximum number of calls in flight to each endpoint; 0 means no limit."""
    waiting: int
    requests: dict[str, int] = {}
    """Number of client requests since the start, by status. A request counts for the backend that was called last."""
    failed: int = 0
    """Number of these requests that ended with an error caused by a server: the model server or the gateway."""
    rejected: int = 0
    """Number of these requests that ended with an error caused by the caller."""
    queue: QueueStatus | None
    """The queue; null if the number of calls in flight has no limit, so no call waits."""
    endpoints: list[EndpointStatus]
    servers: list[ServerStatus] | None = None
    """The servers whose jobs have not ended; null if the gateway starts no servers for this backend."""


class ListenerStatus(BaseModel):
    """A listener: its address, protocols, and counts."""

    address: str
    protocols: list[str]
    requests: dict[str, int] = {}
    """Number of requests since the start, by status."""
    failed: int = 0
    """Number of these requests that ended with an error caused by a server: a model server or the gateway."""
    rejected: int = 0
    """Number of these requests that ended with an error caused by the caller."""
    refused_connections: int
    """Number of connections refused since the gateway started. The gateway refuses connections above
    `limits.connections` or `limits.connections_per_client` of the listener or of the process, and while it is
    overloaded."""


class SheddingStatus(BaseModel):
    """The state of load shedding."""

    since: datetime | None
    """The time when the gateway began to reject new work, in UTC; null while it accepts work."""
    refused: int
    """Number of connections and requests rejected since the start."""


class PolicyStatus(BaseModel):
    """The state of a policy, such as the models that a `circuit_breaker` blocks, the calls that a `concurrency_limit`
    counts, the requests that a `rate_limit` rejected, or the differences that a `mirror` found."""

    place: str
    """The policy's place in the configuration: a route's name, or `backends.NAME`."""
    policy: str
    state: dict[str, Any]
    """The state. The policy's page in the documentation describes its format."""


class LoadError(BaseModel):
    """The errors of a failed reload. `text` contains one error per line; `errors` is a list of the same errors."""

    text: str
    at: datetime
    """The time of the reload, in UTC."""
    errors: list["ConfigurationError"] = []


class ConfigurationStatus(BaseModel):
    """The configuration in use."""

    loaded_at: datetime
    """The time of the last successful read and validation, in UTC."""
    reloads: int
    """Number of configuration changes since the gateway started."""
    last_error: LoadError | None
    """The reason why the last reload failed; `null` if the reload succeeded."""


class CertificateStatus(BaseModel):
    """The TLS files that listeners, ports and backends with equal settings use."""

    used_by: list[str]
    """The parts of the configuration that use the files."""
    certificate: str | None
    """The certificate file; null for a backend without a client certificate."""
    expires: datetime | None
    """The expiry of the certificate in use, in UTC."""
    error: str | None
    """The reason why the current files cannot be used; null if they are in use."""


class GatewayStatus(BaseModel):
    """The state of the entire gateway."""

    version: str
    ready: bool
    configuration: ConfigurationStatus
    shedding: SheddingStatus | None = None
    """The state of load shedding; null if `limits.shed` is not set."""
    listeners: dict[str, ListenerStatus]
    backends: dict[str, BackendStatus]
    policies: list[PolicyStatus] = []
    """The stateful policies."""
    last_errors: list[RequestError] = []
    """The last requests that ended with an error, newest first."""
    tracing: TracingStatus | None = None
    """The state of tracing; null if `tracing` is not set."""
    certificates: list[CertificateStatus] = []
    """All TLS files in use."""


class Reloaded(BaseModel):
    """Response to a successful reload."""

    changes: list[str]
    """The applied changes, and the changes that need a restart; empty if the file matches the configuration in use."""


class ConfigurationError(BaseModel):
    """One error of a configuration."""

    text: str
    file: str | None = None
    line: int | None = None
    column: int | None = None
    """`line` and `column` count from 1. Both positions are `null` for an error outside the file, such as an address
    that cannot be bound."""
    location: list[str | int] = []
    """The keys and indexes that lead to the position, such as `routes`, 1, `backend`; empty if the position is
    unknown."""


class NotReloaded(BaseModel):
    """The configuration is invalid, so the gateway keeps the previous configuration."""

    errors: list[ConfigurationError]


Reload: TypeAlias = Callable[[], Awaitable[Reloaded | NotReloaded]]
"""A function that reads the configuration again and applies it."""


def listener_status(listener: ListenerConfig, counts: ListenerCounts, requests: RequestCounts) -> ListenerStatus:
    """Return the status of a listener. `requests` counts its requests."""
    return ListenerStatus(
        address=counts.address,
        protocols=list(listener.protocols),
        requests=dict(requests.by_status),
        failed=requests.failed,
        rejected=requests.rejected,
        refused_connections=counts.refused_connections,
    )


def backend_status(backend: Backend, requests: RequestCounts) -> BackendStatus:
    """Return the status of `backend`. `requests` counts the backend's client requests."""
    return BackendStatus(
        protocol=backend.protocol.name,
        max_in_flight=backend.max_in_flight,
        waiting=len(backend.queue),
        requests=dict(requests.by_status),
        failed=requests.failed,
        rejected=requests.rejected,
        queue=_queue_status(backend) if backend.max_in_flight else None,
        endpoints=[endpoint_status(backend, each) for each in backend.endpoints],
        servers=_servers(backend.slots) if isinstance(backend.slots, StartedSlots) else None,
    )


def endpoint_status(backend: Backend, endpoint: Endpoint) -> EndpointStatus:
    """Return the status of one endpoint of `backend`."""
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
            state=drain.state.value,
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
    refresh_counts: Callable[[], Awaitable[None]] | None = None,
) -> "FastAPI":
    """Return an application that serves `GET /status` and its OpenAPI document at `/openapi.json`. It also serves `POST
    /reload` if `reload` is set, and `GET /config` if `configuration` is set."""
    # Imported here because the import takes 0.2 s, and commands without an admin port do not need it.
    from fastapi import FastAPI

    from gateway.admin.request_body import BoundedBodies

    app = FastAPI(title="Modelglot: admin", version=status().version, docs_url=None, redoc_url=None)
    app.add_middleware(BoundedBodies)

    @app.get("/status", summary="The state of the gateway")
    async def read() -> GatewayStatus:
        """The state of listeners, backends, endpoints, queues and certificates, and the last errors."""
        if refresh_counts is not None:
            await refresh_counts()
        return status()

    if configuration is not None:
        _add_configuration(app, configuration)
    if reload is not None:
        _add_reload(app, reload)
    return app


def _add_configuration(app: "FastAPI", configuration: Callable[[], object]) -> None:
    @app.get("/config", summary="The configuration in use")
    async def effective() -> dict[str, Any]:
        """The configuration in use, with all defaults. Secrets appear as `***`."""
        found = configuration()
        assert isinstance(found, dict)
        return found


def _add_reload(app: "FastAPI", reload: Reload) -> None:
    from fastapi import Response

    refuse_get(app, "/reload", "use POST to reload: curl -X POST URL")

    @app.post(
        "/reload",
        summary="Read the configuration again",
        responses={422: {"model": NotReloaded, "description": "The configuration has errors; nothing has changed."}},
    )
    async def read_again(response: Response) -> Reloaded | NotReloaded:
        """Read the configuration again, and apply it if it has no errors."""
        found = await reload()
        if isinstance(found, NotReloaded):
            response.status_code = 422
        return found


def refuse_get(app: "FastAPI", path: str, why: str) -> None:
    """Make `GET` respond with the text `why` at `path`, which is for `POST` only."""
    from fastapi import HTTPException

    @app.get(path, include_in_schema=False)
    async def asked_to_read() -> None:
        raise HTTPException(405, why, {"allow": "POST"})
