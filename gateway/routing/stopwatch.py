"""A stopwatch that can be paused."""

from collections.abc import Callable


class Stopwatch:
    """A stopwatch that runs from its creation, on `clock`, which returns seconds."""

    __slots__ = ("_clock", "_seconds", "_since")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._since: float | None = clock()

    def stop(self) -> float:
        """Pause the stopwatch if it is running. Return the seconds that it has run in total."""
        if self._since is not None:
            self._seconds += self._clock() - self._since
            self._since = None
        return self._seconds

    def go_on(self) -> None:
        """Resume the stopwatch."""
        self._since = self._clock()
