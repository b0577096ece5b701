"""Call deadlines. Most calls end long before their deadlines, so setting and removing a deadline must be cheap.

A loop timer for each call would take 3 us, and `asyncio.timeout` 8 us. Therefore, deadlines share timers. Deadlines
that pass within the same GRAIN form a group with one timer, which fires at the end of this GRAIN. Dropping a deadline
removes it from its group, and the timer of an empty group does nothing. Deadlines can therefore be up to one GRAIN
late, but are never early. Deadlines within the next NEAR seconds are exact.

Clients choose their deadlines, so the number of timers must be limited. A deadline beyond LONGEST joins the group at
LONGEST, and moves to another group later. Therefore, the number of groups and timers never exceeds the number of grains
within LONGEST, no matter how many deadlines are set and dropped.

If all calls have the same limit (`TimeLimit`), one timer is enough.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import takewhile
from math import ceil
from typing import Any, Protocol, TypeVar

from gateway.core.surviving import log_survived

T = TypeVar("T")


NEAR = 0.1
"""Deadlines within this number of seconds, and deadlines in the past, have their own timers."""
GRAIN = 0.01
"""Maximum delay of a deadline between NEAR and FAR, in seconds."""
FAR = 2.0
"""Deadlines later than this number of seconds are far deadlines."""
FAR_GRAIN = 0.1
"""Maximum delay of a far deadline, in seconds."""


LONGEST = 60.0
"""Deadlines later than this number of seconds move to another group when the timer fires."""


class Ring(Protocol):
    """A function to call at the time `when` on the loop's clock. `group` is the group in which the Ring waits."""

    when: float
    group: "set[Ring]"

    def ring(self) -> None: ...


class Deadline:
    """A deadline that calls `act(argument)` when it passes. `drop` cancels it."""

    __slots__ = ("_act", "_argument", "group", "when")

    group: set[Ring]

    def __init__(self, when: float, act: Callable[[Any], object], argument: object) -> None:
        self.when = when
        self._act = act
        self._argument = argument

    def ring(self) -> None:
        """Call `act`, because the deadline has passed."""
        self._act(self._argument)

    def drop(self) -> None:
        """Cancel the deadline. Calling `drop` again, or after the deadline has passed, has no effect."""
        self.group.discard(self)
        self._act, self._argument = _do_nothing, None  # `act` can refer to the deadline: a reference cycle


def _do_nothing(argument: object) -> None: ...


class Deadlines:
    """The deadlines of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._groups: dict[float, set[Ring]] = {}
        self._last: set[Ring] = set()
        """The group of the previous deadline. It is kept because calls that begin at about the same time mostly have
        the same limit."""
        self._last_after = self._last_end = self._last_until = 0.0
        """Deadlines after `_last_after` and up to `_last_end` belong to the group `_last`. From `_last_until` on,
        `join` searches for the group again."""

    def add(self, when: float, act: Callable[[Any], object], argument: object) -> Deadline:
        """Call `act(argument)` at `when` (the loop's clock), or a little later."""
        deadline = Deadline(when, act, argument)
        self.join(deadline)
        return deadline

    def join(self, each: Ring) -> None:
        """Ring `each` at its time or a little later, unless it is removed from its `group` before then."""
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
            if each not in group:  # the action of another deadline dropped it
                continue
            group.discard(each)
            if each.when > end:  # the deadline is beyond LONGEST
                self.join(each)
                continue
            try:
                each.ring()
            except Exception as error:
                log_survived("what is done at a deadline", error)


_known: tuple[Deadlines, asyncio.AbstractEventLoop] | None = None
"""The most recently used Deadlines and their event loop. They form a single value that is replaced atomically, because
several threads can each have a loop.
"""


def deadlines() -> Deadlines:
    """Return the deadlines of the running loop."""
    global _known
    loop, known = asyncio.get_running_loop(), _known
    if known is None or known[1] is not loop:
        _known = known = Deadlines(loop), loop
    return known[0]


class TimeLimit:
    """A limit of the same number of seconds for many calls. Calls reach the limit in the order in which they began, so
    one timer for the oldest call is enough. While calls end in time, the timer is set once per limit period.

        call = limit.begin(when, loop)
        try:
            ...
        except asyncio.CancelledError:
            if call.was_ended(): ...  # the time was over
            raise
        finally:
            limit.end(call)"""

    __slots__ = ("_has_timer", "_running")

    def __init__(self) -> None:
        self._running: dict[_LimitedCall, None] = {}
        """The running calls, the oldest first."""
        self._has_timer = False

    async def wait(
        self, when: float, loop: asyncio.AbstractEventLoop, awaitable: Awaitable[T], too_late: Callable[[], Exception]
    ) -> T:
        """Same as `wait_until`, but `when` must be the current time on the clock of `loop` plus the limit's seconds."""
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
        """Start a call: cancel the current task at `when`, on the clock of `loop`, unless `end` is called first.

        `when` must be the current time plus the limit's seconds."""
        task = asyncio.current_task(loop)
        assert task is not None
        call = _LimitedCall(when, task)
        self._running[call] = None
        if not self._has_timer:
            self._has_timer = True
            loop.call_at(when, self._ring, loop)
        return call

    def end(self, call: "_LimitedCall") -> None:
        """Record that the call has ended."""
        self._running.pop(call, None)
        if call.has_rung:  # the awaited operation ended by itself before it was cancelled
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
    """Return the result of `awaitable` if it arrives before `when` (on the loop's clock), otherwise cancel `awaitable`.

    Raises:
        Exception: the exception that `too_late` returns, if the result did not arrive in time.
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
        if limit.has_rung:  # the awaited operation ended by itself before it was cancelled
            task.uncancel()
        else:
            limit.group.discard(limit)


class _LimitedCall:
    """A call whose task is cancelled at the end of the time limit."""

    __slots__ = ("_cancelling", "has_rung", "task", "when")

    def __init__(self, when: float, task: "asyncio.Task[Any]") -> None:
        self.when = when
        self.task = task
        self.has_rung = False
        """True if the timer cancelled the task, and the call has not handled the cancellation yet."""
        self._cancelling = task.cancelling()
        """Number of times the task had been cancelled before the call began."""

    def ring(self) -> None:
        """Cancel the task because the time limit has passed."""
        self.has_rung = True
        self.task.cancel()

    def was_ended(self) -> bool:
        """Return whether the task was cancelled only because the time limit had passed."""
        if not self.has_rung:
            return False
        self.has_rung = False
        return self.task.uncancel() <= self._cancelling


class _GroupedCall(_LimitedCall):
    __slots__ = ("group",)

    group: set[Ring]
