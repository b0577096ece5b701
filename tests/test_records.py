"""What observers are told of each request, once, over every wire form."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc.aio
import numpy as np
import pytest

from gateway.assembly import registry
from gateway.assembly.connecting import connect
from gateway.assembly.listening import exchanges, listen
from gateway.core.address import Address
from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.exchange import ask
from gateway.core.operations import Operation
from gateway.core.protocol import DEFAULT_LIMITS, ListenerSettings, Protocol, Target
from gateway.core.record import GIVEN_UP, Record
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import tensor
from gateway.core.transport import Destination, Handler
from gateway.observing import recording
from gateway.runtime.app import Gateway
from tests.core.http2 import by_hand as http2
from tests.core.http2.conversation import OPENING, fields
from tests.limits import GENEROUS, until
from tests.paused_server import ask as send_alone
from tests.paused_server import http, listening, port_of
from tests.running_gateway import config_of
from tests.skipping_loop import skip

PROTOCOLS = registry.protocols()
CONFIG = """
listeners:
  - {{name: clients, bind: "{scheme}127.0.0.1:0", protocols: [{client}], model: m, limits: {{message: 100000}}{more}}}
backends: {{server: {{protocol: v2-rest, flavor: plain, endpoints: ["{address}"], max_in_flight: 1}}}}
routes:
  - match: {{}}
    backend: server
    rewrite: {{model: m}}
    signature:
      inputs: [{{name: x, datatype: FP64, shape: [-1, 2]}}]
      outputs: [{{name: y, datatype: FP64, shape: [-1, 2]}}]
"""
V2_REST = PROTOCOLS["v2-rest"]
BODY = b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1,2],"data":[1.5,2.5]}]}'
METHOD = "/inference.GRPCInferenceService/"


def get(path: bytes, headers: bytes = b"") -> bytes:
    """A request whose reply is the connection's last."""
    return b"GET %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%b\r\n" % (path, headers)


def post(body: bytes = BODY, headers: bytes = b"") -> bytes:
    """An inference whose reply is the connection's last."""
    return http(b"POST /v2/models/m/infer HTTP/1.1\r\nConnection: close" + headers, body)


class Observed:
    """A gateway before a model that answers by `infer`, and the records of its requests."""

    def __init__(self, gateway: Gateway, address: str) -> None:
        self.gateway = gateway
        self.address = address
        self.records: list[Record] = []
        self._more = asyncio.Event()
        gateway.observing.observers.append(self._observe)

    def _observe(self, record: Record) -> None:
        self.records.append(record)
        self._more.set()

    @property
    def client(self) -> str:
        return self.gateway.state.listeners["clients"].address

    async def count(self, records: int) -> None:
        """Wait for so many records."""
        while len(self.records) < records:
            self._more.clear()
            await self._more.wait()

    async def one(self) -> Record:
        """The only record."""
        await self.count(1)
        [record] = self.records
        return record

    async def send(self, raw: bytes) -> bytes:
        """Send bytes over a connection of their own, and read to its end."""
        return await send_alone(port_of(self.client), raw)


async def answer(request: Request) -> Answer:
    return Response((tensor("y", np.array([[1.0, 2.0]])),))


V2_GRPC = PROTOCOLS["v2-grpc"]


def over_grpc() -> bytes:
    """The body of an inference over gRPC."""
    return bytes(V2_GRPC.encode_request(request_of(V2_GRPC), Target("gateway")).body)


@asynccontextmanager
async def observed(client: Protocol, infer: Handler = answer, more: str = "", top: str = "") -> AsyncIterator[Observed]:
    def select(request: Request) -> Destination:
        if request.operation is not Operation.INFER:
            raise refusal(Reason.MODEL_NOT_FOUND, f"no {request.operation.value} here")
        return Destination(infer)

    settings = ListenerSettings("server", model="m")
    server = await listen(settings, [(V2_REST, "")], exchanges(settings, select), Address("127.0.0.1", 0))
    scheme = "tcp://" if client.transport == "tcp" else ""
    text = CONFIG.format(scheme=scheme, client=client.name, address=server.address, more=more) + top
    running = Observed(Gateway(config_of(text)), server.address)
    await running.gateway.start()
    try:
        async with asyncio.timeout(GENEROUS):
            yield running
    finally:
        await running.gateway.drain(0)
        await server.drain(0)


