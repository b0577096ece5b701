"""Clocks that the test sets."""

import asyncio


class Clock:
    """Tells `now`."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class LoopClock:
    """The clock of the running loop, which a test can move: what has a time limit reaches it at once, and no machine is
    too slow for it. Make it before the objects that use the loop's clock."""

    def __init__(self) -> None:
        self._ahead = 0.0
        loop = asyncio.get_running_loop()
        time = loop.time
        vars(loop)["time"] = lambda: time() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += seconds
