"""The first steps of every process: set up signal handlers, and ensure that the standard streams are open.

A serving command's imports take half a second or more. If the process is the first one in a container (PID 1), the
kernel drops SIGTERM until the process handles it. The container would then stop only when it is killed at the end of
its grace period. Therefore, the process sets up the handler first, and this module imports nothing that takes time.
"""

import gc
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

SERVING = ("serve", "demo", "record", "reference")
"""The commands that serve until they receive a signal."""
WITHOUT_WINDOWS = (*SERVING, "bench", "keys", "replay")
"""Commands that need uvloop, signals, or locks on files, which Windows lacks."""
_PR_SET_PDEATHSIG = 1
"""The constant PR_SET_PDEATHSIG from <linux/prctl.h>."""


def end_on_signals(command: str) -> None:
    """Set up signal handlers that apply until `command` installs its own.

    For a serving command, SIGTERM and SIGINT end the process with status 0, as they do after the start. SIGHUP is
    ignored, because the command will read the configuration anyway. Other commands react to signals like any program,
    even as PID 1."""
    if command in SERVING:
        signal.signal(signal.SIGTERM, _end_start)
        signal.signal(signal.SIGINT, _end_start)
        signal.signal(signal.SIGHUP, lambda number, frame: None)  # unlike SIG_IGN, child processes do not inherit this
    elif os.getpid() == 1:
        signal.signal(signal.SIGTERM, _end_command)


def refuse_on_windows(command: list[str]) -> None:
    """Exit if the command does not run on Windows, and print the alternatives. On Linux and macOS, all commands run."""
    if sys.platform == "win32" and command and command[0] in WITHOUT_WINDOWS:
        others = "the client (gateway.client) and commands that query or check also run on Windows"
        sys.exit(f"gateway {command[0]} does not run on Windows: run it in WSL or a container; {others}")


def leave_signals_to_the_parent() -> None:
    """Ignore signals that service managers send to all processes, because the parent forwards the signals for this
    process."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


def fill_standard_streams() -> None:
    """Open /dev/null at the file descriptors of closed standard streams.

    Otherwise, the next file or connection would take these descriptors, and would receive writes to the standard
    streams.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the kernel assigns the lowest free descriptor


def collect_rarely() -> None:
    """Delay garbage collections during the start.

    A start creates about 200,000 objects, which stay alive. With Python's default of 700, scanning them repeatedly
    takes a tenth of the startup time."""
    gc.set_threshold(200_000, *gc.get_threshold()[1:])


def end_with_the_parent() -> None:
    """Make the kernel kill this process when its parent exits, even if this process is stopped or does not respond.

    This function works only on Linux. On other systems, the process itself must detect that its parent has exited."""
    if sys.platform == "linux":
        from ctypes import CDLL  # a slow import that few processes need

        CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def _end_start(number: int, frame: FrameType | None) -> NoReturn:
    os.write(2, f"{signal.Signals(number).name} received before the start was over: ended\n".encode())
    os._exit(0)


def _end_command(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(128 + number)
