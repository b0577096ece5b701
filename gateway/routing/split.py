"""Chooses one of a route's backends for each call, according to the keys `split` and `sticky`.

By default, the choice is random, in proportion to the weights. Calls of one sequence, and calls with the same value of
the `sticky` header, always get the same backend, in every process and replica. This choice uses rendezvous hashing:
each backend gets a score from a hash of the value and the backend's name, and the highest score wins. So a weight
change moves only as many values as necessary.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import accumulate
from math import log
from random import Random

from gateway.core.requests import Request
from gateway.routing.sequences import sequence_of

RANDOM = Random()
"""The source of all random choices."""


class Split:
    """Chooses one of several backends for each call, in proportion to their weights.

    - `weights`: The name of each backend, and its weight. At least one weight is above 0.
    - `header`: The name, in lower case, of the `sticky` header; empty if there is none.
    - `random`: Returns numbers from 0 (inclusive) to 1 (exclusive).
    """

    def __init__(
        self, weights: Sequence[tuple[str, int]], header: str = "", random: Callable[[], float] = RANDOM.random
    ) -> None:
        self._weights = [(at, name.encode(), weight) for at, (name, weight) in enumerate(weights) if weight]
        self._bounds = list(accumulate(weight for _, weight in weights))
        self._header = header
        self._random = random
        self.taking = tuple(at for at, _, _ in self._weights)
        """The indices of backends with a weight above 0."""
        self.first = self.taking[0]

    def choose(self, request: Request) -> int:
        """Return the index of the backend that gets `request`.

        Raises:
            GatewayError: INVALID_ARGUMENT if the `sequence_id` is too long.
        """
        sequence = sequence_of(request)
        if sequence is not None:
            return self._by_hash(f"sequence {sequence[1]} {sequence[0]}")
        value = request.headers.get(self._header) if self._header else ""
        if value:
            return self._by_hash(f"header {value}")
        return bisect_right(self._bounds, self._random() * self._bounds[-1])

    def _by_hash(self, value: str) -> int:
        key = value.encode("utf-8", "surrogatepass")
        return max(self._weights, key=lambda each: _score(key, each[1], each[2]))[0]


def _score(key: bytes, name: bytes, weight: int) -> float:
    """Return the score of a backend for a value. Over many values, each backend has the highest score in proportion to
    its weight, because `-log(uniform) / weight` is exponentially distributed with the rate `weight`."""
    number = int.from_bytes(blake2b(b"%d %s %s" % (len(name), name, key), digest_size=6).digest())
    return weight / -log((number + 0.5) / 2**48)
