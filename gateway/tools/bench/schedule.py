"""The times at which the load generator sends requests, in seconds from the start."""

import random
from collections.abc import Iterator
from itertools import count
from typing import Literal, TypeAlias

Arrivals: TypeAlias = Literal["poisson", "constant"]
"""`poisson`: random times, like requests from many independent clients. `constant`: equal intervals."""


def arrivals(kind: Arrivals, rate: float, *, seed: int = 0, share: int = 0, shares: int = 1) -> Iterator[float]:
    """Yield the send times of one of `shares` generators, which together send `rate` requests per second. The iterator
    never ends."""
    if kind == "constant":
        return (each / rate for each in count(share, shares))
    return _poisson(rate / shares, random.Random(f"{seed} {share}"))


def _poisson(rate: float, chance: random.Random) -> Iterator[float]:
    """Yield times of a Poisson process. The sum of independent Poisson processes is a Poisson process with the summed
    rate, so each share draws its own times."""
    now = 0.0
    while True:
        now += chance.expovariate(rate)
        yield now
