"""The load generator, a process of its own: one Load per line on standard input, one Result per line back.

Bare connections that send the same bytes and only count those of the replies, so that it takes little from the
two cores that it shares with what is measured.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any, cast

import grpc.aio
import uvloop

SECONDS = 60.0
"""A run that takes longer is broken off: something hangs."""

FRAME_HEADER = 12

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Load:
    address: str
    """`host:port`."""
    request: str
    """The whole request, ASCII; of a gRPC method its message, and a frame, as base64."""
    requests: int
    in_flight: int
    keep_alive: bool
    """Otherwise a new connection for every request."""
    method: str = ""
    """Of gRPC: `/package.Service/Method`."""
    framed: bool = False
    """The request is a frame of baidu_std, and so are the replies."""


@dataclass(frozen=True)
class Result:
    body: str
    """Of every reply; base64 if it is gRPC's or a frame's."""
    microseconds: list[float]
    """From the first byte sent, or the connection asked for where it is a new one, to the last byte received."""


class LoadError(Exception):
    """A reply is not 200, has no Content-Length, or another body than the one before; or the connection was lost."""


class Run:
    """One Load being sent. `connect` makes one of its connections; `done` is set when the last reply is there."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.request = base64.b64decode(load.request) if load.framed else load.request.encode("ascii")
        self.left = load.requests
        self.microseconds: list[float] = []
        self.body = b""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._connecting: set[asyncio.Task[object]] = set()

    def begin(self) -> bool:
        """Whether there is another request to send."""
        self.left -= 1
        return self.left >= 0

    def connect(self) -> None:
        host, port = self.load.address.rsplit(":", 1)
        begun = time.perf_counter()
        opening = asyncio.get_running_loop().create_connection(lambda: Caller(self, begun), host, int(port))
        task = asyncio.ensure_future(opening)
        self._connecting.add(task)
        task.add_done_callback(self._connected)

    def _connected(self, task: asyncio.Task[object]) -> None:
        self._connecting.discard(task)
        if error := task.exception():
            self.fail(str(error))

    def answered(self, seconds: float, body: bytes) -> None:
        self.microseconds.append(seconds * 1e6)
        self.body = self.body or body
        # Triton writes the parameters of an ensemble's replies in any order.
        if body != self.body and sorted(body) != sorted(self.body):
            self.fail(f"expected the reply {self.body!r} again, got {body!r}")
        if len(self.microseconds) == self.load.requests and not self.done.done():
            self.done.set_result(None)

    def fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(LoadError(f"{self.load.address}: {why}"))


class Caller(asyncio.Protocol):
    """One connection, with one request in flight."""

    def __init__(self, run: Run, begun: float) -> None:
        self._run = run
        self._begun = begun
        self._waiting = True
        self._received: list[bytes] = []
        self._missing = -1  # bytes of the reply; negative until its head tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._run.request)

    def data_received(self, data: bytes) -> None:
        self._received.append(data)
        if self._missing < 0:
            data = b"".join(self._received)
            head = self._head(data)
            if not head:
                return
            self._missing = head + self._length(data, head)
            self._received = [data]
        self._missing -= len(data)
        if self._missing <= 0:
            self._finish(b"".join(self._received))

    def connection_lost(self, error: Exception | None) -> None:
        if self._waiting:
            self._run.fail(f"connection lost, {error or 'closed by the server'}")

    def _head(self, data: bytes) -> int:
        """Its size; 0 until it is there."""
        if self._run.load.framed:
            return FRAME_HEADER if len(data) >= FRAME_HEADER else 0
        end = data.find(b"\r\n\r\n")
        return end + 4 if end >= 0 else 0

    def _length(self, data: bytes, head: int) -> int:
        if self._run.load.framed:
            return int.from_bytes(data[4:8])
        found = _LENGTH.search(data, 0, head)
        if not data.startswith(b"HTTP/1.1 200 ") or found is None:
            self._run.fail(f"expected a 200 of a known length, got {data!r}")
            return 0
        return int(found[1])

    def _finish(self, reply: bytes) -> None:
        run, now = self._run, time.perf_counter()
        self._waiting, self._received, self._missing = False, [], -1
        run.answered(now - self._begun, reply if run.load.framed else reply.partition(b"\r\n\r\n")[2])
        if run.load.keep_alive:
            self._again()
        else:
            self._transport.close()
            if run.begin():
                run.connect()

    def _again(self) -> None:
        if self._run.begin():
            self._waiting, self._begun = True, time.perf_counter()
            self._transport.write(self._run.request)
        else:
            self._transport.close()


async def call(run: Run, method: Any, request: bytes) -> None:
    """One call of gRPC after the other."""
    while run.begin():
        begun = time.perf_counter()
        try:
            body = await method(request)
        except grpc.aio.AioRpcError as error:
            run.fail(str(error.details()))
            return
        run.answered(time.perf_counter() - begun, body)


async def send_grpc(load: Load) -> Result:
    """Send a Load of gRPC's, all on one connection, and wait for all of it."""
    run, request = Run(load), base64.b64decode(load.request)
    async with asyncio.timeout(SECONDS), grpc.aio.insecure_channel(load.address) as channel:
        method = channel.unary_unary(load.method)
        await asyncio.gather(*(call(run, method, request) for _ in range(load.in_flight)))
        await run.done
    return Result(base64.b64encode(run.body).decode(), run.microseconds)


async def send(load: Load) -> Result:
    """Send a Load and wait for all of it."""
    if load.method:
        return await send_grpc(load)
    run = Run(load)
    for _ in range(load.in_flight):
        if run.begin():
            run.connect()
    async with asyncio.timeout(SECONDS):
        await run.done
    return Result(base64.b64encode(run.body).decode() if load.framed else run.body.decode(), run.microseconds)


def main() -> None:
    # Not sys.stdout: with PYTHONUNBUFFERED it loses what one write to the pipe did not take.
    with open(sys.stdout.fileno(), "w", closefd=False) as results:
        for line in sys.stdin:
            result = uvloop.run(send(Load(**json.loads(line))))
            print(json.dumps(asdict(result)), file=results, flush=True)


if __name__ == "__main__":
    main()
