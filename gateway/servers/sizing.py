"""Decides when servers of a backend start and stop. The number of servers depends on the length of the queue and on
measured times. After failed starts, the module decides how long to wait, and which error waiting calls receive. A
server stops because of its use, its times or the engine's report on its job."""

from collections.abc import Callable
from math import ceil, floor

from gateway.core.frozen import frozen
from gateway.servers.engine import JobReport, JobState
from gateway.servers.settings import ServersSettings
from gateway.servers.started_server import JobFailure, ServerPhase, StartedServer


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

    `starting` is the number of servers that are not ready yet, and `serving` is the number of servers that receive
    calls. `existing` is the number of servers whose jobs have not ended, including draining servers. `least` and `most`
    are the minimum and maximum number of servers.

    An additional server is worth its start if the waiting calls would still be waiting when the server is ready, or if
    their total waiting time is longer than a start takes. While these times are unknown, the function starts one server
    for each group of calls that can run in parallel."""
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
    """Return the number of servers to stop. The caller stops the servers with the longest idle times first. `idle`
    contains the idle times of the servers without calls in flight, in seconds."""
    over = sum(seconds >= limit for seconds in idle)
    return max(min(over, starting + serving - least), 0)


def back_off(failures: int) -> float:
    """Return the delay before the next start after this number of consecutive failed starts, in seconds."""
    return min(0.5 * 2.0 ** min(failures - 1, 10), 60.0) if failures else 0.0


def margin(lifetime: float, call_seconds: float | None) -> float:
    """Return how many seconds before its end a server stops receiving calls. The margin is a tenth of the total
    `lifetime` (in seconds), but at most a minute. If two calls take longer than this, the margin is the duration of two
    calls, but at most half of the lifetime."""
    return min(max(min(lifetime / 10, 60.0), 2 * (call_seconds or 0.0)), lifetime / 2)


ATTEMPTS = 3
"""The number of consecutive failed starts after which waiting calls fail."""


class FailedStarts:
    """The failed starts of one backend's servers since one of these servers last answered a call."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.in_a_row = 0
        self.last: JobFailure | None = None
        self.next_at = -1e9
        """The time of the next permitted start, on the fleet's clock."""
        self._unserved_since: float | None = None
        """The time from which calls have waited without a ready server."""

    def add(self, failure: JobFailure) -> None:
        """Record a failed start. Several failures before the next permitted start count as one, because these servers
        started together and usually fail for the same reason."""
        self.last = failure
        if self._clock() >= self.next_at:
            self.in_a_row += 1
            self.next_at = self._clock() + back_off(self.in_a_row)

    def served(self) -> None:
        """Record that a server has answered a call."""
        self.in_a_row = 0

    def waits_in_vain(self, *, is_starting: bool, limit: float, reason: Callable[[], str]) -> JobFailure | None:
        """Return the error for calls that wait without a ready server, or None if the calls should continue to wait.
        After the calls have waited `limit` seconds, the method calls `reason` to find out why no server is ready."""
        now = self._clock()
        if self._unserved_since is None:
            self._unserved_since = now
        if self.last is not None and self.in_a_row >= ATTEMPTS and not is_starting:
            text = f"{self.in_a_row} servers in a row failed to start; the last: {self.last.text}"
        elif now - self._unserved_since >= limit:
            text = f"no server within {limit:g} s: {reason()}; raise `servers.start_timeout` if starts take longer"
        else:
            return None
        self._unserved_since = None
        return JobFailure(text, self.last.detail if self.last is not None else "")

    def nobody_waits(self) -> None:
        """Record that no call is waiting, or that a server is ready."""
        self._unserved_since = None


@frozen
class Stop:
    """The decision to stop a server. The fleet drains a server that serves calls, and stops any other server
    immediately. `failed` is True if the server did not work as required."""

    why: str
    failed: bool = False


def stop(
    server: StartedServer,
    settings: ServersSettings,
    *,
    now: float,
    wall: float,
    call_seconds: float | None,
    is_replaced: bool,
) -> Stop | None:
    """Return the decision to stop the server, or None if the server should continue in its phase. `now` is on the
    fleet's clock; `wall` is the same time in seconds since 1970. `is_replaced` is True if the fleet is no longer
    needed."""
    if server.phase not in (ServerPhase.STARTING, ServerPhase.SERVING):
        return None
    if is_replaced:
        return Stop("the configuration has changed")
    if server.phase is ServerPhase.STARTING:
        if now - server.began >= settings.start_timeout:
            return Stop(_not_started(server, settings.start_timeout), failed=True)
    elif settings.calls_per_server and server.calls >= settings.calls_per_server:
        return Stop(f"{server.calls} calls (servers.calls_per_server)")
    elif ends_soon(server, wall, call_seconds):
        return Stop("its walltime is nearly over")
    return None


def ends_soon(server: StartedServer, wall: float, call_seconds: float | None) -> bool:
    """Return whether the server's job is so close to its time limit at `wall` (seconds since 1970) that the server
    should receive no more calls."""
    ends = server.report.ends
    if ends is None:
        return False
    began = server.running_since or server.submitted
    return wall >= ends - margin(ends - began, call_seconds)


def _not_started(server: StartedServer, seconds: float) -> str:
    text = (
        f"{server.label} did not serve within {seconds:g} s (servers.start_timeout): it is {described(server.report)}"
    )
    return f"{text}; its announcement: {server.fault}" if server.fault else text


def why_over(server: StartedServer) -> str:
    """Return the reason for messages about a server whose job ended by itself or was stopped at the engine."""
    during = "before it served" if server.phase is ServerPhase.STARTING else "while it served"
    fault = f"; its announcement: {server.fault}" if server.fault else ""
    reason = f" ({server.report.reason})" if server.report.reason else ""
    state = server.report.state
    return f"{server.label} {_SAID.get(state, state.value)}{reason} {during}{fault}"


_SAID = {
    JobState.ENDED: "ended",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "was cancelled",
    JobState.TIMED_OUT: "was ended by the engine after its time limit,",
    JobState.LOST: "is unknown to the engine now",
}


def is_expected(server: StartedServer) -> bool:
    """Return whether a server whose job has ended was useful, in which case the next server can start immediately."""
    return server.phase is ServerPhase.DRAINING or (server.phase is ServerPhase.SERVING and server.has_answered)


def described(report: JobReport) -> str:
    """Return the engine's report on a job, as a phrase."""
    return report.state.value + (f" ({report.reason})" if report.reason else "")
