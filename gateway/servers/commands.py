"""Runs the commands of a batch system without a shell and with a time limit. Errors contain the commands' own
messages."""

import asyncio
import contextlib
import os
from collections.abc import Mapping

from gateway.servers.engine import EngineError


class CommandError(EngineError):
    """A command exited with a code other than 0."""

    def __init__(self, engine: str, command: str, said: str) -> None:
        super().__init__(f"{engine}: {command}: {said}")
        self.said = said


async def run(engine: str, *words: str, seconds: float, environment: Mapping[str, str] | None = None) -> str:
    """Run a command and return its output. Kill the process if the command hangs, or if the caller is cancelled.

    Raise CommandError, with the command's last message, if the command fails. Raise EngineError if the command does not
    start, or takes longer than `seconds`."""
    name = words[0]
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(os.environ if environment is None else environment),
            start_new_session=True,  # so Ctrl-C in the gateway's terminal does not stop the command
        )
    except OSError as error:
        raise EngineError(f"{engine}: {name} cannot be started: {error.strerror}") from None
    try:
        async with asyncio.timeout(seconds):
            printed, said = await process.communicate()
    except TimeoutError:
        raise EngineError(f"{engine}: {name}: no answer within {seconds:g} s") from None
    finally:
        await ended(process)
    if process.returncode:
        words_ = " ".join((said or printed).decode("utf-8", "replace").split())
        raise CommandError(engine, name, words_ or f"exit code {process.returncode}")
    return printed.decode("utf-8", "replace")


async def ended(process: asyncio.subprocess.Process) -> None:
    """Kill a process that is still running, and close its pipes."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    with contextlib.suppress(OSError):
        await process.communicate()
