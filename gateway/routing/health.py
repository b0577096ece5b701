"""The health of an endpoint, derived from the results of its calls and probes.

| state | meaning |
|---|---|
| unknown | it has not responded yet |
| up | it responds |
| degraded | it receives calls, but its last calls or probes failed (fewer than `Ejection.failures` or `unhealthy`) |
| down | it receives no calls: it is ejected because calls failed, or `unhealthy` probes in a row failed, or both |

Calls change the state as follows. An ejection is a period in which an endpoint receives no calls.

| state | event | next state |
|---|---|---|
| any except down | the endpoint is unreachable, or the connection is lost | down: ejected for UNREACHABLE_SECONDS |
| any except down | other failure | degraded; down after `Ejection.failures` in a row: ejected for `Ejection.seconds` |
| down, ejected | the ejection is over: one call is sent as a trial | down, on trial |
| down, on trial | a failure | down: ejected for twice as long as before, up to a limit |
| down, not on trial | a failure of a call sent before | down, unchanged |
| any | a response | up; the next ejection is short again |

Probes change the state as follows:

| state | event | next state |
|---|---|---|
| any except down | a probe fails | degraded; down after `unhealthy` in a row, until probes pass |
| down, ejected | a probe fails | down; after `unhealthy` in a row, no trials follow, only probes |
| unknown | a probe passes | up |
| degraded, down | `healthy` probes in a row pass after one that failed | up |
| down, ejected | a probe passes, and no probe has failed | down, unchanged: calls fail although probes pass |

- A response is any message from the server in its protocol, including errors such as the gRPC status UNAVAILABLE.
- Unreachable endpoints are ejected immediately but briefly: most of their calls can go to another endpoint, and a
  server that restarts is usually back soon.
- Other failures are timeouts, replies that are not valid in HTTP, gRPC or the protocol's packet format, and errors from
  a proxy that receives no reply from a gRPC server. A single model might be the cause. Therefore, an ejection requires
  several consecutive failures without a response in between.
- If a trial has no result, the next trial follows after the ejection time or `Ejection.seconds`, whichever is longer.
  Therefore, a call that takes hours, or that its client cancels, does not keep the endpoint ejected.
- A server that responds to a probe with the report that it is not ready (`refused`) might still respond to calls. In
  this case, only a passed probe resets the number of failed probes; responses to calls do not.
- The backend limits the fraction of its endpoints that can be left out at the same time (`Ejection.max_ejected_share`).
"""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from time import monotonic

from gateway.core.frozen import frozen
from gateway.core.log_limit import LogLimit

log = logging.getLogger(__name__)
_lines = LogLimit(log)

UNREACHABLE_SECONDS = 1.0
"""The duration of an endpoint's first ejection after it was unreachable or lost its connection, in seconds."""
LONGEST_SECONDS = 60.0
"""The maximum duration of an ejection, in seconds, unless `Ejection.seconds` is larger."""
LONGEST_TEXT = 300
"""The maximum length of an error message in `/status` and the log, in characters."""


class State(Enum):
    """The state of an endpoint's health. The values are the words that `/status` shows."""

    UNKNOWN = "unknown"
    """The endpoint has never responded."""
    UP = "up"
    DEGRADED = "degraded"
    """The endpoint receives calls, but its last calls or probes failed."""
    DOWN = "down"
    """The endpoint receives no calls, unless leaving it out exceeds `Ejection.max_ejected_share`."""


@frozen
class Ejection:
    """The rules for ejecting endpoints.

    After failed calls, an endpoint is ejected: it receives no calls for some time, and then one trial call.

    `failures` is the number of consecutive failures that cause an ejection. `seconds` is the duration of the first
    ejection. `max_ejected_share` is the maximum fraction of a backend's endpoints that can be left out at the same
    time, rounded up. The last endpoint is left out only if the fraction is 1."""

    failures: int = 5
    seconds: float = 10.0
    max_ejected_share: float = 0.5


