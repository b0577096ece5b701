"""The health of an endpoint, judged by the outcome of its calls, and its ejection: a time in which it gets no calls.

| state | event | next state |
|---|---|---|
| unknown | an answer | up |
| unknown, up | it cannot be reached, or breaks off | ejected, for UNREACHABLE_SECONDS |
| unknown, up | `Ejection.failures` other failures in a row | ejected, for `Ejection.seconds` |
| ejected | its time is over: one call is sent as a trial | ejected, on trial |
| ejected, on trial | a failure | ejected, for twice as long as before, at most LONGEST_SECONDS |
| ejected | an answer to any call | up; the next ejection is short again |
| ejected, not on trial | a failure of a call sent before | ejected, unchanged |

- An answer is anything that the server says in its protocol, errors included: gRPC's status UNAVAILABLE is an answer.
- Unreachable endpoints are ejected at once, but briefly: most such calls can be sent to another endpoint, and a server
  that restarts is soon back.
- Other failures are calls that time out, and replies that are not HTTP, gRPC or packets of the protocol. One model may
  be at fault, so it takes several in a row, without any answer in between.
- While a trial has no outcome, the next one follows after the ejection's length or `Ejection.seconds`, whichever is
  longer: a call that takes hours, or that its client gives up, does not keep the endpoint ejected.
- How many endpoints of a backend may be left out at once is decided by Backend (`Ejection.most`).
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
LONGEST_TEXT = 300
"""Characters of an error that are shown in `/status` and the log."""


class State(Enum):
    """The values are the words of `/status`."""

    UNKNOWN = "unknown"
    """It has never answered."""
    UP = "up"
    EJECTED = "ejected"


@frozen
class Ejection:
    """When endpoints are ejected.

    `failures`: failures in a row until one is ejected. `seconds`: the length of the first ejection. `most`: the share
    of a backend's endpoints that may be left out at once, rounded up.
    """

    failures: int = 5
    seconds: float = 10.0
    most: float = 0.5


@frozen
class Failure:
    """The last failure of an endpoint."""

    text: str
    at: datetime


class EndpointHealth:
    """The health of one endpoint. `name` identifies it in the log; the module's description has its states."""

    __slots__ = (
        "_clock",
        "_ejection",
        "_ejections",
        "_failures",
        "_is_on_trial",
        "_log",
        "_seconds",
        "_until",
        "answers",
        "failed_at",
        "is_up",
        "last",
        "name",
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
        """It is not ejected."""
        self.answers = 0
        self.failed_at = 0.0
        self.last: Failure | None = None
        self._ejection = ejection
        self._clock = clock
        self._log = log
        self._failures = 0
        self._ejections = 0
        self._until = self._seconds = 0.0
        self._is_on_trial = False

    @property
    def state(self) -> State:
        """Unknown, up or ejected."""
        if not self.is_up:
            return State.EJECTED
        return State.UP if self.answers else State.UNKNOWN

    @property
    def is_left_out(self) -> bool:
        """Whether it is ejected and no trial is due yet."""
        return not self.is_up and self._clock() < self._until

    @property
    def ejected_until(self) -> datetime | None:
        """When the next trial is, or was, due; None if it is not ejected."""
        return None if self.is_up else datetime.now(UTC) + timedelta(seconds=self._until - self._clock())

    @property
    def seconds_left(self) -> float:
        """Seconds until the next trial is due."""
        return max(self._until - self._clock(), 0.0)

    def answered(self) -> bool:
        """Note an answer. Returns whether it ended an ejection."""
        self.answers += 1
        return self._failures > 0 and self._recover()

    def failed(self, why: str, *, unreachable: bool) -> bool:
        """Note a failed call. `unreachable`: there was no connection, or it broke off. Returns whether this ejected
        it."""
        self._failures += 1
        self.failed_at = self._clock()
        self.last = Failure(why[:LONGEST_TEXT], datetime.now(UTC))
        is_enough = unreachable or self._failures >= self._ejection.failures
        # Calls that were in flight at the ejection fail one after the other; only the outcome of a trial is news.
        is_due = is_enough if self.is_up else self._is_on_trial
        if is_due:
            self._eject(UNREACHABLE_SECONDS if unreachable else self._ejection.seconds)
        return is_due

    def try_again(self) -> None:
        """Note that a call is sent to it although it is ejected: its time is over (then the call is a trial), or all
        endpoints are ejected."""
        if not self.is_left_out:
            self._is_on_trial = True
            self._until = self._clock() + max(self._seconds, self._ejection.seconds)

    def _eject(self, seconds: float) -> None:
        self._seconds = min(seconds * 2.0 ** min(self._ejections, 32), LONGEST_SECONDS)
        self._until = self.failed_at + self._seconds
        self._ejections += 1
        self.is_up, self._is_on_trial = False, False
        assert self.last is not None
        text = "endpoint %s is ejected for %g s: %s"
        self._log.write(self.name, logging.WARNING, text, self.name, self._seconds, self.last.text)

    def _recover(self) -> bool:
        was_ejected = not self.is_up
        self._failures = self._ejections = 0
        self.is_up, self._is_on_trial = True, False
        if was_ejected:
            self._log.write(self.name, logging.INFO, "endpoint %s is back: it answered", self.name)
        return was_ejected
