"""Decides how many servers a backend should have, from the length of its queue and from measured times. Pure
functions."""

from math import ceil, floor

from gateway.core.frozen import frozen


@frozen
class Demand:
    """The current demand on the servers of one backend."""

    waiting: int
    """The number of waiting calls."""
    waited: float
    """The total time that calls have waited since the queue was empty or a server was last started, in seconds."""
    slots: int
    """The maximum number of parallel calls on one server; 0 means no limit."""
    call_seconds: float | None
    """The mean duration of a call, in seconds; None before the first call has ended."""
    start_seconds: float | None
    """The mean time that a server takes to start, in seconds; None before the first server has started."""


def wanted_starts(demand: Demand, *, starting: int, serving: int, existing: int, least: int, most: int) -> int:
    """Return the number of servers to start now.

    `starting` is the number of servers that are not ready yet, and `serving` the number of servers that get calls.
    `existing` counts all servers whose jobs have not ended, including drained servers. There should be at least `least`
    servers, and never more than `most`.

    An additional server is worth its start if the waiting calls would still be waiting when it is ready, or if they
    have together waited longer than a start takes. While these times are unknown, start one server for each group of
    calls that could run in parallel."""
    room = max(most - existing, 0)
    below = max(least - starting - serving, 0)
    return min(max(_for_queue(demand, starting, serving), below), room)


def _for_queue(demand: Demand, starting: int, serving: int) -> int:
    if not demand.waiting:
        return 0
    if not demand.slots:  # one server can run any number of calls
        return 0 if starting or serving else 1
    missing = max(ceil(demand.waiting / demand.slots) - starting, 0)
    if demand.call_seconds is None or demand.start_seconds is None:
        return missing
    start = max(demand.start_seconds, 0.001)
    # With this number of servers, the queue is empty by the time at which a server started now would be ready.
    enough = floor(demand.waiting * demand.call_seconds / (demand.slots * start))
    by_length = enough - starting - serving
    by_wait = floor(demand.waited / start)
    first = 0 if starting or serving else 1
    return min(missing, max(by_length, by_wait, first, 0))


def surplus(idle: list[float], limit: float, *, starting: int, serving: int, least: int) -> int:
    """Return the number of servers to stop; the caller stops the longest idle servers first. `idle` contains the idle
    times of the servers without calls in flight, in seconds."""
    over = sum(seconds >= limit for seconds in idle)
    return max(min(over, starting + serving - least), 0)


def back_off(failures: int) -> float:
    """Return the delay before the next start after this number of consecutive failed starts, in seconds."""
    return min(0.5 * 2.0 ** min(failures - 1, 10), 60.0) if failures else 0.0


def margin(lifetime: float, call_seconds: float | None) -> float:
    """Return how many seconds before its end a server stops getting calls. The margin is a tenth of the total
    `lifetime` (in seconds), but at most a minute, or the duration of two calls if that is longer. The maximum is half
    of the lifetime."""
    return min(max(min(lifetime / 10, 60.0), 2 * (call_seconds or 0.0)), lifetime / 2)
