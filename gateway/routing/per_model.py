"""A backend whose models have servers of their own: it sends each request to the backend of its model."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from gateway.core.errors import not_found
from gateway.core.operations import Operation
from gateway.core.types import Answer, ModelEntry, Request, Response
from gateway.routing.backend import Backend


class PerModelBackend(Backend):
    """A Backend without endpoints. `models` are the backends by the names of their models, set before any request."""

    def __init__(self, *args: Any, **keys: Any) -> None:
        super().__init__(*args, **keys)
        self.models: Mapping[str, Backend] = {}

    @property
    def capacity(self) -> int:
        """The number of calls that can run at once at the servers of all models."""
        return sum(each.capacity for each in self.models.values())

    def on_recovery(self, watcher: Callable[[], None]) -> None:
        """As the Backend's, of the servers of any model."""
        super().on_recovery(watcher)
        for each in self.models.values():
            each.on_recovery(watcher)

    async def is_ready(self) -> bool:
        """Whether the servers of some model are ready, or would be started."""
        return any([await each.is_ready() for each in self.models.values()])

    async def __call__(self, request: Request) -> Answer:
        """The answer of the model's servers. The models are those with job scripts: no server is started to list them.

        Raises:
            GatewayError: NOT_FOUND, there is no job script for the model; else as the Backend's.
        """
        if request.operation is Operation.MODELS:
            return tuple(map(ModelEntry, self.models))
        return await self._of(request)(request)

    async def stream(self, request: Request, *, passthrough: bool = False) -> AsyncGenerator[Response, None]:
        """As the Backend's, of the model's servers."""
        async with aclosing(self._of(request).stream(request, passthrough=passthrough)) as responses:
            async for each in responses:
                yield each

    def _of(self, request: Request) -> Backend:
        if not request.model and self.models:  # a question about the server: all are of one kind
            return next(iter(self.models.values()))
        found = self.models.get(request.model)
        if found is None:
            there = ", ".join(map(repr, self.models)) or "no model"
            shown = request.model[:100]
            raise not_found(f"backend {self.name!r} has no job script for model {shown!r}; it has some for {there}")
        return found
