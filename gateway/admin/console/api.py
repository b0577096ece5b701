"""The JSON for the page: `/api/topology`, `/api/traffic`, `/api/history`, `/api/requests`, `/api/errors`,
`/api/configuration`, `/api/models`, `/api/models/signature` and others. The admin port's OpenAPI document describes
these paths."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from hashlib import blake2b
from time import monotonic, time
from typing import Annotated, Any, Generic, Literal, TypeVar

import orjson
from fastapi import FastAPI, HTTPException, Query, Request, Response
from pydantic import BaseModel

from gateway.admin.console import placement
from gateway.admin.console.access import DescribedPrincipal, ListedKeys, described_principal, listed_keys
from gateway.admin.console.configuration import Configuration, FindWarnings, Marked, PlacedPolicies, PolicySettings
from gateway.admin.console.explanations import ExplainedReason, explained
from gateway.admin.console.models import (
    DrawnGraphs,
    GraphTraffic,
    ListedModels,
    ModelLists,
    ModelSignature,
    drawn_graphs,
    graph_signature,
    graph_traffic,
    signature,
)
from gateway.admin.console.overview import Topology, Traffic, backend_traffic, listener_traffic, path_traffic, topology
from gateway.admin.console.requests import (
    STATUSES,
    DrawnHistory,
    ListedRequests,
    RequestSummary,
    Search,
    SummarisedPart,
    drawn_history,
    listed,
    summary,
)
from gateway.admin.key_changes import why_fixed
from gateway.admin.playground.api import add_playground
from gateway.admin.state import GatewayState
from gateway.admin.status import CertificateStatus
from gateway.assembly.server_info import INFO
from gateway.config.keys import Config
from gateway.core.errors import GatewayError, Status
from gateway.observing.counters import RequestError
from gateway.observing.recent import MOST_RECENT
from gateway.routing.router import LONGEST_NAME

Source = TypeVar("Source")
Made = TypeVar("Made")

SIGNATURE_SECONDS = 10.0
"""Time limit for a server's response to a signature query, in seconds."""


class Errors(BaseModel):
    """The last requests that ended with an error, newest first, and explanations of their reasons."""

    errors: list[RequestError]
    reasons: dict[str, ExplainedReason]
    """Explanations of the reasons in `errors`, as in `docs/runbook.md`."""


class ListedCertificates(BaseModel):
    """All TLS files in use."""

    certificates: list[CertificateStatus]


class _MadeOf(Generic[Source, Made]):
    """Caches the object created from the latest source, such as the configuration in use."""

    def __init__(self) -> None:
        self._kept: tuple[Source, Made] | None = None

    async def get(self, source: Source, make: Callable[[], Made]) -> Made:
        """Return the object created from this source. If the source is not the same object as before, create a new
        object in a thread."""
        if self._kept is None or self._kept[0] is not source:
            self._kept = source, await asyncio.to_thread(make)
        return self._kept[1]


def add_api(app: FastAPI, state: GatewayState, find_warnings: FindWarnings, clock: Callable[[], float]) -> None:
    """Add the paths below `/api` to the admin port's application."""
    add_playground(app, state)
    _add_overview(app, state)
    _add_history(app, state)
    _add_requests(app, state)
    _add_configuration(app, state, find_warnings)
    _add_policies(app, state)
    _add_access(app, state)
    _add_models(app, state, ModelLists(clock))
    _add_graphs(app, state)
    _add_placement(app, state, clock)


