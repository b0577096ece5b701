"""Sends requests on a schedule or one after another, and measures them. `running` starts a Load in each process.

In an open loop, the schedule does not wait for the server. Each request's latency is measured from its scheduled time,
even if the generator sends the request late because too many others are in flight. If a server stalls for a second, all
requests scheduled in this second show the stall. In a closed loop, each of `in_flight` clients sends its next request
after the response to the previous one. If a server stalls, only `in_flight` requests are slow.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from math import inf
from typing import Literal, TypeAlias

from gateway.core.frozen import frozen, replace
from gateway.tools.bench.clock import Clock
from gateway.tools.bench.measured import Measured

Arrivals: TypeAlias = Literal["poisson", "constant"]
"""`poisson`: random times, like requests from many independent clients. `constant`: equal intervals."""

Send: TypeAlias = Callable[[], Awaitable[int]]
"""Sends a request, waits for the response, and returns the size of the response in bytes. Raises CallFailed."""

GRACE = 0.05
"""Seconds after the end during which the generator, which can wake up late, still sends requests that were due before
the end."""


class CallFailed(Exception):  # noqa: N818 - as the errors of the client
    """The request received an error, or no response. `status` is a short form of the error; `str()` returns a
    sentence."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


@frozen
class Plan:
    """The amount and duration of the load. The load ends after `seconds` or `requests`, whichever comes first; None
    means no limit.

    - `rate`: Requests per second; 0 selects a closed loop.
    - `in_flight`: Maximum number of concurrent requests; in a closed loop, the constant number of concurrent requests.
    - `warmup`: Seconds before the measurement. Requests scheduled during the warm-up do not count.
    - `share`, `shares`: The index of this generator, and the number of generators.
    """

    rate: float
    arrivals: Arrivals
    in_flight: int
    seconds: float | None
    requests: int | None
    warmup: float
    seed: int = 0
    share: int = 0
    shares: int = 1

    def part(self, share: int, shares: int) -> "Plan":
        """Return the plan of one of several generators, which together generate the load of this plan."""
        requests = None if self.requests is None else _part(self.requests, share, shares)
        in_flight = _part(self.in_flight, share, shares)
        return replace(self, in_flight=in_flight, requests=requests, share=share, shares=shares)


def _part(number: int, share: int, shares: int) -> int:
    return number // shares + (share < number % shares)


