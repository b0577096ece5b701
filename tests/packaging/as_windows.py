"""Runs a program as Windows would have it: `python -m tests.packaging.as_windows PROGRAM [ARGUMENT ...]`.

Modules and functions that Python lacks there are taken away, and `sys.platform` is `win32`. This finds what is used
without asking whether it is there; it is no Windows, whose sockets and paths differ.
"""

import asyncio
import importlib.abc
import os
import runpy
import select
import signal
import socket
import sys
import sysconfig
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULES = ("fcntl", "grp", "pwd", "resource", "syslog", "termios", "tty", "uvloop")
NAMES: dict[Any, tuple[str, ...]] = {
    os: (
        *("fork", "getuid", "geteuid", "getpgid", "killpg", "register_at_fork", "sched_getaffinity", "setsid"),
        "sysconf",
    ),
    select: ("poll", "epoll"),
    signal: ("SIGHUP", "SIGKILL", "SIGQUIT", "SIGUSR1", "SIGUSR2", "pthread_sigmask", "setitimer"),
    socket: ("AF_UNIX", "MSG_DONTWAIT", "SO_REUSEPORT"),
}


class _Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if name in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


def _no_signal_handler(*arguments: Any) -> None:
    raise NotImplementedError


def become_windows() -> None:
    """Take away what Windows lacks, after the standard library and other packages have looked at the platform."""
    for module in ("concurrent.futures", "ctypes", "multiprocessing", "ssl", "subprocess", "tempfile", "typer.main"):
        __import__(module)
    sysconfig.get_config_vars()
    pair, unix = socket.socketpair, socket.AF_UNIX  # the loop's own pipe, which is a pair of TCP sockets there
    socket.socketpair = lambda *arguments: pair(unix)
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Missing())
    for place, names in NAMES.items():
        for name in names:
            if hasattr(place, name):
                delattr(place, name)
    asyncio.BaseEventLoop.add_signal_handler = _no_signal_handler  # type: ignore[assignment,method-assign]
    sys.platform = "win32"


if __name__ == "__main__":
    become_windows()
    sys.argv = sys.argv[1:]
    if sys.argv[0] == "gateway":
        runpy.run_module("gateway", run_name="__main__", alter_sys=False)
    else:
        runpy.run_path(sys.argv[0], run_name="__main__")
