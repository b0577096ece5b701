"""Servers that could not be started: when the next one may be, and what calls are told that wait in vain."""

from collections.abc import Callable

from gateway.servers.sizing import back_off
from gateway.servers.started_server import JobFailure

ATTEMPTS = 3
"""Failed starts in a row after which the calls that wait get an error."""


class FailedStarts:
    """The failed starts of one fleet since a server was last of use."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.in_a_row = 0
        self.last: JobFailure | None = None
        self.next_at = -1e9
        """When the next server may be started, on the fleet's clock."""
        self._unserved_since: float | None = None
        """Since when calls wait and no server is there."""

    def add(self, failure: JobFailure) -> None:
        """A server could not be started. Several that fail before the next one may be started count as one: they were
        started together, and mostly fail for one reason."""
        self.last = failure
        if self._clock() >= self.next_at:
            self.in_a_row += 1
            self.next_at = self._clock() + back_off(self.in_a_row)

    def served(self) -> None:
        """A server was of use."""
        self.in_a_row = 0

    def waits_in_vain(self, *, is_starting: bool, limit: float, reason: Callable[[], str]) -> JobFailure | None:
        """The error for calls that wait while no server is there; None if they should go on waiting. `reason` says why
        none is there, when they have waited `limit` seconds."""
        now = self._clock()
        if self._unserved_since is None:
            self._unserved_since = now
        if self.last is not None and self.in_a_row >= ATTEMPTS and not is_starting:
            text = f"{self.in_a_row} servers in a row could not be started; the last: {self.last.text}"
        elif now - self._unserved_since >= limit:
            text = f"no server within {limit:g} s (servers.start_timeout): {reason()}"
        else:
            return None
        self._unserved_since = None
        return JobFailure(text, self.last.detail if self.last is not None else "")

    def nobody_waits(self) -> None:
        """No call waits, or a server is there."""
        self._unserved_since = None
