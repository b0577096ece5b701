"""Handles requests that need more than one server with the model: the model list, the statistics of all models, the
readiness of models that are loaded on demand, and server settings. Also creates the errors for requests whose model is
on no known server.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from gateway.core.errors import GatewayError, Reason, Status, TransportError, not_found
from gateway.core.frozen import replace
from gateway.core.models import NotReady
from gateway.core.operations import CONTROL_OPERATIONS, Operation
from gateway.core.requests import Answer, ControlRequest, Request
from gateway.core.statistics import Statistics
from gateway.routing.endpoint import Endpoint
from gateway.routing.one_try import Send, ask_all
from gateway.routing.placement.inventory import InventoryRefresher
from gateway.routing.placement.operating import OperatedLoader
from gateway.routing.placement.table import Placements
from gateway.routing.slots import LocalSlots, OwnAnswer


def model_missing(
    table: Placements, errors: Mapping[Endpoint, GatewayError], model: str, version: str = ""
) -> GatewayError:
    """Return the error for a request whose model is not on any server.

    The error is NOT_FOUND, or UNAVAILABLE if only drained endpoints have the model or if a server has not reported its
    models yet. `errors` contains the reasons why servers did not report."""
    what = f"model {model!r}"
    if version and model in table.models:
        what = f"version {version!r} of {what}"
    if drained := table.drained_holders(model):
        return _unreachable(table, f"{what} is only at endpoints that are drained ({', '.join(drained)})")
    unknown = table.unknown()
    if not unknown:
        return not_found(f"backend {table.backend!r}: {what} is on no server; load it, or correct its name")
    return _unreachable(table, f"{what} is on no server that answers, and {_why_unreported(unknown[0], errors)}")


def _nothing_reported(table: Placements, errors: Mapping[Endpoint, GatewayError]) -> GatewayError:
    """Return the error for the time before any server has reported its models. For `errors`, see `model_missing`."""
    return _unreachable(table, _why_unreported(table.unknown()[0], errors))


def _why_unreported(endpoint: Endpoint, errors: Mapping[Endpoint, GatewayError]) -> str:
    error = errors.get(endpoint)
    why = f": {error.message}" if error is not None else ""
    return f"{endpoint.address} has not reported its models yet{why}"


def _unreachable(table: Placements, text: str) -> TransportError:
    return TransportError(Status.UNAVAILABLE, Reason.UNREACHABLE, f"backend {table.backend!r}: {text}", sent=False)


OWN = frozenset({Operation.MODELS, Operation.ALL_STATISTICS, Operation.MODEL_READY, *CONTROL_OPERATIONS})
"""The operations that this module handles."""


class Holders(Protocol):
    """The interface that reports which endpoints have which models. PlacedSlots describes the members."""

    local: LocalSlots
    placements: Placements
    refresher: InventoryRefresher
    loader: OperatedLoader | None
    is_on_demand: bool

    def able(self, request: Request) -> Sequence[Endpoint]:
        """See `PlacedSlots.able`."""

    def model_missing(self, model: str, version: str = "") -> GatewayError:
        """See `PlacedSlots.model_missing`."""

    def why_not_loaded(self, request: Request) -> GatewayError | None:
        """See `PlacedSlots.why_not_loaded`."""


class Questions:
    """Handles the operations in OWN. `ask` returns one endpoint's response to a request that takes no slot."""

    def __init__(self, holders: Holders, ask: Send) -> None:
        self._holders = holders
        self._ask = ask
        self.answers: Mapping[Operation, OwnAnswer] = {
            Operation.MODELS: self._models,
            Operation.ALL_STATISTICS: self._all_statistics,
            Operation.MODEL_READY: self._is_model_ready,
            **dict.fromkeys(CONTROL_OPERATIONS, self._control),
        }
        """The function that handles each operation."""

    async def _models(self, request: Request) -> Answer:
        """Return every model on every server.

        Raises:
            GatewayError: UNAVAILABLE if the backend has no servers, or if no server has reported its models yet.
        """
        table, local = self._holders.placements, self._holders.local
        if not local.endpoints:
            raise local.choice.none_there()
        if len(table.unknown()) == len(local.endpoints):
            raise _nothing_reported(table, self._holders.refresher.errors)
        return table.entries()

    async def _control(self, request: Request) -> Answer:
        """Send the request to the servers that must process it.

        Loads go to the servers that have the model, or to the server with the largest free capacity. Unloads and model
        settings go to the servers that have the model. Other settings go to all servers.

        Raises:
            GatewayError: the server's error, or NOT_FOUND if no server has the model.
        """
        holders = self._holders
        loader, able = holders.loader, holders.able(request)
        is_load = request.operation is Operation.LOAD and loader is not None
        if not able and not is_load:
            raise holders.model_missing(request.model) if request.model else holders.local.choice.none_there()
        if loader is None or request.operation not in (Operation.LOAD, Operation.UNLOAD):
            return await ask_all(request, holders.local.name, able, self._ask)
        assert isinstance(request, ControlRequest)
        await (loader.load(request) if is_load else loader.unload(request))
        return True

    async def _all_statistics(self, request: Request) -> Answer:
        """Return the statistics of all models on all servers.

        For a model on several servers, the result contains the statistics from one server. It omits servers that fail.

        Raises:
            GatewayError: all servers failed; this is the first server's error.
        """
        local = self._holders.local
        if not local.endpoints:
            raise local.choice.none_there()
        asked = (self._ask(request, each) for each in local.endpoints)
        found = await asyncio.gather(*asked, return_exceptions=True)
        answers = [each for each in found if isinstance(each, Statistics)]
        if not answers:
            assert isinstance(found[0], BaseException)
            raise found[0]
        entries = {(each.name, each.version): each for answer in reversed(answers) for each in answer.models}
        return Statistics(tuple(entries.values()))

    async def _is_model_ready(self, request: Request) -> Answer | None:
        """Return True if no server has the model but a call would load it.

        Return None if a server has the model and must be queried.

        Raises:
            GatewayError: NOT_FOUND if no server has the model or would load it.
        """
        holders = self._holders
        if not request.model or not holders.is_on_demand or holders.able(request):
            return None
        error = holders.why_not_loaded(replace(request, operation=Operation.INFER))
        if error is None:
            return True
        if error.status is Status.NOT_FOUND:
            raise error
        return NotReady(error.message)
