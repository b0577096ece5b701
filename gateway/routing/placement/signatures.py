"""Compares the signatures that different servers report for the same model, and logs differences, because calls can go
to any of these servers.
"""

import logging
from collections.abc import Awaitable, Callable

from gateway.core.errors import GatewayError
from gateway.core.log_limit import LogLimit
from gateway.core.models import Signature
from gateway.routing.endpoint import Endpoint
from gateway.routing.placement.table import ModelReplica, Placement, Placements, ReplicaState

_lines = LogLimit(logging.getLogger(__name__))

ASKED_AT_A_TIME = 20
"""The maximum number of signatures that are queried after each inventory refresh of a server."""


class SignatureComparison:
    """Queries the servers of one backend for the signatures of models that several servers have.

    `ask` returns the signature of a model at an endpoint, or raises GatewayError."""

    def __init__(self, ask: Callable[[Endpoint, str], Awaitable[Signature]]) -> None:
        self._ask = ask

    async def look(self, table: Placements, endpoint: Endpoint) -> None:
        """Query an endpoint for some of the signatures that are still unknown."""
        for placement, place in self._unknown(table, endpoint)[:ASKED_AT_A_TIME]:
            try:
                signature = await self._ask(endpoint, placement.model)
            except GatewayError:
                return  # retried after the next refresh
            if place.state is ReplicaState.HELD:
                place.signature = f"{_shown(signature)}"
                _tell_difference(table, placement, place)

    def _unknown(self, table: Placements, endpoint: Endpoint) -> list[tuple[Placement, ModelReplica]]:
        stock = table.stocks.get(endpoint)
        found = []
        for model in () if stock is None else stock.held:
            placement = table.models.get(model)
            place = None if placement is None else placement.places.get(endpoint)
            if (
                placement is None
                or place is None
                or place.state is not ReplicaState.HELD
                or place.signature is not None
            ):
                continue
            if len(placement.places) > 1 and sum(1 for _ in placement.held()) > 1:
                found.append((placement, place))
        return found


def _shown(signature: Signature) -> str:
    inputs, outputs = (", ".join(map(str, each)) or "(unknown)" for each in (signature.inputs, signature.outputs))
    return f"{inputs} -> {outputs}"


def _tell_difference(table: Placements, placement: Placement, place: ModelReplica) -> None:
    for other in placement.held():
        if other.signature is not None and other.signature != place.signature:
            text = (
                "backend %r has model %r with different signatures: %s at %s, %s at %s; load the same model everywhere"
            )
            shown = place.signature, place.endpoint.address, other.signature, other.endpoint.address
            _lines.write(("signatures", table.backend), logging.WARNING, text, table.backend, placement.model, *shown)
            return
