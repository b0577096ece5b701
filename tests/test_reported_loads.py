"""A gateway whose servers tell their loads: on pages, in headers of replies, and in trailing metadata of gRPC."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import grpc.aio

from gateway.core.protocol import Target
from tests.paused_server import listening, read_message
from tests.routing.load.test_orca import MESSAGE
from tests.running_gateway import running_gateway
from tests.test_balanced_servers import CLIENT, QUESTION

CONFIG = """
listeners: [{{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}}]
backends: {{lab: {{protocol: {protocol}, flavor: {flavor}, endpoints: {endpoints}, balance: least_load, load: {load}}}}}
routes: [{{match: {{}}, backend: lab, translate: {{}}}}]
"""
ANSWER = {"model_name": "number", "outputs": [{"name": "number", "datatype": "INT32", "shape": [1], "data": [1]}]}


QUEUE = "{from: orca, metric: named_metrics.queue, measures: calls, stale: 600}"
METADATA = {
    "name": "number", "versions": ["1"], "platform": "",
    "inputs": [{"name": "x", "datatype": "INT32", "shape": [1]}],
    "outputs": [{"name": "number", "datatype": "INT32", "shape": [1]}],
}  # fmt: skip


class Server:
    """A server of V2 over HTTP, which is also that of its page of metrics."""

    def __init__(self) -> None:
        self.calls = 0
        self.heads: list[bytes] = []
        self.report = b""
        """The header `endpoint-load-metrics`, for calls that ask for it."""
        self.page = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head, _ = await read_message(reader)
                writer.write(self._reply(head))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _reply(self, head: bytes) -> bytes:
        body, report = self.page, b""
        if head.startswith(b"POST"):
            self.calls += 1
            self.heads.append(head)
            body = json.dumps(ANSWER).encode()
            if self.report and b"endpoint-load-metrics-format: text\r\n" in head:
                report = b"endpoint-load-metrics: %b\r\n" % self.report
        elif b" /v2/models/" in head:
            body = json.dumps(METADATA).encode()
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n%bcontent-length: %d\r\n\r\n"
        return head % (report, len(body)) + body


@asynccontextmanager
async def calling(
    protocol: str, endpoints: list[dict[str, str]], load: str
) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """One call through a gateway with these servers."""
    flavor = "plain" if protocol == "v2-rest" else '""'
    text = CONFIG.format(protocol=protocol, flavor=flavor, endpoints=json.dumps(endpoints), load=load)
    async with (
        running_gateway(text.replace(' flavor: "",', "")) as gateway,
        grpc.aio.insecure_channel(gateway.state.listeners["grpc"].address) as channel,
    ):
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        body = b"".join(CLIENT.encode_request(QUESTION, Target()).parts)
        yield lambda: call(body)


@asynccontextmanager
async def two_servers() -> AsyncIterator[tuple[list[Server], list[dict[str, str]]]]:
    servers = [Server(), Server()]
    async with AsyncExitStack() as stack:
        endpoints = []
        for each in servers:
            address = f"127.0.0.1:{await stack.enter_async_context(listening(each.serve))}"
            endpoints.append({"address": address, "load_url": f"http://{address}/metrics"})
        yield servers, endpoints


async def test_pages_tell_who_is_busy_and_without_them_all_get_calls() -> None:
    async with two_servers() as (servers, endpoints):
        servers[0].page, servers[1].page = b"# TYPE busy gauge\nbusy 50\n", b"busy 1\n"
        load = '{from: prometheus, url: "http://{host}:1/", metric: busy, interval: 0.02, stale: 0.2}'
        async with calling("v2-rest", endpoints, load) as call:
            while servers[0].calls == servers[1].calls:  # until both pages are read
                await call()
            before = servers[0].calls
            for _ in range(20):
                await call()
            assert servers[0].calls == before
            servers[0].page = servers[1].page = b"nothing\n"
            while servers[0].calls < before + 3:
                await call()


async def test_reports_are_asked_for_and_read_in_headers() -> None:
    async with two_servers() as (servers, endpoints):
        for each in endpoints:
            del each["load_url"]
        servers[0].report, servers[1].report = b"TEXT named_metrics.queue=50", b"TEXT named_metrics.queue=0"
        async with calling("v2-rest", endpoints, QUEUE) as call:
            for _ in range(20):
                await call()
            assert (servers[0].calls, servers[1].calls) == (1, 19)


async def test_reports_are_read_in_trailing_metadata() -> None:
    """By the real server of gRPC's own library."""
    counts: Counter[int] = Counter()

    def handler(number: int) -> grpc.GenericRpcHandler:
        async def answer(body: bytes, context: grpc.aio.ServicerContext) -> bytes:
            counts[number] += 1
            queue = MESSAGE if number == 0 else MESSAGE.replace(b"\x10\x40", b"\x00\x00")
            context.set_trailing_metadata((("endpoint-load-metrics-bin", queue),))
            return b"\x0a\x06number"

        methods = {"ModelInfer": grpc.unary_unary_rpc_method_handler(answer)}
        return grpc.method_handlers_generic_handler("inference.GRPCInferenceService", methods)

    endpoints = []
    async with AsyncExitStack() as stack:
        for number in (0, 1):
            server = grpc.aio.server()
            server.add_generic_rpc_handlers((handler(number),))
            endpoints.append({"address": f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"})
            await server.start()
            stack.push_async_callback(server.stop, 0)
        call = await stack.enter_async_context(calling("v2-grpc", endpoints, QUEUE))
        for _ in range(20):
            await call()
    assert counts == {0: 1, 1: 19}


async def test_other_servers_are_not_asked_for_reports() -> None:
    async with two_servers() as (servers, endpoints):
        load = '{from: prometheus, url: "http://{host}:1/", metric: busy}'
        async with calling("v2-rest", endpoints, load) as call:
            await call()
        assert [head for each in servers for head in each.heads if b"endpoint-load" in head] == []
