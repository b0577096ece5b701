"""An event loop in which no time passes: when it has nothing to do, its clock jumps to the next timer."""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._seconds = 100.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self._seconds

    def jump(self, seconds: float) -> None:
        self._seconds += seconds


class _Jumping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None, "everything waits, and no timer is set"
        self._loop.jump(timeout)
        return super().select(0)


class VirtualClock:
    """A Clock of the loop's time. `late` is how late it wakes."""

    def __init__(self, late: float = 0.0) -> None:
        self._loop = asyncio.get_running_loop()
        self._late = late
        self._timer: asyncio.TimerHandle | None = None

    def now(self) -> float:
        return self._loop.time()

    def start(self, awake: Callable[[], None]) -> None:
        self._awake = awake

    def wake_at(self, when: float) -> None:
        self.close()
        self._timer = self._loop.call_at(when + self._late, self._awake)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def in_virtual_time(program: Coroutine[Any, Any, T]) -> T:
    """What the program returns, at once, however long it waits."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(program)
