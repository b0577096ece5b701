"""Gateways with TLS, and raw clients of them."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import grpc

from gateway.runtime.app import Gateway
from tests.paused_server import port_of
from tests.tls.certificates import Files

THETA = [0.5, -0.25]


SIGNATURE = (
    "{inputs: [{name: theta, datatype: FP64, shape: [-1, 2]}], "
    "outputs: [{name: logdensity, datatype: FP64, shape: [-1, 1]}]}"
)
"""Of `posterior`."""


def near(ports: dict[str, int], tls: str = "", listener: str = "", model: str = "m") -> str:
    """A gateway with one backend of each of these protocols, at its port of localhost, behind a listener of V2. Clients
    call the `model` of each backend by the protocol's name."""
    backends, routes = "", ""
    for name, port in ports.items():
        backends += f'  {name}: {{protocol: {name}, endpoints: ["localhost:{port}"]{tls and f", tls: {tls}"}}}\n'
        routes += (
            f"  - {{match: {{model: {name}}}, backend: {name}, rewrite: {{model: {model}}}, signature: {SIGNATURE}}}\n"
        )
    own = f'{{name: near, bind: "127.0.0.1:0", protocols: [v2-rest]{listener and f", tls: {listener}"}}}'
    return f"listeners: [{own}]\nbackends:\n{backends}routes:\n{routes}"


async def check_density(gateway: Gateway, model: str, context: ssl.SSLContext | None = None) -> None:
    """A request to the listener `near` has the answer of `posterior`."""
    status, body = await ask(at(gateway, "near"), context, infer(model))
    assert status == 200, (model, body)
    assert abs(json.loads(body)["outputs"][0]["data"][0] + 1.2625) < 1e-6, (model, body)


def credentials(files: Files, own: Files) -> grpc.ChannelCredentials:
    """For a client of gRPC with a certificate of its `own`."""
    return grpc.ssl_channel_credentials(files.ca.read_bytes(), own.key.read_bytes(), own.certificate.read_bytes())


def at(gateway: Gateway, listener: str) -> int:
    return port_of(gateway.state.listeners[listener].address)


def infer(model: str) -> bytes:
    """A V2 request for `posterior` under the name `model`."""
    item = {"name": "theta", "datatype": "FP64", "shape": [1, 2], "data": [THETA]}
    return post(f"/v2/models/{model}/infer", json.dumps({"inputs": [item]}).encode())


def post(path: str, body: bytes, headers: str = "") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


GET = b"GET /v2 HTTP/1.1\r\nHost: x\r\n\r\n"


@asynccontextmanager
async def connected(
    port: int, context: ssl.SSLContext | None, name: str = "localhost"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A client of the port, which expects a certificate for `name`."""
    server_name = None if context is None else name
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=server_name)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def reply(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The status and body of the next HTTP reply."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = int(head.partition(b"\r\ncontent-length: ")[2].partition(b"\r")[0])
    return int(head.split()[1]), await reader.readexactly(size)


async def ask(port: int, context: ssl.SSLContext | None, request: bytes, name: str = "localhost") -> tuple[int, bytes]:
    """The reply to one request on a connection of its own."""
    async with connected(port, context, name) as (reader, writer):
        writer.write(request)
        return await reply(reader)