@frozen
class Failure:
    """The most recent failure of an endpoint."""

    text: str
    at: datetime


class EndpointHealth:
    """The health of one endpoint, whose address is `name`. The module docstring describes the states."""

    __slots__ = (
        "_awaits_answer",
        "_clock",
        "_ejection",
        "_ejections",
        "_failures",
        "_is_doubted",
        "_is_known",
        "_is_on_trial",
        "_log",
        "_probe_failures",
        "_probes_passed",
        "_seconds",
        "_until",
        "answers",
        "backends",
        "ejected",
        "failed_at",
        "is_probed_down",
        "is_refused",
        "is_up",
        "last",
        "name",
        "on_answer",
    )

    def __init__(
        self,
        name: str,
        ejection: Ejection,
        clock: Callable[[], float] = monotonic,
        log: LogLimit = _lines,
    ) -> None:
        self.name = name
        self.is_up = True
        """True if the endpoint is not down."""
        self.answers = 0
        """The number of responses to calls so far."""
        self.ejected = 0
        """The number of ejections since the start."""
        self.failed_at = 0.0
        self.last: Failure | None = None
        self.backends: list[str] = []
        """The names of the backends that have this endpoint."""
        self.is_probed_down = False
        """True if at least `unhealthy` consecutive probes have failed, and therefore only passed probes can bring the
        endpoint up again."""
        self.is_refused = False
        """True if the server responded to the last failed probe and reported that it is not ready."""
        self.on_answer: Callable[[], None] | None = None
        """A callback that runs before a response to a call changes the state. The first response, and each response
        after a failure, change the state."""
        self._ejection = ejection
        self._clock = clock
        self._log = log
        self._awaits_answer = True
        """True if the next response to a call is the first one ever, or the first one after a failure."""
        self._is_known = False
        """True if the endpoint has ever responded to a call or a probe."""
        self._failures = 0
        """The number of consecutive failed calls."""
        self._ejections = 0
        self._until = self._seconds = 0.0
        self._is_on_trial = False
        self._probe_failures = 0
        """The number of consecutive failed probes."""
        self._probes_passed = 0
        """The number of consecutive passed probes after a failed one."""
        self._is_doubted = False
        """True if a probe has failed and fewer than `healthy` consecutive probes have passed since."""

    def used_by(self, backend: str) -> None:
        """Record the name of a backend that has this endpoint, for log lines."""
        if backend not in self.backends:
            self.backends.append(backend)

    @property
    def state(self) -> State:
        """The current state; the module docstring defines the states."""
        if not self.is_up:
            return State.DOWN
        if self._failures or self._is_doubted:
            return State.DEGRADED
        return State.UP if self._is_known else State.UNKNOWN

    @property
    def is_ready(self) -> bool:
        """True if the endpoint has responded to a call or a probe and is not down."""
        return self.is_up and self._is_known

    @property
    def is_left_out(self) -> bool:
        """True if the endpoint is down and its next trial is not due yet."""
        return not self.is_up and (self.is_probed_down or self._clock() < self._until)

    @property
    def ejected_until(self) -> datetime | None:
        """The time at which the next trial is or was due; None if the endpoint is not ejected, or if only probes can
        bring it up."""
        if self.is_up or self.is_probed_down:
            return None
        return datetime.now(UTC) + timedelta(seconds=self._until - self._clock())

    @property
    def seconds_left(self) -> float:
        """The time until the next trial is due, in seconds."""
        return max(self._until - self._clock(), 0.0)

    def answered(self) -> bool:
        """Record a response to a call. Return True if the response brought the endpoint up."""
        self.answers += 1
        if not self._awaits_answer:
            return False
        if self.on_answer is not None:
            self.on_answer()
        return self._recover("it answered a call", by_probe=False)

    def failed(self, why: str, *, unreachable: bool) -> bool:
        """Record a failed call. Return True if the failure ejected the endpoint.

        `unreachable` is True if the connection attempt failed or the connection broke."""
        before = self.state
        self._note_failure(why)
        self._failures += 1
        is_enough = unreachable or self._failures >= self._ejection.failures
        # Calls that were in flight at the ejection fail one after the other, so only the result of a trial counts.
        is_due = is_enough if self.is_up else self._is_on_trial
        if is_due:
            self._eject(UNREACHABLE_SECONDS if unreachable else self._ejection.seconds, before)
        else:
            self._log_change(before, why)
        return is_due

    def try_again(self) -> None:
        """Record that the gateway is sending a call to the endpoint although it is down.

        Either the ejection is over and this call is a trial, or too many endpoints are down."""
        if not self.is_left_out:
            self._is_on_trial = True
            self._until = self._clock() + max(self._seconds, self._ejection.seconds)

    def probe_passed(self, healthy: int) -> bool:
        """Record a passed probe.

        After a failed probe, `healthy` consecutive passed probes bring the endpoint up. Return True if this probe
        brought the endpoint up.
        """
        if self._is_doubted:
            self._probe_failures = 0
            self._probes_passed += 1
            return self._probes_passed >= healthy and self._recover("it answered a probe", by_probe=True)
        before, self._is_known = self.state, True
        self._log_change(before, "it answered a probe")
        return False

    def probe_failed(self, why: str, unhealthy: int, *, refused: bool) -> None:
        """Record a failed probe.

        After `unhealthy` consecutive failed probes, the endpoint is down. `refused` is True if the server reported that
        it is not ready."""
        before = self.state
        self._note_failure(why)
        self._probe_failures += 1
        self._probes_passed = 0
        self._is_doubted = True
        self.is_refused = refused
        if self._probe_failures >= unhealthy:
            self.is_up, self.is_probed_down = False, True
        self._log_change(before, why)

    def _note_failure(self, why: str) -> None:
        self.failed_at = self._clock()
        self.last = Failure(why[:LONGEST_TEXT], datetime.now(UTC))
        self._awaits_answer = True

    def _eject(self, seconds: float, before: State) -> None:
        longest = max(LONGEST_SECONDS, self._ejection.seconds)
        self._seconds = min(seconds * 2.0 ** min(self._ejections, 32), longest)
        self._until = self.failed_at + self._seconds
        self._ejections += 1
        self.ejected += 1
        self.is_up, self._is_on_trial = False, False
        assert self.last is not None
        still = "still " if before is State.DOWN else ""
        self._write(logging.WARNING, f"is {still}down: %s (no calls for %g s)", self.last.text, self._seconds)

    def _recover(self, why: str, *, by_probe: bool) -> bool:
        before = self.state
        self._failures = self._ejections = 0
        self._awaits_answer = self._is_on_trial = False
        self._is_known = True
        if by_probe or not self.is_refused:
            self._probe_failures = self._probes_passed = 0
            self._is_doubted = self.is_refused = self.is_probed_down = False
        self.is_up = not self.is_probed_down
        self._log_change(before, why)
        return self.is_up and before is State.DOWN

    def _log_change(self, before: State, why: str) -> None:
        state = self.state
        if state is before:
            return
        if state is State.DOWN:
            self._write(logging.WARNING, "is down: %s", why[:LONGEST_TEXT])
        elif state is State.DEGRADED:
            self._write(logging.INFO, "is degraded: %s", why[:LONGEST_TEXT])
        else:
            again = "" if before is State.UNKNOWN else " again"
            self._write(logging.INFO, f"is up{again}: %s", why)

    def _write(self, level: int, text: str, *values: object) -> None:
        backends = f" of backend {', '.join(map(repr, self.backends))}" if self.backends else ""
        # Lines about degraded endpoints are rate-limited by their own key, so they do not suppress other lines.
        key = self.name, level
        self._log.write(key, level, f"endpoint %s%s {text}", self.name, backends, *values)
