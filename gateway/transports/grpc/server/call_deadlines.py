"""The deadlines of a connection's calls."""

import asyncio
from collections.abc import Mapping
from math import inf

from gateway.core.alarm import Alarm
from gateway.core.http2.connection import Stream
from gateway.core.surviving import log_and_continue


class CallDeadlines:
    """Calls `ring` of each call in `streams` whose deadline has come (`ServerCall.due`).

    The end of a call does not change the timer. Most calls end long before their deadlines, so an occasional check of
    all calls costs less than a step for each call."""

    def __init__(self, loop: asyncio.AbstractEventLoop, streams: Mapping[int, Stream]) -> None:
        self.next_due = inf
        """The time of the next ring, on the loop's clock; infinity without deadlines."""
        self._loop = loop
        self._streams = streams
        self._alarm = Alarm(loop, self._ring)

    def ring_at(self, when: float) -> None:
        """Ring the calls that are due at the time `when`, which is before `next_due`."""
        self.next_due = when
        self._alarm.set(when - self._loop.time())

    def stop(self) -> None:
        """Stop ringing."""
        self._alarm.stop()

    def _ring(self) -> None:
        now, self.next_due = self._loop.time(), inf
        for stream in list(self._streams.values()):
            call = stream.handler
            if call is not None and call.due is not None and call.due <= now:
                with log_and_continue("telling a gRPC call that it is due"):
                    call.ring()
        calls = [stream.handler for stream in self._streams.values() if stream.handler is not None]
        first: float = min((call.due for call in calls if call.due is not None), default=inf)
        if first < inf:
            self.ring_at(first)
