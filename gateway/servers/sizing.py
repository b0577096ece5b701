"""How many servers a backend should have: pure decisions from the length of its queue and from measured times."""

from math import ceil, floor

from gateway.core.frozen import frozen


@frozen
class Demand:
    """The present demand on the servers of one backend."""

    waiting: int
    """Calls that wait."""
    waited: float
    """Seconds that calls have waited in the queue since it was empty or a server was started last, of all together."""
    slots: int
    """Calls that one server runs at once; 0: any number."""
    call_seconds: float | None
    """How long a call takes; None before the first one has ended."""
    start_seconds: float | None
    """How long a server takes to start; None before the first one has."""


def wanted_starts(demand: Demand, *, starting: int, serving: int, existing: int, least: int, most: int) -> int:
    """How many servers to start now.

    There are `starting` ones that do not serve yet and `serving` ones that take calls; `existing` counts all whose jobs
    are not over, also those that are drained. There should be at least `least`, and never more than `most` exist.

    A further server is worth its start if the calls that wait would still wait when it is there, or if they have waited
    together for longer than a start takes. While nothing is known of these times, there is one for each call that
    could run at once.
    """
    room = max(most - existing, 0)
    below = max(least - starting - serving, 0)
    return min(max(_for_queue(demand, starting, serving), below), room)


def _for_queue(demand: Demand, starting: int, serving: int) -> int:
    if not demand.waiting:
        return 0
    if not demand.slots:  # any number of calls fits into one server
        return 0 if starting or serving else 1
    missing = max(ceil(demand.waiting / demand.slots) - starting, 0)
    if demand.call_seconds is None or demand.start_seconds is None:
        return missing
    start = max(demand.start_seconds, 0.001)
    # With this many servers the queue is empty by the time at which one that is started now would serve.
    enough = floor(demand.waiting * demand.call_seconds / (demand.slots * start))
    by_length = enough - starting - serving
    by_wait = floor(demand.waited / start)
    first = 0 if starting or serving else 1
    return min(missing, max(by_length, by_wait, first, 0))


def surplus(idle: list[float], limit: float, *, starting: int, serving: int, least: int) -> int:
    """How many of the servers to end, those first that are idle longest. `idle` has the seconds for which each server
    without calls in flight has had none."""
    over = sum(seconds >= limit for seconds in idle)
    return max(min(over, starting + serving - least), 0)


def back_off(failures: int) -> float:
    """Seconds until the next start after so many failed ones in a row."""
    return min(0.5 * 2.0 ** min(failures - 1, 10), 60.0) if failures else 0.0


def margin(lifetime: float, call_seconds: float | None) -> float:
    """How many seconds before its end a server of this whole `lifetime` (seconds) gets no more calls: a tenth of it,
    at most a minute, or the time of two calls if that is longer, but never more than half of it."""
    return min(max(min(lifetime / 10, 60.0), 2 * (call_seconds or 0.0)), lifetime / 2)