class Load:
    """One run. To read `measured` during the run, first call `Measured.settle`."""

    def __init__(self, plan: Plan, send: Send, clock: Clock, request_bytes: int = 0) -> None:
        self.measured = Measured()
        self._plan = plan
        self._send = send
        self._clock = clock
        self._now = clock.now
        self._request_bytes = request_bytes
        self._left = inf if plan.requests is None else plan.requests
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    async def run(self) -> Measured:
        """Send the requests, wait for the responses, and return the measurements."""
        plan = self._plan
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._start = self._now()
        self._first = self._start + plan.warmup
        self._end = inf if plan.seconds is None else self._first + plan.seconds
        self._last = self._first
        self._schedule(self._start if plan.warmup else self._first)
        self._cpu = time.process_time()
        self._clock.start(self._awake)
        try:
            if plan.rate:
                self._awake()
            else:
                for _ in range(plan.in_flight):
                    if (begin := self._take()) is not None:
                        self._begin(begin)
                self._end_if_idle()
            await self._over
        except BaseException:
            self._is_stopped = True
            raise
        finally:
            self._clock.close()
            for task in self._tasks:
                task.cancel()
        self._finish()
        return self.measured

    def stop(self) -> None:
        """Stop sending without waiting for responses. `run` then returns the current measurements."""
        self._is_stopped = True
        if not self._over.done():
            self._over.set_result(None)

    def _awake(self) -> None:
        """Send the requests that are due, up to the limit, and set the clock."""
        while len(self._tasks) < self._plan.in_flight and (due := self._take()) is not None:
            self._begin(due)
        if len(self._tasks) < self._plan.in_flight and not self._is_over():
            # If the limit is reached, the due request is sent when a request ends.
            self._clock.wake_at(self._next)
        self._end_if_idle()

    def _schedule(self, start: float) -> None:
        """Begin the schedule of the warm-up or the measurement at `start`. The measurement does not send late warm-up
        requests."""
        plan = self._plan
        self._next = self._from = start
        if plan.rate:
            self._times = arrivals(plan.arrivals, plan.rate, seed=plan.seed, share=plan.share, shares=plan.shares)
            self._next += next(self._times)

    def _take(self) -> float | None:
        """Return the scheduled time of the next request, or None if the request is not due yet or the run is over."""
        if self._is_over():
            return None
        now = self._now()
        if not self._plan.rate:
            due = now
        elif (due := self._next) > now:
            return None
        else:
            self._next = self._from + next(self._times)
            if due < self._first <= max(now, self._next):
                self._schedule(self._first)
        if due >= self._first:
            self._left -= 1
        return due

    def _is_over(self) -> bool:
        if self._left <= 0 or self._is_stopped:
            return True
        if self._plan.rate:
            return self._next >= self._end or self._now() >= self._end + GRACE
        return self._now() >= self._end

    def _end_if_idle(self) -> None:
        if not self._tasks and self._is_over() and not self._over.done():
            self._over.set_result(None)

    def _begin(self, due: float) -> None:
        task = asyncio.ensure_future(self._work(due))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self._over.done():
            self._is_stopped = True
            self._over.set_exception(error)
        if self._plan.rate:
            self._awake()
        else:
            self._end_if_idle()

    async def _work(self, due: float | None) -> None:
        """Send a request, and after the response, send the requests that have become due."""
        waited = False
        while due is not None:
            await self._call(due, waited=waited)
            waited = bool(self._plan.rate) and len(self._tasks) >= self._plan.in_flight
            due = self._take()

    async def _call(self, due: float, *, waited: bool) -> None:
        """Send the request scheduled for `due`. `waited` is True if the limit delayed the request."""
        counts, measured = due >= self._first, self.measured
        sent = self._now()
        lag = 0.0 if waited else sent - due
        try:
            size = await self._send()
        except CallFailed as error:
            if counts:
                self._last = self._now()
                measured.fail(error.status, str(error), self._last - due, lag)
        else:
            if counts:
                self._last = end = self._now()
                measured.succeed(end - due, end - sent, lag)
                measured.received_bytes += size
        if counts:
            measured.waited += waited
            measured.sent_bytes += self._request_bytes

    def _finish(self) -> None:
        measured, now = self.measured, self._now()
        measured.settle()
        measured.cut = len(self._tasks)
        if self._is_stopped:
            measured.seconds = max(0.0, now - self._first)
        else:
            measured.seconds = max(self._last, self._end if self._left > 0 else 0.0) - self._first
        cpu = time.process_time() - self._cpu
        measured.cpu = cpu * measured.seconds / whole if (whole := now - self._start) else 0.0
        if not self._is_stopped and self._plan.rate and self._end < inf:
            while self._left > 0 and self._next < self._end:
                self._left -= 1
                measured.unsent += 1
                self._next = self._from + next(self._times)


def arrivals(kind: Arrivals, rate: float, *, seed: int = 0, share: int = 0, shares: int = 1) -> Iterator[float]:
    """Yield the send times, in seconds from the start, of one of `shares` generators, which together send `rate`
    requests per second. The iterator never ends."""
    if kind == "constant":
        return (each / rate for each in count(share, shares))
    return _poisson(rate / shares, random.Random(f"{seed} {share}"))


def _poisson(rate: float, chance: random.Random) -> Iterator[float]:
    """Yield times of a Poisson process. The sum of independent Poisson processes is a Poisson process with the summed
    rate, so each share draws its own times."""
    now = 0.0
    while True:
        now += chance.expovariate(rate)
        yield now
