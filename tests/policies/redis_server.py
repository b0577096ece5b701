"""A Redis server in a process of its own."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.processes import Process, free_port
from tests.limits import GENEROUS

PASSWORD = "a-secret-word"


class RedisServer:
    """A Redis server with a password, on a port of its own, which it keeps when it is started again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--requirepass", PASSWORD]
        self.process = Process([*command, "--save", "", "--appendonly", "no"], self.folder)
        self.process.wait_until(lambda: "Ready to accept connections" in self.process.stdout(), seconds=GENEROUS)

    @contextmanager
    def failing(self, fault: str) -> Iterator[None]:
        """The server is `killed` or `paused`, or has no such fault."""
        if fault == "killed":
            self.process.stop()
        elif fault == "paused":
            self.process.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            if fault == "killed":
                self.start()
            elif fault == "paused":
                self.process.signal(signal.SIGCONT)
