"""Traces of real requests through real gateways, as a collector gets them."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from threading import Event

import grpc.aio
import numpy as np
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gateway.assembly import registry
from gateway.assembly.connecting import connect
from gateway.assembly.listening import exchanges, listen
from gateway.assembly.server_info import INFO
from gateway.core.address import Address
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import DEFAULT_LIMITS, ListenerSettings, Target
from gateway.core.record import Record
from gateway.core.requests import Request, Response
from gateway.core.spans import MOST_SPANS
from gateway.core.spans import Span as Part
from gateway.core.streaming import ask_stream
from gateway.core.tensors import tensor
from gateway.core.transport import Destination
from gateway.observing import collector as collector_module
from gateway.observing import otlp
from gateway.observing import tracing as tracing_module
from gateway.observing.tracing import MOST_SPANS_WAITING, MOST_WAITING, Tracing
from gateway.protocols.grps.schema import RpcMeta
from gateway.runtime.app import Gateway
from tests import records
from tests.observing.collector import Collector, attributes, collecting
from tests.paused_server import port_of
from tests.policies.states import mirrors
from tests.protocols.grps.brpc.recorded import META, PAYLOAD, joined
from tests.running_gateway import config_of, reference, running_gateway

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
INFER = "/v2/models/posterior/infer"
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}]}).encode()

SIGNATURE = """
    signature:
      inputs: [{name: x, datatype: FP64, shape: [-1, 2]}]
      outputs: [{name: y, datatype: FP64, shape: [-1, 1]}]
"""
FRONT = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
tracing: {otlp: "COLLECTOR", sample: SAMPLE, service: front, interval: 3600, headers: {x-key: hidden}}
backends: {next: {protocol: v2-grpc, flavor: plain, endpoints: ["127.0.0.1:PORT"]}}
routes:
  - match: {model: "*"}
    backend: next"""
BACK = """
listeners: [{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}]
tracing: {otlp: "COLLECTOR", sample: SAMPLE, service: back, interval: 3600}
backends: {lab: {protocol: umbridge, endpoints: ["http://127.0.0.1:REFERENCE"]}}
routes:
  - match: {model: posterior}
    backend: lab"""


FRONT, BACK = FRONT + SIGNATURE, BACK + SIGNATURE


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


def running(text: str, collector: Collector, sample: float = 1, **values: int) -> AbstractAsyncContextManager[Gateway]:
    text = text.replace("COLLECTOR", collector.url).replace("SAMPLE", str(sample))
    for name, number in values.items():
        text = text.replace(name, str(number))
    return running_gateway(text, drain=1)


def port(gateway: Gateway, listener: str) -> int:
    return port_of(gateway.state.listeners[listener].address)


