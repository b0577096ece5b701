"""Runs the scripts of `clients`, each in the environment of its peer and each call in a process of its own.

These processes are forked from one that has imported the script (`clients/forker.py`): to start Python and to import a
client takes 0.2 to 0.8 s of CPU, and the tests make 900 calls.
"""

from __future__ import annotations

import atexit
import json
import os
import select
import signal
import subprocess
import tempfile
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.interop.processes import HERE, TAIL, ProcessError, clean_environment
from tests.limits import GENEROUS
from tests.peers.build import require

CLIENTS = HERE / "clients"


def run_client(peer: str, script: str, *args: object, timeout: float = GENEROUS, **environment: str) -> object:
    """Run `clients/{script}.py` in a peer's environment: `args` as one JSON list on stdin, one JSON document back.

    Both in Python's dialect, with NaN and Infinity as literals: that is how the clients see those values.
    """
    forkers = _idle[require(peer) / "bin" / "python", script, tuple(sorted(environment.items()))]
    # Calls at the same time, in threads, have a forker each.
    forker = forkers.pop() if forkers else _Forker(require(peer) / "bin" / "python", script, environment)
    try:
        printed = forker.run(json.dumps(args), timeout)
    finally:
        if forker.is_alive:
            forkers.append(forker)
    document: object = json.loads(printed)
    return document


def run_steps(peer: str, script: str, *args: object) -> list[Any]:
    """The same for a script that takes steps, as its last argument: the result of each."""
    results = run_client(peer, script, *args)
    assert isinstance(results, list)
    return results


class _Forker:
    """A process that has imported one script. It takes one call at a time."""

    def __init__(self, python: Path, script: str, environment: dict[str, str]) -> None:
        self._script = script
        self._folder = tempfile.TemporaryDirectory()
        self._errors = Path(self._folder.name) / "errors"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [str(python), str(CLIENTS / "forker.py"), script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=clean_environment(**environment),
                start_new_session=True,
                bufsize=0,
            )
        self.is_alive = True
        atexit.register(self.end)

    def run(self, stdin: str, seconds: float) -> str:
        """What the call with `stdin` prints. Raises ProcessError if it fails, or takes longer than `seconds`."""
        with tempfile.TemporaryDirectory(dir=self._folder.name) as name:
            folder = Path(name)
            (folder / "stdin").write_text(stdin)
            status = self._status(folder, seconds)
            if status == "0":
                return (folder / "stdout").read_text(errors="replace")
            told = (self._errors if status is None else folder / "stderr").read_text(errors="replace")
            if status is None:
                self.end()
            how = "did not end, or could not be imported" if status is None else f"failed with status {status}"
            raise ProcessError(f"{self._script} {how}:\n{told[-TAIL:]}")

    def _status(self, folder: Path, seconds: float) -> str | None:
        """The exit status of one call; None if there is none within `seconds`, or never will be."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{folder}\n".encode())
            if select.select([self._process.stdout], [], [], seconds)[0]:
                return self._process.stdout.readline().decode().strip() or None
        return None

    def end(self) -> None:
        """Kill the process, and the call that it waits for."""
        if self.is_alive:
            self.is_alive = False
            os.killpg(self._process.pid, signal.SIGKILL)
            with self._process:
                pass  # waits for it, and closes the pipes
            self._folder.cleanup()
            atexit.unregister(self.end)


_idle: defaultdict[tuple[Path, str, tuple[tuple[str, str], ...]], list[_Forker]] = defaultdict(list)
"""Those that wait for a call, by the interpreter, the script, and the variables of the environment."""
