"""What the calls to an endpoint tell of its health, and for how long it gets no calls because of that.

    unknown ──an answer──▶ up ──failures──▶ ejected ──an answer──▶ up
                                            ▲     │
                                            └─────┘ a failure after the time is over: ejected again, for twice as long

- An answer is whatever the server says in its protocol, errors too: gRPC's status UNAVAILABLE is one.
- An endpoint that cannot be reached, or breaks off, is ejected at once, for a second: most such calls can be sent to
  another one, and a server that restarts is soon back.
- Calls that time out and replies that are not HTTP, gRPC or packets of the protocol may be the fault of one model. An
  endpoint is ejected after several in a row (`Ejection.failures`) without any answer in between.
- Ejections without an answer in between grow: each lasts twice as long as the one before, up to `LONGEST_SECONDS`.
- When the time is over, one call is let through as a trial. While it has no outcome, the next one follows after a pause
  of the same kind, so that a call which takes hours, or which its client gives up, does not keep the endpoint out.
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
"""The first ejection of an endpoint that could not be reached, or broke off."""
LONGEST_SECONDS = 60.0
LONGEST_TEXT = 300
"""Characters of an error that `/status` and the log tell."""


class State(Enum):
    """The values are the words of `/status`."""

    UNKNOWN = "unknown"
    """It has never answered."""
    UP = "up"
    EJECTED = "ejected"


@frozen
class Ejection:
    """When an endpoint is ejected. `seconds` is the first ejection's time; `most` the share of a backend's endpoints
    that may be left out at once, rounded up."""

    failures: int = 5
    seconds: float = 10.0
    most: float = 0.5


@frozen
class Failure:
    """What went wrong last, and when."""

    text: str
    at: datetime


class Health:
    """Of one endpoint. `name` is what the log calls it."""

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
        """Not ejected."""
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
        """What is known of it."""
        if not self.is_up:
            return State.EJECTED
        return State.UP if self.answers else State.UNKNOWN

    @property
    def is_left_out(self) -> bool:
        """Whether it is ejected, and no trial is due."""
        return not self.is_up and self._clock() < self._until

    @property
    def ejected_until(self) -> datetime | None:
        """When the next trial is due, or was; None while it is not ejected."""
        return None if self.is_up else datetime.now(UTC) + timedelta(seconds=self._until - self._clock())

    @property
    def seconds_left(self) -> float:
        """Until the next trial."""
        return max(self._until - self._clock(), 0.0)

    def answered(self) -> bool:
        """An answer came. Returns whether this ended an ejection."""
        self.answers += 1
        return self._failures > 0 and self._recover()

    def failed(self, why: str, *, unreachable: bool) -> bool:
        """A call failed. `unreachable`: there was no connection, or no more. Returns whether this ejected it."""
        self._failures += 1
        self.failed_at = self._clock()
        self.last = Failure(why[:LONGEST_TEXT], datetime.now(UTC))
        is_enough = unreachable or self._failures >= self._ejection.failures
        # Calls that were in flight when it was ejected fail one after the other; only a trial says something new.
        is_due = is_enough if self.is_up else self._is_on_trial
        if is_due:
            self._eject(UNREACHABLE_SECONDS if unreachable else self._ejection.seconds)
        return is_due

    def try_again(self) -> None:
        """A call goes to it although it is ejected, since its time is over or there is no other."""
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
