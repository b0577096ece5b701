"""The errors of gRPC servers, and of what stands before them, as clients get them: real clients, through a gateway."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import grpc.aio
import numpy as np
import pytest

from gateway.assembly.registry import protocols
from gateway.core.http2.hpack import read
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from gateway.runtime.app import Gateway
from tests.core.http2.by_hand import CONTENT_TYPE, END_STREAM, HEADERS, OK, Peer, data, head, reset, serving
from tests.paused_server import INFER, ask, port_of
from tests.running_gateway import running_gateway

PROTOCOLS = ["v2-grpc", "tfs-grpc", "grps-grpc"]
METHODS = {
    "v2-grpc": ("inference.GRPCInferenceService", "ModelInfer"),
    "tfs-grpc": ("tensorflow.serving.PredictionService", "Predict"),
    "grps-grpc": ("grps.protos.v1.GrpsService", "Predict"),
}
CONFIG = """
listeners:
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}
backends:
  b:
    protocol: PROTOCOL
    endpoints: ["ADDRESS"]
    safe: true
    forward_headers: [authorization]
    policies: [{retry: {attempts: 3, backoff: 0.001}}]
    health: {probe: none, ejection: {max_ejected_share: 1, failures: 7}}
routes:
  - match: {model: m}
    backend: b
    signature:
      inputs: [{name: x, datatype: INT32, shape: [1]}]
      outputs: [{name: y, datatype: INT32, shape: [1]}]
"""


def asked(protocol: str) -> bytes:
    """The message of one inference."""
    request = Request(Operation.INFER, "m", inputs=(tensor("x", np.ones(1, np.int32)),))
    return b"".join(protocols()[protocol].encode_request(request, Target()).parts)


def running(address: str, protocol: str = "v2-grpc") -> AbstractAsyncContextManager[Gateway]:
    return running_gateway(CONFIG.replace("PROTOCOL", protocol).replace("ADDRESS", address))


async def failure(gateway: Gateway, *metadata: tuple[str, str]) -> Any:
    """The error that grpcio gets."""
    async with grpc.aio.insecure_channel(gateway.state.listeners["grpc"].address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(asked("v2-grpc"), metadata=metadata)
    return caught.value


async def over_http(gateway: Gateway) -> tuple[bytes, str]:
    """The head and the error's text that a client over HTTP gets."""
    request = INFER.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
    told, _, body = (await ask(port_of(gateway.state.listeners["http"].address), request)).partition(b"\r\n\r\n")
    return told.lower(), json.loads(body)["error"]


Answer = Callable[[int, dict[bytes, bytes]], bytes]
"""The frames that answer the call of a stream with these header fields."""


def unknown(stream: int, _: object) -> bytes:
    return head(OK, CONTENT_TYPE, (b"grpc-status", b"12"), end=True, stream=stream)


class Answering:
    """A server that answers each inference by `answer` and counts them; any other call by `questions`."""

    def __init__(self, answer: Answer, questions: Answer = unknown) -> None:
        self.inferences = 0
        self._answer = answer
        self._questions = questions

    async def __call__(self, peer: Peer) -> None:
        await peer.opening()
        while True:
            try:
                _, flags, stream, block = await peer.next(HEADERS)
            except asyncio.IncompleteReadError:
                return
            if not flags & END_STREAM:
                await peer.request()
            fields = dict(read(block, 100_000))
            if fields[b":path"].endswith((b"/ModelInfer", b"/Predict")):
                self.inferences += 1
                peer.send(self._answer(stream, fields))
            else:
                peer.send(self._questions(stream, fields))


def page(status: int, *more: tuple[bytes, bytes]) -> Answer:
    """A web page with this status."""

    def answer(stream: int, _: object) -> bytes:
        told = head((b":status", b"%d" % status), (b"content-type", b"text/html"), *more, stream=stream)
        return told + data(b"<html>", end=True, stream=stream)

    return answer


# What grpcio's client gets where it asks the server itself, and what a client of V2 over HTTP gets.
STATUSES = {
    200: ("UNKNOWN", 502),
    302: ("UNKNOWN", 502),
    400: ("INTERNAL", 502),
    401: ("UNAUTHENTICATED", 401),
    403: ("PERMISSION_DENIED", 403),
    404: ("UNIMPLEMENTED", 501),
    413: ("UNKNOWN", 413),
    429: ("UNAVAILABLE", 503),
    431: ("INTERNAL", 431),
    500: ("UNKNOWN", 502),
    502: ("UNAVAILABLE", 503),
    503: ("UNAVAILABLE", 503),
    504: ("UNAVAILABLE", 503),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("status", "expected"), STATUSES.items())
async def test_an_http_status_before_a_grpc_server(status: int, expected: tuple[str, int], protocol: str) -> None:
    name, number = expected
    server = Answering(page(status))
    async with serving(server) as address, running(address, protocol) as gateway:
        error = await failure(gateway)
        tries = server.inferences
        told, text = await over_http(gateway)
    assert error.code().name == name
    assert told.startswith(b"http/1.1 %d " % number)
    for each in (error.details(), text):
        assert f"backend 'b' at {address}: HTTP status {status} without a gRPC status" in each
        assert "a web page (text/html)" in each
    assert tries == (3 if name == "UNAVAILABLE" else 1)


