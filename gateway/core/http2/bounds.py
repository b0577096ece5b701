"""Bounds on what the peer of an HTTP/2 connection can make the gateway do: how long a connection may keep the event
loop, and how many frames without content it may send. Pure."""

FRAMES = 32
"""Frames that are taken between two looks at the clock."""

TURN = 0.002
"""Seconds after which a connection with more frames to take lets the others go on."""
SHORT_TURN = 0.0005
"""The same for a connection that has no more frames at the moment: uvloop would receive for it up to 32 times in a
row."""

TOGETHER = 16
"""Requests or replies that are written at once. One write to a socket takes as long as a tenth of all that a small call
costs."""

MOST_CREDIT, CREDIT_PER_SECOND = 5000.0, 500.0
"""Credit for frames without content: pings, settings, priorities, DATA of fewer than SMALL_DATA bytes, window updates,
frames of closed streams."""
SMALL_DATA = 64
"""Bytes. A DATA frame with fewer counts as one without content."""


class FloodError(Exception):
    """The peer has used up its credit: `connection` spends it, and ends the connection with
    GOAWAY(ENHANCE_YOUR_CALM)."""


class Credit:
    """An allowance for work that brings nothing. It grows by what is earned, and once it is used up by `per_second` for
    the time that has passed, up to `most`: a peer that was quiet for long can spend twice `most` at once. Times are
    seconds of any clock."""

    __slots__ = ("_at", "_left", "_most", "_per_second")

    def __init__(self, most: float, per_second: float, now: float) -> None:
        self._left = self._most = most
        self._per_second = per_second
        self._at = now

    def spend(self, cost: float, now: float, what: str) -> None:
        """Take `cost` off. Raises FloodError (`too many {what}`) if there is not enough left."""
        self._left -= cost
        if self._left < 0:
            self._left = min(self._most, self._left + (now - self._at) * self._per_second)
            self._at = now
            if self._left < 0:
                raise FloodError(f"too many {what}")

    def earn(self, amount: float) -> None:
        """Useful work was done, for which a peer may send some frames without content."""
        if self._left < self._most:
            self._left += amount
