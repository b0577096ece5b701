"""What only some model servers have: a model's configuration, statistics, loading and unloading, settings of traces and
logs. It goes to them as it is, under the backend's names of models."""

from collections.abc import Mapping

from gateway import json
from gateway.bridge.addressing import Addressing
from gateway.bridge.signatures import Key
from gateway.bridge.upstream import Upstream
from gateway.core.errors import DecodeError, GatewayError, Status, unsupported
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.types import Answer, ControlRequest, Request, Statistics

_CONFIG_VALUES = 10_000
"""JSON values of a configuration that is loaded under another name."""


class Extensions:
    """Asks one route's backend, where its protocol has the operation."""

    def __init__(self, upstream: Upstream, addressing: Addressing) -> None:
        self._upstream = upstream
        self._addressing = addressing

    async def config(self, request: Request, companion: Operation | None = None) -> Mapping[str, object] | None:
        """The model's configuration as the backend tells it; None where the backend has none to tell."""
        if Operation.CONFIG not in self._upstream.traits.extensions:
            return None
        try:
            answer = await self._ask(request, companion)
        except GatewayError as error:
            if error.status is not Status.UNIMPLEMENTED:
                raise
            return None
        assert isinstance(answer, Mapping)
        return answer

    async def statistics(self, request: Request, companion: Operation | None = None) -> Statistics:
        """The counters of the model's versions, under the client's name."""
        answer = await self._ask(request, companion)
        assert isinstance(answer, Statistics)
        name = f"{request.model}.{companion.value}" if companion else request.model
        return Statistics(tuple(replace(each, name=name) for each in answer.models))

    async def control(self, request: Request, companion: Operation | None = None) -> Answer:
        """The answer to one of CONTROL_OPERATIONS."""
        return await self._ask(request, companion)

    async def _ask(self, request: Request, companion: Operation | None) -> Answer:
        upstream = self._upstream
        if request.operation not in upstream.traits.extensions:
            named = f"model {request.model!r} has no" if request.model else "no"
            raise unsupported(
                f"{named} {request.operation.value}: that is an extension of V2 servers, which backend"
                f" {upstream.name!r} ({upstream.protocol}) is not"
            )
        key = self._addressing.key(request)
        key = self._addressing.companion(key, companion) if companion else key
        return await upstream.handler(self._asked(request, key))

    def _asked(self, request: Request, key: Key) -> Request:
        asked = self._addressing.asked(request, key)
        if not request.model:  # of the server as a whole, also where the route names a model
            return replace(asked, model="", version="")
        if not isinstance(asked, ControlRequest) or asked.model == request.model:
            return asked
        config = asked.settings.get("config")
        if not isinstance(config, str):
            return asked
        return replace(asked, settings={**asked.settings, "config": _renamed(config, request.model, asked.model)})


def _renamed(config: str, client: str, backend: str) -> str:
    """The JSON text of a configuration under the backend's name: a server refuses one of another name than it loads.
    What is no JSON goes as it is, for the server to say so."""
    try:
        document = json.read(config.encode(), {}, values=_CONFIG_VALUES, literals=False)
    except (DecodeError, UnicodeEncodeError):
        return config
    return json.write({**document, "name": backend}).decode() if document.get("name") == client else config
