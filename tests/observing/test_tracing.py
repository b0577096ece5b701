"""Traces of real requests through real gateways, as a collector gets them."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import grpc.aio
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from gateway.app import Gateway
from gateway.assembly.reference import serve_reference
from gateway.cli.options import catalog
from gateway.config import loads, reference_config
from gateway.observing.tracing import MOST_WAITING, Tracing
from tests.observing.collector import Collector, attributes, collecting

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
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


@asynccontextmanager
async def running(text: str, collector: Collector, sample: float = 1, **values: int) -> AsyncIterator[Gateway]:
    text = text.replace("COLLECTOR", collector.url).replace("SAMPLE", str(sample))
    for name, number in values.items():
        text = text.replace(name, str(number))
    gateway = Gateway(loads(text, "test.yaml", catalog(), {}))
    await gateway.start()
    try:
        yield gateway
    finally:
        await gateway.drain(1)


def port(gateway: Gateway, listener: str) -> int:
    return int(gateway.listeners[listener].address.rpartition(":")[2])


async def post(at: int, path: str, body: bytes, *headers: str) -> tuple[str, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", at)
    head = [f"POST {path} HTTP/1.1", "Host: x", "Connection: close", f"Content-Length: {len(body)}", *headers]
    writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
    reply = await reader.read()
    writer.close()
    answered, _, content = reply.partition(b"\r\n\r\n")
    return answered.decode(), content


def by_name(collector: Collector, service: str) -> dict[str, Span]:
    services = collector.services()
    return {span.name: span for span in collector.spans if services[span.span_id] == service}


@asynccontextmanager
async def two_gateways(collector: Collector, sample: float) -> AsyncIterator[tuple[Gateway, Gateway]]:
    """A gateway for all clients, in front of one that speaks V2 over gRPC, in front of an UM-Bridge server."""
    config = reference_config("umbridge", "127.0.0.1:0", ["posterior"], catalog())
    reference = await serve_reference(config, asyncio.get_running_loop().time)
    try:
        number = int(reference.address.rpartition(":")[2])
        async with (
            running(BACK, collector, sample, REFERENCE=number) as back,
            running(FRONT, collector, sample, PORT=port(back, "grpc")) as front,
        ):
            yield front, back
    finally:
        await reference.drain(1)


async def test_one_trace_goes_through_two_gateways(collector: Collector) -> None:
    """From a client's own span through both gateways, over HTTP and gRPC: each span is below the one that caused it."""
    async with two_gateways(collector, 0) as (front, _):
        parent = f"00-{TRACE}-{PARENT}-01"
        path = "/v2/models/posterior/infer"
        head, _ = await post(port(front, "http"), path, BODY, f"Traceparent: {parent}", "Tracestate: vendor=1")
        assert head.startswith("HTTP/1.1 200")
    assert {span.trace_id.hex() for span in collector.spans} == {TRACE}
    first, second = by_name(collector, "front"), by_name(collector, "back")
    request = first["POST /v2/models/{model}/infer"]
    assert (request.parent_span_id.hex(), request.kind) == (PARENT, Span.SPAN_KIND_SERVER)
    (sent,) = (span for span in first.values() if span.kind == Span.SPAN_KIND_CLIENT)
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
        await post(port(front, "http"), "/v2/models/posterior/infer", BODY, "X-Request-Id: mine")
        endpoint = port(back, "grpc")
    first, second = by_name(collector, "front"), by_name(collector, "back")
    known = attributes(first["POST /v2/models/{model}/infer"].attributes)
    assert known.items() >= {
        "http.request.method": "POST", "http.route": "/v2/models/{model}/infer", "http.response.status_code": 200,
        "url.path": "/v2/models/posterior/infer", "client.address": "127.0.0.1", "gateway.request_id": "mine",
        "gateway.model": "posterior", "gateway.route": "routes[0]", "gateway.backend": "next", "gateway.tries": 1,
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
    async with two_gateways(collector, sample) as (front, back):
        assert back.observing.tracing is not None
        back.observing.tracing._sample = 1.0
        headers = [f"traceparent: 00-{TRACE}-{PARENT}-{flags}"] if flags else []
        head, _ = await post(port(front, "http"), "/v2/models/posterior/infer", BODY, *headers)
        assert head.startswith("HTTP/1.1 200")
    assert collector.requests == []


async def test_a_traceparent_that_is_not_valid_begins_a_new_trace(collector: Collector) -> None:
    async with two_gateways(collector, 1) as (front, _):
        wrong = f"traceparent: 00-{'0' * 32}-{PARENT}-01"
        await post(port(front, "http"), "/v2/models/posterior/infer", BODY, wrong)
    request = by_name(collector, "front")["POST /v2/models/{model}/infer"]
    assert not request.parent_span_id
    assert any(request.trace_id)


async def test_errors_are_told_by_the_span_of_the_try_and_of_the_request(collector: Collector) -> None:
    async with running(FRONT, collector, PORT=1) as front:  # nobody listens there
        head, _ = await post(port(front, "http"), "/v2/models/posterior/infer", BODY)
        assert head.startswith("HTTP/1.1 503")
        await post(port(front, "http"), "/v2/models/posterior/infer", b"{")
    errors = [span for span in collector.spans if span.status.code == Status.STATUS_CODE_ERROR]
    assert [span.kind for span in errors] == [Span.SPAN_KIND_SERVER, Span.SPAN_KIND_CLIENT]
    assert attributes(errors[0].attributes)["error.type"] == "unreachable"
    assert "cannot connect" in errors[1].status.message or "refused" in errors[1].status.message
    faults = [attributes(span.attributes) for span in collector.spans if span.kind == Span.SPAN_KIND_SERVER]
    assert faults[1]["http.response.status_code"] == 400
    assert faults[1]["error.type"] == "invalid-input"


async def test_metadata_carries_the_trace_from_and_to_grpc(collector: Collector) -> None:
    async with (
        two_gateways(collector, 0) as (front, _),
        grpc.aio.insecure_channel(f"127.0.0.1:{port(front, 'grpc')}") as channel,
    ):
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelMetadata")
        await call(b"\n\x09posterior", metadata=[("traceparent", f"00-{TRACE}-{PARENT}-01")])
    front_span = by_name(collector, "front")["inference.GRPCInferenceService/ModelMetadata"]
    assert (front_span.trace_id.hex(), front_span.parent_span_id.hex()) == (TRACE, PARENT)


async def test_a_collector_that_fails_costs_lines_of_the_log_and_nothing_else(
    collector: Collector, caplog: pytest.LogCaptureFixture
) -> None:
    collector.status = 400
    with caplog.at_level(logging.WARNING):
        async with running(FRONT, collector, PORT=1) as front:
            for _ in range(3):
                await post(port(front, "http"), "/v2/models/posterior/infer", b"{")
                assert front.observing.tracing is not None
                await front.observing.tracing.flush()
            assert front.observing.tracing is not None
            assert (front.observing.tracing.sent, front.observing.tracing.dropped) == (0, 3)
    lines = [each.getMessage() for each in caplog.records if "spans of" in each.getMessage()]
    assert len(lines) == 3
    assert "could not be sent" in lines[0]
    assert "400" in lines[0]
    assert "hidden" not in caplog.text


async def test_the_queue_is_bounded(collector: Collector) -> None:
    tracing = Tracing(lambda records: "", 1, 3600)
    async with running(FRONT, collector, PORT=1) as front:
        await post(port(front, "http"), "/v2/models/posterior/infer", b"{")
        assert front.observing.tracing is not None
        (record,) = front.observing.tracing._waiting
    for _ in range(MOST_WAITING + 5):
        tracing.observe(record)
    assert tracing.dropped == 5
    await tracing.flush()
    assert tracing.sent == MOST_WAITING


async def test_a_reload_begins_changes_and_ends_tracing(collector: Collector) -> None:
    plain = "\n".join(line for line in FRONT.splitlines() if not line.startswith("tracing:"))
    async with running(plain, collector, PORT=1) as front:
        at = port(front, "http")
        await post(at, "/v2/models/posterior/infer", b"{")
        traced = FRONT.replace("COLLECTOR", collector.url).replace("SAMPLE", "1").replace("PORT", "1")
        assert await front.reload(loads(traced, "test.yaml", catalog(), {})) == ("tracing changed",)
        await post(at, "/v2/models/posterior/infer", b"{")
        tracing = front.observing.tracing
        assert tracing is not None
        await front.reload(loads(plain.replace("PORT", "1"), "test.yaml", catalog(), {}))
        assert front.observing.tracing is None
        await post(at, "/v2/models/posterior/infer", b"{")
        await tracing.flush()
    assert [span.kind for span in collector.spans].count(Span.SPAN_KIND_SERVER) == 1
