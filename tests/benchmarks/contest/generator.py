"""The load generator, a process of its own: `python -m tests.benchmarks.contest.generator`.

Each load is two lines on standard input: a Load, which connects and warms up and is answered by a line, and `go`,
which is answered by a Result. So what connecting costs is not measured. An empty line instead ends the load without an
answer.

Without a rate, each connection (of gRPC each stream) sends the next request when it has the reply: this tells how many
requests are answered. With a rate, requests are due at random times of that rate whether or not replies come, and the
latency counts from the time when the request was due: a server that stands still is charged for all that wait.
Connections carry prepared bytes; replies are counted, and their lengths compared.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import resource
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar, cast

import uvloop

from gateway.tools.bench.clock import real_clock
from tests.benchmarks.contest.http2 import DATA, END_STREAM, PREFACE, Connection, fields, frame, message, request_head

GRACE = 60.0
"""Seconds after the end of a load in which the last reply must arrive."""
FRAME_HEADER = 12
STREAMS = 64
"""In flight on one connection of gRPC."""

Kind = TypeVar("Kind", bound=asyncio.BaseProtocol)

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Load:
    address: str
    """`host:port`."""
    requests: list[str]
    """Files, sent in turns: of HTTP/1.1 whole requests, of gRPC the messages."""
    in_flight: int
    seconds: float
    method: str = ""
    """Of gRPC: `/package.Service/Method`."""
    framed: bool = False
    """Requests are frames of baidu_std, and so are the replies."""
    reconnects: bool = False
    """A new connection for every request."""
    rate: float = 0.0
    """Requests per second; 0 without a pause."""
    warm_up: int = 0
    """Requests before."""
    reply: str = ""
    """A file that gets the body of the first reply."""


@dataclass(frozen=True)
class Result:
    answered: int
    seconds: float
    latencies: dict[str, float] = field(default_factory=dict)
    """Microseconds: `p50`, `p99`, `p99.9`, `max`."""
    busy: float = 0.0
    """The CPU that the generator took, by the time: near 1 it measured itself."""
    peak_waiting: int = 0
    """The most requests that were due and found no connection free."""


class LoadError(Exception):
    """A reply is no success, or its length differs from that of an earlier reply to the same request."""


class Channel(Protocol):
    """What carries one request at a time."""

    due: float

    def send(self, index: int) -> None:
        """Send the request of that number."""


class Http(asyncio.Protocol):
    """One connection of HTTP/1.1."""

    def __init__(self, run: Run, channel: Channel | None = None) -> None:
        """`channel` is what has a new connection for every request."""
        self._run = run
        self._channel = channel
        self.due = 0.0
        self._index = -1
        self._parts: list[bytes] = []
        self._missing = -1  # bytes of the body; negative until the head is there

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self, index: int) -> None:
        self._index = index
        self._transport.write(self._run.requests[index])

    def data_received(self, data: bytes) -> None:
        if self._missing >= 0:
            self._missing -= len(data)
            self._parts.append(data)
        else:
            if self._parts:
                data = b"".join((*self._parts, data))
            begin = self._body(data)
            if begin < 0:
                self._parts = [data]
                return
            self._missing = self._length - (len(data) - begin)
            self._parts = [data[begin:]]
        if self._missing <= 0:
            parts, self._parts, self._missing = self._parts, [], -1
            index, self._index = self._index, -1
            if self._channel:
                self._transport.close()
            self._run.answered(self._channel or self, index, self._length, parts)

    def _body(self, data: bytes) -> int:
        """Where the body begins; negative until that is there. Sets the body's length."""
        end = data.find(b"\r\n\r\n")
        if end >= 0:
            length = _LENGTH.search(data, 0, end + 2)
            if not data.startswith(b"HTTP/1.1 200 ") or length is None:
                self._run.fail(f"expected a 200 with a Content-Length, got {data[:500]!r}")
                return -1
            self._length = int(length[1])
        return end + 4 if end >= 0 else -1

    def connection_lost(self, error: Exception | None) -> None:
        if self._index >= 0:
            self._run.fail(f"connection lost, {error or 'closed by the server'}")


