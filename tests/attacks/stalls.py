"""How long an attack keeps the loop of a gateway from its turn."""

from __future__ import annotations

import time
from collections.abc import Callable

from tests.attacks.attacked import TRIES, Attacked
from tests.attacks.clients import Connection

Figure = Callable[[str], None]
Attack = Callable[[Attacked], str]
"""What it does; it says what came of it."""

STALL = 0.25
"""Seconds that the loop may be kept from its turn. The aim is 0.1; the rest is for a machine that others load."""
SHOWN = 60


def stalls(gateway: Attacked, attack: Attack, figure: Figure) -> float:
    """The longest stall under an attack; of some tries the best, since the machine is not alone."""
    best = 60.0
    for _ in range(TRIES):
        gateway.look()
        gateway.beside()
        begun, spent = time.perf_counter(), gateway.cpu
        came = attack(gateway)
        took, cpu = time.perf_counter() - begun, gateway.cpu - spent
        seen, beside = gateway.look(), gateway.beside()
        figure(
            f"stall {1e3 * seen.stall:.0f} ms ({1e3 * seen.wall:.0f} by the clock), {took:.1f} s, CPU {cpu:.1f} s; "
            f"beside: {beside.good} answered, the longest took {1e3 * beside.longest:.0f} ms{came}"
        )
        assert not beside.failed
        best = min(best, seen.stall)
        if best < STALL / 2:
            break
    return best


def once(connect: Callable[[tuple[str, int]], Connection], listener: str, request: Callable[[], bytes]) -> Attack:
    """One request and its reply, whatever that is."""
    made: list[bytes] = []

    def attack(gateway: Attacked) -> str:
        made[:] = made or [request()]
        with connect(gateway.address(listener)) as connection:
            return f"; replied {connection.call(made[0])[:SHOWN]!r}"

    return attack
