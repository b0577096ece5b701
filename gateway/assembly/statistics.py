"""Collects the per-second request statistics of one listener, for the listener's metrics page."""

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from time import process_time

from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.protocol import Protocol
from gateway.core.statistics import Measurements, Metric, Series
from gateway.core.transport import EventualReply, Exchanges
from gateway.transports.memory import physical_memory, resident_memory

SECONDS = 120
"""The number of seconds that the page covers."""
MAX_LATENCIES = 4096
"""The number of recent requests from which the latency percentiles are computed."""


class _Second:
    """The statistics of the requests that ended within one second. `busy` is the sum of the latencies, and `longest` is
    the longest latency, in seconds. `cpu` and `memory` are fractions; `cpu` exceeds 1 if several cores are busy."""

    __slots__ = ("busy", "count", "cpu", "failed", "longest", "memory")

    def __init__(self) -> None:
        self.count = self.failed = 0
        self.busy = self.longest = self.cpu = self.memory = 0.0


class ListenerStatistics:
    """Counts requests, and returns Series for the last `SECONDS` seconds, oldest first, without the current second.

    The class needs no timer: recording a request or reading the Series appends the seconds since the last call. The CPU
    time that the process has used since the last call is divided evenly among these seconds."""

    def __init__(
        self,
        clock: Callable[[], float],
        cpu: Callable[[], float] = process_time,
        memory: Callable[[], float] = lambda: resident_memory() / physical_memory(),
    ) -> None:
        self._clock = clock
        self._cpu = cpu
        self._memory = memory
        self._passed: deque[_Second] = deque((_Second() for _ in range(SECONDS)), SECONDS)
        self._current = _Second()
        self._current_second = int(clock())
        self._cpu_before = cpu()
        self._latencies: deque[tuple[int, float]] = deque(maxlen=MAX_LATENCIES)

    def record_exchanges(self, exchanges: Exchanges) -> Exchanges:
        """Wrap `exchanges` to record each request, except requests for the metrics page itself.

        A request counts as failed if its status is 400 or higher, or if the client disconnected. The latency of a
        stream ends with its last message."""

        def exchange(message: Message, protocol: Protocol) -> EventualReply:
            if message.pattern in protocol.http.pages:
                return exchanges.exchange(message, protocol)
            started = self._clock()
            reply = exchanges.exchange(message, protocol)
            if not isinstance(reply, Message):
                return self._record_awaited(reply, started)
            self.record(started, failed=reply.status >= 400)
            return reply

        async def stream(messages: AsyncIterator[Message], protocol: Protocol) -> AsyncGenerator[Message, None]:
            started, failed = self._clock(), True
            try:
                async with aclosing(exchanges.stream(messages, protocol)) as replies:
                    worst = 0
                    async for reply in replies:
                        worst = max(worst, reply.status)
                        yield reply
                failed = worst >= 400
            finally:
                self.record(started, failed=failed)

        return replace(exchanges, exchange=exchange, stream=stream)

    async def _record_awaited(self, reply: Awaitable[Message], started: float) -> Message:
        failed = True
        try:
            message = await reply
            failed = message.status >= 400
            return message
        finally:
            self.record(started, failed=failed)

    def record(self, started: float, *, failed: bool) -> None:
        """Record a request that has just ended. `started` is the clock time at which it started."""
        self._advance()
        latency = self._clock() - started
        current = self._current
        current.count += 1
        current.failed += failed
        current.busy += latency
        current.longest = max(current.longest, latency)
        self._latencies.append((self._current_second, latency))

    def measurements(self) -> Measurements:
        """Return one Series of every Metric."""
        self._advance()
        seconds = self._passed
        series = (
            Series(Metric.REQUESTS, tuple(float(each.count) for each in seconds)),
            Series(Metric.FAILED, tuple(100 * each.failed / max(each.count, 1) for each in seconds)),
            Series(Metric.MEAN_LATENCY, tuple(1000 * each.busy / max(each.count, 1) for each in seconds)),
            Series(Metric.MAX_LATENCY, tuple(1000 * each.longest for each in seconds)),
            Series(Metric.LATENCY_PERCENTILES, self._percentiles()),
            Series(Metric.CPU_USAGE, tuple(100 * each.cpu for each in seconds)),
            Series(Metric.MEMORY_USAGE, tuple(100 * each.memory for each in seconds)),
        )
        return Measurements(series)

    def _percentiles(self) -> tuple[float, ...]:
        oldest = self._current_second - SECONDS
        latencies = sorted(1000 * latency for second, latency in self._latencies if second >= oldest)
        if not latencies:
            return (0.0,) * 100
        return tuple(latencies[(len(latencies) * percent + 99) // 100 - 1] for percent in range(1, 101))

    def _advance(self) -> None:
        """Append the seconds that have passed since the last call."""
        passed = int(self._clock()) - self._current_second
        if passed <= 0:
            return
        used, memory = self._cpu(), self._memory()
        for _ in range(min(passed, SECONDS + 1)):
            self._current.cpu, self._current.memory = (used - self._cpu_before) / passed, memory
            self._passed.append(self._current)
            self._current = _Second()
        self._cpu_before = used
        self._current_second += passed