def _add_overview(app: FastAPI, state: GatewayState) -> None:
    drawn = _MadeOf[datetime, dict[str, Any]]()

    @app.get("/api/topology", summary="Listeners, routes and backends, and their connections", response_model=Topology)
    async def read_topology(request: Request) -> Response:
        """Listeners, routes and backends, and their connections."""
        at = state.loaded_at
        found = partial(topology, state.config, dict(state.listeners), INFO.version, at, state.reloads)
        return _reply(request, await drawn.get(at, lambda: found().model_dump(mode="json")))

    @app.get("/api/traffic", summary="Counts of requests, and calls in flight", response_model=Traffic)
    async def read_traffic(
        request: Request,
        since: Annotated[
            float, Query(description="The `gateway-time` of the previous response; 0 for all paths.")
        ] = 0.0,
    ) -> Response:
        """Counts since the gateway started, and the current numbers of calls in flight and waiting calls."""
        await state.refresh_counts()
        counters, shedding = state.counters, state.shedding
        now = monotonic()  # after the counters, which then include everything that ended before
        found = {
            "started": counters.started,
            "topology": _topology_tag(state),
            "ready": state.ready,
            "errors": counters.errors,
            "shedding": 0 if shedding is None else shedding.level,
            "listeners": listener_traffic(state.listeners),
            "backends": backend_traffic(state.assembly.backends),
            "paths": list(path_traffic(counters.paths(since))),
        }
        return _reply(request, found, {"gateway-time": f"{now:.6f}"})

    @app.get("/api/errors", summary="The last errors", response_model=Errors)
    async def read_errors(request: Request) -> Response:
        """The last requests that ended with an error, and explanations of their reasons."""
        await state.refresh_counts()
        errors = list(state.counters.last_errors())
        reasons = explained({each.reason for each in errors})
        return _reply(request, Errors(errors=errors, reasons=reasons).model_dump(mode="json"))


def _add_history(app: FastAPI, state: GatewayState) -> None:
    @app.get("/api/history", summary="The last hour in steps of ten seconds", response_model=DrawnHistory)
    async def read_history(
        request: Request,
        kind: Annotated[Literal["", "listener", "route", "backend"], Query(description="Empty: all requests.")] = "",
        name: Annotated[
            str, Query(max_length=LONGEST_NAME, description="The name of the part; for a route, its place.")
        ] = "",
    ) -> Response:
        """The requests of the last hour, or only the requests for one listener, route or backend. The history survives
        a reload of the configuration. If data is missing, no requests arrived."""
        if bool(kind) != bool(name):
            raise HTTPException(422, "send both `kind` and `name`, or leave out both")
        return _reply(request, drawn_history(state.observing.history, (kind, name)))


def _add_requests(app: FastAPI, state: GatewayState) -> None:
    part_of = partial(Query, max_length=LONGEST_NAME)

    @app.get("/api/requests", summary="The last requests", response_model=ListedRequests)
    async def read_requests(
        request: Request,
        id: Annotated[str, part_of(description="A part of the request id.")] = "",
        model: Annotated[str, part_of(description="A part of the model's name.")] = "",
        principal: Annotated[str, part_of(description="A part of the principal's name.")] = "",
        status: Annotated[
            str, part_of(description="The name of a status, or `failed` for all statuses except OK.")
        ] = "",
        listener: Annotated[str, part_of(description="Its name.")] = "",
        route: Annotated[str, part_of(description="Its name.")] = "",
        backend: Annotated[str, part_of(description="The name of the last called backend.")] = "",
        exactly: Annotated[bool, Query(description="`model` and `principal` are complete names.")] = False,
        most: Annotated[
            int, Query(ge=1, le=2 * MOST_RECENT, description="Maximum number of requests in the response.")
        ] = 200,
    ) -> Response:
        """The last thousand requests and the last thousand failed requests, with the data of the access log, which
        excludes headers, keys and tensors. The response lists only requests that meet all conditions. Searches for
        parts of names ignore case."""
        if status and status not in STATUSES:
            raise HTTPException(422, f"unknown status {status!r}; expected one of {', '.join(STATUSES)}")
        await state.refresh_counts()
        search = Search(id, model, principal, status, listener, route, backend, exactly)
        return _reply(request, listed(state.recent_requests, search, most, time() - monotonic()))

    @app.get("/api/summary", summary="Statistics of the last requests of a part", response_model=RequestSummary)
    async def read_summary(
        request: Request,
        kind: Annotated[SummarisedPart, Query(description="Empty: all requests.")] = "",
        name: Annotated[str, part_of(description="The name of the part; for a route, its place.")] = "",
    ) -> Response:
        """Statistics for one route, backend, model or principal, from its requests among the gateway's last thousand.
        The statistics include the number of failed requests, the total times, the times by stage, and the related
        routes, backends, models and principals."""
        if bool(kind) != bool(name):
            raise HTTPException(422, "send both `kind` and `name`, or leave out both")
        await state.refresh_counts()
        return _reply(request, summary(state.recent_requests, kind, name, time() - monotonic()))


