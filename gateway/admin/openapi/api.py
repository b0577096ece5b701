"""`/api/openapi`: the OpenAPI documents of the listeners."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import orjson
from fastapi import FastAPI, HTTPException, Query, Request, Response
from pydantic import BaseModel

from gateway.admin.openapi.document import describes, document, listener_url
from gateway.admin.openapi.models import ModelsOfClients, why_not
from gateway.admin.state import GatewayState
from gateway.assembly.forms import spoken
from gateway.assembly.server_info import INFO
from gateway.config import paths
from gateway.config.listeners import ListenerConfig
from gateway.config.paths import over_http
from gateway.core.errors import DecodeError, GatewayError, Status
from gateway.core.json.openapi import DescribedModel
from gateway.core.protocol import Protocol
from gateway.routing.router import LONGEST_NAME

MODEL_SECONDS = 10.0
"""Time limit for servers' responses to queries about a model, in seconds."""


class DocumentOfListener(BaseModel):
    """A listener with a document at `/api/openapi/NAME`."""

    listener: str
    protocols: list[str]
    url: str
    """The listener's address for clients."""


class Documents(BaseModel):
    """The listeners' documents."""

    documents: list[DocumentOfListener]


def add_api(app: FastAPI, state: GatewayState, clock: Callable[[], float]) -> None:
    """Add the paths below `/api/openapi` to the admin port's application."""
    models = ModelsOfClients(clock)

    @app.get("/api/openapi", summary="The listeners with an OpenAPI document")
    async def read_documents(request: Request) -> Documents:
        """The HTTP listeners. Listeners with other transports have no document."""
        return Documents(
            documents=[
                DocumentOfListener(
                    listener=each.name,
                    protocols=list(dict.fromkeys(protocol.name for protocol, _ in rows)),
                    url=_url(state, each, request),
                )
                for each in state.config.listeners
                if (rows := over_http(_rows(state, each)))
            ]
        )

    @app.get(
        "/api/openapi/{listener}",
        summary="The OpenAPI document of a listener",
        response_model=dict[str, Any],
        responses={404: {"description": "Unknown listener or model."}, **_FAILURES},
    )
    async def read_document(
        request: Request,
        listener: str,
        model: Annotated[str, Query(max_length=LONGEST_NAME, description="Describe the paths for this model.")] = "",
        version: Annotated[str, Query(max_length=LONGEST_NAME, description="Version for the model's paths.")] = "",
    ) -> Response:
        """Every HTTP path that the listener serves. If `model` is set, the schemas contain the model's inputs and
        outputs, with examples. The gateway fetches the inputs and outputs from the server, and caches them for a
        minute."""
        config = next((each for each in state.config.listeners if each.name == listener), None)
        rows = () if config is None else over_http(_rows(state, config))
        if config is None or not rows:
            known = ", ".join(each.name for each in state.config.listeners if over_http(_rows(state, each)))
            raise HTTPException(404, f"unknown HTTP listener {listener[:100]!r}; HTTP listeners: {known or 'none'}")
        described = await _described(state, models, config, rows, model, version) if model else {}
        url = _url(state, config, request)
        auth = state.config.auth
        found = await asyncio.to_thread(document, config, rows, url, auth, described, INFO.version)
        return Response(orjson.dumps(found), 200, _HEADERS, "application/json")


_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_FAILURES: dict[int | str, dict[str, Any]] = {
    502: {"description": "The model's server failed, or its response is invalid."},
    504: {"description": "The model's server did not answer in time."},
}


def _rows(state: GatewayState, listener: ListenerConfig) -> Sequence[tuple[Protocol, str]]:
    """Return the protocols of a listener with their prefixes."""
    config = state.config
    return paths.rows(listener, config.routes, config.backends, spoken(config))


def _url(state: GatewayState, config: ListenerConfig, request: Request) -> str:
    running = state.listeners.get(config.name)
    return "" if running is None else listener_url(config, running.address, request.url.hostname or "")


async def _described(
    state: GatewayState,
    models: ModelsOfClients,
    listener: ListenerConfig,
    rows: Sequence[tuple[Protocol, str]],
    model: str,
    version: str,
) -> Mapping[str, DescribedModel | str]:
    """For each protocol, return the model as clients see it, or the reason why clients cannot use it.

    Raises:
        HTTPException: clients cannot use the model over any of the protocols.
    """
    found: dict[str, DescribedModel | str] = {}
    status = 404
    try:
        async with asyncio.timeout(MODEL_SECONDS):
            for protocol in {each.name: each for each, _ in rows if describes(each)}.values():
                try:
                    described = await models.get(
                        state.config, state.assembly.router.select, listener.name, protocol, model, version
                    )
                    found[protocol.name] = described
                except (GatewayError, DecodeError) as error:
                    found.setdefault(protocol.name, why_not(error))
                    is_missing = isinstance(error, GatewayError) and error.status is Status.NOT_FOUND
                    status = status if is_missing else 502
    except TimeoutError:
        text = f"no answer about model {model!r} within {MODEL_SECONDS:g} s; check its server, then try again"
        raise HTTPException(504, text) from None
    if not any(isinstance(each, DescribedModel) for each in found.values()):
        raise HTTPException(
            status, "; ".join(map(str, dict.fromkeys(found.values()))) or "every protocol lacks a description"
        )
    return found
