"""Single HTTP exchanges, for tests of what is on the wire rather than of what a client makes of it; and gateways that
whole modules share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from string import Formatter
from typing import Any, TypeAlias

from tests.interop import processes
from tests.interop.processes import Gateway, free_port
from tests.limits import GENEROUS

Answer: TypeAlias = tuple[int, Any]
"""The status, and the body: a JSON document, or a text where it is none."""


class Addresses(dict[str, str]):
    """`host:port` by name, and the gateway that listens there."""

    def __init__(self, gateway: Gateway, ports: Mapping[str, int]) -> None:
        super().__init__({name: f"127.0.0.1:{port}" for name, port in ports.items()})
        self.gateway = gateway


Listen: TypeAlias = Callable[..., Addresses]
"""`listening`, in a folder that is given, until the end of a module's tests."""


@contextmanager
def gateway(config: str, folder: Path) -> Iterator[Gateway]:
    """`gateway serve`, from the text of its YAML. Whatever was done to it, it may not have failed itself."""
    running = processes.start_gateway(config, folder)
    try:
        yield running
    finally:
        status = running.stop()
    # The tracebacks of servers are logged, each within one line.
    assert "\nTraceback" not in running.output(), running.output()
    assert status == 0


@contextmanager
def listening(config: str, folder: Path, /, **values: object) -> Iterator[Addresses]:
    """A gateway, from a format of its YAML: the fields without one of `values` are free ports. The addresses of those
    ports, by their fields."""
    fields = {name.partition(".")[0] for _, name, _, _ in Formatter().parse(config) if name}
    ports = {name: free_port() for name in fields - values.keys()}
    with gateway(config.format(**ports, **values), folder) as running:
        yield Addresses(running, ports)


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


def call(address: str, path: str, document: object = None, **headers: str) -> tuple[int, Mapping[str, str], Any]:
    """A document as curl sends it, or a GET: the status, the headers with names in lower case, and the body. The
    keywords are further headers, with `_` for `-`."""
    method, body = ("GET", None) if document is None else ("POST", json.dumps(document))
    given = {"Content-Type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
    with closing(HTTPConnection(address, timeout=GENEROUS)) as connection:
        connection.request(method, path, body, given)
        reply = connection.getresponse()
        found = {name.lower(): text for name, text in reply.getheaders()}
        return reply.status, found, _document(reply.read().decode())


def metric(url: str, family: str, *labels: str) -> float:
    """The sum of the values of a family of metrics that have all these labels."""
    status, text = get(url, "/metrics")
    assert status == 200
    lines = [line for line in text.splitlines() if line.startswith(f"{family}{{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines if all(label in line for label in labels))


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
