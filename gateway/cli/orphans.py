"""Reaps orphan processes in a container. The kernel makes the first process in a container (PID 1) the parent of all
processes whose parents have exited. If the first process does not wait for its orphans, they remain as zombies when
they exit, and can fill the process table."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from gateway.core.tasks import spawn
from gateway.runtime.process import process_state

SECONDS = 5.0
"""Seconds between two checks. An orphan stays a zombie for at most twice this time."""


def reap_if_first() -> None:
    """Start reaping orphans if this process is the first process in a container."""
    if os.getpid() == 1:
        spawn(reap(SECONDS))


async def reap(seconds: float) -> NoReturn:
    """Wait for each child that was a zombie in two consecutive checks. Children that this process started are not
    zombies for this long, because the event loop or other code waits for them."""
    before: set[int] = set()
    while True:
        await asyncio.sleep(seconds)
        found = zombies()
        for pid in found & before:
            with suppress(ChildProcessError):  # other code has already waited for the process
                os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222 - it does not wait
        before = found - before


def zombies() -> set[int]:
    """Return the children of this process that have exited and whose exit status has not been collected."""
    children: set[int] = set()
    for thread in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            children.update(map(int, thread.read_text().split()))
    return {pid for pid in children if process_state(pid) == "Z"}
