"""The file of a unix socket: bound, replaced if nobody listens there any more, and removed at the end."""

import errno
import os
import socket
import stat
from contextlib import suppress
from pathlib import Path

MODE = 0o660
"""Who may connect: the user and the group of the gateway."""


class UnixSocket:
    """A bound socket at `path`; `listen` is not called yet, so nobody can connect before its mode is set.

    Raises:
        OSError: something that is no socket is there, or a socket where somebody listens; or the folder is not there.
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
        """Remove the file, unless another one is there by now."""
        with suppress(FileNotFoundError):
            if _identity(self._path) == self._identity:
                self._path.unlink()


def _clear(path: Path) -> None:
    """Remove the socket that a process left behind when it was killed."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(errno.EADDRINUSE, "there is a file which is no socket")
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
        except BlockingIOError:  # its backlog is full
            return True
    return True


def _identity(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
