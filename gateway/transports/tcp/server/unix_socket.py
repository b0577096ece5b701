"""Creates the file of a unix socket, replaces it if no process listens on it any longer, and removes it at the end."""

import errno
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

MODE = 0o660
"""The file's mode, which allows only the user and the group of the gateway to connect."""


class UnixSocket:
    """A socket that is bound to `path`, but does not listen yet, so clients cannot connect before its mode is set.

    Raises:
        OSError: `path` is a file other than a socket, or a socket on which a process listens, or its folder does not
            exist.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        _clear(self._path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.setblocking(False)
            self.socket.bind(path)
            self._path.chmod(MODE)
        except OSError:
            self.socket.close()
            raise
        self._identity = _identity(self._path)

    def remove(self) -> None:
        """Remove the file, unless another process has replaced it."""
        with suppress(FileNotFoundError):
            if _identity(self._path) == self._identity:
                self._path.unlink()


def _clear(path: Path) -> None:
    """Remove a socket that a killed process has left."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EADDRINUSE, "the path exists, and is not a socket; choose another path")
    if _is_served(path):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
    path.unlink(missing_ok=True)


def _is_served(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except BlockingIOError:  # the backlog of its process is full
            return True
    return True


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
