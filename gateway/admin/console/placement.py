"""`/api/placement`: for each backend with `placement`, a table of models by server, with the models that each server
has loaded and the number of calls of each model."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from pydantic import BaseModel

from gateway.core.frozen import frozen
from gateway.routing.backend import Backend
from gateway.routing.endpoint import Endpoint
from gateway.routing.placement.slots import PlacedSlots, placed
from gateway.routing.placement.table import PlacedModel, ReplicaReport


class PlacedServer(BaseModel):
    """A server that belongs to the backend."""

    address: str
    state: str
    """The server's health, as in `/status`."""
    drain: str | None
    """`draining` or `drained`; null if the server is not being drained."""
    held: int
    """Number of models loaded on the server."""
    has_told: bool
    """True if the server has reported its models."""
    error: str
    """The error of the last query for the server's models; empty if the query succeeded."""


class PlacedHolding(BaseModel):
    """A model on a server that has loaded it, is loading it, or could not load it."""

    server: int
    """The server's index in `servers`."""
    state: str
    """`held`, `loading`, `unloading` or `failed`."""
    why: str
    """The server's error message, if `state` is `failed`."""


class ModelPlacement(BaseModel):
    """A model, and the servers that have loaded it, are loading it, or could not load it."""

    model: str
    versions: list[str]
    copies: int
    """Number of servers that have loaded the model."""
    calls: int
    """Number of calls since the gateway started."""
    in_flight: int
    last_used: datetime | None
    """The end of the model's last call, in UTC; null if the model has had no calls."""
    places: list[PlacedHolding]


class BackendPlacement(BaseModel):
    """The models of one backend, by server."""

    servers: list[PlacedServer]
    models: list[ModelPlacement]
    can_load: bool
    """True if `POST /placement` can load and unload models."""
    on_demand: bool
    """True if the gateway loads models on demand."""


class PlacementTables(BaseModel):
    """The placement of all backends that have `placement`, by name."""

    backends: dict[str, BackendPlacement]


@frozen
class BackendSnapshot:
    """The placement of one backend at one moment, read in one event-loop step. `now` is the time on the backend's
    clock."""

    servers: tuple[tuple[Endpoint, bool, str], ...]
    """For each endpoint: the endpoint, True if it has reported its models, and the error of the last query for its
    models."""
    models: tuple[PlacedModel, ...]
    now: float
    can_load: bool
    on_demand: bool


def snapshots(backends: Mapping[str, Backend], now: float) -> dict[str, BackendSnapshot]:
    """Return the placement of all backends with `placement`, at the time `now` on their clock."""
    return {name: _snapshot(each, now) for name, each in placed(backends).items()}


def _snapshot(slots: PlacedSlots, now: float) -> BackendSnapshot:
    unknown, errors = slots.placements.unknown(), slots.refresher.errors
    servers = tuple(
        (each, each not in unknown, errors[each].message if each in errors else "") for each in slots.local.endpoints
    )
    return BackendSnapshot(
        servers,
        slots.placements.report(),
        now,
        slots.loader is not None,
        slots.is_on_demand,
    )


def tables(found: Mapping[str, BackendSnapshot]) -> PlacementTables:
    """Return the tables for these snapshots. This function is safe to call in any thread."""
    return PlacementTables(backends={name: _table(each) for name, each in found.items()})


def _table(found: BackendSnapshot) -> BackendPlacement:
    numbers = {endpoint: at for at, (endpoint, *_) in enumerate(found.servers)}
    models = [_model(each, numbers, found.now) for each in found.models]
    held = [0] * len(numbers)
    for each in models:
        for place in each.places:
            held[place.server] += place.state == "held"
    servers = [
        PlacedServer(
            address=endpoint.address,
            state=endpoint.health.state.value,
            drain=None if endpoint.drain is None else endpoint.drain.state.value,
            held=held[at],
            has_told=has_told,
            error=error,
        )
        for at, (endpoint, has_told, error) in enumerate(found.servers)
    ]
    return BackendPlacement(servers=servers, models=models, can_load=found.can_load, on_demand=found.on_demand)


def _model(placed: PlacedModel, numbers: Mapping[Endpoint, int], now: float) -> ModelPlacement:
    used = placed.last_used
    return ModelPlacement(
        model=placed.model,
        versions=list(placed.versions),
        copies=placed.copies,
        calls=placed.calls,
        in_flight=placed.in_flight,
        last_used=None if used is None else _second(datetime.now(UTC) - timedelta(seconds=now - used)),
        places=list(_places(placed.holdings, numbers)),
    )


def _places(holdings: Sequence[ReplicaReport], numbers: Mapping[Endpoint, int]) -> "list[PlacedHolding]":
    return [
        PlacedHolding(server=numbers[each.endpoint], state=each.state.value, why=each.why)
        for each in holdings
        if each.endpoint in numbers
    ]


def _second(time: datetime) -> datetime:
    """Return the time rounded to a second, to keep the JSON the same while nothing happens."""
    return (time + timedelta(seconds=0.5)).replace(microsecond=0)
