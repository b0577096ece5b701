"""HTTP requests as literal bytes, for what no well-behaved client sends."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPResponse

from tests.limits import GENEROUS


@dataclass(frozen=True)
class Answer:
    """Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def error(self) -> str:
        """The text of V2's error form, which must be all that the body holds."""
        assert self.headers["content-type"] == "application/json", self
        document = json.loads(self.body)
        assert list(document) == ["error"], self
        text = document["error"]
        assert isinstance(text, str)
        return text


def send(address: str, data: bytes, method: str = "POST") -> Answer:
    """Send `data` on a connection of its own; the first reply to it, which may come before all is sent."""
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), GENEROUS) as connection:
        with suppress(ConnectionError):
            connection.sendall(data)
        return receive(connection, method)


def receive(connection: socket.socket, method: str = "POST") -> Answer:
    with HTTPResponse(connection, method=method) as reply:
        reply.begin()
        headers = {name.lower(): value for name, value in reply.getheaders()}
        return Answer(reply.status, headers, reply.read())


def post(address: str, path: str, body: bytes, *headers: str) -> Answer:
    return send(address, posting(path, body, *headers))


def posting(path: str, body: bytes, *headers: str) -> bytes:
    """A POST with its Content-Length."""
    lines = [f"POST {path} HTTP/1.1", "Host: gateway", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def ask(address: str, line: str, *headers: str) -> Answer:
    """A request without a body: `GET /v2`."""
    head = "\r\n".join([f"{line} HTTP/1.1", "Host: gateway", *headers, "", ""])
    return send(address, head.encode(), line.split()[0])
