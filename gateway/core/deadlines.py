"""Deadlines of calls. Most calls end long before theirs, so a deadline costs little to set and to drop.

A loop timer for each call would cost 3 us, `asyncio.timeout` 8 us. Here deadlines share timers: those that end within
the same GRAIN are a group with one timer, which rings at the end of that time. A call whose deadline is dropped leaves
its group; the timer of an empty group does nothing. So deadlines are up to a GRAIN late, and never early. Those that
are NEAR are exact.

Clients choose their deadlines. One that lies beyond LONGEST joins the group of that time, and then another one: so
there are never more groups and timers than times within LONGEST, however many deadlines were set and dropped.

Where all calls have the same limit (`TimeLimit`), one timer is enough.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import takewhile
from math import ceil
from typing import Any, Protocol, TypeVar

from gateway.core.surviving import log_survived

T = TypeVar("T")


NEAR = 0.1
"""Seconds below which a deadline has a timer of its own: it may even have passed already."""
GRAIN = 0.01
"""Seconds by which other deadlines may be late."""
FAR = 2.0
"""Seconds from which a deadline is far."""
FAR_GRAIN = 0.1
"""Seconds by which a deadline that is far may be late."""


LONGEST = 60.0
"""Seconds after which a deadline is looked at again."""


class Ring(Protocol):
    """A function to call at a deadline, at `when` on the loop's clock. `group` is where it waits for that."""

    when: float
    group: "set[Ring]"

    def ring(self) -> None: ...


class Deadline:
    """A deadline that is set: `act(argument)` is called then, unless it is dropped."""

    __slots__ = ("_act", "_argument", "group", "when")

    group: set[Ring]

    def __init__(self, when: float, act: Callable[[Any], object], argument: object) -> None:
        self.when = when
        self._act = act
        self._argument = argument

    def ring(self) -> None:
        """The time has come."""
        self._act(self._argument)

    def drop(self) -> None:
        """Do not ring. May be called again, and after it has rung."""
        self.group.discard(self)
        self._act, self._argument = _do_nothing, None  # they may hold the deadline, which would be a reference cycle


def _do_nothing(argument: object) -> None: ...


