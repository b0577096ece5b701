"""When requests are to be sent, in seconds from the start."""

import random
from collections.abc import Iterator
from itertools import count
from typing import Literal, TypeAlias

Arrivals: TypeAlias = Literal["poisson", "constant"]
"""`poisson`: at random, as from many clients that do not know of each other; `constant`: at equal distances."""


def arrivals(kind: Arrivals, rate: float, *, seed: int = 0, share: int = 0, shares: int = 1) -> Iterator[float]:
    """The times of one of `shares` generators that together send `rate` requests a second, without end."""
    if kind == "constant":
        return (each / rate for each in count(share, shares))
    return _poisson(rate / shares, random.Random(f"{seed} {share}"))


def _poisson(rate: float, chance: random.Random) -> Iterator[float]:
    """The sum of independent Poisson processes is one of the summed rate: each share draws its own."""
    now = 0.0
    while True:
        now += chance.expovariate(rate)
        yield now