def request_of(client: Protocol) -> Request:
    row = np.array([1.0, 2.0])
    return Request(Operation.INFER, "m", inputs=(tensor("x", row if client.traits.wire.points else row[None]),))


async def call(running: Observed, client: Protocol) -> Record:
    """The record of one call of a client, which raises what it gets."""
    connector = connect(running.client, client, DEFAULT_LIMITS)
    try:
        await ask(request_of(client), client, connector, Target("gateway"))
        return await running.one()
    finally:
        await connector.close()


every_client = pytest.mark.parametrize("client", PROTOCOLS.values(), ids=PROTOCOLS)


@every_client
async def test_a_record_says_what_became_of_a_call(client: Protocol, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "next_is_timed", lambda: True)
    async with observed(client) as running:
        record = await call(running, client)
    assert (record.listener, record.in_protocol, record.out_protocol) == ("clients", client.name, "v2-rest")
    assert (record.operation, record.route, record.backend) == ("infer", "any", "server")
    assert (record.endpoint, record.tries, record.status, record.reason) == (running.address, 1, "OK", "")
    assert record.code == {"http": 200, "grpc": 0, "tcp": 0}[client.transport]
    assert record.client.startswith("127.0.0.1:")
    assert record.bytes_in
    assert record.bytes_out
    assert 0 < record.upstream < record.ended - record.received
    assert record.decode > 0
    assert record.encode > 0
    assert len(record.id) == 24


@every_client
async def test_a_record_has_the_error_that_the_client_got(client: Protocol) -> None:
    async def fail(request: Request) -> Answer:
        raise refusal(Reason.OVERLOADED, "too much")

    async with observed(client, fail) as running:
        with pytest.raises(GatewayError):
            await call(running, client)
        record = await running.one()
    assert (record.status, record.reason, record.tries) == ("RESOURCE_EXHAUSTED", "overloaded", 1)


@every_client
async def test_a_call_that_its_client_gave_up_is_cancelled(client: Protocol) -> None:
    arrived, release = asyncio.Event(), asyncio.Event()

    async def hang(request: Request) -> Answer:
        arrived.set()
        await release.wait()
        return await answer(request)

    async with observed(client, hang) as running:
        connector = connect(running.client, client, DEFAULT_LIMITS)
        asked = asyncio.ensure_future(ask(request_of(client), client, connector, Target("gateway")))
        await arrived.wait()
        await connector.close()
        await asyncio.gather(asked, return_exceptions=True)
        if client.transport == "tcp":  # these clients cannot say that they leave, but by closing their connection
            release.set()
        record = await running.one()
        release.set()
    assert (record.status, record.reason) == ("CANCELLED", "cancelled")
    assert (record.code, record.tries) == (GIVEN_UP[client.transport], 1)


