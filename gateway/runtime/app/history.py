"""Records the history of a running gateway for the console: loads once a second, and request counts once per history
step.
"""

import asyncio
from collections.abc import Mapping
from time import monotonic, time
from typing import NoReturn

from gateway.admin.state import GatewayState
from gateway.core.surviving import log_and_continue
from gateway.observing.history import ALL, STEP, Part, PartLoad

INTERVAL = 1.0
"""Seconds between two readings of the loads."""


async def keep_history(state: GatewayState, interval: float = INTERVAL, step: float = STEP) -> NoReturn:
    """Record the history while the admin port is enabled. Without the port, the gateway does not count requests."""
    began = monotonic()
    while True:
        await asyncio.sleep(interval)
        with log_and_continue("keeping the console's history"):
            if state.config.admin is None:
                began = monotonic()
                continue
            state.observing.history.observe(loads(state))
            if (now := monotonic()) - began >= step:
                state.observing.history.end_step(state.counters.news(), time(), now - began)
                began = now


def loads(state: GatewayState) -> Mapping[Part, PartLoad]:
    """Return the current loads of the whole gateway, its listeners and its backends."""
    found = {("listener", name): PartLoad(each.unanswered_requests, 0) for name, each in state.listeners.items()}
    in_flight = sum(each.in_flight for each in found.values())
    for name, backend in state.assembly.backends.items():
        found["backend", name] = PartLoad(sum(each.in_flight for each in backend.endpoints), len(backend.queue))
    return {ALL: PartLoad(in_flight, sum(each.waiting for each in found.values())), **found}
