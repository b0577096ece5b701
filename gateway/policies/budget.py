"""A budget for the additional calls that a policy makes, such as retries."""

from collections.abc import Callable

SECONDS = 10.0
"""The length of one interval, in seconds. The budget counts the calls of the current and the previous interval."""

_LOOK = 8
"""The number of calls after which the budget reads the clock. The budget also reads the clock before it allows an
additional call."""


class Budget:
    """Limits the additional calls that a policy makes: at most `share` for each client call in the last 10 to 20 s,
    plus `least`.

    Without a budget, a server that fails because it is overloaded would receive several times as many calls."""

    __slots__ = ("_begin", "_calls", "_clock", "_earlier", "_share", "_spent", "least")

    def __init__(self, share: float, least: float, clock: Callable[[], float]) -> None:
        self.least = least
        self._share = share
        self._clock = clock
        self._begin = clock()
        self._calls = self._spent = 0
        self._earlier = 0.0
        """The unused part of the previous interval's share, which is negative if the interval used more than its
        share."""

    def add_call(self) -> None:
        """Count one client call."""
        self._calls += 1
        if not self._calls % _LOOK:
            self._advance()

    def spend(self) -> bool:
        """If the budget allows an additional call, count the call and return True. Otherwise, return False."""
        self._advance()
        if self.least + self._earlier + self._share * self._calls - self._spent < 1:
            return False
        self._spent += 1
        return True

    def _advance(self) -> None:
        passed = self._clock() - self._begin
        if passed < SECONDS:
            return
        left = self._share * self._calls - self._spent
        self._earlier = left if passed < 2 * SECONDS else 0.0
        self._begin += passed
        self._calls = self._spent = 0
