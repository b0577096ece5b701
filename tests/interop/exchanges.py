"""Single HTTP exchanges, for tests of what is on the wire rather than of what a client makes of it; and gateways that
whole modules share."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, TypeAlias

from tests.interop import processes
from tests.interop.processes import Gateway
from tests.limits import GENEROUS

Answer: TypeAlias = tuple[int, Any]
"""The status, and the body: a JSON document, or a text where it is none."""


@contextmanager
def gateway(config: str, folder: Path) -> Iterator[Gateway]:
    """`gateway serve`, from the text of its YAML. Whatever was done to it, it may not have failed itself."""
    running = processes.start_gateway(config, folder)
    try:
        yield running
    finally:
        status = running.stop()
    assert "Traceback" not in running.output(), running.output()
    assert status == 0


def get(url: str, path: str) -> Answer:
    return exchange(url, "GET", path)


def post(url: str, path: str, *, client: str = "127.0.0.1", **body: object) -> Answer:
    """POST the keywords as a JSON object, from the loopback address `client`. Like the conformity suite, and Julia's
    client, it sends no Content-Type."""
    return exchange(url, "POST", path, json.dumps(body), client)


def exchange(url: str, method: str, path: str, body: str | None = None, client: str = "127.0.0.1") -> Answer:
    address = url.removeprefix("http://")
    with closing(HTTPConnection(address, timeout=GENEROUS, source_address=(client, 0))) as connection:
        connection.request(method, path, body)
        reply = connection.getresponse()
        return reply.status, _document(reply.read().decode())


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
