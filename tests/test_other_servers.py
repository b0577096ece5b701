"""Two model servers in turn on one port: what the gateway remembers of the first one is not true of the second."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from unittest.mock import ANY

import pytest

from gateway.routing import targets
from gateway.runtime.app import Gateway
from tests.interop.processes import free_port
from tests.paused_server import ask, http, port_of
from tests.running_gateway import running_gateway

CONFIG = """
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: [v2-grpc, v2-rest]}}]
backends: {{lab: {{protocol: {protocol}, endpoints: ["127.0.0.1:{port}"]}}}}
routes: [{{match: {{model: "*"}}, backend: lab}}]
"""
QUESTION = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[1.5]}]}'
V2_REPLY = {"model_name": "m", "outputs": [{"name": "y", "datatype": "FP32", "shape": [1], "data": [3.0]}]}


class ModelServer:
    """Answers GET with `told[path]`, or 404, and POST with `reply`; where it `takes_binary` is not set, 400 for a body
    with binary tensors."""

    def __init__(self, told: Mapping[str, object], reply: object, *, takes_binary: bool = False) -> None:
        self.told = told
        self.reply = reply
        self.takes_binary = takes_binary
        self.requests: list[str] = []

    def answer(self, method: str, path: str, head: bytes) -> tuple[int, object]:
        if method == "GET":
            return (200, self.told[path]) if path in self.told else (404, {"error": f"nothing at {path}"})
        if b"inference-header-content-length" in head and not self.takes_binary:
            return 400, {"error": "the body is no JSON"}
        return 200, self.reply

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection, until its client closes it or sends something else than HTTP/1.1."""
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
            while True:
                start = await reader.readexactly(4)
                if start not in (b"GET ", b"POST", b"HEAD", b"PUT "):
                    return  # another protocol, which has no end that a server of HTTP would wait for
                head = (start + await reader.readuntil(b"\r\n\r\n")).lower()
                lines = head.split(b"\r\n")
                await reader.readexactly(sum(int(each[15:]) for each in lines if each.startswith(b"content-length:")))
                method, path, _ = lines[0].decode().split(" ")
                self.requests.append(f"{method.upper()} {path}")
                status, body = self.answer(method.upper(), path, head)
                status_line = b"HTTP/1.1 %d X\r\nContent-Type: application/json" % status
                writer.write(http(status_line, json.dumps(body).encode()))


@asynccontextmanager
async def serving(server: ModelServer, port: int) -> AsyncIterator[ModelServer]:
    """It listens on the port; at the end all its connections are closed."""
    writers: list[asyncio.StreamWriter] = []
    tasks: list[asyncio.Task[None]] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.append(task)
        writers.append(writer)
        await server.handle(reader, writer)

    listening = await asyncio.start_server(connected, "127.0.0.1", port)
    try:
        yield server
    finally:
        listening.close()
        for each in writers:
            each.close()
        await asyncio.gather(*tasks)


def with_binary() -> ModelServer:
    info = {"name": "other", "version": "1", "extensions": ["binary_tensor_data"]}
    return ModelServer({"/v2": info}, V2_REPLY, takes_binary=True)


def mlserver() -> ModelServer:
    return ModelServer({"/v2": {"name": "mlserver", "version": "1", "extensions": []}}, V2_REPLY)


def plain() -> ModelServer:
    """It does not even have server metadata."""
    return ModelServer({}, V2_REPLY)


async def call(gateway: Gateway, path: str = "/v2/models/m/infer", body: bytes = QUESTION) -> tuple[int, object]:
    """The status of the reply and what its JSON says."""
    request = http(f"POST {path} HTTP/1.1\r\nConnection: close".encode(), body)
    head, _, reply = (await ask(port_of(gateway.state.listeners["in"].address), request)).partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]), json.loads(reply)


READ = CONFIG.replace("backend: lab}}]", "backend: lab, rewrite: {{model: n}}}}]")
"""Messages are read on its route, and written in the server's own form."""


@pytest.mark.parametrize("second", [mlserver, plain])
async def test_no_call_fails_where_a_server_takes_the_address_over(second: Callable[[], ModelServer]) -> None:
    port = free_port()
    async with running_gateway(READ.format(protocol="v2-rest", port=port)) as gateway:
        async with serving(with_binary(), port) as first:
            assert (await call(gateway))[0] == 200
            assert first.requests == ["GET /v2", "POST /v2/models/n/infer"]
        async with serving(second(), port) as other:
            assert [(await call(gateway))[0] for _ in range(3)] == [200, 200, 200]
            infer = "POST /v2/models/n/infer"
            assert other.requests == [infer, "GET /v2", infer, infer, infer]
        async with serving(with_binary(), port) as again:
            assert (await call(gateway))[0] == 200
            assert again.requests[0] == infer


async def test_the_first_call_after_a_noticed_outage_is_right_at_once() -> None:
    port = free_port()
    async with running_gateway(READ.format(protocol="v2-rest", port=port)) as gateway:
        async with serving(with_binary(), port):
            assert (await call(gateway))[0] == 200
        assert (await call(gateway))[0] == 503
        async with serving(mlserver(), port) as other:
            assert (await call(gateway))[0] == 200
            assert other.requests == ["GET /v2", "POST /v2/models/n/infer"], "nothing was sent in the old form"


async def test_no_call_reaches_a_new_server_in_the_form_of_the_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """No call meets the outage: the connection closes between two calls."""
    monkeypatch.setattr(targets, "SECONDS_TRUSTED", 0.0)
    port = free_port()
    async with running_gateway(READ.format(protocol="v2-rest", port=port)) as gateway:
        async with serving(with_binary(), port):
            assert (await call(gateway))[0] == 200
            assert (await call(gateway))[0] == 200
        async with serving(mlserver(), port) as other:
            assert [(await call(gateway))[0] for _ in range(2)] == [200, 200]
            infer = "POST /v2/models/n/infer"
            assert other.requests == ["GET /v2", infer, infer]


V1 = """
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: [v2-rest]}}]
backends: {{lab: {{protocol: v1-rest, endpoints: ["127.0.0.1:{port}"]}}}}
routes:
  - match: {{model: "*"}}
    backend: lab
    signature:
      inputs: [{{name: x, datatype: FP32, shape: [-1]}}]
      outputs: [{{name: y, datatype: FP32, shape: [-1]}}]
"""
"""A KServe has no versions, so that the gateway itself refuses a call for one."""


async def test_what_the_gateway_refuses_because_of_the_server_is_asked_of_the_server_again() -> None:
    port, path = free_port(), "/v2/models/m/versions/3/infer"
    kserve = ModelServer({"/": {"status": "alive"}}, {"predictions": [3.0]})
    tensorflow = ModelServer({}, {"predictions": [3.0]})
    async with running_gateway(V1.format(port=port)) as gateway:
        async with serving(kserve, port):
            assert (await call(gateway, "/v2/models/m/infer"))[0] == 200
        async with serving(tensorflow, port):
            assert await call(gateway, path) == (200, ANY)
            assert tensorflow.requests == ["GET /", "POST /v1/models/m/versions/3:predict"]
