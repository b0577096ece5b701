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


def stalls(gateway: Attacked, attack: Attack, figure: Figure, most: float = STALL) -> float:
    """Return the longest stall under an attack, in seconds of CPU time in user mode: of several tries the first below
    `most`, or else the best, because other work uses the machine.

    Time in the kernel does not count. A virtual machine whose host has taken back free memory needs up to 10 ms for the
    first use of a MiB, which is 0.6 s for a copy of a large message. `figure` shows the time with the kernel."""
    best = 60.0
    for _ in range(TRIES):
        gateway.look()
        gateway.beside()
        begun, spent = time.perf_counter(), gateway.cpu
        came = attack(gateway)
        took, cpu = time.perf_counter() - begun, gateway.cpu - spent
        seen, beside = gateway.look(), gateway.beside()
        figure(
            f"stall {1e3 * seen.user:.0f} ms ({1e3 * seen.stall:.0f} with the kernel, {1e3 * seen.wall:.0f} by the "
            f"clock), {took:.1f} s, CPU {cpu:.1f} s; "
            f"beside: {beside.good} answered, the longest took {1e3 * beside.longest:.0f} ms{came}"
        )
        assert not beside.failed
        best = min(best, seen.user)
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
