"""Limits on the work that the peer of an HTTP/2 connection can cause: how long a connection can block the event loop,
and how many frames without content it can send. The code is pure.
"""

FRAMES = 32
"""Number of frames to process between two checks of the clock."""

TURN = 0.002
"""Seconds after which a connection with more frames to process lets the other connections run."""
SHORT_TURN = 0.0005
"""Like TURN, for a connection without more frames at the moment.

If it did not pause, uvloop would receive data for it up to 32 times in a row."""

TOGETHER = 16
"""Maximum number of requests or replies that one write combines. One write to a socket takes a tenth of the total time
of a small call."""

MOST_CREDIT, CREDIT_PER_SECOND = 5000.0, 500.0
"""Credit for frames without content: pings, settings, priorities, DATA of fewer than SMALL_DATA bytes, window updates,
and frames of closed streams."""
SMALL_DATA = 64
"""Size of small DATA frames, in bytes. A DATA frame with fewer bytes counts as a frame without content."""


class FloodError(Exception):
    """The peer has used up its credit.

    `connection` spends the credit, and ends the connection with GOAWAY(ENHANCE_YOUR_CALM)."""


class Credit:
    """An allowance for useless work.

    It grows by the amount that `earn` adds. If that is not enough, it also grows by `per_second` for the elapsed time,
    up to `most`. A peer that was quiet for long can spend twice `most` in one burst. Times are in seconds, from any
    clock."""

    __slots__ = ("_at", "_left", "_most", "_per_second")

    def __init__(self, most: float, per_second: float, now: float) -> None:
        self._left = self._most = most
        self._per_second = per_second
        self._at = now

    def spend(self, cost: float, now: float, what: str) -> None:
        """Subtract `cost`. Raises FloodError (`too many {what}`) if the credit is exhausted."""
        self._left -= cost
        if self._left < 0:
            self._left = min(self._most, self._left + (now - self._at) * self._per_second)
            self._at = now
            if self._left < 0:
                raise FloodError(f"too many {what}")

    def earn(self, amount: float) -> None:
        """Add credit for useful work, for which a peer can send some frames without content."""
        if self._left < self._most:
            self._left += amount