@pytest.mark.parametrize(
    ("raw", "reason", "code"),
    [
        (get(b"/nothing"), "path-not-found", 404),
        (b"PATCH /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "method-not-allowed", 405),
        (b"GARBAGE\r\n\r\n", "invalid-input", 400),
        (b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n", "too-large", 413),
        (b"GET /v2 HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 70000 + b"\r\n\r\n", "headers-too-large", 431),
        (post(b"{"), "invalid-input", 400),
        (post(b"{", b"\r\nContent-Encoding: gzip"), "invalid-input", 400),
    ],
    ids=["path", "method", "line", "length", "headers", "body", "coding"],
)
async def test_what_the_http_listener_refuses_is_told_once(raw: bytes, reason: str, code: int) -> None:
    async with observed(V2_REST) as running:
        reply = await running.send(raw)
        record = await running.one()
    assert reply.startswith(b"HTTP/1.1 %d " % code)
    assert (record.reason, record.code, record.tries, record.backend) == (reason, code, 0, "")


async def test_what_the_grpc_listener_refuses_is_told_once() -> None:
    async with observed(V2_GRPC) as running:
        for method, body, status, reason in (
            ("/nothing.Here/Call", b"", "UNIMPLEMENTED", "unsupported"),
            (METHOD + "ModelInfer", b"x" * 200_000, "RESOURCE_EXHAUSTED", "too-large"),
            (METHOD + "ModelInfer", b"\xff", "INVALID_ARGUMENT", "invalid-input"),
        ):
            running.records.clear()
            async with grpc.aio.insecure_channel(running.client) as channel:
                with pytest.raises(grpc.aio.AioRpcError):
                    await channel.unary_unary(method)(body)
            record = await running.one()
            assert (record.status, record.reason) == (status, reason)
            assert record.code == grpc.StatusCode[status].value[0]


GZIP = (b"grpc-encoding", b"gzip")


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ([GZIP], b"\1\0\0\0\4text", "INTERNAL"),
        ([GZIP], b"\1" + len(packed := gzip.compress(bytes(200_000))).to_bytes(4) + packed, "RESOURCE_EXHAUSTED"),
        ([], b"\1\0\0\0\4text", "INTERNAL"),
        ([], b"\2\0\0\0\4text", "INTERNAL"),
        ([], b"\0\0\0\0\5text", "INTERNAL"),
    ],
    ids=["not gzip", "a bomb", "without an encoding", "no such flag", "cut off"],
)
async def test_a_grpc_message_that_cannot_be_read_is_told_once(
    headers: list[tuple[bytes, bytes]], body: bytes, status: str
) -> None:
    """As the only one of a call, and after one that was answered in a stream."""
    async with observed(V2_GRPC) as running:
        raw = http2.head(*fields((METHOD + "ModelInfer").encode(), *headers)) + http2.frame(http2.DATA, 1, 1, body)
        async with sent(running, OPENING + raw):
            assert (await running.one()).status == status
        running.records.clear()
        raw = http2.head(*fields((METHOD + "ModelStreamInfer").encode(), *headers)) + http2.data(over_grpc())
        async with sent(running, OPENING + raw) as writer:
            await running.count(1)
            writer.write(http2.frame(http2.DATA, 1, 1, body))
            await running.count(2)
        assert [each.status for each in running.records] == ["OK", status]


@asynccontextmanager
async def sent(running: Observed, raw: bytes) -> AsyncIterator[asyncio.StreamWriter]:
    """A connection over which these bytes are sent, and perhaps more."""
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(running.client))
    writer.write(raw)
    try:
        yield writer
    finally:
        writer.close()


async def test_a_grpc_call_that_the_deadline_ends_is_late_and_not_cancelled() -> None:
    begun = asyncio.Event()

    async def hang(request: Request) -> Answer:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with observed(V2_GRPC, hang) as running:
        async with grpc.aio.insecure_channel(running.client) as channel:
            call = channel.unary_unary(METHOD + "ModelInfer")(over_grpc(), timeout=30)
            await begun.wait()
            await skip(30)
            assert await call.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        record = await running.one()
        assert record.status == "DEADLINE_EXCEEDED"


async def test_each_message_of_a_stream_has_a_record() -> None:
    async with observed(V2_GRPC) as running:
        async with grpc.aio.insecure_channel(running.client) as channel:
            call = channel.stream_stream(METHOD + "ModelStreamInfer")()
            for _ in range(2):
                await call.write(over_grpc())
                await call.read()
            await call.done_writing()
            assert await call.code() is grpc.StatusCode.OK
        assert [each.status for each in running.records] == ["OK", "OK"]
        # The server has no stream for the model: it is asked for one response then.
        assert [each.tries for each in running.records] == [2, 2]
        assert all(each.bytes_out for each in running.records)


