"""Asks the real Triton, MLServer and KServe what `tests/protocols/v2/rest/recorded.py` lists, and writes what was said
here: the whole HTTP messages, as FLAVOR_NAME.request and FLAVOR_NAME.reply. The peers must have been built."""

import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway.core.messages import Message
from gateway.protocols.v2 import PROTOCOLS
from tests.interop.processes import start_triton
from tests.interop.v2_servers import start_kserve, start_mlserver
from tests.protocols.v2.rest.recorded import REQUESTS, WIRE, target

V2_REST = PROTOCOLS[0]
START: dict[str, Callable[[Path], Any]] = {"triton": start_triton, "mlserver": start_mlserver, "kserve": start_kserve}


def written(message: Message) -> bytes:
    headers = [f"{name}: {text}" for name, text in message.headers]
    lines = [
        f"{message.method} {message.path} HTTP/1.1",
        "host: gateway",
        "connection: close",
        *headers,
        f"content-length: {len(message.body)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + bytes(message.body)


def exchanged(address: str, request: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def main() -> None:
    for flavor, start in START.items():
        with tempfile.TemporaryDirectory() as folder:
            server = start(Path(folder) / flavor)
            for name, request in REQUESTS[flavor].items():
                message = written(V2_REST.encode_request(request, target(flavor)))
                (WIRE / f"{flavor}_{name}.request").write_bytes(message)
                (WIRE / f"{flavor}_{name}.reply").write_bytes(exchanged(server.http, message))
            server.stop()


if __name__ == "__main__":
    main()
