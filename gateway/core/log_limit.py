"""A limit on log lines about events that clients or servers can cause arbitrarily often."""

import logging
from collections.abc import Callable, Hashable
from time import monotonic

LINES = 10
SECONDS = 60.0
MOST_KEYS = 1000
_LEFT_OUT = "(%d more of these were not logged)"


class LogLimit:
    """Writes at most `lines` log lines per key in an interval of `seconds` seconds.

    The first line after an interval contains the number of omitted lines.

    A key identifies the subject of a line, such as an endpoint or a listener. Only the last `MOST_KEYS` keys are
    stored, so keys must not come from clients."""

    def __init__(
        self,
        log: logging.Logger,
        lines: int = LINES,
        seconds: float = SECONDS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._log = log
        self._lines = lines
        self._seconds = seconds
        self._clock = clock
        self._intervals: dict[Hashable, _Interval] = {}

    def write(self, key: Hashable, level: int, text: str, *values: object, error: BaseException | None = None) -> None:
        """Log `text % values` at `level`, unless the limit for `key` is exceeded. If `error` is set, also log its
        traceback."""
        if (left_out := self._take(key)) is None:
            return
        if left_out:
            text, values = f"{text} {_LEFT_OUT}", (*values, left_out)
        self._log.log(level, text, *values, exc_info=error)

    def passes(self, record: logging.LogRecord) -> bool:
        """Return whether to write a library's log line. Add this method to the library's logger as a filter.

        The key is the line's format string, without the values."""
        if (left_out := self._take(record.msg)) is None:
            return False
        if left_out:
            record.msg, record.args = f"{record.getMessage().rstrip()} {_LEFT_OUT % left_out}", None
        return True

    def _take(self, key: Hashable) -> int | None:
        """Return the number of lines for `key` that were omitted before this line; None if this line exceeds the
        limit."""
        now = self._clock()
        left_out = 0
        interval = self._intervals.get(key)
        if interval is None or now >= interval.end:
            if interval is not None:
                left_out = interval.left_out
            self._intervals.pop(key, None)
            interval = self._intervals[key] = _Interval(now + self._seconds)
            if len(self._intervals) > MOST_KEYS:
                del self._intervals[next(iter(self._intervals))]
        if interval.written < self._lines:
            interval.written += 1
            return left_out
        interval.left_out += 1
        return None


class _Interval:
    """The numbers of lines for one key in the current interval, which ends at `end`."""

    __slots__ = ("end", "left_out", "written")

    def __init__(self, end: float) -> None:
        self.end = end
        self.written = 0
        self.left_out = 0
