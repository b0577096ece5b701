"""The port of the external scaler for KEDA, which reports to KEDA whether a backend has calls, and how many.

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
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from difflib import get_close_matches
from pathlib import Path

from gateway.config.problems import suggestion
from gateway.core.address import Address
from gateway.core.errors import GatewayError, Reason, error_fields, invalid_input, refusal
from gateway.core.exchange import as_gateway_error
from gateway.core.frozen import frozen
from gateway.core.messages import Headers, Message
from gateway.core.protobuf.schema import Protobuf, Schema, parse
from gateway.core.protocol import GrpcBinding, Limits, ListenerSettings, Protocol, without_codec
from gateway.core.transport import Exchanges
from gateway.routing.activity import Activity
from gateway.routing.backend import Backend
from gateway.transports.grpc.server.listener import GrpcListener
from gateway.transports.listener_connections import PORT_CONNECTIONS, ConnectionLimit, ListenerConnections
from gateway.transports.timeouts import PORT_TIMEOUTS

_DESCRIPTORS = Path(__file__).with_name("descriptors.binpb").read_bytes()

EXTERNAL_SCALER = "externalscaler.ExternalScaler"

_SCHEMA = Schema(_DESCRIPTORS)

ScaledObjectRef = _SCHEMA.message("externalscaler.ScaledObjectRef")
IsActiveResponse = _SCHEMA.message("externalscaler.IsActiveResponse")
GetMetricSpecResponse = _SCHEMA.message("externalscaler.GetMetricSpecResponse")
GetMetricsRequest = _SCHEMA.message("externalscaler.GetMetricsRequest")
GetMetricsResponse = _SCHEMA.message("externalscaler.GetMetricsResponse")


METRICS = ("calls", "queue")
"""`calls`: the number of calls in flight plus the number of waiting calls. `queue`: the number of waiting calls."""

DEFAULT_IDLE = 300.0
_SHORTEST_IDLE = 1.0
_LONGEST = 1e9
_KEYS = ("backend", "target", "metric", "idle")
_OF_KEDA = ("scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsClientCert", "tlsClientKey", "tlsCertFile")


@frozen
class Trigger:
    """The settings of a trigger. `target` is the value of `metric` per replica; None means the backend's
    `max_in_flight`. `idle` is the time for which the backend stays active after its last call, in seconds."""

    backend: str
    target: float | None
    metric: str
    idle: float


def trigger(metadata: Mapping[str, str]) -> Trigger:
    """Return the Trigger that this metadata describes. Ignore unknown keys, which can be KEDA's own, unless they look
    like misspellings.

    Raises:
        GatewayError: INVALID_ARGUMENT if a value is wrong; the message names the key and the expected value.
    """
    for key in metadata:
        similar = () if key in _OF_KEDA else get_close_matches(key[:40], _KEYS, n=1, cutoff=0.7)
        if similar and key not in _KEYS:
            raise invalid_input(f"metadata: {_shown(key)} is unknown; did you mean {similar[0]!r}?")
    backend = metadata.get("backend", "")
    if not backend:
        raise _wrong("backend", "", "the name of a backend")
    metric = metadata.get("metric", METRICS[0])
    if metric not in METRICS:
        raise _wrong("metric", metric, "calls (in flight and waiting) or queue (waiting)")
    target = None if "target" not in metadata else _number("target", metadata["target"], 0.001)
    idle = DEFAULT_IDLE if "idle" not in metadata else _number("idle", metadata["idle"], _SHORTEST_IDLE)
    return Trigger(backend, target, metric, idle)


def _number(key: str, text: str, least: float) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= _LONGEST:
        raise _wrong(key, text, f"a number from {least:g} to {_LONGEST:g}")
    return number


def _wrong(key: str, text: str, expected: str) -> GatewayError:
    got = f"got {_shown(text)}" if text else "it is missing or empty"
    return invalid_input(f"metadata.{key}: expected {expected}; {got}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}...")


IS_ACTIVE, STREAM_IS_ACTIVE, GET_METRIC_SPEC, GET_METRICS = METHODS = tuple(
    f"/{EXTERNAL_SCALER}/{name}" for name in ("IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics")
)

_ACTIVE = Message(parts=(IsActiveResponse(result=True).SerializeToString(),))
_INACTIVE = Message(parts=(IsActiveResponse(result=False).SerializeToString(),))

_MOST_NAMED = 1000
"""Maximum number of characters of backend names in an error message."""


class ExternalScaler:
    """KEDA's ExternalScaler service. `backends` and `activities` belong to the configuration in use."""

    def __init__(self, backends: Mapping[str, Backend], activities: Mapping[str, Activity]) -> None:
        self._backends = backends
        self._activities = activities
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """A future that completes when a new configuration takes over."""

    def renew(self, backends: Mapping[str, Backend], activities: Mapping[str, Activity]) -> None:
        """Switch to another configuration. Streams end if the new configuration does not contain their backends."""
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
        """Handle a call of `StreamIsActive`: yield True for an active backend or False for an inactive one, now and
        after each change.

        Raises:
            GatewayError: in the same cases as `answer`; also NOT_FOUND if a reload has removed the backend.
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
    active for `seconds`, wait for this time; for an inactive backend, wait for its next call."""
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


_LIMITS = Limits(message=64 * 2**10, headers=16 * 2**10)
"""Message limits, in bytes. A ScaledObject's metadata is far smaller."""


class ScalerServer:
    """Serves ExternalScaler. `tls` is the same as in ListenerSettings."""

    address: str
    """The server's `host:port`, set by `start`."""

    def __init__(
        self,
        backends: Mapping[str, Backend],
        activities: Mapping[str, Activity],
        tls: Callable[[], ssl.SSLContext | None] | None = None,
    ) -> None:
        self._service = service = ExternalScaler(backends, activities)

        def answer(message: Message, protocol: Protocol) -> Message:
            try:
                return service.answer(message)
            except Exception as error:
                return _refused(as_gateway_error(error))

        def stream(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
            return service.stream(messages)

        self._listener = GrpcListener(
            ListenerSettings("scaler", _LIMITS, tls=tls),
            [(_PROTOCOL, "")],
            Exchanges(answer, stream, lambda error, protocol, message: _refused(error)),
            connections=ListenerConnections("scaler", shared_limit=ConnectionLimit(PORT_CONNECTIONS, makes_room=True)),
            timeouts=PORT_TIMEOUTS,
        )

    def renew(self, backends: Mapping[str, Backend], activities: Mapping[str, Activity]) -> None:
        """Switch to another configuration."""
        self._service.renew(backends, activities)

    async def start(self, address: Address) -> None:
        """Bind and accept connections. Raises OSError if the address cannot be bound."""
        await self._listener.start(address)
        self.address = self._listener.address

    async def stop(self) -> None:
        """Close the port. Streams end with UNAVAILABLE, so KEDA reopens them at another running gateway."""
        await self._listener.drain(0)


def _refused(error: GatewayError) -> Message:
    text = error.message.encode("utf-8", "replace")
    return Message(headers=Headers(error_fields(error)), parts=(text,), status=error.status)


_PROTOCOL = without_codec("scaler", GrpcBinding(frozenset({STREAM_IS_ACTIVE}), _DESCRIPTORS), METHODS)