def _add_configuration(app: FastAPI, state: GatewayState, find_warnings: FindWarnings) -> None:
    checked = _MadeOf[Config, Marked]()

    @app.get("/api/configuration", summary="The configuration in use as lines", response_model=Configuration)
    async def read_configuration(request: Request) -> Response:
        """The configuration in use as lines of YAML, with the warnings of `gateway check`, and, if the last reload
        failed, its errors."""
        config = state.config
        marked = await checked.get(config, lambda: Marked(config, find_warnings(config)))
        return _reply(request, marked.shown(state.last_reload_error).model_dump(mode="json"))


def _add_policies(app: FastAPI, state: GatewayState) -> None:
    known = _MadeOf[Config, PolicySettings]()

    @app.get(
        "/api/policies",
        summary="The policies of a route or a backend",
        response_model=PlacedPolicies,
        responses={404: {"description": "Unknown place."}},
    )
    async def read_policies(
        request: Request,
        place: Annotated[str, Query(max_length=LONGEST_NAME, description="A route's name, or `backends.NAME`.")],
    ) -> Response:
        """The policies of a route or a backend, with their settings and states."""
        await state.refresh_counts()
        settings = await known.get(state.config, partial(PolicySettings, state.config))
        try:
            found = settings.at(place, state.policy_states)
        except KeyError:
            text = f"unknown route or backend {place!r}; use a route's name, or `backends.NAME`"
            raise HTTPException(404, text) from None
        return _reply(request, found.model_dump(mode="json"))


def _add_access(app: FastAPI, state: GatewayState) -> None:
    @app.get("/api/keys", summary="The API keys, without secrets", response_model=ListedKeys)
    async def read_keys(
        request: Request,
        text: Annotated[
            str, Query(max_length=LONGEST_NAME, description="A part of an id, a principal or a note.")
        ] = "",
    ) -> Response:
        """The API keys by id, with their expiry and last use: all keys, or the keys whose id, principal or note
        contains the given text."""
        await state.refresh_counts()
        file, credentials = state.assembly.authentication.access.file, state.assembly.authentication.access.credentials
        path, keys = (None, None) if file is None else (str(file.path), file.keys)
        fixed = why_fixed(state)
        found = await asyncio.to_thread(listed_keys, path, keys, dict(credentials.uses), text, fixed)
        return _reply(request, found.model_dump(mode="json"))

    @app.get(
        "/api/principal", summary="The permissions of a principal, without secrets", response_model=DescribedPrincipal
    )
    async def read_principal(
        request: Request,
        name: Annotated[str, Query(max_length=LONGEST_NAME, description="The principal's complete name.")],
    ) -> Response:
        """A principal's configured permissions, its rate limits with the remaining requests, its API keys by id, and
        the credentials that authenticate clients as this principal."""
        await state.refresh_counts()
        states, access = state.principal_states(name), state.assembly.authentication.access
        found = await asyncio.to_thread(described_principal, name, state.config, access, states)
        return _reply(request, found.model_dump(mode="json"))

    @app.get("/api/certificates", summary="The certificates, with their expiry", response_model=ListedCertificates)
    async def read_certificates(request: Request) -> Response:
        """The TLS files that listeners, ports and backends use, and the expiry times of the certificates in use."""
        found = ListedCertificates(certificates=state.status().certificates)
        return _reply(request, found.model_dump(mode="json"))


