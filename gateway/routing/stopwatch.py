"""A stopwatch: how long something took, without the times in which it stood still."""

from collections.abc import Callable


class Stopwatch:
    """Runs from the beginning on `clock`, which tells seconds."""

    __slots__ = ("_clock", "_seconds", "_since")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._since: float | None = clock()

    def stop(self) -> float:
        """Stand still. Returns the seconds that it has run; it may have been stopped before."""
        if self._since is not None:
            self._seconds += self._clock() - self._since
            self._since = None
        return self._seconds

    def go_on(self) -> None:
        """Run on."""
        self._since = self._clock()
