"""`python -m tests.attacks.observed FILE` runs the gateway for a configuration like `gateway serve`, with a ticker in
its event loop. `attacked` starts it.

It writes one JSON document per line to standard output: first the addresses, then for each line on standard input the
measurements since the previous line. It ends when standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import time
from pathlib import Path

from gateway.cli.options import read
from gateway.cli.reloading import Reloader
from gateway.config.watching import look_at_all
from gateway.runtime.app import Gateway
from gateway.runtime.process import log_to_stderr, run

TICK = 0.01


class Ticker:
    """Wakes every TICK seconds, and records its longest delay (`wall`), the longest CPU time of the process in a delay
    (`stall`), and the longest CPU time in user mode (`user`). `stall` and `user` exclude times in which the machine had
    no free core for the process."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.restart()
        self._wait()

    def restart(self) -> None:
        self.stall = self.user = self.wall = 0.0

    def _wait(self) -> None:
        self._due, self._spent, self._spent_in_user = time.perf_counter() + TICK, time.process_time(), _in_user_mode()
        self._loop.call_later(TICK, self._tick)

    def _tick(self) -> None:
        late = time.perf_counter() - self._due
        self.wall = max(self.wall, late)
        self.stall = max(self.stall, min(late, time.process_time() - self._spent))
        self.user = max(self.user, min(late, _in_user_mode() - self._spent_in_user))
        self._wait()


def _in_user_mode() -> float:
    """Return the CPU time of the process in user mode, in seconds."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime


async def observe(path: Path) -> None:
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    reloader = Reloader(path, look_at_all(path))
    gateway = reloader.gateway = Gateway(read(path), reloader.on_call)
    await gateway.start()
    ticker = Ticker(loop)

    def look() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            ended.set()
            return
        seen = {
            "stall": ticker.stall,
            "user": ticker.user,
            "wall": ticker.wall,
            "tasks": len(asyncio.all_tasks()),
        }
        print(json.dumps(seen), flush=True)
        ticker.restart()

    addresses = {name: listener.address for name, listener in gateway.state.listeners.items()}
    addresses |= {name: port.address for name, port in gateway.ports.all.items()}
    loop.add_reader(sys.stdin.fileno(), look)
    print(json.dumps(addresses), flush=True)
    await ended.wait()
    await gateway.drain(0)


def main() -> None:
    log_to_stderr()
    run(observe(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