def _add_models(app: FastAPI, state: GatewayState, lists: ModelLists) -> None:
    @app.get("/api/models", summary="All backends' models", response_model=ListedModels)
    async def read_models(request: Request) -> Response:
        """All backend models, from the servers' model lists or from the names in routes."""
        found = await lists.read(state.config, state.assembly.backend_sides)
        return _reply(request, await asyncio.to_thread(found.model_dump, mode="json"))

    @app.get(
        "/api/models/signature",
        summary="The signature of a model",
        responses={
            404: {"description": "Unknown backend or model."},
            502: {"description": "The server failed."},
            504: {"description": "The server did not answer in time."},
        },
    )
    async def read_signature(
        backend: Annotated[str, Query(max_length=LONGEST_NAME, description="Empty for a model of `models`.")],
        model: Annotated[str, Query(max_length=LONGEST_NAME)],
        version: Annotated[str, Query(max_length=LONGEST_NAME)] = "",
    ) -> ModelSignature:
        """One model's signature, as a backend's server reports it and as routes declare it. `model` is the model's name
        on the server. The gateway derives a model graph's signature from the signatures of its models."""
        side, graph = state.assembly.backend_sides.get(backend), state.assembly.graphs.models.get(model)
        try:
            async with asyncio.timeout(SIGNATURE_SECONDS):
                if not backend and graph is not None:
                    return await graph_signature(graph)
                if side is not None:
                    return await signature(state.config, side, model, version)
        except TimeoutError:
            asked = f"backend {backend!r}" if backend else f"a model of {model!r}"
            raise HTTPException(504, f"{asked} did not answer within {SIGNATURE_SECONDS:g} s") from None
        except GatewayError as error:
            raise HTTPException(404 if error.status is Status.NOT_FOUND else 502, error.message) from error
        wanted = f"backend {backend!r}" if backend else f"model graph {model!r}"
        raise HTTPException(404, f"unknown {wanted}")


def _add_graphs(app: FastAPI, state: GatewayState) -> None:
    drawn = _MadeOf[Config, dict[str, Any]]()

    @app.get("/api/graphs", summary="The pictures of model graphs", response_model=DrawnGraphs)
    async def read_graphs(request: Request) -> Response:
        """For each graph in `models`, the boxes of its steps, and the arrows of the tensors between the boxes."""
        config = state.config
        found = await drawn.get(config, lambda: drawn_graphs(config.models).model_dump(mode="json"))
        return _reply(request, found)

    @app.get("/api/graphs/traffic", summary="The calls of steps of graphs", response_model=GraphTraffic)
    async def read_steps(request: Request) -> Response:
        """The calls since the last configuration load, by graph and step."""
        await state.refresh_counts()
        return _reply(request, graph_traffic(state.graph_steps).model_dump(mode="json"))


def _add_placement(app: FastAPI, state: GatewayState, clock: Callable[[], float]) -> None:
    @app.get("/api/placement", summary="The models of each server", response_model=placement.PlacementTables)
    async def read_placement(request: Request) -> Response:
        """For each backend with `placement`, a table of models by server. It shows the servers that have loaded a
        model, are loading it, or could not load it, and the number of the model's calls since the gateway started."""
        found = placement.snapshots(state.assembly.backends, clock())
        tables = await asyncio.to_thread(lambda: placement.tables(found).model_dump(mode="json"))
        return _reply(request, tables)


def _topology_tag(state: GatewayState) -> str:
    error = state.last_reload_error
    return f"{state.loaded_at.timestamp()}-{state.reloads}-{0 if error is None else error.at.timestamp()}"


def _reply(request: Request, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON with an ETag, or status 304 if the page already has this JSON. The headers prevent caches from
    storing the response."""
    content = orjson.dumps(body)
    tag = f'"{blake2b(content, digest_size=9).hexdigest()}"'
    fields = {"ETag": tag, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", **(headers or {})}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=fields)
    return Response(content, 200, fields, "application/json")
