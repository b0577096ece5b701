"""Headers that are forwarded from one transport to another, on real sockets."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc.aio
import numpy as np
import pytest

from gateway.assembly.registry import protocols
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from gateway.runtime.app import Gateway
from tests.header_servers import Servers, header_servers, infer
from tests.running_gateway import running_gateway

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


@asynccontextmanager
async def running(top: str = "", forwarded: str = "x-team") -> AsyncIterator[tuple[Gateway, Servers]]:
    async with (
        header_servers(CONFIG.replace("x-team", forwarded)) as (servers, text),
        running_gateway(text + top) as gateway,
    ):
        yield gateway, servers


async def call(gateway: Gateway, *metadata: tuple[str, str | bytes]) -> None:
    """One inference of the model `m` over gRPC."""
    request = Request(Operation.INFER, "m", inputs=(tensor("x", np.ones(1, np.int32)),))
    body = b"".join(protocols()["v2-grpc"].encode_request(request, Target()).parts)
    async with grpc.aio.insecure_channel(gateway.state.listeners["grpc"].address) as channel:
        await channel.unary_unary(METHOD)(body, metadata=metadata)


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
        (b"X-Team: caf\xc3\xa9\r\n", b"header 'x-team' does not fit gRPC: its value is not printable ASCII"),
        (b"X-Key-Bin: !\r\n", b"header 'x-key-bin' does not fit gRPC: its value is not base64"),
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


TRACE = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("accept", [True, False])
async def test_backends_get_the_request_id_once_and_the_trace(accept: bool) -> None:
    lines = b"X-Request-ID: given-1\r\nTraceparent: " + TRACE + b"\r\n"
    async with running(f"request_ids: {{accept: {str(accept).lower()}}}") as (gateway, servers):
        over_http = await infer(gateway, b"m", lines)
        over_grpc = await infer(gateway, b"g", lines)
    told = [reply.lower().split(b"x-request-id: ")[1].split(b"\r\n")[0] for reply in (over_http, over_grpc)]
    assert (told == [b"given-1", b"given-1"]) == accept
    [head], [metadata] = servers.heads, servers.metadata
    assert head.lower().count(b"\r\nx-request-id: ") == 1
    assert b"\r\nx-request-id: %b\r\ntraceparent: %b\r\n" % (told[0], TRACE) in head
    assert (metadata["x-request-id"], metadata["traceparent"]) == (told[1].decode(), TRACE.decode())


async def test_backends_get_an_id_that_was_made_and_no_trace_that_is_wrong() -> None:
    async with running("request_ids: {}") as (gateway, servers):
        await infer(gateway, b"m", b"X-Request-ID: two words\r\nTraceparent: 00-wrong\r\n")
        await call(gateway)
    for head in servers.heads:
        [line] = [line for line in head.split(b"\r\n") if line.startswith(b"x-request-id: ")]
        assert len(line.split(b": ")[1]) == 24
        assert b"traceparent" not in head


@pytest.mark.parametrize("top", ["", "request_ids: {forward: false}", 'health: {bind: "127.0.0.1:0"}'])
async def test_backends_get_no_id_where_none_is_wanted(top: str) -> None:
    async with running(top) as (gateway, servers):
        await infer(gateway, b"m", b"X-Request-ID: given-1\r\n")
    assert b"x-request-id" not in servers.heads[0].lower()


async def test_an_id_that_is_forwarded_as_a_header_too_is_sent_once() -> None:
    async with running("request_ids: {}", forwarded="x-request-id") as (gateway, servers):
        await infer(gateway, b"m", b"X-Request-ID: given-1\r\n")
    assert servers.heads[0].lower().count(b"\r\nx-request-id: given-1\r\n") == 1
    assert servers.heads[0].lower().count(b"x-request-id") == 1
