"""An event loop whose clock the test puts forward: nobody waits for what takes long."""

import asyncio

import pytest

from tests.limits import settle


class SkippingLoop(asyncio.SelectorEventLoop):
    """A loop whose clock can be put forward."""

    skipped = 0.0

    def time(self) -> float:
        return super().time() + self.skipped


TURNS = 20
"""Turns of the loop in which everything on loopback has happened, on a busy machine too."""

ON_ASYNCIO = pytest.mark.asyncio(loop_factories=["asyncio"])
"""For tests that skip time and would otherwise run on uvloop too, whose clock cannot be put forward."""


async def skip(seconds: float) -> None:
    """Let the time pass, and whatever is due then happen."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SkippingLoop)
    await settle(TURNS)  # what was written before arrives before
    loop.skipped += seconds
    await settle(TURNS)
