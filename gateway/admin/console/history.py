"""The last hour of requests in the format of the console's page: `/api/history`."""

from typing import Any

import numpy as np
from pydantic import BaseModel

from gateway.observing.history import (
    ERRORS,
    IN_FLIGHT,
    MEDIAN,
    P95,
    P99,
    REQUESTS,
    STAGE,
    STEP,
    STEPS,
    WAITING,
    History,
    Part,
)
from gateway.observing.stages import STAGES

ROWS = {
    "requests": REQUESTS,
    "errors": ERRORS,
    "median": MEDIAN,
    "p95": P95,
    "p99": P99,
    "in_flight": IN_FLIGHT,
    "waiting": WAITING,
    **{name: STAGE + at for at, name in enumerate(STAGES)},
}


class DrawnHistory(BaseModel):
    """The last hour, or the time since the gateway started, in steps. Each list contains one value per step, the oldest
    first."""

    step: float
    """Planned length of a step, in seconds. A busy event loop can delay its end."""
    kept: float
    """Number of seconds in the history."""
    times: list[float]
    """Unix times of the ends of the steps."""
    seconds: list[float]
    """The lengths of the steps, in seconds."""
    requests: list[float]
    """Requests that ended in the step."""
    errors: list[float]
    """Requests that failed with a server error."""
    median: list[float | None]
    """The median latency of these requests, in seconds; null if no request ended. `p95` and `p99` are the 95th and 99th
    percentiles."""
    p95: list[float | None]
    p99: list[float | None]
    in_flight: list[float | None]
    """The maximum number of requests in flight within the step; null for routes, because the gateway knows neither this
    number nor `waiting` for a route."""
    waiting: list[float | None]
    """The maximum number of calls that waited for a free slot of a backend within the step."""
    queue: list[float | None]
    """The mean time that a request waited in backend queues, in seconds. The following fields are also mean times."""
    server: list[float | None]
    """Time in calls to model servers, including the network."""
    gateway: list[float | None]
    """All other time. `queue`, `server` and `gateway` add up to the total."""
    reading: list[float | None]
    """The part of `gateway` spent on decoding requests; `writing` is the part spent on encoding responses. The gateway
    measures `reading` and `writing` for 1 in 16 requests."""
    writing: list[float | None]


def drawn_history(history: History, part: Part) -> dict[str, Any]:
    """Return a DrawnHistory as a JSON object."""
    found = history.steps(part)
    values = np.round(found.values.astype(np.float64), 7)
    if part[0] == "route":
        values[[IN_FLIGHT, WAITING]] = np.nan
    return {
        "step": STEP,
        "kept": STEP * STEPS,
        "times": np.round(found.times, 1).tolist(),
        "seconds": np.round(found.seconds, 3).tolist(),
        **{name: values[row].tolist() for name, row in ROWS.items()},  # orjson writes NaN as null
    }
