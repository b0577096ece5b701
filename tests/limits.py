"""How long tests wait for what should come at once, and how many examples the property tests try."""

import asyncio
from collections.abc import Callable

from hypothesis import settings

GENEROUS = 300.0
"""Seconds: ten times what the slowest of such waits takes on a busy machine of two cores. It only ends tests that hang,
with the place where they do, before pytest's own limit."""


def examples(many: int) -> int:
    """The number of examples of a property test: `many`, or a fifth of them where `--hypothesis-profile few` asks for
    few."""
    return max(1, many * settings().max_examples // 100)


async def until(condition: Callable[[], object], pause: float = 0.01) -> None:
    """Wait for what nothing announces, and look again after each `pause` of so many seconds."""
    async with asyncio.timeout(GENEROUS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(pause)


async def settle(turns: int = 40) -> None:
    """Let every task run as far as it can in so many turns of the loop."""
    for _ in range(turns):
        await asyncio.sleep(0)
