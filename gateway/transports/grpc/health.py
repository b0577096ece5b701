"""gRPC's own health service: whether the listener, and each service on it, takes calls."""

from collections.abc import Iterable, Mapping
from typing import Any

import grpc

from gateway.core.protobuf import Protobuf
from gateway.transports.grpc.draining import Draining
from gateway.transports.grpc.schema import (
    HEALTH,
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)

SERVING = HealthCheckResponse.SERVING
NOT_SERVING = HealthCheckResponse.NOT_SERVING
SERVICE_UNKNOWN = HealthCheckResponse.SERVICE_UNKNOWN

_OVERALL = ""
"""The name that stands for the server as a whole."""


class Health:
    """SERVING from the start until the end of the listener is announced, for every one of its `services`."""

    def __init__(self, services: Iterable[str], draining: Draining) -> None:
        self._services = frozenset((_OVERALL, *services))
        self._draining = draining

    def handlers(self) -> Mapping[str, Any]:
        """What serves each method."""
        write = HealthCheckResponse.SerializeToString
        return {
            f"/{HEALTH}/Check": grpc.unary_unary_rpc_method_handler(self._check, HealthCheckRequest.FromString, write),
            f"/{HEALTH}/Watch": grpc.unary_stream_rpc_method_handler(self._watch, HealthCheckRequest.FromString, write),
            f"/{HEALTH}/List": grpc.unary_unary_rpc_method_handler(
                self._list, HealthListRequest.FromString, HealthListResponse.SerializeToString
            ),
        }

    async def _check(self, request: Protobuf, context: Any) -> Protobuf:
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"no service {request.service[:200]!r} here")
        return self._now()

    async def _watch(self, request: Protobuf, context: Any) -> None:
        is_known = request.service in self._services
        await context.write(self._now() if is_known else HealthCheckResponse(status=SERVICE_UNKNOWN))
        if not self._draining.announced.is_set():
            await self._draining.announced.wait()
            if is_known:
                await context.write(self._now())

    async def _list(self, request: Protobuf, context: Any) -> Protobuf:
        return HealthListResponse(statuses={name: self._now() for name in self._services})

    def _now(self) -> Protobuf:
        return HealthCheckResponse(status=NOT_SERVING if self._draining.announced.is_set() else SERVING)
