"""Secrets of the configuration and of clients do not occur in the output or the responses of the gateway."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml

from gateway.cli.options import catalog
from gateway.config import ConfigError, load_with_warnings
from tests.attacks import hostile
from tests.attacks.attacked import Attacked, attacked
from tests.attacks.clients import INFER, message, tensor, until_closed
from tests.interop.processes import free_port
from tests.limits import GENEROUS

SECRET = "tiger-7391"

EVERYWHERE = yaml.safe_load("""
listeners:
  - name: http
    bind: 127.0.0.1:1
    protocols: [v2-rest, umbridge]
    model: m
    prefix: {umbridge: /science}
    allow_offline: true
    limits: {message: 1000, connections: 5}
    errors: {detail: full}
  - {name: mip, bind: "tcp://127.0.0.1:2", protocols: [mip], model: m}
admin: {bind: "127.0.0.1:3"}
health: {bind: "127.0.0.1:4", ready: any}
drain: {delay: 1, timeout: 2}
ready: any
limits: {memory: 1000000000}
reference: [{protocol: v2-grpc, bind: "127.0.0.1:5", models: [double]}]
backends:
  rest:
    protocol: v2-rest
    endpoints: [http://127.0.0.1:6/base]
    flavor: plain
    max_in_flight: 1
    trust_metadata: true
    forward_headers: [authorization]
    policies: [{timeout: {seconds: 1}}]
  grpc: {protocol: v2-grpc, endpoints: ["127.0.0.1:5"]}
  mip: {protocol: mip, endpoints: ["tcp://127.0.0.1:7"], batch: whole}
routes:
  - match: {listener: http, protocol: v2-rest, model: m, version: "1", operation: infer, header: {x-key: k}}
    backend: rest
    rewrite: {model: n, version: "2"}
    signature:
      inputs: [{name: x, datatype: FP64, shape: [-1, 2]}]
      outputs: [{name: y, datatype: FP64, shape: [-1, 1]}]
    translate:
      cast: round
      nan: string
      rename: {inputs: [{client: a, backend: x}]}
      constants: [{name: c, datatype: FP64, shape: [1], data: [1.5]}]
      select: ["y"]
      stream: last
    policies: [{timeout: {seconds: 1}}]
  - {match: {path: /x/*}, backend: grpc}
  - {match: {}, backend: mip}
""")


def places(document: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The ways to every value that is not made of others, but the names of listeners and what they speak: those are the
    words of logs, metrics and errors."""
    if isinstance(document, dict | list):
        for key, each in document.items() if isinstance(document, dict) else enumerate(document):
            yield from places(each, (*way, key))
    elif way[-1] != "name" and "protocols" not in way:
        yield way


def with_text(document: Any, way: tuple[Any, ...], text: str) -> Any:
    if not way:
        return text
    if isinstance(document, dict):
        return document | {way[0]: with_text(document[way[0]], way[1:], text)}
    return [with_text(each, way[1:], text) if at == way[0] else each for at, each in enumerate(document)]


def told_of(path: Path, document: object) -> str:
    """All that `gateway check` says of a configuration."""
    path.write_text(json.dumps(document))
    try:
        _, problems = load_with_warnings(path, catalog())
    except ConfigError as error:
        return str(error)
    return "\n".join(map(str, problems))


@pytest.mark.parametrize("way", list(places(EVERYWHERE)), ids=lambda way: ".".join(map(str, way)))
def test_what_is_wrong_with_a_configuration_is_told_without_what_references_hold(
    way: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", SECRET)
    (tmp_path / "secret").write_text(SECRET)
    texts = (
        "${SECRET}",
        f"${{file:{tmp_path}/secret}}",
        "x ${SECRET}",
        "http://user:${SECRET}@127.0.0.1:8/",
        "tcp://${SECRET}",
        f"http://user:{SECRET}@127.0.0.1:8/",
    )
    for text in texts[: 6 if "endpoints" in way or "bind" in way else 5]:
        assert SECRET not in told_of(tmp_path / "gateway.yaml", with_text(EVERYWHERE, way, text))


BACKENDS = """
  garbled:
    protocol: v2-rest
    flavor: plain
    endpoints: ["{garbled}"]
    forward_headers: [authorization, cookie, x-key]
  silent:
    protocol: v2-grpc
    flavor: plain
    endpoints: ["{silent}"]
    policies: [{{timeout: {{seconds: 0.3}}}}]
    forward_headers: [authorization, cookie, x-key]
  closed:
    protocol: grps-brpc
    endpoints: ["tcp://127.0.0.1:{closed}"]
    forward_headers: [authorization, cookie, x-key]
"""
ROUTES = """
  - {{match: {{model: keyed, header: {{x-key: "${{file:{file}}}"}}}}, backend: garbled}}
  - {{match: {{model: garbled}}, backend: garbled}}
  - {{match: {{model: silent}}, backend: silent}}
  - {{match: {{model: closed}}, backend: closed}}
"""
HEADERS = {
    "authorization": f"Bearer {SECRET}",
    "cookie": f"session={SECRET}",
    "proxy-authorization": SECRET,
    "x-key": f"not {SECRET}",
}
BODY = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,1],"data":[1.5]}]}'


def garble(connection: socket.socket) -> None:
    head, _ = hostile.http_request(connection)
    assert SECRET.encode() in head or head.startswith(b"GET")
    connection.sendall(b"HTTP/1.1 nonsense\r\n\r\n")


def over_http(gateway: Attacked, method: str, path: str, body: bytes, **headers: str) -> bytes:
    connection = http.client.HTTPConnection(*gateway.address("http"), timeout=GENEROUS)
    connection.request(method, path, body, HEADERS | headers)
    reply = connection.getresponse()
    found = str(reply.getheaders()).encode() + reply.read()
    connection.close()
    return found


def over_grpc(gateway: Attacked, path: str, model: str) -> bytes:
    host, port = gateway.address("grpc")
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        try:
            channel.unary_unary(path)(message("v2-grpc", model, tensor(b"1")), metadata=tuple(HEADERS.items()))
        except grpc.RpcError as error:
            return repr((error.details(), error.trailing_metadata(), error.initial_metadata())).encode()
    return b""


def raw(gateway: Attacked, listener: str, octets: bytes) -> bytes:
    with socket.create_connection(gateway.address(listener), 20) as connection:
        connection.sendall(octets)
        connection.shutdown(socket.SHUT_WR)
        return until_closed(connection)


def test_what_clients_send_beside_their_requests_is_never_told(tmp_path: Path, works: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    fields = b"".join(f"{name}: {text}\r\n".encode() for name, text in HEADERS.items())
    with hostile.stage({"garbled": garble, "silent": hostile.silent}) as playing:
        backends = BACKENDS.format(**playing.addresses, closed=free_port())
        with attacked(tmp_path / "gateway", works, backends=backends, routes=ROUTES.format(file=secret)) as gateway:
            infer = [
                f"/v2/models/{model}/infer" for model in ("garbled", "silent", "closed", "dead", "keyed", "nobody")
            ]
            told = [over_http(gateway, "POST", path, BODY) for path in (*infer, "/nothing", "/v2/health/live")]
            told += [
                over_http(gateway, "POST", infer[0], b"{"),
                over_http(gateway, "POST", infer[0], BODY, **{"content-encoding": "gzip"}),
                over_http(gateway, "POST", infer[0], BODY, **{"request-timeout": "soon"}),
                over_http(gateway, "POST", infer[0], BODY, expect="tea"),
                over_http(gateway, "POST", "/Evaluate", b'{"name":"garbled","input":[[1]]}'),
                over_http(gateway, "GET", "/Evaluate", b""),
                *(over_grpc(gateway, INFER.decode(), model) for model in ("garbled", "silent", "closed", "nobody")),
                over_grpc(gateway, "/no.Service/Method", "garbled"),
                raw(gateway, "http", b"GET /v2 HTTP/1.1\r\n%bX\r\n\r\n" % fields),
                raw(gateway, "http", b"GET /v2 HTTP/1.1\r\nHost: a\r\n%bX: \0\r\n\r\n" % fields),
                raw(gateway, "http", b"GET /v2 HTTP/1.1\r\nHost: a\r\n%bX: %b\r\n\r\n" % (fields, b"x" * 10**5)),
                raw(gateway, "http", b"POST /v2 HTTP/1.1\r\nHost: a\r\n%bContent-Length: 9\r\n\r\n{" % fields),
                raw(gateway, "grpc", b"GET / HTTP/1.1\r\n%b\r\n" % fields),
                raw(gateway, "mip", fields),
                raw(gateway, "brpc", fields),
            ]  # fmt: skip
            told += [raw(gateway, "admin", b"GET /status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")]
            assert b'"last_error"' in told[-1]
            assert "is down: " in gateway.log
            assert SECRET not in gateway.log
    for each in told:
        assert SECRET.encode() not in each
    assert all(b"error" in each.lower() or b"FAILURE" in each for each in told[:7])
