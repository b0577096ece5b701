"""Headers that are forwarded from one transport to another, on real sockets."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
import numpy as np
import pytest

from gateway.app import Gateway
from gateway.cli.options import catalog
from gateway.config import loads
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.types import Request, tensor
from gateway.registry import protocols
from tests.paused_server import INFER, REPLY, ask, http, port_of

CONFIG = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
backends:
  http: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:HTTP"], forward_headers: [x-key-bin, x-team]}
  grpc: {protocol: v2-grpc, endpoints: ["127.0.0.1:GRPC"], forward_headers: [x-key-bin, x-team]}
routes:
  - {match: {model: m}, backend: http}
  - {match: {model: g}, backend: grpc}
"""
METHOD = "/inference.GRPCInferenceService/ModelInfer"


class Servers:
    """A V2 server over REST and one over gRPC, which keep the headers that they get."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.metadata: list[dict[str, str | bytes]] = []

    async def http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-l"))
                await reader.readexactly(length)
                self.heads.append(head)
                writer.write(http(b"HTTP/1.1 200 OK", REPLY))
        except asyncio.IncompleteReadError:
            writer.close()

    async def infer(self, body: bytes, context: grpc.aio.ServicerContext) -> bytes:
        self.metadata.append(dict(context.invocation_metadata() or ()))
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "seen")
        raise AssertionError


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Gateway, Servers]]:
    servers = Servers()
    listening = await asyncio.start_server(servers.http, "127.0.0.1", 0)
    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(servers.infer)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("inference.GRPCInferenceService", {"ModelInfer": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    text = CONFIG.replace("HTTP", str(listening.sockets[0].getsockname()[1])).replace("GRPC", str(port))
    gateway = Gateway(loads(text, "test.yaml", catalog(), {}))
    await gateway.start()
    try:
        yield gateway, servers
    finally:
        await gateway.drain(0)
        await server.stop(None)
        listening.close()


async def call(gateway: Gateway, *metadata: tuple[str, str | bytes]) -> None:
    """One inference of the model `m` over gRPC."""
    request = Request(Operation.INFER, "m", inputs=(tensor("x", np.ones(1, np.int32)),))
    body = b"".join(protocols()["v2-grpc"].encode_request(request, Target()).parts)
    async with grpc.aio.insecure_channel(gateway.listeners["grpc"].address) as channel:
        await channel.unary_unary(METHOD)(body, metadata=metadata)


async def infer(gateway: Gateway, model: bytes, *lines: bytes) -> bytes:
    request = INFER.replace(b"models/m", b"models/" + model).replace(
        b"\r\n", b"\r\nConnection: close\r\n" + b"".join(lines), 1
    )
    return await ask(port_of(gateway.listeners["http"].address), request)


@pytest.mark.parametrize("key", [b"\0\xff", b"\r\nX-Evil: 1\r\n\r\n", b"plain", b""])
async def test_binary_metadata_are_base64_in_http(key: bytes) -> None:
    async with running() as (gateway, servers):
        await call(gateway, ("x-key-bin", key), ("x-team", "red"))
    [head] = servers.heads
    assert b"\r\nx-key-bin: %b\r\nx-team: red\r\n" % base64.b64encode(key) in head
    assert b"\xff" not in head
    assert b"Evil" not in head


async def test_base64_of_http_is_binary_metadata() -> None:
    async with running() as (gateway, servers):
        reply = await infer(gateway, b"g", b"X-Key-Bin: AP8=\r\nX-Team: red\r\n")
    assert b"seen" in reply
    [metadata] = servers.metadata
    assert (metadata["x-key-bin"], metadata["x-team"]) == (b"\0\xff", "red")


async def test_base64_of_http_stays_as_it_is_in_http() -> None:
    async with running() as (gateway, servers):
        assert (await infer(gateway, b"m", b"X-Key-Bin: not base64\r\n")).startswith(b"HTTP/1.1 200 ")
    assert b"\r\nx-key-bin: not base64\r\n" in servers.heads[0]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"X-Team: caf\xc3\xa9\r\n", b"header 'x-team' cannot be sent over gRPC: its value is not printable ASCII"),
        (b"X-Key-Bin: !\r\n", b"header 'x-key-bin' cannot be sent over gRPC: its value is not base64"),
        (b"X-Team: \xff\r\n", b"header 'x-team' cannot be forwarded: "),
    ],
)
async def test_what_grpc_cannot_carry_is_refused_by_name(
    line: bytes, told: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as (gateway, servers):
        reply = await infer(gateway, b"g", line)
    assert reply.startswith(b"HTTP/1.1 400 ")
    assert told in reply
    assert not servers.metadata
    assert not caplog.records
