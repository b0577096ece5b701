"""gRPC's own health service: whether the listener, and each service on it, takes calls."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator

from gateway.core.errors import Status
from gateway.core.types import Message
from gateway.protobuf.schema import Protobuf, parse
from gateway.transports.grpc.schema import (
    HEALTH,
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListResponse,
)
from gateway.transports.grpc.server.calls import Method

SERVING = HealthCheckResponse.SERVING
NOT_SERVING = HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN

_OVERALL = ""
"""The name that stands for the server as a whole."""


class Health:
    """SERVING from the start until `ending` is set, for every one of its `services`."""

    def __init__(self, services: Iterable[str], ending: asyncio.Event) -> None:
        self._services = frozenset((_OVERALL, *services))
        self._ending = ending

    def methods(self) -> Iterator[Method]:
        """What serves each method."""
        yield Method(f"/{HEALTH}/Check", self._check)
        yield Method(f"/{HEALTH}/Watch", stream=self._watch)
        yield Method(f"/{HEALTH}/List", self._list)

    def _check(self, message: Message) -> Message:
        request = parse(HealthCheckRequest, message.body)
        if request.service not in self._services:
            text = f"no service {request.service[:200]!r} here"
            return Message(status=Status.NOT_FOUND, parts=(text.encode(),))
        return _reply(self._now())

    async def _watch(self, messages: AsyncIterator[Message]) -> AsyncGenerator[Message, None]:
        async for message in messages:
            is_known = parse(HealthCheckRequest, message.body).service in self._services
            yield _reply(self._now() if is_known else HealthCheckResponse(status=SERVICE_UNKNOWN))
            if not self._ending.is_set():
                await self._ending.wait()
                if is_known:
                    yield _reply(self._now())
            return

    def _list(self, message: Message) -> Message:
        return _reply(HealthListResponse(statuses={name: self._now() for name in self._services}))

    def _now(self) -> Protobuf:
        return HealthCheckResponse(status=NOT_SERVING if self._ending.is_set() else SERVING)


def _reply(response: Protobuf) -> Message:
    return Message(parts=(response.SerializeToString(),))
