"""The trigger of a ScaledObject, read from its `metadata`, which KEDA sends with every call."""

import math
from collections.abc import Mapping
from difflib import get_close_matches

from gateway.core.errors import GatewayError, invalid_input
from gateway.core.frozen import frozen

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
    like a typing error.

    Raises:
        GatewayError: INVALID_ARGUMENT if a value is wrong; the message says which key is wrong and what it expects.
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
