"""Keeps the history of a running gateway: its loads once a second, and its counts once a step."""

import asyncio
from collections.abc import Mapping
from time import monotonic, time
from typing import TYPE_CHECKING, NoReturn

from gateway.core.surviving import log_and_continue
from gateway.observing.history import ALL, STEP, Part, PartLoad

if TYPE_CHECKING:
    from gateway.runtime.app.gateway import Gateway

INTERVAL = 1.0
"""Seconds between two readings of the loads."""


async def keep_history(gateway: "Gateway", interval: float = INTERVAL, step: float = STEP) -> NoReturn:
    """Keep the history while the gateway has an admin port. Without the port, the gateway does not count requests."""
    began = monotonic()
    while True:
        await asyncio.sleep(interval)
        with log_and_continue("keeping the console's history"):
            if gateway.config.admin is None:
                began = monotonic()
                continue
            gateway.history.observe(loads(gateway))
            if (now := monotonic()) - began >= step:
                gateway.history.end_step(gateway.counters.news(), time(), now - began)
                began = now


def loads(gateway: "Gateway") -> Mapping[Part, PartLoad]:
    """Return the current loads of the complete gateway, its listeners and its backends."""
    found = {("listener", name): PartLoad(each.unanswered_requests, 0) for name, each in gateway.listeners.items()}
    in_flight = sum(each.in_flight for each in found.values())
    for name, backend in gateway.backends.items():
        found["backend", name] = PartLoad(sum(each.in_flight for each in backend.endpoints), len(backend.queue))
    return {ALL: PartLoad(in_flight, sum(each.waiting for each in found.values())), **found}
