"""The real kubemo server, serving `servers/kubemo_model.py`."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from tests.interop.processes import HERE, Process, free_port
from tests.limits import GENEROUS
from tests.peers.build import require

PING = bytes.fromhex("0001000000000000")
PONG = bytes.fromhex("0001010000000000")


@dataclass
class KubemoServer:
    """One that takes one connection at a time, and one request of it; `url` as its client takes it."""

    process: Process
    url: str

    def stop(self) -> int:
        return self.process.stop()


def start_kubemo(folder: Path, *, unix: bool = False) -> KubemoServer:
    folder.mkdir(parents=True, exist_ok=True)
    url = f"unix://{folder / 'kubemo.sock'}" if unix else f"tcp://127.0.0.1:{free_port()}"
    python = require("kubemo") / "bin" / "python"
    process = Process([str(python), str(HERE / "servers" / "kubemo_model.py"), url], folder)
    process.wait_until(lambda: _pings(url), seconds=60)
    return KubemoServer(process, url)


def _pings(url: str) -> bool:
    try:
        return exchanged(url, PING) == PONG
    except OSError:
        return False


def connected(url: str) -> socket.socket:
    """A raw connection to a server, or to the gateway."""
    scheme, _, where = url.partition("://")
    if scheme == "tcp":
        host, _, port = where.partition(":")
        return socket.create_connection((host, int(port)), timeout=GENEROUS)
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(20)
        connection.connect(where)
    except OSError:
        connection.close()
        raise
    return connection


def exchanged(url: str, data: bytes, *, end: bool = False) -> bytes:
    """Everything that is answered to `data` until the other side closes, or resets; `end` closes our side first."""
    with connected(url) as connection:
        connection.sendall(data)
        if end:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while piece := connection.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
        return answer
