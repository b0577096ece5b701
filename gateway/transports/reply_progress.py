"""Checks that a client reads a reply fast enough. The server connections of all transports use it.

The limits correspond to the limits for sending a request body. The code is pure.
"""

from gateway.transports.timeouts import Timeouts


class ReplyProgress:
    """The client's progress in reading a reply, of which `unread` bytes are left at the time `now`. The number of
    unread bytes can increase with further replies. Times are in seconds, on any clock."""

    __slots__ = ("_begun", "_moved", "_taken", "_unread")

    def __init__(self, unread: int, now: float) -> None:
        self._begun = self._moved = now
        self._unread = unread
        self._taken = 0

    def is_too_slow(self, unread: int, now: float, timeouts: Timeouts) -> bool:
        """Return whether the client, with `unread` bytes left, is too slow: it has read nothing for `Timeouts.write`
        seconds, has read less than `Timeouts.rate` on average after these seconds, or needs more than
        `Timeouts.message` in total."""
        if unread < self._unread:
            self._taken += self._unread - unread
            self._moved = now
        self._unread = unread
        waited = now - self._begun
        allowed = min(timeouts.message, timeouts.write + self._taken / timeouts.rate)
        return now - self._moved > timeouts.write or waited > allowed

    def excuse(self, seconds: float) -> None:
        """Do not count these seconds, because the client could not read anything."""
        self._begun += seconds
        self._moved += seconds
