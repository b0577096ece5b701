"""Requests that are not simply sent to one server that has the model: the list of all models, statistics of all,
whether a model is ready that may be loaded on demand, and requests that change how servers run.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from gateway.core.errors import Status
from gateway.core.frozen import replace
from gateway.core.operations import CONTROL_OPERATIONS, Operation
from gateway.core.types import Answer, ControlRequest, NotReady, Request, Statistics
from gateway.routing.backend import Backend
from gateway.routing.one_try import ask_all
from gateway.routing.placement import refusals

if TYPE_CHECKING:
    from gateway.routing.placement.backend import PlacedBackend


async def models(backend: "PlacedBackend", request: Request) -> Answer:
    """Every model of every server.

    Raises:
        GatewayError: UNAVAILABLE, there is no server, or none has told yet what it has.
    """
    table = backend.placements
    if not backend.endpoints:
        raise backend.choice.none_there()
    if len(table.unknown()) == len(backend.endpoints):
        raise refusals.untold(table, backend.stocktaking.errors)
    return table.entries()


async def control(backend: "PlacedBackend", request: Request) -> Answer:
    """Loads go to the servers that have the model, or to the one with the most room; unloads, and settings of a model,
    to those that have it; other settings to all servers.

    Raises:
        GatewayError: the server's own; NOT_FOUND, no server has the model.
    """
    loader, able = backend.loader, backend.able(request)
    is_load = request.operation is Operation.LOAD and loader is not None
    if not able and not is_load:
        raise backend.nobody_has(request.model) if request.model else backend.choice.none_there()
    if loader is None or request.operation not in (Operation.LOAD, Operation.UNLOAD):
        return await ask_all(request, backend.name, able, backend.ask_without_slot)
    assert isinstance(request, ControlRequest)
    await (loader.load(request) if is_load else loader.unload(request))
    return True


async def all_statistics(backend: "PlacedBackend", request: Request) -> Answer:
    """The statistics of the models of all servers; of a model that several have those of one. Servers that fail are
    left out.

    Raises:
        GatewayError: the error of the first server, if all fail.
    """
    if not backend.endpoints:
        raise backend.choice.none_there()
    asked = (backend.ask_without_slot(request, each) for each in backend.endpoints)
    found = await asyncio.gather(*asked, return_exceptions=True)
    answers = [each for each in found if isinstance(each, Statistics)]
    if not answers:
        assert isinstance(found[0], BaseException)
        raise found[0]
    entries = {(each.name, each.version): each for answer in reversed(answers) for each in answer.models}
    return Statistics(tuple(entries.values()))


async def is_model_ready(backend: "PlacedBackend", request: Request) -> Answer:
    """The answer of a server that has the model. One that nobody has is ready if a call would load it.

    Raises:
        GatewayError: NOT_FOUND, no server has it or would load it.
    """
    if not request.model or not backend.is_on_demand or backend.able(request):
        return await Backend.__call__(backend, request)
    error = backend.why_not_loaded(replace(request, operation=Operation.INFER))
    if error is None:
        return True
    if error.status is Status.NOT_FOUND:
        raise error
    return NotReady(error.message)


OWN_ANSWERS: Mapping[Operation, Callable[["PlacedBackend", Request], Awaitable[Answer]]] = {
    Operation.MODELS: models,
    Operation.ALL_STATISTICS: all_statistics,
    Operation.MODEL_READY: is_model_ready,
    **dict.fromkeys(CONTROL_OPERATIONS, control),
}
"""The functions that answer these requests, by operation."""
