"""What the peer of an HTTP/2 connection can make the gateway do: a bounded amount of work in a turn of the event loop,
and a bounded number of frames that carry nothing. Both sides of gRPC use it. Pure."""

FRAMES = 32
"""Frames that are taken before the time is looked at."""

TURN = 0.002
"""Seconds after which a connection that has more to do lets the others go on."""
SHORT_TURN = 0.0005
"""Seconds after which it does so if nothing is left to do: uvloop would receive for it up to 32 times in a row."""

MOST_CREDIT, CREDIT_PER_SECOND = 5000.0, 500.0
"""Of frames that carry nothing: pings, settings, priorities, empty DATA, window updates, frames of closed streams."""
SMALL_DATA = 64
"""Bytes; DATA frames with less do not carry anything to speak of."""


class FloodError(Exception):
    """The peer sent more than it has credit for: the connection ends with GOAWAY(ENHANCE_YOUR_CALM)."""


class Credit:
    """Grows by `per_second` and by what is earned, up to `most`, and is spent by what costs work and carries nothing.
    Times are seconds of any clock."""

    __slots__ = ("_at", "_left", "_most", "_per_second")

    def __init__(self, most: float, per_second: float, now: float) -> None:
        self._left = self._most = most
        self._per_second = per_second
        self._at = now

    def spend(self, cost: float, now: float, what: str) -> None:
        """Raises FloodError where there is not enough left: `too many {what}`."""
        self._left -= cost
        if self._left < 0:
            self._left = min(self._most, self._left + (now - self._at) * self._per_second)
            self._at = now
            if self._left < 0:
                raise FloodError(f"too many {what}")

    def earn(self, amount: float) -> None:
        """Useful work was done, in whose course a peer may send a little that carries nothing."""
        if self._left < self._most:
            self._left += amount
