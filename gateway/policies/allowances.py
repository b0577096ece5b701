"""Token buckets that limit the requests of each client, for `rate_limit`. Each bucket is stored as one number.

A bucket can hold `burst` tokens. Each request takes one token, and the bucket gains one token every `interval` seconds.
The class does not store the tokens but the time at which the bucket is full again (the generic cell rate algorithm of
ATM Forum's UNI 3.1, section 3.6.2.4). A full bucket therefore needs no memory.
"""

from collections import OrderedDict

MOST_CLIENTS = 65_536
"""Maximum number of stored clients. Above this number, the clients with the oldest last requests are forgotten, and
start again with a full bucket."""


class Allowances:
    """The buckets of all clients."""

    def __init__(self, interval: float, burst: int, most: int = MOST_CLIENTS) -> None:
        self._interval = interval
        self._spread = interval * burst
        """Seconds after which an empty bucket is full."""
        self._most = most
        self._full_at: OrderedDict[str, float] = OrderedDict()
        """The time at which each client's bucket is full. The client with the oldest last request is first."""

    def __len__(self) -> int:
        return len(self._full_at)

    def left(self, client: str, now: float) -> tuple[int, float]:
        """Return the number of tokens in the bucket of `client`, and the seconds until it is full."""
        missing = max(self._full_at.get(client, now) - now, 0.0)
        # Number of whole tokens, with the same tolerance for rounding errors as in `take`.
        return int((self._spread - missing) / self._interval + 1e-6), missing

    def take(self, client: str, now: float) -> float:
        """Take a token of `client` and return 0.0. If the bucket is empty, return the seconds until it contains a
        token."""
        known = self._full_at
        full_at = max(known.get(client, now), now) + self._interval
        # Tolerate a small deficit, because the sum of many intervals can have a rounding error.
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
