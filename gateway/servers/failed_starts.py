"""Handles failed starts of servers: determines when the next start is permitted, and the errors for calls that have
waited too long."""

from collections.abc import Callable

from gateway.servers.sizing import back_off
from gateway.servers.started_server import JobFailure

ATTEMPTS = 3
"""The number of consecutive failed starts after which waiting calls fail."""


class FailedStarts:
    """The failed starts of one backend's servers since one of its servers last answered a call."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.in_a_row = 0
        self.last: JobFailure | None = None
        self.next_at = -1e9
        """The time of the next permitted start, on the fleet's clock."""
        self._unserved_since: float | None = None
        """The time since which calls wait without a ready server."""

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
        """Return the error for calls that wait without a ready server, or None if they should continue to wait. After
        the calls have waited `limit` seconds, `reason` is called to find out why no server is ready."""
        now = self._clock()
        if self._unserved_since is None:
            self._unserved_since = now
        if self.last is not None and self.in_a_row >= ATTEMPTS and not is_starting:
            text = f"{self.in_a_row} servers in a row failed to start; the last: {self.last.text}"
        elif now - self._unserved_since >= limit:
            text = f"no server within {limit:g} s (servers.start_timeout): {reason()}"
        else:
            return None
        self._unserved_since = None
        return JobFailure(text, self.last.detail if self.last is not None else "")

    def nobody_waits(self) -> None:
        """Record that no call is waiting, or that a server is ready."""
        self._unserved_since = None
