"""Whether a client takes a reply fast enough: the limits that a request's body has, for the other direction. Pure."""

from gateway.transports.timeouts import Timeouts


class ReplyProgress:
    """A reply of which a client has `unread` bytes to take at the time `now`, and how it goes on. More replies may join
    those that are unread. Times are seconds of any clock."""

    __slots__ = ("_begun", "_moved", "_taken", "_unread")

    def __init__(self, unread: int, now: float) -> None:
        self._begun = self._moved = now
        self._unread = unread
        self._taken = 0

    def is_too_slow(self, unread: int, now: float, timeouts: Timeouts) -> bool:
        """Whether the client, with `unread` bytes left, took nothing for `Timeouts.write` seconds, or on average less
        than `Timeouts.rate` after them, or needs more than `Timeouts.message` in all."""
        if unread < self._unread:
            self._taken += self._unread - unread
            self._moved = now
        self._unread = unread
        waited = now - self._begun
        allowed = min(timeouts.message, timeouts.write + self._taken / timeouts.rate)
        return now - self._moved > timeouts.write or waited > allowed

    def excuse(self, seconds: float) -> None:
        """Do not count these seconds, in which the client could not have taken anything."""
        self._begun += seconds
        self._moved += seconds
