"""The gRPC health service, which reports whether the gateway is ready for calls.

All services have the same status, because backends belong to routes, not to services.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator

from gateway.core.errors import Reason, refusal
from gateway.core.messages import Message, bytes_of
from gateway.core.protobuf.schema import Protobuf, parse
from gateway.core.transport import Ready
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
"""The service name that stands for the whole server."""

WATCH_SECONDS = 5.0
"""Interval between two readiness checks for a client that uses Watch, in seconds.

A check can query the backends, so it must not be too frequent. Clients that need faster responses can use Check."""


class HealthService:
    """Reports SERVING for each of `services` while `ready` returns true and `ending` is not set."""

    def __init__(self, services: Iterable[str], ready: Ready, ending: asyncio.Event) -> None:
        self._services = frozenset((_OVERALL, *services))
        self._ready = ready
        self._ending = ending

    def methods(self) -> Iterator[Method]:
        """Yield the methods of the service."""
        yield Method(f"/{HEALTH}/Check", self._check)
        yield Method(f"/{HEALTH}/Watch", stream=self._watch)
        yield Method(f"/{HEALTH}/List", self._list)

    async def _check(self, message: Message) -> Message:
        request = parse(HealthCheckRequest, message.body)
        if request.service not in self._services:
            raise refusal(Reason.PATH_NOT_FOUND, f"no service {request.service[:200]!r} here")
        now = await self._now()
        return _reply(now, message, now.status)

    async def _watch(self, messages: AsyncIterator[Message]) -> AsyncGenerator[Message, None]:
        """Yield the current status, and each new status after a change, until the listener stops. The record of the
        request ends with the first status, because clients watch for hours."""
        async for message in messages:
            is_known = parse(HealthCheckRequest, message.body).service in self._services
            told = None
            while True:
                is_last = self._ending.is_set()
                now = await self._now() if is_known else _UNKNOWN
                if now != told:
                    yield (reply := _reply(now, message, now.status))
                    message.record.end(0, bytes_of(reply))
                if is_last:
                    return
                told = now
                await self._pause()

    async def _list(self, message: Message) -> Message:
        now = await self._now()
        return _reply(HealthListResponse(statuses=dict.fromkeys(self._services, now)), message, now.status)

    async def _now(self) -> Protobuf:
        if self._ending.is_set() or not await self._ready() or self._ending.is_set():
            return _NOT_SERVING
        return _SERVING

    async def _pause(self) -> None:
        """Wait WATCH_SECONDS, or until the listener stops."""
        try:
            async with asyncio.timeout(WATCH_SECONDS):
                await self._ending.wait()
        except TimeoutError:
            pass


_SERVING = HealthCheckResponse(status=SERVING)
_NOT_SERVING = HealthCheckResponse(status=NOT_SERVING)
_UNKNOWN = HealthCheckResponse(status=SERVICE_UNKNOWN)


_REASONS = {NOT_SERVING: Reason.NOT_READY, SERVICE_UNKNOWN: Reason.PATH_NOT_FOUND}
"""The reasons to record for responses other than SERVING. The calls themselves succeed."""


def _reply(response: Protobuf, request: Message, status: int) -> Message:
    """Return the reply to `request`. If `status` is not SERVING, add the reason to the record."""
    request.record.because(_REASONS.get(status))
    return Message(parts=(response.SerializeToString(),))
