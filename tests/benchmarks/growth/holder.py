"""`python -m tests.benchmarks.growth.holder HOST:PORT COUNT SLOW [FILE]`: so many connections, kept open, a process of
its own. Each sends the request in FILE first and reads its reply; SLOW of them begin a request then, and send a byte a
second. It prints a line once all are there, and leaves with its standard input; then it prints how many were closed
meanwhile."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from tests.attacks.clients import post
from tests.peers.build import ROOT

BATCH = 200
"""Connections that are opened at once."""


@contextmanager
def held(address: str, count: int, request: Path | None = None, slow: int = 0) -> Iterator[None]:
    """Raises AssertionError if a connection is not answered, or is closed before the end."""
    command = [sys.executable, "-m", "tests.benchmarks.growth.holder", address, str(count), str(slow)]
    if request is not None:
        command.append(str(request))
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        yield
        closed, _ = child.communicate()
        assert closed == "closed: 0\n", f"{address}: {closed}"


class Member(asyncio.Protocol):
    closed = 0

    def __init__(self) -> None:
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if not self.answered.done():
            assert data.startswith(b"HTTP/1.1 200 "), data[:500]
            self.answered.set_result(None)

    def connection_lost(self, error: Exception | None) -> None:
        Member.closed += 1


_BEGUN = (
    b"POST /v2/models/identity/infer HTTP/1.1\r\nHost: a\r\nX: ",
    post("/v2/models/identity/infer", bytes(1000))[:-1000],
)
"""What slow connections have sent, in turns: the beginning of a head, and a head whose body is still to come."""


async def _hold(address: str, count: int, slow: int, request: bytes) -> None:
    host, port = address.split(":")
    loop, left = asyncio.get_running_loop(), asyncio.Event()

    async def connect() -> asyncio.Transport:
        transport, member = await loop.create_connection(Member, host, int(port))
        if request:
            transport.write(request)
            await asyncio.wait_for(member.answered, 60)
        return transport

    members: list[asyncio.Transport] = []
    while len(members) < count:
        members += await asyncio.gather(*(connect() for _ in range(min(BATCH, count - len(members)))))
    for at, member in enumerate(members[:slow]):
        member.write(_BEGUN[at % 2])
    loop.add_reader(sys.stdin.fileno(), left.set)
    print("ready", flush=True)
    begun, sent = loop.time(), 0
    while slow and not left.is_set():
        # Each sends one byte a second; clients that know nothing of each other do not send at the same time.
        while sent < (loop.time() - begun) * slow:
            members[sent % slow].write(b"x")
            sent += 1
        await asyncio.sleep(1 / slow)
    await left.wait()
    print(f"closed: {Member.closed}", flush=True)


def main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    address, count, slow, *files = sys.argv[1:]
    uvloop.run(_hold(address, int(count), int(slow), Path(files[0]).read_bytes() if files else b""))


if __name__ == "__main__":
    main()
