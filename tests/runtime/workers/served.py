"""Gateways with several workers, and clients for them."""

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from tests.cli.commands import started
from tests.limits import until
from tests.runtime.workers.counted import message


class Served:
    """A gateway in processes of its own. `ports` has the port of each line that it printed."""

    def __init__(self, process: "subprocess.Popen[str]", lines: list[str]) -> None:
        self.process = process
        found = (re.match(r"(\S+(?: \S+)?) +\S+?:(\d+) ", line) for line in lines)
        self.ports = {each[1]: int(each[2]) for each in found if each}

    async def until_workers(self, number: int) -> None:
        """Wait until so many workers run."""
        await until(lambda: len(self.workers) == number)

    @property
    def workers(self) -> set[int]:
        """The processes of the workers."""
        return {pid for pid in _children(self.process.pid) if b"gateway.runtime.workers" in _command(pid)}


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _children(pid: int) -> Iterator[int]:
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            yield from map(int, thread.read_text().split())


async def ended(processes: set[int]) -> None:
    """Wait until these have ended."""
    await until(lambda: not any(map(_command, processes)))


@asynccontextmanager
async def serving(text: str, folder: Path) -> AsyncIterator[Served]:
    """A gateway with this configuration; it is killed at the end, and its workers end with it."""
    path = folder / "gateway.yaml"
    path.write_text(text)
    context = started("serve", "--config", str(path))
    process, lines = await asyncio.to_thread(context.__enter__)
    try:
        yield Served(process, lines)
    finally:
        await asyncio.to_thread(context.__exit__, None, None, None)


async def post(port: int, path: str, body: bytes, kind: str = "") -> tuple[int, bytes]:
    """Status and body of the reply to a POST on a connection of its own. `kind` is the Content-Type of its body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = f"Content-Type: {kind}\r\n" if kind else ""
    start = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{content}Content-Length: {len(body)}\r\n\r\n"
    try:
        writer.write(start.encode() + body)
        head, _, rest = (await message(reader)).partition(b"\r\n\r\n")
        return int(head.split()[1]), rest
    finally:
        writer.close()


async def get(port: int, path: str) -> tuple[int, bytes]:
    """The same for a GET."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n\r\n" % (path.encode(), port))
        head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
        return int(head.split()[1]), rest
    finally:
        writer.close()