class Deadlines:
    """The deadlines of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._groups: dict[float, set[Ring]] = {}
        self._last: set[Ring] = set()
        """The group that was joined last: calls that begin together mostly have the same limit."""
        self._last_after = self._last_end = self._last_until = 0.0
        """Deadlines after `_last_after` and up to `_last_end` belong to it. This is looked up again at
        `_last_until`."""

    def add(self, when: float, act: Callable[[Any], object], argument: object) -> Deadline:
        """Call `act(argument)` at `when` (the loop's clock), or a little later."""
        deadline = Deadline(when, act, argument)
        self.join(deadline)
        return deadline

    def join(self, each: Ring) -> None:
        """Ring it at its time or a little later, unless it leaves its `group`."""
        when, now = each.when, self._loop.time()
        if now < self._last_until and self._last_after < when <= self._last_end:
            group = self._last
        else:
            group = self._find(when, now)
        each.group = group
        group.add(each)

    def _find(self, when: float, now: float) -> "set[Ring]":
        left = when - now
        if left < NEAR:
            return self._group(when)
        if left > LONGEST:
            return self._group(ceil((now + LONGEST) / FAR_GRAIN) * FAR_GRAIN)
        grain = FAR_GRAIN if left > FAR else GRAIN
        end = ceil(when / grain) * grain
        self._last = group = self._group(end)
        self._last_after, self._last_end, self._last_until = end - grain, end, now + GRAIN
        return group

    def _group(self, end: float) -> "set[Ring]":
        group = self._groups.get(end)
        if group is None:
            group = self._groups[end] = set()
            self._loop.call_at(end, self._ring, end)
        return group

    def _ring(self, end: float) -> None:
        group = self._groups.pop(end)
        for each in list(group):
            if each not in group:  # it was dropped by what another one did
                continue
            group.discard(each)
            if each.when > end:  # it lies beyond LONGEST
                self.join(each)
                continue
            try:
                each.ring()
            except Exception as error:
                log_survived("what is done at a deadline", error)


_known: tuple[Deadlines, asyncio.AbstractEventLoop] | None = None
"""Those of the loop that asked last, and that loop: one value, because several threads may have a loop each."""


def deadlines() -> Deadlines:
    """The deadlines of the running loop."""
    global _known
    loop, known = asyncio.get_running_loop(), _known
    if known is None or known[1] is not loop:
        _known = known = Deadlines(loop), loop
    return known[0]


class TimeLimit:
    """A limit of the same number of seconds for many calls. They reach it in the order in which they began, so it needs
    one timer, for the call that began first. While calls end in time, that timer is set again once in so many seconds.

        call = limit.begin(when, loop)
        try:
            ...
        except asyncio.CancelledError:
            if call.was_ended(): ...  # the time was over
            raise
        finally:
            limit.end(call)
    """

    __slots__ = ("_has_timer", "_running")

    def __init__(self) -> None:
        self._running: dict[_LimitedCall, None] = {}
        """The calls that run, the first that began first."""
        self._has_timer = False

    async def wait(
        self, when: float, loop: asyncio.AbstractEventLoop, awaitable: Awaitable[T], too_late: Callable[[], Exception]
    ) -> T:
        """As `wait_until`; `when` is the limit's seconds from now, on the clock of `loop`."""
        call = self.begin(when, loop)
        try:
            return await awaitable
        except asyncio.CancelledError as error:
            if call.was_ended():
                raise too_late() from error
            raise
        finally:
            self.end(call)

    def begin(self, when: float, loop: asyncio.AbstractEventLoop) -> "_LimitedCall":
        """Cancel the current task at `when`: the limit's seconds from now, on the clock of `loop`."""
        task = asyncio.current_task(loop)
        assert task is not None
        call = _LimitedCall(when, task)
        self._running[call] = None
        if not self._has_timer:
            self._has_timer = True
            loop.call_at(when, self._ring, loop)
        return call

    def end(self, call: "_LimitedCall") -> None:
        """The call has ended."""
        self._running.pop(call, None)
        if call.has_rung:  # what was awaited has ended by itself before it was cancelled
            call.task.uncancel()

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for call in list(takewhile(lambda call: call.when <= now, self._running)):
            del self._running[call]
            call.ring()
        first = next(iter(self._running), None)
        self._has_timer = first is not None
        if first is not None:
            loop.call_at(max(first.when, now + GRAIN), self._ring, loop)


async def wait_until(when: float, awaitable: Awaitable[T], too_late: Callable[[], Exception]) -> T:
    """The result of `awaitable`, if it comes until `when` (the loop's clock). Else it is cancelled.

    Raises:
        Exception: what `too_late` returns; there was no result in time.
    """
    task = asyncio.current_task()
    assert task is not None
    limit = _GroupedCall(when, task)
    deadlines().join(limit)
    try:
        return await awaitable
    except asyncio.CancelledError as error:
        if limit.was_ended():
            raise too_late() from error
        raise
    finally:
        if limit.has_rung:  # what was awaited has ended by itself before it was cancelled
            task.uncancel()
        else:
            limit.group.discard(limit)


class _LimitedCall:
    """A call whose task is cancelled when its time is over."""

    __slots__ = ("_cancelling", "has_rung", "task", "when")

    def __init__(self, when: float, task: "asyncio.Task[Any]") -> None:
        self.when = when
        self.task = task
        self.has_rung = False
        """Whether the task was cancelled by this, and nobody has noticed."""
        self._cancelling = task.cancelling()
        """How often the task had been cancelled before the call began."""

    def ring(self) -> None:
        """The time is over."""
        self.has_rung = True
        self.task.cancel()

    def was_ended(self) -> bool:
        """Whether the task was cancelled because the time was over, and for no other reason."""
        if not self.has_rung:
            return False
        self.has_rung = False
        return self.task.uncancel() <= self._cancelling


class _GroupedCall(_LimitedCall):
    __slots__ = ("group",)

    group: set[Ring]
