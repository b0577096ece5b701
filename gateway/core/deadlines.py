"""Deadlines of calls. Most calls end long before theirs, so a deadline costs little to set and to drop.

A loop timer for each call would cost 3 us, `asyncio.timeout` 8 us. Here deadlines share timers: those that end within
the same GRAIN are a group with one timer, which rings at the end of that time. A call whose deadline is dropped leaves
its group; the timer of an empty group does nothing. So deadlines are up to a GRAIN late, and never early.
"""

import asyncio
from collections.abc import Awaitable, Callable
from math import ceil
from typing import Any, TypeVar

T = TypeVar("T")


GRAIN = 0.01
"""Seconds by which a deadline that is near may be late."""
FAR = 2.0
"""Seconds from which a deadline is far."""
FAR_GRAIN = 0.1
"""Seconds by which a deadline that is far may be late."""


class Deadline:
    """A deadline that is set: `ring(argument)` is called at `when` (the loop's clock), unless it is dropped."""

    __slots__ = ("_group", "argument", "has_rung", "ring", "when")

    def __init__(self, when: float, ring: Callable[[Any], object], argument: object, group: "set[Deadline]") -> None:
        self.when = when
        self.ring = ring
        self.argument = argument
        self.has_rung = False
        self._group = group
        group.add(self)

    def drop(self) -> None:
        """Do not ring. May be called again, and after it has rung."""
        self._group.discard(self)
        self.ring, self.argument = _do_nothing, None  # they may hold the deadline, which would be a reference cycle


def _do_nothing(argument: object) -> None: ...


class Deadlines:
    """The deadlines of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._groups: dict[float, set[Deadline]] = {}

    def set(self, when: float, ring: Callable[[Any], object], argument: object) -> Deadline:
        """Call `ring(argument)` at `when`, or a little later."""
        grain = FAR_GRAIN if when - self._loop.time() > FAR else GRAIN
        end = ceil(when / grain) * grain
        group = self._groups.get(end)
        if group is None:
            group = self._groups[end] = set()
            self._loop.call_at(end, self._ring, end)
        return Deadline(when, ring, argument, group)

    def _ring(self, end: float) -> None:
        group = self._groups.pop(end)
        for deadline in list(group):
            if deadline in group:  # not dropped by what another one rang
                group.discard(deadline)
                deadline.has_rung = True
                deadline.ring(deadline.argument)


_deadlines: Deadlines | None = None
_loop: asyncio.AbstractEventLoop | None = None


def deadlines() -> Deadlines:
    """The deadlines of the running loop."""
    global _deadlines, _loop
    loop = asyncio.get_running_loop()
    if _deadlines is None or loop is not _loop:
        _deadlines, _loop = Deadlines(loop), loop
    return _deadlines


async def wait_until(when: float, awaitable: Awaitable[T]) -> T:
    """The result of `awaitable`, if it comes until `when` (the loop's clock). Else it is cancelled.

    Raises:
        DeadlinePassedError: there was no result in time.
    """
    task = asyncio.current_task()
    assert task is not None
    cancelling = task.cancelling()
    deadline = deadlines().set(when, asyncio.Task.cancel, task)
    try:
        return await awaitable
    except asyncio.CancelledError as error:
        if deadline.has_rung:
            deadline.has_rung = False
            if task.uncancel() <= cancelling:
                raise DeadlinePassedError from error
        raise
    finally:
        deadline.drop()
        if deadline.has_rung:  # the call has ended by itself before it was cancelled
            task.uncancel()


class DeadlinePassedError(Exception):
    """There was no result until the deadline."""