async def post(at: int, path: str, body: bytes, *headers: str) -> tuple[str, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", at)
    head = [f"POST {path} HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}", *headers]
    writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
    reply = await reader.read()
    writer.close()
    answered, _, content = reply.partition(b"\r\n\r\n")
    return answered.decode(), content


def of_service(collector: Collector, service: str) -> list[Span]:
    services = collector.services()
    return [span for span in collector.spans if services[span.span_id] == service]


def by_name(collector: Collector, service: str) -> dict[str, Span]:
    return {span.name: span for span in of_service(collector, service)}


def of_kind(collector: Collector, service: str, kind: object) -> list[Span]:
    return [span for span in of_service(collector, service) if span.kind == kind]


@asynccontextmanager
async def two_gateways(
    collector: Collector, sample: float, sample_of_back: float | None = None
) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """A gateway for all clients, in front of one that speaks V2 over gRPC, in front of an UM-Bridge server."""
    back_sample = sample if sample_of_back is None else sample_of_back
    async with (
        reference("umbridge", "posterior") as server,
        running(BACK, collector, back_sample, REFERENCE=port_of(server)) as back,
        running(FRONT, collector, sample, PORT=port(back, "grpc")) as front,
    ):
        yield front, back


async def test_one_trace_goes_through_two_gateways(collector: Collector) -> None:
    """From a client's own span through both gateways, over HTTP and gRPC: each span is below the one that caused it."""
    async with two_gateways(collector, 0) as (front, _):
        context = f"Traceparent: 00-{TRACE}-{PARENT}-01", "Tracestate: vendor=1"
        head, _ = await post(port(front, "http"), INFER, BODY, *context)
        assert head.startswith("HTTP/1.1 200")
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    first, second = by_name(collector, "front"), by_name(collector, "back")
    request = first["POST /v2/models/{model}/infer"]
    assert (request.parent_span_id.hex(), request.kind) == (PARENT, Span.SPAN_KIND_SERVER)
    (sent,) = of_kind(collector, "front", Span.SPAN_KIND_CLIENT)
    assert (sent.name, sent.parent_span_id) == ("inference.GRPCInferenceService/ModelInfer", request.span_id)
    received = second["inference.GRPCInferenceService/ModelInfer"]
    assert (received.parent_span_id, received.kind) == (sent.span_id, Span.SPAN_KIND_SERVER)
    (last,) = (span for span in second.values() if span.kind == Span.SPAN_KIND_CLIENT)
    assert (last.name, last.parent_span_id) == ("POST", received.span_id)
    for parts, above in ((first, request), (second, received)):
        assert {"decode", "fit", "fit reply", "encode"} <= parts.keys()
        assert {parts[name].parent_span_id for name in ("decode", "fit", "fit reply", "encode")} == {above.span_id}
    assert {first[name].parent_span_id for name in ("encode request", "decode reply")} == {sent.span_id}


async def test_spans_have_the_attributes_of_the_conventions(collector: Collector) -> None:
    async with two_gateways(collector, 1) as (front, back):
        await post(port(front, "http"), INFER, BODY, "X-Request-Id: mine")
        endpoint = port(back, "grpc")
    first, second = by_name(collector, "front"), by_name(collector, "back")
    known = attributes(first["POST /v2/models/{model}/infer"].attributes)
    assert known.items() >= {
        "http.request.method": "POST", "http.route": "/v2/models/{model}/infer", "http.response.status_code": 200,
        "url.path": INFER, "client.address": "127.0.0.1", "gateway.request_id": "mine",
        "gateway.model": "posterior", "gateway.route": "*", "gateway.backend": "next", "gateway.tries": 1,
        "gateway.status": "OK", "gateway.in_protocol": "v2-rest", "gateway.out_protocol": "v2-grpc",
    }.items()  # fmt: skip
    (sent,) = (span for span in first.values() if span.kind == Span.SPAN_KIND_CLIENT)
    assert attributes(sent.attributes).items() >= {
        "rpc.system.name": "grpc", "rpc.method": "inference.GRPCInferenceService/ModelInfer",
        "rpc.response.status_code": "OK", "server.address": "127.0.0.1", "server.port": endpoint,
        "gateway.endpoint": f"127.0.0.1:{endpoint}",
    }.items()  # fmt: skip
    received = attributes(second["inference.GRPCInferenceService/ModelInfer"].attributes)
    assert received["rpc.response.status_code"] == "OK"
    for span in collector.spans:
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
    assert {each["x-key"] for each in collector.headers if "x-key" in each} == {"hidden"}


@pytest.mark.parametrize(("sample", "flags"), [(0, None), (1, "00")], ids=["by share", "by the client"])
async def test_what_is_not_sampled_is_not_sent(collector: Collector, sample: float, flags: str | None) -> None:
    """Neither by this gateway nor, since it is told so, by the next one."""
    async with two_gateways(collector, sample, sample_of_back=1) as (front, _):
        headers = [f"traceparent: 00-{TRACE}-{PARENT}-{flags}"] if flags else []
        head, _ = await post(port(front, "http"), INFER, BODY, *headers)
        assert head.startswith("HTTP/1.1 200")
    assert collector.requests == []


async def test_errors_are_told_by_the_span_of_the_try_and_of_the_request(collector: Collector) -> None:
    async with running(FRONT, collector, PORT=1) as front:  # nobody listens there
        head, _ = await post(port(front, "http"), INFER, BODY)
        assert head.startswith("HTTP/1.1 503")
        await post(port(front, "http"), INFER, b"{")
    (sent,) = of_kind(collector, "front", Span.SPAN_KIND_CLIENT)
    known = attributes(sent.attributes)
    assert (known["error.type"], known["rpc.response.status_code"]) == ("unreachable", "UNAVAILABLE")
    assert (known["server.address"], known["server.port"]) == ("127.0.0.1", 1)
    errors = [span for span in collector.spans if span.status.code == Status.STATUS_CODE_ERROR]
    assert [span.kind for span in errors] == [Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT]
    assert attributes(errors[0].attributes)["error.type"] == "unreachable"
    assert "cannot connect" in errors[1].status.message or "refused" in errors[1].status.message
    faults = [attributes(span.attributes) for span in collector.spans if span.kind == Span.SPAN_KIND_SERVER]
    assert faults[1]["http.response.status_code"] == 400
    assert faults[1]["error.type"] == "invalid-input"


@pytest.mark.parametrize("status", [404, 503])
async def test_a_try_over_http_has_its_url_and_its_status(collector: Collector, status: int) -> None:
    """A 404 is the client's fault on the request's span, and an error of the try, as the conventions have it."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % status)
        writer.close()

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    number = server.sockets[0].getsockname()[1]
    text = FRONT.replace("v2-grpc, flavor", "v2-rest, flavor").replace("127.0.0.1:PORT", "http://127.0.0.1:PORT/lab/")
    async with running(text, collector, PORT=number) as front:
        await post(port(front, "http"), "/v2/models/posterior/infer?secret=1", BODY)
    server.close()
    (request,) = of_kind(collector, "front", Span.SPAN_KIND_SERVER)
    (sent,) = of_kind(collector, "front", Span.SPAN_KIND_CLIENT)
    known = attributes(sent.attributes)
    assert (known["http.response.status_code"], known["error.type"]) == (status, str(status))
    assert known["url.full"] == f"http://127.0.0.1:{number}/lab/v2/models/posterior/infer"
    assert sent.status.code == Status.STATUS_CODE_ERROR
    assert (request.status.code == Status.STATUS_CODE_ERROR) == (status >= 500)


async def test_a_method_that_the_client_made_up_is_no_name(collector: Collector) -> None:
    async with running(FRONT, collector, PORT=1) as front:
        reader, writer = await asyncio.open_connection("127.0.0.1", port(front, "http"))
        writer.write(b"MADEUP /v2 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await reader.read()
        writer.close()
    (request,) = collector.spans
    known = attributes(request.attributes)
    assert known["http.request.method"] == "_OTHER"
    assert "MADEUP" not in str(known)
    assert request.name.startswith("HTTP")
    assert request.status.code != Status.STATUS_CODE_ERROR


async def test_spans_say_of_which_service_they_are(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "OTEL_RESOURCE_ATTRIBUTES", "k8s.pod.name=gateway-1, a%20b = c%2Cd=e ,service.name=other,,broken"
    )
    async with running(FRONT, collector, PORT=1) as front:
        await post(port(front, "http"), INFER, b"{")
    [request] = collector.requests
    [resource] = request.resource_spans
    found = attributes(resource.resource.attributes)
    assert found.pop("service.instance.id")
    assert found == {
        "k8s.pod.name": "gateway-1", "a b": "c,d=e", "service.name": "front", "service.version": INFO.version,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("endpoint", "server"),
    [
        ("lab:9000", ("lab", 9000)),
        ("http://lab", ("lab", 80)),
        ("https://lab/prefix", ("lab", 443)),
        ("grpcs://[::1]:8001", ("::1", 8001)),
        ("dns:///lab:8001", ("lab", 8001)),
        ("unix:/run/lab.sock", ("/run/lab.sock", None)),
        ("unix:///run/lab.sock", ("/run/lab.sock", None)),
        ("lab:port", (None, None)),
        ("lab:99999", (None, None)),
    ],
)
def test_the_address_of_a_server(endpoint: str, server: tuple[str | None, int | None]) -> None:
    found = otlp._server(endpoint, is_secure=False)
    assert (found.get("server.address"), found.get("server.port")) == server


async def test_metadata_carries_the_trace_from_and_to_grpc(collector: Collector) -> None:
    async with (
        two_gateways(collector, 0) as (front, _),
        grpc.aio.insecure_channel(f"127.0.0.1:{port(front, 'grpc')}") as channel,
    ):
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelMetadata")
        await call(b"\n\x09posterior", metadata=[("traceparent", f"00-{TRACE}-{PARENT}-01")])
    front_span = by_name(collector, "front")["inference.GRPCInferenceService/ModelMetadata"]
    assert (front_span.trace_id.hex(), front_span.parent_span_id.hex()) == (TRACE, PARENT)


FAILING = FRONT.replace("interval: 3600", "interval: 3600, timeout: SECONDS") + 'health: {bind: "127.0.0.1:0"}\n'
"""The collector has a bounded time for a batch."""


@pytest.mark.parametrize(
    ("status", "seconds", "why"),
    [(400, 30, "400"), (500, 30, "500"), (503, 30, "Service Unavailable"), (0, 30, "onnection"), (200, 1, "timeout")],
    ids=["refuses", "fails", "is away for now", "closes", "never answers"],
)
async def test_a_collector_that_fails_costs_one_line_of_the_log_and_no_time(
    collector: Collector,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    seconds: float,
    why: str,
) -> None:
    monkeypatch.setattr(collector_module, "sleep", lambda _: None)  # between attempts
    collector.status, answers = status, status != 200
    if not answers:
        collector.answers.clear()
    with caplog.at_level(logging.WARNING):
        async with running(FAILING.replace("SECONDS", str(seconds)), collector, PORT=1) as front:
            tracing = front.observing.tracing
            assert tracing is not None
            tracing_module._lines._intervals.clear()
            for number in range(3):
                await post(port(front, "http"), INFER, b"{")
                sending = asyncio.ensure_future(tracing.flush())
                await asyncio.sleep(0)
                if not answers:  # the reply comes while the collector has the batch
                    await post(port(front, "http"), INFER, b"{")
                    assert not sending.done() or number
                await sending
            collector.answers.set()
            counts = front.observing.traces
            assert (counts.sent, counts.dropped) == (0, 3 if answers else 5)
            page = front.metrics.page(front.state.config)
            assert page is not None
            assert b"gateway_traces_dropped_total %d.0" % counts.dropped in b"".join(page.reply(Message()).parts)
    lines = [each.getMessage() for each in caplog.records if "spans of" in each.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith("tracing: sending the spans of 1 requests failed")
    assert why in lines[0]
    assert "hidden" not in caplog.text


async def test_an_export_that_breaks_does_not_end_tracing(caplog: pytest.LogCaptureFixture) -> None:
    def export(records: Sequence[Record]) -> str:
        raise ZeroDivisionError

    tracing = Tracing(export, 1, 3600)
    tracing.observe(records.made((), "id", "", "", "", 0, 0))
    await tracing.flush()
    assert tracing.counts.dropped == 1
    assert "ZeroDivisionError" in caplog.text


async def test_what_waits_for_the_collector_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    tracing = Tracing(lambda records: "", 1, 3600)
    record = records.made((), "id", "", "", "", 0, 0)
    for _ in range(MOST_WAITING + 5):
        tracing.observe(record)
    assert tracing.counts.dropped == 5
    await tracing.flush()
    assert tracing.counts.sent == MOST_WAITING
    assert "dropped the spans of 5 requests" in caplog.text
    record.events = [Part("encode", None, 0.0)] * MOST_SPANS
    for _ in range(MOST_WAITING):
        tracing.observe(record)
    await tracing.flush()
    assert tracing.counts.sent == MOST_WAITING + MOST_SPANS_WAITING // MOST_SPANS


async def test_the_end_does_not_wait_for_a_collector_that_never_answers(caplog: pytest.LogCaptureFixture) -> None:
    release = Event()

    def export(records: Sequence[Record]) -> str:
        release.wait()
        return ""

    tracing = Tracing(export, 1, 3600)
    tracing.observe(records.made((), "id", "", "", "", 0, 0))
    await tracing.stop(0.01)
    assert tracing.counts.dropped == 1
    assert "did not take the last spans" in caplog.text
    release.set()


async def test_a_reload_begins_changes_and_ends_tracing(collector: Collector) -> None:
    plain = "\n".join(line for line in FRONT.splitlines() if not line.startswith("tracing:"))
    async with running(plain, collector, PORT=1) as front:
        at = port(front, "http")
        await post(at, INFER, b"{")
        traced = FRONT.replace("COLLECTOR", collector.url).replace("SAMPLE", "1").replace("PORT", "1")
        assert await front.reload(config_of(traced)) == ("tracing changed",)
        await post(at, INFER, b"{")
        tracing = front.observing.tracing
        assert tracing is not None
        await front.reload(config_of(plain.replace("PORT", "1")))
        assert front.observing.tracing is None
        await post(at, INFER, b"{")
        await tracing.flush()
    assert [span.kind for span in collector.spans].count(Span.SPAN_KIND_SERVER) == 1


BRPC = """
listeners: [{name: brpc, bind: "tcp://127.0.0.1:0", protocols: [grps-brpc]}]
tracing: {otlp: "COLLECTOR", sample: 0, service: NAME, interval: 3600}
request_ids: {}
backends: {next: {protocol: grps-brpc, endpoints: ["tcp://127.0.0.1:PORT"]}}
routes: [{match: {model: "*"}, backend: next, signature: SIGNATURE}]
""".replace(
    "SIGNATURE",
    "{inputs: [{name: x, datatype: FP32, shape: [-1, 3]}], outputs: [{name: y, datatype: FP32, shape: [-1, 3]}]}",
)


async def test_brpc_carries_the_id_and_the_lower_half_of_the_trace(collector: Collector) -> None:
    """From a brpc client through two gateways, of which the first forwards by brpc."""
    meta = RpcMeta()
    meta.ParseFromString(META)
    meta.request.request_id, meta.request.trace_id, meta.request.span_id = "mine", 0x123456789ABCDEF, 0xFEDCBA9876543
    async with (
        running(BRPC.replace("NAME", "back"), collector, PORT=1) as back,
        running(BRPC.replace("NAME", "front"), collector, PORT=port(back, "brpc")) as front,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port(front, "brpc"))
        writer.write(joined(meta.SerializeToString(), PAYLOAD))
        await reader.readexactly(12)
        writer.close()
    assert {span.trace_id.hex() for span in collector.spans} == {f"{0x123456789ABCDEF:032x}"}
    (request,) = of_kind(collector, "front", Span.SPAN_KIND_SERVER)
    (sent,) = of_kind(collector, "front", Span.SPAN_KIND_CLIENT)
    (received,) = of_kind(collector, "back", Span.SPAN_KIND_SERVER)
    assert request.parent_span_id.hex() == f"{0xFEDCBA9876543:016x}"
    assert received.parent_span_id == sent.span_id
    ids = {attributes(span.attributes)["gateway.request_id"] for span in (request, received)}
    assert ids == {"mine"}


STREAMS = """
listeners: [{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}]
tracing: {otlp: "COLLECTOR", sample: 1, service: front, interval: 3600}
backends: {next: {protocol: v2-grpc, flavor: plain, endpoints: ["127.0.0.1:PORT"]}}
routes:
  - match: {model: "*"}
    backend: next
    signature:
      inputs: [{name: x, datatype: FP32, shape: [-1]}]
      outputs: [{name: y, datatype: FP32, shape: [-1]}]

"""


async def test_a_stream_has_one_span_for_each_part_of_the_work(collector: Collector) -> None:
    """However many responses it has: more than a request may have spans."""
    responses = MOST_SPANS + 50
    x = tensor("x", np.zeros(1, np.float32))

    async def count(request: Request) -> AsyncGenerator[Response, None]:
        for at in range(responses):
            yield Response((tensor("y", np.array([at], np.float32)),))

    v2 = registry.protocols()["v2-grpc"]
    handlers = exchanges(ListenerSettings("model", model="m"), lambda request: Destination(stream=count))
    model = await listen(ListenerSettings("model", model="m"), [(v2, "")], handlers, Address("127.0.0.1", 0))
    try:
        async with running(STREAMS, collector, PORT=int(model.address.rpartition(":")[2])) as front:
            connector = connect(f"127.0.0.1:{port(front, 'grpc')}", v2, DEFAULT_LIMITS)
            asked = Request(Operation.STREAM, "m", inputs=(x,))
            got = [each async for each in ask_stream(asked, v2, connector, Target("front"))]
            await connector.close()
    finally:
        await model.drain(0)
    assert len(got) == responses
    internal = of_kind(collector, "front", Span.SPAN_KIND_INTERNAL)
    names = sorted(span.name for span in internal)
    assert names == ["decode", "decode reply", "encode", "encode request", "fit", "fit reply"]
    spans = {span.name: span for span in internal}
    (request,) = of_kind(collector, "front", Span.SPAN_KIND_SERVER)
    (sent,) = of_kind(collector, "front", Span.SPAN_KIND_CLIENT)
    above = {"decode reply": sent, "encode request": sent}
    for name, span in spans.items():
        assert span.parent_span_id == above.get(name, request).span_id
        assert request.start_time_unix_nano <= span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.end_time_unix_nano <= request.end_time_unix_nano
    for name in ("decode reply", "fit reply", "encode"):
        known = attributes(spans[name].attributes)
        busy = known["gateway.busy_seconds"]
        assert known["gateway.times"] == responses
        assert isinstance(busy, float)
        assert 0 < busy * 1e9 < spans[name].end_time_unix_nano - spans[name].start_time_unix_nano


MIRROR = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
tracing: {otlp: "COLLECTOR", sample: SAMPLE, service: front, interval: 3600}
backends:
  own: {protocol: v2-grpc, flavor: plain, endpoints: ["127.0.0.1:OWN"]}
  next: {protocol: v2-grpc, flavor: plain, endpoints: ["127.0.0.1:NEXT"]}
routes:
  - {match: {model: double}, backend: own, policies: [{mirror: {backend: next, sample: 1}}]}
"""


@asynccontextmanager
async def with_mirror(collector: Collector, sample: float, model: str = "double") -> AsyncIterator[Gateway]:
    """A gateway whose route has a mirror, which serves `model`."""
    async with (
        reference("v2-grpc", "double") as own,
        reference("v2-grpc", model) as other,
        running(MIRROR, collector, sample, OWN=port_of(own), NEXT=port_of(other)) as gateway,
    ):
        head, _ = await post(port(gateway, "http"), "/v2/models/double/infer", BODY)
        assert head.startswith("HTTP/1.1 200")
        [mirror] = mirrors(gateway)
        await mirror.ended()
        yield gateway


@pytest.mark.parametrize(("model", "outcome"), [("double", "equal"), ("posterior", "different")])
async def test_a_mirrored_call_is_a_span_of_the_request(collector: Collector, model: str, outcome: str) -> None:
    async with with_mirror(collector, 1, model):
        pass
    (request,) = of_kind(collector, "front", Span.SPAN_KIND_SERVER)
    (mirror,) = (span for span in collector.spans if span.name == "mirror")
    assert (mirror.trace_id, mirror.parent_span_id) == (request.trace_id, request.span_id)
    assert mirror.kind == Span.SPAN_KIND_INTERNAL
    found = attributes(mirror.attributes)
    assert found["gateway.backend"] == found["gateway.mirror.backend"] == "next"
    assert found["gateway.mirror.outcome"] == outcome
    assert found.get("gateway.mirror.differences") == ("status" if outcome == "different" else None)
    sent = {span.parent_span_id for span in of_kind(collector, "front", Span.SPAN_KIND_CLIENT)}
    assert sent == {request.span_id, mirror.span_id}


async def test_a_mirrored_call_of_a_request_that_is_not_sampled_has_no_span(collector: Collector) -> None:
    async with with_mirror(collector, 0):
        pass
    assert collector.spans == []
