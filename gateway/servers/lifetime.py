"""Decides when a server stops, based on its use, its times and the engine's report on its job."""

from gateway.core.frozen import frozen
from gateway.servers.engine import JobReport, JobState
from gateway.servers.settings import ServersSettings
from gateway.servers.sizing import margin
from gateway.servers.started_server import ServerPhase, StartedServer


@frozen
class Stop:
    """The decision to stop a server. A server that serves calls is drained; any other server is stopped immediately.
    `failed` is True if the server did not work as required."""

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
    """Return the decision to stop the server, or None if it should continue in its phase. `now` is on the fleet's
    clock; `wall` is the same time in seconds since 1970. `is_replaced` is True if the fleet is no longer needed."""
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
    """Return whether the server's job is near its time limit at `wall` (seconds since 1970), so the server should get
    no more calls."""
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
    """Return the reason to show in messages about a server whose job ended by itself or was stopped at the engine."""
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
    """Return whether a server whose job has ended was useful, so the next server can start immediately."""
    return server.phase is ServerPhase.DRAINING or (server.phase is ServerPhase.SERVING and server.has_answered)


def described(report: JobReport) -> str:
    """Return the engine's report on a job, as a phrase."""
    return report.state.value + (f" ({report.reason})" if report.reason else "")
