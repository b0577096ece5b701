"""Runs work that waits for other work, as much of it at once as can be."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Set
from typing import TypeVar

from gateway.core.tasks import spawn

K = TypeVar("K", bound=Hashable)


async def run_in_order(waits_for: Mapping[K, Set[K]], work: Callable[[K], Awaitable[None]], most: int) -> None:
    """Run `work` for each key of `waits_for`, after that of all keys in its value; at most `most` at once. There are no
    circles.

    The first error is raised after all that runs was cancelled; so it is if the caller is cancelled.
    """
    waiting = {name: set(others) & waits_for.keys() for name, others in waits_for.items()}
    waited_for: dict[K, list[K]] = {}
    for name, others in waiting.items():
        for other in others:
            waited_for.setdefault(other, []).append(name)
    ready = [name for name, others in waiting.items() if not others]
    running: dict[asyncio.Task[None], K] = {}
    try:
        while ready or running:
            if len(ready) == 1 and not running:
                # A chain needs no tasks.
                ended = [ready.pop()]
                await work(ended[0])
            else:
                while ready and len(running) < most:
                    name = ready.pop(0)
                    running[spawn(_run(work, name))] = name
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                ended = [running.pop(each) for each in done]
                for each in done:
                    each.result()
            for name in ended:
                for other in waited_for.get(name, ()):
                    waiting[other].discard(name)
                    if not waiting[other]:
                        ready.append(other)
    finally:
        await _cancelled(running)


async def _run(work: Callable[[K], Awaitable[None]], name: K) -> None:
    await work(name)


async def _cancelled(running: Mapping["asyncio.Task[None]", object]) -> None:
    """Cancel what runs and wait until it has ended. Its errors came too late to be told."""
    for task in running:
        task.cancel()
    if running:
        await asyncio.gather(*running, return_exceptions=True)
