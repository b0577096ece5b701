"""Limit the number of log lines about events that a client or a server can cause any number of times."""

import logging
from collections.abc import Callable, Hashable
from time import monotonic

LINES = 10
SECONDS = 60.0
MOST_KEYS = 1000
_LEFT_OUT = "(%d more of these were not logged)"


class LogLimit:
    """Writes at most `lines` log lines per key in `seconds` seconds.

    The first line after that time has the number of omitted lines.

    A key is the subject of a line, such as an endpoint or a listener. Keys must not come from clients, because only the
    last `MOST_KEYS` keys are stored."""

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
        """Log `text % values` at `level`, with the traceback of `error` if it is set, unless the limit for lines about
        `key` is exceeded."""
        if (left_out := self._take(key)) is None:
            return
        if left_out:
            text, values = f"{text} {_LEFT_OUT}", (*values, left_out)
        self._log.log(level, text, *values, exc_info=error)

    def passes(self, record: logging.LogRecord) -> bool:
        """Return whether to write a library's log line, as a filter of the library's log.

        The text of the line, without its values, is the key."""
        if (left_out := self._take(record.msg)) is None:
            return False
        if left_out:
            record.msg, record.args = f"{record.getMessage().rstrip()} {_LEFT_OUT % left_out}", None
        return True

    def _take(self, key: Hashable) -> int | None:
        """Return the number of omitted lines about `key` before the line that the caller can write now; None if the
        line exceeds the limit."""
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
    """The lines about one key in the current interval, which ends at `end`."""

    __slots__ = ("end", "left_out", "written")

    def __init__(self, end: float) -> None:
        self.end = end
        self.written = 0
        self.left_out = 0
