"""The real kubemo server, serving `servers/kubemo_model.py`."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.interop.processes import Server, free_port, start_script
from tests.limits import GENEROUS

PING = bytes.fromhex("0001000000000000")
PONG = bytes.fromhex("0001010000000000")


def start_kubemo(folder: Path, *, unix: bool = False) -> Server:
    """It takes one connection at a time, and one request of it. Its URL is as its client takes it."""
    folder.mkdir(parents=True, exist_ok=True)
    url = f"unix://{folder / 'kubemo.sock'}" if unix else f"tcp://127.0.0.1:{free_port()}"
    server = Server(start_script("kubemo", "kubemo_model", folder, url), url)
    server.process.wait_until(lambda: _pings(url), GENEROUS)
    return server


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
