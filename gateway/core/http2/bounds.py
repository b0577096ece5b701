"""Limits on the work that the peer of an HTTP/2 connection can cause. They limit how long a connection can block the
event loop, and how many frames without content the peer can send. The code performs no I/O.
"""

FRAMES = 32
"""Number of frames that a connection processes between two checks of the clock."""

TURN = 0.002
"""Number of seconds after which a connection that has more frames to process lets other connections run."""
SHORT_TURN = 0.0005
"""Number of seconds after which a connection that has processed all of its received frames lets other connections run
before it receives more data. Otherwise, uvloop would receive data for the same connection up to 32 times in a row."""

TOGETHER = 16
"""Maximum number of requests or replies that one write combines. Combining saves time, because one write to a socket
takes a tenth of the total time of a small call."""

MOST_CREDIT, CREDIT_PER_SECOND = 5000.0, 500.0
"""Maximum credit, and credit added per second, for frames without content: pings, settings, priorities, DATA with fewer
than SMALL_DATA bytes, window updates, and frames of closed streams."""
SMALL_DATA = 64
"""Size in bytes below which a DATA frame counts as a frame without content."""


class FloodError(Exception):
    """The peer has used up its credit.

    `connection` then ends the connection with GOAWAY(ENHANCE_YOUR_CALM)."""


class Credit:
    """A peer's allowance for frames without content.

    `earn` adds credit. When the credit runs out, `spend` first adds `per_second` for each elapsed second, up to `most`.
    After a long quiet period, a peer can spend twice `most` in one burst. Times are in seconds, from any clock."""

    __slots__ = ("_at", "_left", "_most", "_per_second")

    def __init__(self, most: float, per_second: float, now: float) -> None:
        self._left = self._most = most
        self._per_second = per_second
        self._at = now

    def spend(self, cost: float, now: float, what: str) -> None:
        """Subtract `cost` from the credit. Raises FloodError (`too many {what}`) if the credit is exhausted."""
        self._left -= cost
        if self._left < 0:
            self._left = min(self._most, self._left + (now - self._at) * self._per_second)
            self._at = now
            if self._left < 0:
                raise FloodError(f"too many {what}")

    def earn(self, amount: float) -> None:
        """Add credit for useful work, because a peer sends some frames without content along with useful work."""
        if self._left < self._most:
            self._left += amount
