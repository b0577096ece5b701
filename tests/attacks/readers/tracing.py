"""The memory that reading a small body takes, by Python's own count: the same on every machine."""

from __future__ import annotations

import tracemalloc

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import frozen, replace
from gateway.core.protocol import Limits, ListenerSettings
from tests.attacks.readers.readers import Reader

SMALL = 4 * 2**10
LIMITS = Limits(message=16 * SMALL, json_values=100)
"""Of the same kind as those for large bodies: a body is a part of the largest, and values are fewer than its bytes."""


@frozen
class Traced:
    """The bytes of memory that a body of `size` bytes took at most, and what was said of it."""

    what: str
    size: int
    peak: int
    said: str


def traced(reader: Reader, what: str) -> Traced | None:
    """What the body `what` of SMALL bytes takes; None if the wire form has none of this size."""
    try:
        body = reader.bodies[what](SMALL)
    except (GatewayError, ValueError):
        return None
    message = reader.with_body(body)
    target = replace(reader.dialect.target, limits=LIMITS)
    tracemalloc.start()
    try:
        if reader.is_reply:
            reader.protocol.decode_response(message, reader.request, target)
        else:
            reader.protocol.decode_request(message, ListenerSettings("l", LIMITS, "m"))
        said = "ok"
    except (DecodeError, GatewayError) as error:
        said = str(error)[:100]
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return Traced(what, len(body), peak, said)


def worst(reader: Reader) -> list[str]:
    """The bodies of a reader that take the most memory for a byte: of all, and of those that it accepts."""
    found = [each for what in reader.bodies if (each := traced(reader, what)) is not None]
    accepted = [each for each in found if each.said == "ok"]
    some = [max(each, key=lambda each: each.peak / max(each.size, SMALL // 2)) for each in (found, accepted) if each]
    return list(dict.fromkeys(each.what for each in some))
