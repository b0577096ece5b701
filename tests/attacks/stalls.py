"""Measures how long an attack blocks the event loop of a gateway."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.attacks.attacked import TRIES, Attacked
from tests.attacks.clients import Connection

Figure = Callable[[str], None]
Attack = Callable[[Attacked], str]
"""Runs an attack, and returns a description of its result."""

STALL = 0.25
"""Maximum time in seconds for which the event loop can be blocked. The aim is 0.1; the rest allows for a busy
machine."""
SHOWN = 60
FRESH, FRESH_SECONDS = 2**28, 0.06
"""A number of bytes, and an estimate of the seconds in which an ordinary machine fills as much fresh memory."""
SLOWEST = 4.0


def slowness() -> float:
    """Return how many times longer than an ordinary machine this machine takes to fill fresh memory: from 1 to SLOWEST.

    A large message is copied in single steps that no other thread can interrupt. On a virtual machine whose host has
    taken back its free memory, new pages cost ten times as much (6 ms per MiB were seen)."""
    begun = time.perf_counter()
    bytearray(b"1") * FRESH
    return min(max(1.0, (time.perf_counter() - begun) / FRESH_SECONDS), SLOWEST)


def stalls(
    gateway: Attacked, attack: Attack, figure: Figure, most: float = STALL, slow: Callable[[], float] = lambda: 1.0
) -> float:
    """Return the longest stall under an attack, in seconds, divided by what `slow` returns after the attack: of several
    tries the first below `most`, or else the best, because other work uses the machine."""
    best = 60.0
    for _ in range(TRIES):
        gateway.look()
        gateway.beside()
        begun, spent = time.perf_counter(), gateway.cpu
        came = attack(gateway)
        took, cpu = time.perf_counter() - begun, gateway.cpu - spent
        slower = slow()
        seen, beside = gateway.look(), gateway.beside()
        stall = (
            f"stall {1e3 * seen.stall:.0f} ms ({1e3 * seen.wall:.0f} by the clock; machine {slower:.1f} times slower)"
        )
        longest = f"beside: {beside.good} answered, the longest took {1e3 * beside.longest:.0f} ms"
        figure(f"{stall}, {took:.1f} s, CPU {cpu:.1f} s; {longest}{came}")
        assert not beside.failed
        best = min(best, seen.stall / slower)
        if best < most:
            break
    return best


def once(connect: Callable[[tuple[str, int]], Connection], listener: str, request: Callable[[], bytes]) -> Attack:
    """Return an attack with one request, which accepts any reply."""
    made: list[bytes] = []

    def attack(gateway: Attacked) -> str:
        made[:] = made or [request()]
        with connect(gateway.address(listener)) as connection:
            return f"; replied {connection.call(made[0])[:SHOWN]!r}"

    return attack
