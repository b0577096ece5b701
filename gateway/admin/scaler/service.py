"""Tell KEDA whether a backend has calls, and how many.

    KEDA                                  gateway
    StreamIsActive(backend) ----------->
                            <----------- false        no call for `idle` seconds
                            <----------- true         immediately when a call arrives, also if it waits for a server
    GetMetricSpec           ----------->
                            <----------- calls: 4     the target for each replica
    GetMetrics(calls)       ----------->
                            <----------- calls: 23    calls in flight, and waiting calls
                            <----------- false        `idle` seconds after the last call

KEDA starts the first replica when a backend becomes active. KEDA's HorizontalPodAutoscaler starts more replicas
according to the metric. KEDA stops the last replica when the backend has been inactive for the ScaledObject's
`cooldownPeriod`.
"""

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from gateway.admin.scaler.schema import (
    EXTERNAL_SCALER,
    GetMetricSpecResponse,
    GetMetricsRequest,
    GetMetricsResponse,
    IsActiveResponse,
    ScaledObjectRef,
)
from gateway.admin.scaler.trigger import METRICS, Trigger, trigger
from gateway.config.problems import suggestion
from gateway.core.errors import GatewayError, Reason, invalid_input, refusal
from gateway.core.messages import Message
from gateway.core.protobuf.schema import Protobuf, parse
from gateway.routing.activity import Activity
from gateway.routing.backend import Backend

IS_ACTIVE, STREAM_IS_ACTIVE, GET_METRIC_SPEC, GET_METRICS = METHODS = tuple(
    f"/{EXTERNAL_SCALER}/{name}" for name in ("IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics")
)

_ACTIVE = Message(parts=(IsActiveResponse(result=True).SerializeToString(),))
_INACTIVE = Message(parts=(IsActiveResponse(result=False).SerializeToString(),))

_MOST_NAMED = 1000
"""Maximum number of characters that backend names take in an error message."""


class ExternalScaler:
    """KEDA's ExternalScaler service. `backends` and `activities` belong to the configuration in use."""

    def __init__(self, backends: Mapping[str, Backend], activities: Mapping[str, Activity]) -> None:
        self._backends = backends
        self._activities = activities
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """A future that completes when a new configuration takes over."""

    def renew(self, backends: Mapping[str, Backend], activities: Mapping[str, Activity]) -> None:
        """Switch to another configuration. Streams end if their backends are not in it."""
        self._backends, self._activities = backends, activities
        changed, self._changed = self._changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)

    def answer(self, message: Message) -> Message:
        """Handle a call of a unary method.

        Raises:
            DecodeError: the message is malformed.
            GatewayError: INVALID_ARGUMENT or NOT_FOUND if the trigger's metadata is wrong.
        """
        if message.path == GET_METRICS:
            asked = parse(GetMetricsRequest, message.body)
            return _reply(self._metrics(trigger(asked.scaledObjectRef.scalerMetadata), asked.metricName))
        wanted = trigger(parse(ScaledObjectRef, message.body).scalerMetadata)
        if message.path == GET_METRIC_SPEC:
            return _reply(self._metric_spec(wanted))
        return _ACTIVE if self._activity(wanted.backend).seconds_active(wanted.idle) > 0 else _INACTIVE

    async def stream(self, messages: AsyncIterator[Message]) -> AsyncGenerator[Message, None]:
        """Handle a call of `StreamIsActive`: yield True or False for an active or inactive backend, now and after each
        change.

        Raises:
            GatewayError: like `answer`; NOT_FOUND also when a reload has removed the backend.
        """
        async for message in messages:
            wanted = trigger(parse(ScaledObjectRef, message.body).scalerMetadata)
            del message
            told: Message | None = None
            while True:
                activity, changed = self._activity(wanted.backend), self._changed
                left = activity.seconds_active(wanted.idle)
                now = _ACTIVE if left > 0 else _INACTIVE
                if now is not told:
                    yield now
                    told = now
                    continue  # the state might have changed while the client read the response
                await _first(changed, activity, left)

    def _metric_spec(self, wanted: Trigger) -> Protobuf:
        self._activity(wanted.backend)
        target = wanted.target or self._backends[wanted.backend].max_in_flight
        if not target:
            text = f"metadata.target: set the number of calls for each replica; backend {wanted.backend!r} has no"
            raise invalid_input(f"{text} `max_in_flight`, which would be the default")
        spec = {"metricName": wanted.metric, "targetSize": math.ceil(target), "targetSizeFloat": float(target)}
        return GetMetricSpecResponse(metricSpecs=[spec])

    def _metrics(self, wanted: Trigger, name: str) -> Protobuf:
        if name not in METRICS:
            raise invalid_input(f"unknown metric {name[:100]!r}; expected {' or '.join(METRICS)}")
        activity = self._activity(wanted.backend)
        backend = self._backends[wanted.backend]
        number = activity.calls + backend.joined if name == "calls" else backend.waiting
        return GetMetricsResponse(
            metricValues=[{"metricName": name, "metricValue": number, "metricValueFloat": float(number)}]
        )

    def _activity(self, backend: str) -> Activity:
        activity = self._activities.get(backend)
        if activity is None:
            raise self._unknown(backend)
        return activity

    def _unknown(self, backend: str) -> GatewayError:
        known = suggestion(backend[:100], self._activities)[:_MOST_NAMED]
        return refusal(Reason.PATH_NOT_FOUND, f"metadata.backend: unknown backend {backend[:100]!r}{known}")


async def _first(changed: "asyncio.Future[None]", activity: Activity, seconds: float) -> None:
    """Wait for another configuration, or for a possible change of the backend's activity. For a backend that stays
    active for `seconds`, wait until they have passed; for an inactive backend, wait for its next call."""
    if seconds > 0:
        await asyncio.wait((changed,), timeout=seconds)
        return
    calling = activity.next_call()
    try:
        await asyncio.wait((changed, calling), return_when=asyncio.FIRST_COMPLETED)
    finally:
        calling.cancel()


def _reply(response: Protobuf) -> Message:
    return Message(parts=(response.SerializeToString(),))