async def test_a_proxy_that_refuses_one_client_serves_the_others() -> None:
    """The gateway's own questions have no credentials either."""

    def answer(stream: int, fields: dict[bytes, bytes]) -> bytes:
        if fields.get(b"authorization") == b"good":
            return head(OK, CONTENT_TYPE, (b"grpc-status", b"9"), (b"grpc-message", b"served"), end=True, stream=stream)
        return page(401)(stream, fields)

    server = Answering(answer, questions=page(401))
    async with serving(server) as address, running(address) as gateway:
        for _ in range(10):
            refused = await failure(gateway, ("authorization", "bad"))
            assert refused.code() is grpc.StatusCode.UNAUTHENTICATED
            assert (await failure(gateway, ("authorization", "good"))).details() == "served"
    assert server.inferences == 20


async def test_a_proxy_says_when_to_come_back() -> None:
    server = Answering(page(429, (b"retry-after", b"7")))
    async with serving(server) as address, running(address) as gateway:
        error = await failure(gateway)
        told, _ = await over_http(gateway)
    assert dict(error.trailing_metadata())["retry-after"] == "7"
    assert b"\r\nretry-after: 7\r\n" in told + b"\r\n"
    assert server.inferences == 2  # it is later than `retry.max_backoff`


async def test_a_proxy_without_its_server_gets_no_calls_after_some_failures_in_a_row() -> None:
    server = Answering(page(502))
    async with serving(server) as address, running(address) as gateway:
        for _ in range(4):
            assert (await failure(gateway)).code() is grpc.StatusCode.UNAVAILABLE
        assert "all endpoints of backend 'b' are down: HTTP status 502" in (await failure(gateway)).details()
    assert server.inferences == 7


# gRPC's doc/PROTOCOL-HTTP2.md; what grpcio's client gets where it asks the server itself
RESETS = {
    1: ("INTERNAL", 502),
    2: ("INTERNAL", 502),
    7: ("UNAVAILABLE", 503),
    8: ("CANCELLED", 499),
    11: ("RESOURCE_EXHAUSTED", 429),
    12: ("PERMISSION_DENIED", 403),
}


@pytest.mark.parametrize(("code", "expected"), RESETS.items())
async def test_a_server_that_resets_calls_keeps_getting_them(code: int, expected: tuple[str, int]) -> None:
    name, number = expected
    server = Answering(lambda stream, _: reset(code, stream))
    async with serving(server) as address, running(address) as gateway:
        error = await failure(gateway)
        assert server.inferences == (3 if name == "UNAVAILABLE" else 1)
        for _ in range(7):
            told, _ = await over_http(gateway)
            assert told.startswith(b"http/1.1 %d " % number)
    assert error.code().name == name
    assert error.details().startswith(f"backend 'b' at {address}: the call was reset: ")


# Real servers.


@asynccontextmanager
async def grpcio_server(
    protocol: str, answer: Callable[[bytes, Any], Awaitable[bytes]], **how: Any
) -> AsyncIterator[str]:
    """The address of a real server, which knows the inference alone."""
    service, method = METHODS[protocol]
    server = grpc.aio.server(**how)
    handlers = {method: grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_server_with_too_many_calls_is_overloaded(protocol: str) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def answer(body: bytes, context: Any) -> bytes:
        begun.set()
        await go.wait()
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "served")
        raise AssertionError

    async with (
        grpcio_server(protocol, answer, maximum_concurrent_rpcs=1) as address,
        running(address, protocol) as gateway,
    ):
        first = asyncio.ensure_future(failure(gateway))
        await begun.wait()
        error = await failure(gateway)
        told, text = await over_http(gateway)
        go.set()
        assert (await first).details() == "served"
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert dict(error.trailing_metadata())["gateway-reason"] == "overloaded"
    assert told.startswith(b"http/1.1 429 ")
    assert text == "Concurrent RPC limit exceeded!"


@pytest.mark.parametrize("pause", [("retry-after", "2"), ("grpc-retry-pushback-ms", "1200")])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_clients_are_told_when_a_busy_server_wants_them_back(protocol: str, pause: tuple[str, str]) -> None:
    async def answer(body: bytes, context: Any) -> bytes:
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "busy", (pause,))
        raise AssertionError

    async with grpcio_server(protocol, answer) as address, running(address, protocol) as gateway:
        error = await failure(gateway)
        told, _ = await over_http(gateway)
    assert dict(error.trailing_metadata())["retry-after"] == "2"
    assert told.startswith(b"http/1.1 429 ")
    assert b"\r\nretry-after: 2\r\n" in told + b"\r\n"


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_message_that_is_too_large_for_a_server_is_not_overload(protocol: str) -> None:
    async def answer(body: bytes, context: Any) -> bytes:
        raise AssertionError

    options = [("grpc.max_receive_message_length", 8)]
    async with grpcio_server(protocol, answer, options=options) as address, running(address, protocol) as gateway:
        error = await failure(gateway)
        told, text = await over_http(gateway)
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert dict(error.trailing_metadata())["gateway-reason"] == "too-large"
    assert told.startswith(b"http/1.1 413 ")
    assert "larger than max" in text
