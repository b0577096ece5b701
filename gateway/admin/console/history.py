"""The last hour, as the page draws it: `/api/history`."""

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
    """The steps of the last hour since the gateway's start, the oldest first. Each list has a value for each step."""

    step: float
    """Seconds of a step, if nothing delays its end."""
    kept: float
    """Seconds that are kept."""
    times: list[float]
    """Unix times of the ends of the steps."""
    seconds: list[float]
    """Their lengths."""
    requests: list[float]
    """Requests that ended in the step."""
    errors: list[float]
    """Those of them that failed by an error of a server."""
    median: list[float | None]
    """Of their latencies, in seconds; null where no request ended."""
    p95: list[float | None]
    p99: list[float | None]
    in_flight: list[float | None]
    """The most at one moment of the step; null for routes, of which that is not known, and so is `waiting`."""
    waiting: list[float | None]
    """The most calls at one moment that waited for a free slot of a backend."""
    queue: list[float | None]
    """The mean time of a request in queues of backends, in seconds, and so are the following."""
    server: list[float | None]
    """Calls of model servers, with the network."""
    gateway: list[float | None]
    """All other time. `queue`, `server` and `gateway` make up the whole."""
    reading: list[float | None]
    """The part of `gateway` that reading requests takes, and `writing` replies; of one request in 16."""
    writing: list[float | None]


def drawn_history(history: History, part: Part) -> dict[str, Any]:
    """A DrawnHistory as a JSON object."""
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