async def test_grpcs_own_services_are_told() -> None:
    health, reflection = "/grpc.health.v1.Health/", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
    asked = b"\x3a\x01*"  # list_services
    async with observed(V2_GRPC) as running, grpc.aio.insecure_channel(running.client) as channel:
        check, unknown = channel.unary_unary(health + "Check"), b"\x0a\x07no.Such"
        assert await check(b"") == b"\x08\x02"  # NOT_SERVING: the server has no health
        with pytest.raises(grpc.aio.AioRpcError):
            await check(unknown)
        with pytest.raises(grpc.aio.AioRpcError):
            await check(b"\xff")
        watch = channel.unary_stream(health + "Watch")(unknown)
        assert await watch.read() == b"\x08\x03"  # SERVICE_UNKNOWN
        await running.count(4)  # while it is still watched
        watch.cancel()
        questions = channel.stream_stream(reflection)()
        for _ in range(2):
            await questions.write(asked)
            assert b"ServerReflection" in await questions.read()
        await questions.done_writing()
        assert await questions.code() is grpc.StatusCode.OK
    told = [(each.operation, each.status, each.code, each.reason) for each in running.records]
    assert told == [
        ("health", "OK", 0, "not-ready"),
        ("health", "NOT_FOUND", 5, "path-not-found"),
        ("health", "INVALID_ARGUMENT", 3, "invalid-input"),
        ("health", "OK", 0, "path-not-found"),
        ("reflection", "OK", 0, ""),
        ("reflection", "OK", 0, ""),
    ]
    assert {(each.in_protocol, each.listener, each.route) for each in running.records} == {("grpc", "clients", "")}
    assert running.records[0].bytes_out == 2
    assert running.records[4].bytes_out > 100


async def test_what_the_gateway_answers_itself_is_told() -> None:
    async with observed(V2_REST) as running:
        await running.send(get(b"/v2/health/live"))
        record = await running.one()
    assert (record.operation, record.code, record.route, record.tries) == ("live", 200, "", 0)


async def test_the_wait_in_a_queue_is_told() -> None:
    release = asyncio.Event()

    async def hang(request: Request) -> Answer:
        await release.wait()
        return await answer(request)

    async with observed(V2_REST, hang) as running:
        connectors = [connect(running.client, V2_REST, DEFAULT_LIMITS) for _ in range(2)]
        calls = [
            asyncio.ensure_future(ask(request_of(V2_REST), V2_REST, each, Target("gateway"))) for each in connectors
        ]
        await until(lambda: running.gateway.state.status().backends["server"].waiting, 0)
        release.set()
        await asyncio.gather(*calls)
        for each in connectors:
            await each.close()
    waited = sorted(each.queued for each in running.records)
    assert waited[0] == 0 < waited[1]


async def test_without_observers_nothing_is_noted() -> None:
    async with observed(V2_REST) as running:
        running.gateway.observing.observers.clear()
        await running.gateway.reload(running.gateway.state.config.model_copy(update={"ready": "none"}))
        reply = await running.send(get(b"/v2/health/live"))
    assert b"x-request-id" not in reply
    assert not running.records


TRACEPARENT = b"\r\ntraceparent: 00-" + b"a" * 32 + b"-" + b"b" * 16 + b"-01"
ID_CASES: list[tuple[bytes, Callable[[bytes], bool]]] = [
    (b"\r\nx-request-id: abc-1", lambda told: told == b"abc-1"),
    (b"\r\nX-Request-ID: abc-1" + TRACEPARENT, lambda told: told == b"abc-1"),
    (TRACEPARENT, lambda told: told == b"a" * 32),
    (b"\r\nx-request-id: two words", lambda told: len(told) == 24),
    (b"\r\nx-request-id: " + b"a" * 129, lambda told: len(told) == 24),
    (b"", lambda told: len(told) == 24),
]


def told_id(head: bytes) -> bytes:
    [line] = [line for line in head.split(b"\r\n\r\n")[0].split(b"\r\n") if line.lower().startswith(b"x-request-id:")]
    return line.split(b": ")[1]


@pytest.mark.parametrize(("headers", "is_right"), ID_CASES)
async def test_a_request_id_is_accepted_or_made_and_returned_over_http(
    headers: bytes, is_right: Callable[[bytes], bool]
) -> None:
    async with observed(V2_REST, top="request_ids: {}") as running:
        running.gateway.observing.observers.clear()
        reply = await running.send(post(headers=headers))
    assert reply.startswith(b"HTTP/1.1 200 ")
    assert is_right(told_id(reply))


async def test_a_request_id_is_returned_over_grpc_and_names_what_answered() -> None:
    async with (
        observed(V2_GRPC, more=", reply_headers: true", top="request_ids: {}") as running,
        grpc.aio.insecure_channel(running.client) as channel,
    ):
        call = channel.unary_unary(METHOD + "ModelInfer")(over_grpc(), metadata=(("x-request-id", "g-1"),))
        await call
        trailers = dict(await call.trailing_metadata() or ())
    assert trailers["x-request-id"] == "g-1"
    assert (trailers["gateway-route"], trailers["gateway-backend"]) == ("any", "server")
    assert trailers["gateway-tries"] == "1"


