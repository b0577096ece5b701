"""Deadlines of calls. Most calls end long before theirs, so a deadline costs little to set and to drop.

A loop timer for each call would cost 3 us, `asyncio.timeout` 8 us. Here deadlines share timers: those that end within
the same GRAIN are a group with one timer, which rings at the end of that time. A call whose deadline is dropped leaves
its group; the timer of an empty group does nothing. So deadlines are up to a GRAIN late, and never early. Those that
are NEAR are exact.
"""

import asyncio
from collections.abc import Awaitable, Callable
from math import ceil
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


NEAR = 0.1
"""Seconds below which a deadline has a timer of its own: it may even have passed already."""
GRAIN = 0.01
"""Seconds by which other deadlines may be late."""
FAR = 2.0
"""Seconds from which a deadline is far."""
FAR_GRAIN = 0.1
"""Seconds by which a deadline that is far may be late."""


class Ring(Protocol):
    """What is done at a deadline."""

    def ring(self) -> None: ...


class Deadline:
    """A deadline that is set: `act(argument)` is called then, unless it is dropped."""

    __slots__ = ("_act", "_argument", "_group")

    def __init__(self, act: Callable[[Any], object], argument: object, group: set[Ring]) -> None:
        self._act = act
        self._argument = argument
        self._group = group
        group.add(self)

    def ring(self) -> None:
        """The time has come."""
        self._act(self._argument)

    def drop(self) -> None:
        """Do not ring. May be called again, and after it has rung."""
        self._group.discard(self)
        self._act, self._argument = _do_nothing, None  # they may hold the deadline, which would be a reference cycle


def _do_nothing(argument: object) -> None: ...


class Deadlines:
    """The deadlines of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._groups: dict[float, set[Ring]] = {}

    def add(self, when: float, act: Callable[[Any], object], argument: object) -> Deadline:
        """Call `act(argument)` at `when` (the loop's clock), or a little later."""
        return Deadline(act, argument, self.group(when))

    def group(self, when: float) -> set[Ring]:
        """Those that ring at `when` or a little later. What leaves it does not ring."""
        left = when - self._loop.time()
        if left < NEAR:
            end = when
        else:
            grain = FAR_GRAIN if left > FAR else GRAIN
            end = ceil(when / grain) * grain
        group = self._groups.get(end)
        if group is None:
            group = self._groups[end] = set()
            self._loop.call_at(end, self._ring, end)
        return group

    def _ring(self, end: float) -> None:
        group = self._groups.pop(end)
        for each in list(group):
            if each in group:  # it was not dropped by what another one did
                group.discard(each)
                each.ring()


_deadlines: Deadlines | None = None
_loop: asyncio.AbstractEventLoop | None = None


def deadlines() -> Deadlines:
    """The deadlines of the running loop."""
    global _deadlines, _loop
    loop = asyncio.get_running_loop()
    if _deadlines is None or loop is not _loop:
        _deadlines, _loop = Deadlines(loop), loop
    return _deadlines


async def wait_until(when: float, awaitable: Awaitable[T], too_late: Callable[[], Exception]) -> T:
    """The result of `awaitable`, if it comes until `when` (the loop's clock). Else it is cancelled.

    Raises:
        Exception: what `too_late` returns; there was no result in time.
    """
    task = asyncio.current_task()
    assert task is not None
    cancelling = task.cancelling()
    group, limit = deadlines().group(when), _TaskLimit(task)
    group.add(limit)
    try:
        return await awaitable
    except asyncio.CancelledError as error:
        if limit.has_rung:
            limit.has_rung = False
            if task.uncancel() <= cancelling:
                raise too_late() from error
        raise
    finally:
        group.discard(limit)
        if limit.has_rung:  # what was awaited has ended by itself before it was cancelled
            task.uncancel()


class _TaskLimit:
    __slots__ = ("_task", "has_rung")

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self._task = task
        self.has_rung = False

    def ring(self) -> None:
        self.has_rung = True
        self._task.cancel()
