"""The health of an endpoint, judged by the outcome of its calls and of probes.

| state | meaning |
|---|---|
| unknown | it has not answered yet |
| up | it answers |
| degraded | it is used, but the last calls or probes failed: fewer than `Ejection.failures` or `unhealthy` |
| down | it gets no calls: it is ejected because calls failed, or `unhealthy` probes in a row failed, or both |

How calls change it. An ejection is a time in which an endpoint gets no calls:

| state | event | next state |
|---|---|---|
| any but down | it cannot be reached, or breaks off | down: ejected for UNREACHABLE_SECONDS |
| any but down | another failure | degraded; down after `Ejection.failures` in a row: ejected for `Ejection.seconds` |
| down, ejected | the time is over: one call is sent as a trial | down, on trial |
| down, on trial | a failure | down: ejected for twice as long as before, up to a limit |
| down, not on trial | a failure of a call sent before | down, unchanged |
| any | an answer | up; the next ejection is short again |

How probes change it:

| state | event | next state |
|---|---|---|
| any but down | a probe fails | degraded; down after `unhealthy` in a row, until probes pass |
| down, ejected | a probe fails | down; after `unhealthy` in a row there are no trials, only probes |
| unknown | a probe passes | up |
| degraded, down | `healthy` probes in a row pass after one that failed | up |
| down, ejected | a probe passes, and none has failed | down, unchanged: calls fail although probes pass |

- An answer is anything that the server says in its protocol, errors included: gRPC's status UNAVAILABLE is an answer.
- Unreachable endpoints are ejected at once, but briefly: most such calls can be sent to another endpoint, and a server
  that restarts is soon back.
- Other failures are calls that time out, replies that are not HTTP, gRPC or packets of the protocol, and the answers of
  a proxy that gets no reply from a gRPC server. One model may be at fault, so it takes several in a row, without any
  answer in between.
- While a trial has no outcome, the next one follows after the ejection's length or `Ejection.seconds`, whichever is
  longer: a call that takes hours, or that its client gives up, does not keep the endpoint ejected.
- A server that says in a probe that it is not ready (`refused`) may still answer calls. Then answers do not count
  against the probes: only a probe that passes does.
- How many endpoints of a backend may be left out at once is decided by Backend (`Ejection.max_ejected_share`).
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
"""The length of the first ejection of an endpoint that could not be reached, or broke off."""
LONGEST_SECONDS = 60.0
"""The length of the longest ejection, unless `Ejection.seconds` is more."""
LONGEST_TEXT = 300
"""Characters of an error that are shown in `/status` and the log."""


class State(Enum):
    """The values are the words of `/status`."""

    UNKNOWN = "unknown"
    """It has never answered."""
    UP = "up"
    DEGRADED = "degraded"
    """It is used, but the last calls or probes failed."""
    DOWN = "down"
    """It gets no calls, as far as `Ejection.max_ejected_share` allows."""


@frozen
class Ejection:
    """The rule for ejecting endpoints: after failed calls, an endpoint gets no calls for some time, and then one trial
    call.

    `failures`: failures in a row until one is ejected. `seconds`: the length of the first ejection.
    `max_ejected_share`: the share of a backend's endpoints that may be left out at once, rounded up; the last one is
    left out only if it is 1.
    """

    failures: int = 5
    seconds: float = 10.0
    max_ejected_share: float = 0.5


@frozen
class Failure:
    """The last failure of an endpoint."""

    text: str
    at: datetime


class EndpointHealth:
    """The health of one endpoint. `name` is its address; the module's description has its states."""

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
        """It is not down."""
        self.answers = 0
        """The number of answers to calls."""
        self.ejected = 0
        """The number of ejections since the start."""
        self.failed_at = 0.0
        self.last: Failure | None = None
        self.backends: list[str] = []
        """The names of the backends that use it."""
        self.is_probed_down = False
        """So many probes failed in a row that only probes bring it up again."""
        self.is_refused = False
        """The last probe that failed was answered: the server says that it is not ready."""
        self.on_answer: Callable[[], None] | None = None
        """Called before an answer to a call that changes the state: the first one, or one after a failure."""
        self._ejection = ejection
        self._clock = clock
        self._log = log
        self._awaits_answer = True
        """The next answer to a call is the first one at all, or the first one after a failure."""
        self._is_known = False
        """It has answered a call or a probe."""
        self._failures = 0
        """Calls that failed, in a row."""
        self._ejections = 0
        self._until = self._seconds = 0.0
        self._is_on_trial = False
        self._probe_failures = 0
        """Probes that failed, in a row."""
        self._probes_passed = 0
        """Probes that passed, in a row, after one that failed."""
        self._is_doubted = False
        """A probe failed, and not enough have passed since."""

    def used_by(self, backend: str) -> None:
        """Note the name of a backend that uses this endpoint; log lines name it."""
        if backend not in self.backends:
            self.backends.append(backend)

    @property
    def state(self) -> State:
        """As the module's description says."""
        if not self.is_up:
            return State.DOWN
        if self._failures or self._is_doubted:
            return State.DEGRADED
        return State.UP if self._is_known else State.UNKNOWN

    @property
    def is_ready(self) -> bool:
        """Whether it has answered a call or a probe and is not down."""
        return self.is_up and self._is_known

    @property
    def is_left_out(self) -> bool:
        """Whether it is down and no trial is due yet."""
        return not self.is_up and (self.is_probed_down or self._clock() < self._until)

    @property
    def ejected_until(self) -> datetime | None:
        """When the next trial is, or was, due; None if it is not ejected, or probes decide when it is used again."""
        if self.is_up or self.is_probed_down:
            return None
        return datetime.now(UTC) + timedelta(seconds=self._until - self._clock())

    @property
    def seconds_left(self) -> float:
        """Seconds until the next trial is due."""
        return max(self._until - self._clock(), 0.0)

    def answered(self) -> bool:
        """Note an answer to a call. Returns whether the endpoint was down and is not any more."""
        self.answers += 1
        if not self._awaits_answer:
            return False
        if self.on_answer is not None:
            self.on_answer()
        return self._recover("it answered a call", by_probe=False)

    def failed(self, why: str, *, unreachable: bool) -> bool:
        """Note a failed call. `unreachable`: there was no connection, or it broke off. Returns whether this ejected
        it."""
        before = self.state
        self._note_failure(why)
        self._failures += 1
        is_enough = unreachable or self._failures >= self._ejection.failures
        # Calls that were in flight at the ejection fail one after the other; only the outcome of a trial is news.
        is_due = is_enough if self.is_up else self._is_on_trial
        if is_due:
            self._eject(UNREACHABLE_SECONDS if unreachable else self._ejection.seconds, before)
        else:
            self._log_change(before, why)
        return is_due

    def try_again(self) -> None:
        """Note that a call is sent to it although it is down: its time is over (then the call is a trial), or too many
        endpoints are down."""
        if not self.is_left_out:
            self._is_on_trial = True
            self._until = self._clock() + max(self._seconds, self._ejection.seconds)

    def probe_passed(self, healthy: int) -> bool:
        """Note a probe that passed; after one that failed, `healthy` in a row make the endpoint up. Returns whether it
        was down and is not any more."""
        if self._is_doubted:
            self._probe_failures = 0
            self._probes_passed += 1
            return self._probes_passed >= healthy and self._recover("it answered a probe", by_probe=True)
        before, self._is_known = self.state, True
        self._log_change(before, "it answered a probe")
        return False

    def probe_failed(self, why: str, unhealthy: int, *, refused: bool) -> None:
        """Note a probe that failed; `unhealthy` in a row make the endpoint down. `refused`: the server answered that it
        is not ready."""
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
        # Lines about an endpoint that is merely degraded leave room for the others.
        key = self.name, level
        self._log.write(key, level, f"endpoint %s%s {text}", self.name, backends, *values)