@pytest.mark.parametrize(
    ("top", "told"),
    [("", (False, True)), ("request_ids: {}", (True, True)), ("request_ids: {reply: false}", (False, False))],
    ids=["not configured", "configured", "not in replies"],
)
async def test_which_replies_have_an_id(top: str, told: tuple[bool, bool]) -> None:
    """Of a call that succeeds and one that fails. Observing alone changes no reply that succeeds."""
    async with observed(V2_REST, top=top) as running:
        replies = [await running.send(post(body)) for body in (BODY, b"{")]
    ids = [b"x-request-id: %b\r\n" % each.id.encode() for each in running.records]
    assert tuple(id_ in reply for id_, reply in zip(ids, replies, strict=True)) == told
    async with observed(V2_GRPC, top=top) as running, grpc.aio.insecure_channel(running.client) as channel:
        infer = channel.unary_unary(METHOD + "ModelInfer")
        has_id = []
        for body in (over_grpc(), b"\xff"):
            call = infer(body)
            await call.code()
            has_id.append("x-request-id" in dict(await call.trailing_metadata() or ()))
    assert tuple(has_id) == told


@pytest.mark.parametrize(("more", "is_told"), [("", False), (", reply_headers: true", True)])
async def test_replies_name_what_answered_where_the_listener_says_so(more: str, is_told: bool) -> None:
    async with observed(V2_REST, more=more) as running:
        reply = await running.send(post())
    assert (b"gateway-route: any\r\ngateway-backend: server\r\ngateway-tries: 1\r\n" in reply) == is_told


async def test_an_unexpected_error_names_the_request_to_client_and_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with observed(V2_REST) as running:
        router = running.gateway.state.assembly.router
        monkeypatch.setattr(type(router), "select", lambda self, request: 1 / 0)
        await running.gateway.reload(running.gateway.state.config.model_copy(update={"ready": "none"}))
        reply = await running.send(get(b"/v2/models/m", b"x-request-id: lost-1\r\n"))
    assert reply.startswith(b"HTTP/1.1 500 ")
    assert b"request id lost-1" in reply
    assert caplog.text.count("unexpected error in request lost-1") == 1
    assert caplog.text.count("ZeroDivisionError") == 1
    assert running.records[0].reason == "internal"


PASSING = """
listeners: [{{name: clients, bind: "127.0.0.1:0", protocols: [grps-rest], reply_headers: true}}]
backends: {{lab: {{protocol: grps-rest, endpoints: ["127.0.0.1:{port}"]}}}}
routes: [{{match: {{path: /own}}, backend: lab, passthrough: true}}]
request_ids: {{}}
"""


@pytest.mark.parametrize(
    ("line", "code", "status"),
    [(b"200 OK", 200, "OK"), (b"404 Not Found", 404, "NOT_FOUND"), (b"500 X", 500, "INTERNAL")],
)
async def test_a_reply_that_is_passed_on_has_one_request_id(line: bytes, code: int, status: str) -> None:
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).lower())
        writer.write(b"HTTP/1.1 %b\r\nX-Request-Id: theirs\r\nContent-Length: 2\r\n\r\nhi" % line)
        writer.close()

    async with listening(serve) as port, asyncio.timeout(GENEROUS):
        running = Observed(Gateway(config_of(PASSING.format(port=port))), "")
        await running.gateway.start()
        reply = await running.send(http(b"POST /own HTTP/1.1\r\nConnection: close\r\nX-Request-ID: ours", b""))
        record = await running.one()
        await running.gateway.drain(0)
    assert reply.endswith(b"hi")
    assert told_id(reply) == b"ours"
    assert b"gateway-backend: lab\r\n" in reply
    assert heads[0].count(b"x-request-id") == heads[0].count(b"\r\nx-request-id: ours\r\n") == 1
    assert (record.status, record.code, record.bytes_out, record.backend) == (status, code, 2, "lab")
