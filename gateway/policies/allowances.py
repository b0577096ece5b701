"""How many requests each client may still send: token buckets, of which one number is kept for each client.

A bucket holds `burst` tokens, a request takes one, and one comes back every `interval` seconds. In place of the tokens
the time is kept at which the bucket will be full again (the generic cell rate algorithm of ATM Forum's UNI 3.1,
section 3.6.2.4), so that a bucket that is full needs no memory.
"""

from collections import OrderedDict

MOST_CLIENTS = 65_536
"""The most clients that are remembered; beyond it those that came least recently are forgotten, and start anew with a
full bucket."""


class Allowances:
    """The buckets of all clients."""

    def __init__(self, interval: float, burst: int, most: int = MOST_CLIENTS) -> None:
        self._interval = interval
        self._spread = interval * burst
        """The seconds in which an empty bucket becomes full."""
        self._most = most
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """When the bucket of each client will be full; the client that came least recently is first."""

    def __len__(self) -> int:
        return len(self._full_at)

    def left(self, client: str, now: float) -> tuple[int, float]:
        """The tokens in the bucket of `client`, and the seconds until it is full."""
        missing = max(self._full_at.get(client, now) - now, 0.0)
        # Whole tokens, with the rounding error of `take`.
        return int((self._spread - missing) / self._interval + 1e-6), missing

    def take(self, client: str, now: float) -> float:
        """Take a token of `client`. Returns 0.0; or, without taking anything, the seconds until there is one."""
        known = self._full_at
        full_at = max(known.get(client, now), now) + self._interval
        # A burst needs whole tokens: the sum of many intervals may be off by a rounding error.
        wait = full_at - now - self._spread
        if wait > self._interval * 1e-6:
            if client in known:
                known.move_to_end(client)
            return wait
        known[client] = full_at
        known.move_to_end(client)
        if len(known) > self._most:
            known.popitem(last=False)
        return 0.0
