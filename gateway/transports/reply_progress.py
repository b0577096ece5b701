"""Checks that a client reads a reply fast enough.

The limits are the limits of a request's body, in the other direction. The code is pure.
"""

from gateway.transports.timeouts import Timeouts


class ReplyProgress:
    """The client's progress in reading a reply with `unread` bytes left at the time `now`. More replies can be added to
    the unread bytes. Times are in seconds, on any clock."""

    __slots__ = ("_begun", "_moved", "_taken", "_unread")

    def __init__(self, unread: int, now: float) -> None:
        self._begun = self._moved = now
        self._unread = unread
        self._taken = 0

    def is_too_slow(self, unread: int, now: float, timeouts: Timeouts) -> bool:
        """Return whether the client, with `unread` bytes left, is too slow: it read nothing for `Timeouts.write`
        seconds, read less than `Timeouts.rate` on average after them, or needs more than `Timeouts.message` in
        total."""
        if unread < self._unread:
            self._taken += self._unread - unread
            self._moved = now
        self._unread = unread
        waited = now - self._begun
        allowed = min(timeouts.message, timeouts.write + self._taken / timeouts.rate)
        return now - self._moved > timeouts.write or waited > allowed

    def excuse(self, seconds: float) -> None:
        """Do not count these seconds, in which the client could not read anything."""
        self._begun += seconds
        self._moved += seconds
