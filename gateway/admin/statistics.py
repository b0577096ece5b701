"""How the requests of one listener went, second by second: what its page of metrics shows."""

import os
import resource
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from time import process_time

from gateway.core.frozen import replace
from gateway.core.protocol import Protocol
from gateway.core.transport import Exchanges
from gateway.core.types import Message

SECONDS = 120
MOST_LATENCIES = 4096
"""The latest requests, whose latencies the percentiles are of."""

_STATM = Path("/proc/self/statm")
_PAGE, _MEMORY = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class _Second:
    """What ended within one second. Latencies in seconds."""

    __slots__ = ("busy", "count", "cpu", "failed", "longest", "memory")

    def __init__(self) -> None:
        self.count = self.failed = 0
        self.busy = self.longest = self.cpu = self.memory = 0.0


class Statistics:
    """Series of the last `SECONDS` seconds, the oldest first, the running second left out.

    Nothing runs in between: the seconds that passed are filled in when something is noted or read, and what the process
    used in them is spread evenly over them.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        cpu: Callable[[], float] = process_time,
        memory: Callable[[], float] = lambda: _resident() / _MEMORY,
    ) -> None:
        self._clock = clock
        self._cpu = cpu
        self._memory = memory
        self._seconds: deque[_Second] = deque((_Second() for _ in range(SECONDS)), SECONDS)
        self._now = _Second()
        self._began = int(clock())
        self._cpu_then = cpu()
        self._latencies: deque[tuple[int, float]] = deque(maxlen=MOST_LATENCIES)

    def counted(self, exchanges: Exchanges) -> Exchanges:
        """`exchanges`, each of which is counted but those of the page itself. A status of 400 and above, and a client
        that left, count as failed; a stream takes as long as its last message."""

        def exchange(message: Message, protocol: Protocol) -> Message | Awaitable[Message]:
            if message.pattern in protocol.pages:
                return exchanges.exchange(message, protocol)
            started = self._clock()
            reply = exchanges.exchange(message, protocol)
            if not isinstance(reply, Message):
                return self._awaited(reply, started)
            self.note(started, failed=reply.status >= 400)
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
                self.note(started, failed=failed)

        return replace(exchanges, exchange=exchange, stream=stream)

    async def _awaited(self, reply: Awaitable[Message], started: float) -> Message:
        failed = True
        try:
            message = await reply
            failed = message.status >= 400
            return message
        finally:
            self.note(started, failed=failed)

    def note(self, started: float, *, failed: bool) -> None:
        """One request, begun at `started` on the clock, has ended."""
        self._advance()
        latency = self._clock() - started
        now = self._now
        now.count += 1
        now.failed += failed
        now.busy += latency
        now.longest = max(now.longest, latency)
        self._latencies.append((self._began, latency))

    def series(self) -> Mapping[str, tuple[float, ...]]:
        """Each series by its name; of `*latency_cdf(ms)` the percentiles 1 to 100. CPU is of one core."""
        self._advance()
        seconds = self._seconds
        return {
            "*qps": tuple(float(each.count) for each in seconds),
            "*fail_rate(%)": tuple(100 * each.failed / max(each.count, 1) for each in seconds),
            "*latency_avg(ms)": tuple(1000 * each.busy / max(each.count, 1) for each in seconds),
            "*latency_max(ms)": tuple(1000 * each.longest for each in seconds),
            "*latency_cdf(ms)": self._percentiles(),
            "*cpu_usage(%)": tuple(100 * each.cpu for each in seconds),
            "*mem_usage(%)": tuple(100 * each.memory for each in seconds),
        }

    def _percentiles(self) -> tuple[float, ...]:
        oldest = self._began - SECONDS
        found = sorted(1000 * latency for second, latency in self._latencies if second >= oldest)
        if not found:
            return (0.0,) * 100
        return tuple(found[(len(found) * each + 99) // 100 - 1] for each in range(1, 101))

    def _advance(self) -> None:
        """Close the seconds that have passed."""
        passed = int(self._clock()) - self._began
        if passed <= 0:
            return
        used, memory = self._cpu(), self._memory()
        for _ in range(min(passed, SECONDS + 1)):
            self._now.cpu, self._now.memory = (used - self._cpu_then) / passed, memory
            self._seconds.append(self._now)
            self._now = _Second()
        self._cpu_then = used
        self._began += passed


def _resident() -> float:
    """Bytes of memory that the process has; where the system has no /proc, the most that it ever had."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
