"""The command line in tests: a command in this process, or in one of its own."""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from typer.testing import CliRunner, Result

from gateway.cli import application
from tests.paused_server import port_of

ROOT = Path(__file__).parent.parent.parent
ENVIRON = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""}
ENDING = 3.0
"""Seconds for a command to end after SIGTERM."""


class _Stream:
    """Standard output or error of this process. Threads that were there before the command, such as a server's, write
    to where they wrote before."""

    def __init__(self, command: Any, others: Any, threads: set[int | None]) -> None:
        self._command, self._others, self._threads = command, others, threads

    def __getattr__(self, name: str) -> Any:
        return getattr(self._others if threading.get_ident() in self._threads else self._command, name)


class _TerminalStream(_Stream):
    def isatty(self) -> bool:
        return True


class Runner(CliRunner):
    """Has what the command prints, and nothing that other threads print meanwhile."""

    def __init__(self, *, in_terminal: bool = False) -> None:
        super().__init__()
        self._in_terminal = in_terminal

    @contextmanager
    def isolation(self, *arguments: Any, **more: Any) -> Iterator[Any]:
        threads = {each.ident for each in threading.enumerate()} - {threading.get_ident()}
        before = sys.stdout, sys.stderr
        with super().isolation(*arguments, **more) as streams:
            sys.stdout, sys.stderr = (
                _Stream(*pair, threads) for pair in zip((sys.stdout, sys.stderr), before, strict=True)
            )
            if self._in_terminal:
                sys.stdin, sys.stdout = (_TerminalStream(each, each, set()) for each in (sys.stdin, sys.stdout))
            yield streams


def written(folder: Path, text: str) -> str:
    """The path of a configuration file."""
    path = folder / "gateway.yaml"
    path.write_text(text)
    return str(path)


def gateway(*arguments: str, given: bytes = b"", in_terminal: bool = False) -> Result:
    """One command, to its end, in this process, which keeps its own signals and log. `in_terminal`: its standard input
    and output say that they are a terminal's."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        return Runner(in_terminal=in_terminal).invoke(application, arguments, input=given)
    finally:
        for number, action in before.items():
            signal.signal(number, action)
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.getLogger("gateway").setLevel(logging.NOTSET)


@contextmanager
def started(
    *arguments: str, folder: Path = ROOT, stderr: int | None = None
) -> Iterator[tuple["subprocess.Popen[str]", list[str]]]:
    """A command that goes on, in a process of its own, and what it printed until it was ready."""
    command = [sys.executable, "-m", "gateway", *arguments]
    with subprocess.Popen(
        command, cwd=folder, env={**ENVIRON, "PWD": str(folder)}, stdout=subprocess.PIPE, stderr=stderr, text=True
    ) as process:
        try:
            yield process, _until_ready(process.stdout)
        finally:
            end(process)


def end(process: "subprocess.Popen[Any]") -> None:
    """End a command as its operator would, so that `make coverage` counts the lines that it ran. The second SIGTERM
    ends the requests that still run, and a command that does not end even then is killed."""
    for _ in range(2):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDING)
    process.kill()


def _until_ready(output: IO[str] | None) -> list[str]:
    assert output is not None
    lines = []
    for line in output:
        lines.append(line.rstrip("\n"))
        if lines[-1] == "ready":
            return lines
    raise AssertionError(f"it ended before it was ready, and printed {lines}")


@contextmanager
def served(path: str) -> Iterator[tuple["subprocess.Popen[str]", dict[str, int]]]:
    """`gateway serve` with this file, and its ports by name."""
    with started("serve", "--config", path, stderr=subprocess.PIPE) as (process, printed):
        found = [re.match(r"(?:listener )?(\w+) +((?:tcp://)?127\S+)", line) for line in printed]
        yield process, {row[1]: port_of(row[2]) for row in found if row}


def said(process: "subprocess.Popen[str]", text: str) -> list[str]:
    """What is printed on standard error, up to a line with `text`."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"no line has {text!r}: {lines}")
