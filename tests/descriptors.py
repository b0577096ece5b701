"""The descriptors that this process has open."""

import gc
import os
import socket
import stat
from contextlib import suppress


def open_descriptors() -> int:
    """Without those of earlier tests that nothing holds any more: collected later, they would change the next count."""
    gc.collect()
    return len(os.listdir("/dev/fd"))


def listening_ports() -> set[int]:
    """The TCP ports at which this process accepts connections. Connecting to a port would not show that it is closed:
    another process may have it by then."""
    ports = set()
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # the descriptor of the folder itself, which is closed by now
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                with socket.socket(fileno=os.dup(int(name))) as copy:
                    inet = copy.family in (socket.AF_INET, socket.AF_INET6)
                    if inet and copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                        ports.add(copy.getsockname()[1])
    return ports