class Brpc(Http):
    """One connection of baidu_std."""

    def _body(self, data: bytes) -> int:
        if len(data) < FRAME_HEADER:
            return -1
        self._length = FRAME_HEADER + int.from_bytes(data[4:8])
        return 0


class Reconnecting:
    """A new connection for every request."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.due = 0.0

    def send(self, index: int) -> None:
        self._task = asyncio.ensure_future(self._send(index))

    async def _send(self, index: int) -> None:
        try:
            _, http = await self._run.connect(lambda: Http(self._run, self))
        except OSError as error:
            self._run.fail(str(error))
        else:
            http.send(index)


class Stream:
    """One place for a call on a connection of gRPC."""

    def __init__(self, connection: Grpc) -> None:
        self._connection = connection
        self.due = 0.0
        self.index = -1
        self.parts: list[bytes] = []

    def send(self, index: int) -> None:
        self.index, self.parts = index, []
        self._connection.call(self)


class Grpc(Connection):
    def __init__(self, run: Run) -> None:
        super().__init__(PREFACE)
        self._run = run
        self._head = request_head(run.load.address, run.load.method)
        self._next = 1
        self._calls: dict[int, Stream] = {}

    def call(self, call: Stream) -> None:
        stream, self._next = self._next, self._next + 2
        self._calls[stream] = call
        self.send(stream, self._head, self._run.requests[call.index], frame(DATA, END_STREAM, stream))

    def headers(self, stream: int, block: bytes) -> None:
        if (status := fields(block).get("grpc-status", "0")) != "0":
            self._run.fail(f"status {status}, {fields(block).get('grpc-message', '')}")

    def data(self, stream: int, payload: bytes) -> None:
        self._calls[stream].parts.append(payload)

    def ended(self, stream: int) -> None:
        self.close_stream(stream)
        call = self._calls.pop(stream)
        parts, call.parts = call.parts, []
        self._run.answered(call, call.index, sum(map(len, parts)), parts)

    def broken(self, why: str) -> None:
        self._run.fail(why)

    def connection_lost(self, error: Exception | None) -> None:
        if self._calls:
            self._run.fail(f"connection lost, {error or 'closed by the server'}")


class Run:
    """One Load."""

    def __init__(self, load: Load) -> None:
        self.load = load
        bodies = [Path(name).read_bytes() for name in load.requests]
        self.requests = [message(body) for body in bodies] if load.method else bodies
        self._lengths: dict[int, int] = {}
        self._transports: list[asyncio.Transport] = []
        self._free: deque[Channel] = deque()
        self._channels: list[Channel] = []
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._latencies: list[float] = []
        self._sent = self._busy = self._left = 0
        self._again = False
        self._end = 0.0
        self._backlog: deque[float] = deque()
        self._peak = 0
        self._clock = real_clock()
        self._random = random.Random(1)
        self._next = 0.0

    async def prepare(self) -> None:
        if self.load.method:
            for first in range(0, self.load.in_flight, STREAMS):
                _, grpc = await self.connect(lambda: Grpc(self))
                self._transports.append(grpc.transport)
                self._channels += [Stream(grpc) for _ in range(min(STREAMS, self.load.in_flight - first))]
        elif self.load.reconnects:
            self._channels += [Reconnecting(self) for _ in range(self.load.in_flight)]
        else:
            for _ in range(self.load.in_flight):
                transport, http = await self.connect(lambda: (Brpc if self.load.framed else Http)(self))
                self._transports.append(transport)
                self._channels.append(http)
        await self._without_rate(count=max(self.load.warm_up, 1))

    async def connect(self, protocol: Callable[[], Kind]) -> tuple[asyncio.Transport, Kind]:
        host, port = self.load.address.rsplit(":", 1)
        return await self._loop.create_connection(protocol, host, int(port))

    async def measure(self) -> Result:
        self._latencies = []
        begun, used = time.monotonic(), _cpu()
        if self.load.rate:
            await self._with_rate()
        else:
            await self._without_rate(seconds=self.load.seconds)
        seconds = time.monotonic() - begun
        busy = (_cpu() - used) / seconds
        return Result(len(self._latencies), seconds, _quantiles(self._latencies), busy, self._peak)

    def close(self) -> None:
        self._clock.close()
        for transport in self._transports:
            transport.close()

    async def _without_rate(self, count: int = 0, seconds: float = 0.0) -> None:
        """Until there were `count`, or for `seconds`."""
        self._again, self._left = True, count or sys.maxsize
        self._end = time.monotonic() + (seconds or GRACE)
        self._done = self._loop.create_future()
        for channel in self._channels[:count] if count else self._channels:
            self._send(channel, time.monotonic())
        await self._wait(seconds)
        self._again = False

    async def _with_rate(self) -> None:
        self._free = deque(self._channels)
        self._done = self._loop.create_future()
        self._next = time.monotonic() + 0.001
        self._end = self._next + self.load.seconds
        self._clock.start(self._arrive)
        self._clock.wake_at(self._next)
        await self._wait(self.load.seconds)

    async def _wait(self, seconds: float) -> None:
        async with asyncio.timeout(seconds + GRACE):
            await self._done

    def _arrive(self) -> None:
        now = time.monotonic()
        while self._next <= now and self._next < self._end:
            if self._free:
                self._send(self._free.popleft(), self._next)
            else:
                self._backlog.append(self._next)
                self._peak = max(self._peak, len(self._backlog))
            self._next += self._random.expovariate(self.load.rate)
        if self._next < self._end:
            self._clock.wake_at(self._next)
        elif not self._busy and not self._backlog and not self._done.done():
            self._done.set_result(None)

    def _send(self, channel: Channel, due: float) -> None:
        self._left -= 1
        self._busy += 1
        channel.due = due
        index = self._sent % len(self.requests)
        self._sent += 1
        channel.send(index)

    def answered(self, channel: Channel, index: int, length: int, parts: list[bytes]) -> None:
        now = time.monotonic()
        self._latencies.append(now - channel.due)
        self._busy -= 1
        if self._lengths.setdefault(index, length) != length:
            self.fail(f"the reply to request {index} had {self._lengths[index]} bytes, and then {length}")
        if self._sent == 1 and self.load.reply:
            Path(self.load.reply).write_bytes(b"".join(parts))
        if self._again:
            if self._left > 0 and now < self._end:
                self._send(channel, now)
        elif self._backlog:
            self._send(channel, self._backlog.popleft())
        else:
            self._free.append(channel)
        if not self._busy and (self._again or self._next >= self._end) and not self._done.done():
            self._done.set_result(None)

    def fail(self, why: str) -> None:
        if not self._done.done():
            self._done.set_exception(LoadError(f"{self.load.address}: {why}"))


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _quantiles(seconds: list[float]) -> dict[str, float]:
    found = sorted(seconds)
    places = {"p50": 0.5, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    return {name: 1e6 * found[min(int(place * len(found)), len(found) - 1)] for name, place in places.items()}


async def serve(load: Load, go: Callable[[], str], say: Callable[[object], None]) -> None:
    run = Run(load)
    try:
        await run.prepare()
        say("ready")
        if go().strip():
            say(asdict(await run.measure()))
    except (LoadError, OSError, TimeoutError) as error:
        say({"error": f"{type(error).__name__}: {error}"})
    finally:
        run.close()


def main() -> None:
    # Not sys.stdout: with PYTHONUNBUFFERED it loses what one write to the pipe did not take.
    with open(sys.stdout.fileno(), "w", closefd=False) as results:

        def say(document: object) -> None:
            print(json.dumps(document), file=results, flush=True)

        for line in sys.stdin:
            uvloop.run(serve(Load(**json.loads(line)), sys.stdin.readline, say))


if __name__ == "__main__":
    main()
