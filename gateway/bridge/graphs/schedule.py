"""Runs tasks that depend on each other, in parallel as far as possible."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping, Set
from typing import Generic, TypeVar

from gateway.core.queue_wait import PartWaits

K = TypeVar("K", bound=Hashable)


class Order(Generic[K]):
    """The order of tasks, which are identified by keys.

    `waits_for` maps each task to the keys on which it depends, without cycles. Keys that are not in `waits_for` count
    as done."""

    def __init__(self, waits_for: Mapping[K, Set[K]]) -> None:
        self._missing = {name: len(others & waits_for.keys()) for name, others in waits_for.items()}
        """The number of unfinished dependencies of each task."""
        self._waiting: dict[K, list[K]] = {}
        for name, others in waits_for.items():
            for other in others:
                self._waiting.setdefault(other, []).append(name)
        self._first = [name for name, count in self._missing.items() if not count]
        self._chain = self._only_order()

    def _only_order(self) -> tuple[K, ...] | None:
        """Return the keys in the only possible order, or None if two tasks can run in parallel."""
        missing, ready, found = dict(self._missing), list(self._first), []
        while len(ready) == 1:
            [name] = ready
            found.append(name)
            ready = self._freed(name, missing)
        return None if ready else tuple(found)

    def _freed(self, done: K, missing: dict[K, int]) -> list[K]:
        """Return the keys whose last unfinished dependency was `done`."""
        found = []
        for name in self._waiting.get(done, ()):
            missing[name] -= 1
            if not missing[name]:
                found.append(name)
        return found

    async def run(self, work: Callable[[K], Awaitable[None]], most: int) -> None:
        """Run `work` for each key, at most `most` in parallel.

        If a task fails, cancel all running tasks, and then raise the first error. If the caller is cancelled, also
        cancel all running tasks."""
        if self._chain is not None:  # a chain runs without tasks
            for name in self._chain:
                await work(name)
            return
        missing, ready = dict(self._missing), list(self._first)
        running: dict[asyncio.Task[None], K] = {}
        waits = PartWaits()
        try:
            while ready or running:
                while ready and len(running) < most:
                    name = ready.pop(0)
                    running[waits.spawn(_run(work, name))] = name
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                ended = [running.pop(each) for each in done]
                # Retrieve all exceptions, so asyncio does not log one as never retrieved.
                errors = [error for each in done if (error := each.exception()) is not None]
                if errors:
                    raise errors[0]
                for name in ended:
                    ready += self._freed(name, missing)
        finally:
            await _cancelled(running)
            waits.note()


async def run_at_once(keys: Mapping[K, object], work: Callable[[K], Awaitable[None]], most: int) -> None:
    """Run `work` for each of `keys`, which do not depend on each other. See `Order.run`."""
    await Order(dict.fromkeys(keys, frozenset[K]())).run(work, most)


async def _run(work: Callable[[K], Awaitable[None]], name: K) -> None:
    await work(name)


async def _cancelled(running: Mapping["asyncio.Task[None]", object]) -> None:
    """Cancel the running tasks and wait until they have ended. Ignore their errors, which come too late."""
    for task in running:
        task.cancel()
    if running:
        await asyncio.gather(*running, return_exceptions=True)
