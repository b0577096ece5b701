"""The metrics page of a gateway that answers real requests."""

import asyncio
import gzip
import threading
from collections.abc import Iterable

import grpc.aio
import httpx
import numpy as np
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.admin import metrics
from gateway.admin.health import HealthServer
from gateway.admin.metrics import MetricsPage
from gateway.admin.status import LoadError
from gateway.assembly.registry import protocols
from gateway.config import ConfigError
from gateway.core.address import Address
from gateway.core.frozen import replace
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from gateway.observing import recording
from gateway.runtime.app import Gateway
from tests.attacks.clients import Brpc, Connection, Mip, message
from tests.interop.processes import free_port
from tests.limits import GENEROUS
from tests.observing.scraped import (
    CONFIG,
    LISTENERS,
    REFERENCE,
    ROUNDING,
    ROUTE,
    TENTH,
    Page,
    config,
    evaluate,
    fail,
    infer,
    openmetrics,
    page_url,
    running,
    scrape,
    url,
)
from tests.paused_server import INFER, ask, get, held, port_of
from tests.runtime.app.test_reload import sent

OK = {"route": "double", "model": "double", "out_protocol": "v2-grpc", "backend": "lab", "code": "OK"}


async def infer_by_grpc(address: str) -> None:
    protocol = protocols()["v2-grpc"]
    request = Request(Operation.INFER, "double", inputs=(tensor("x", np.array([[1.5, 2.5]])),))
    async with grpc.aio.insecure_channel(address) as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        await call(protocol.encode_request(request, Target("b")).body)


async def call(gateway: Gateway, listener: str, connect: type[Connection], request: bytes) -> None:
    def blocking() -> None:
        with connect(("127.0.0.1", port_of(gateway.state.listeners[listener].address))) as connection:
            connection.call(request)

    await asyncio.to_thread(blocking)


async def test_every_request_of_every_protocol_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "next_is_timed", lambda: True)
    async with running() as gateway, httpx.AsyncClient() as client:
        for _ in range(5):
            assert (await infer(client, gateway)).status_code == 200
        for _ in range(3):
            assert (await evaluate(client, gateway)).status_code == 200
        for _ in range(2):
            await infer_by_grpc(gateway.state.listeners["grpc"].address)
        rows = np.array([[1.5, 2.5]])
        await call(gateway, "brpc", Brpc, message("grps-brpc", "double", tensor("x", rows)))
        await call(gateway, "mip", Mip, message("mip", "", replace(tensor("x", rows), content_type="npy")))
        page = await scrape(gateway)
        counted = {
            (each.labels["listener"], each.labels["in_protocol"]): each.value
            for each in page.samples
            if each.name == "gateway_requests_total" and OK.items() <= each.labels.items()
        }
        assert counted == {
            ("http", "v2-rest"): 5,
            ("http", "umbridge"): 3,
            ("grpc", "v2-grpc"): 2,
            ("brpc", "grps-brpc"): 1,
            ("mip", "mip"): 1,
        }
        for stage, count in {"request": 12, "queue": 12, "upstream": 12, "decode": 10, "encode": 10}.items():
            # what passes unread, V2 over gRPC, is neither decoded nor encoded
            assert page.value(f"gateway_{stage}_seconds_count", model="double") == count, stage
        spent = [page.value(f"gateway_{stage}_seconds_sum") for stage in ("upstream", "decode", "encode")]
        assert all(spent)
        assert sum(spent) < page.value("gateway_request_seconds_sum")
        assert page.value("gateway_errors_total") == page.value("gateway_retries_total") == 0
        assert page.value("gateway_connections_open", listener="http") == 1


async def test_bytes_are_those_of_the_bodies() -> None:
    async with running() as gateway, httpx.AsyncClient() as client:
        reply = await infer(client, gateway)
        page = await scrape(gateway)
        assert page.value("gateway_request_bytes_total") == len(reply.request.content)
        assert page.value("gateway_response_bytes_total") == len(reply.content)


async def test_errors_are_counted_by_status_and_by_reason() -> None:
    async with running() as gateway, httpx.AsyncClient() as client:
        wrong = await client.post(f"{url(gateway)}/v2/models/double/infer", content=b"{")
        assert wrong.status_code == 400
        assert (await fail(client, gateway)).status_code == 500
        assert (await client.get(f"{url(gateway)}/nowhere")).status_code == 404
        page = await scrape(gateway)
        assert page.by("gateway_errors_total", "reason") == {"invalid-input": 1, "model-error": 1, "path-not-found": 1}
        assert page.by("gateway_requests_total", "code") == {"INVALID_ARGUMENT": 1, "INTERNAL": 1, "NOT_FOUND": 1}


async def test_what_a_policy_repeats_is_a_retry_and_not_another_request() -> None:
    retried = CONFIG.replace(
        '["127.0.0.1:PORT"]}',
        '["127.0.0.1:PORT"], safe: true, policies: [{retry: {attempts: 3, statuses: [INTERNAL]}}]}',
    )
    async with running(retried) as gateway, httpx.AsyncClient() as client:
        await fail(client, gateway)
        page = await scrape(gateway)
        assert page.value("gateway_retries_total") == 2
        assert page.value("gateway_requests_total") == 1


async def test_an_endpoint_that_is_not_there_is_ejected_and_another_one_tried() -> None:
    two = CONFIG.replace('["127.0.0.1:PORT"]}', '["127.0.0.1:GONE", "127.0.0.1:PORT"]}')
    gone = free_port()
    async with running(two, GONE=gone) as gateway, httpx.AsyncClient() as client:
        for _ in range(2):
            assert (await infer(client, gateway)).status_code == 200
        page, address = await scrape(gateway), f"127.0.0.1:{gone}"
        assert page.value("gateway_retries_total") == 1
        assert page.value("gateway_endpoint_ejections_total", endpoint=address) == 1
        assert page.value("gateway_endpoint_up", endpoint=address) == 0
        assert page.value("gateway_endpoint_up") == 1
        assert page.by("gateway_endpoints", "state") == {"unknown": 0, "up": 1, "degraded": 0, "down": 1}


async def test_a_batch_that_is_sent_row_by_row_has_no_retries() -> None:
    rows = """
backends:
  lab: {protocol: umbridge, endpoints: ["http://127.0.0.1:PORT"]}
routes:
  - {match: {model: double}, backend: lab}
"""
    text = LISTENERS + REFERENCE.replace("v2-grpc", "umbridge") + rows
    body = {"inputs": [{"name": "input0", "datatype": "FP64", "shape": [4, 3], "data": [1] * 12}]}
    async with running(text) as gateway, httpx.AsyncClient() as client:
        assert (await client.post(f"{url(gateway)}/v2/models/double/infer", json=body)).status_code == 200
        page = await scrape(gateway)
        assert page.value("gateway_backend_slots") == 1
        assert page.value("gateway_retries_total") == 0


async def test_models_that_nobody_has_never_become_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The route takes any name, and the server has two of them."""
    monkeypatch.setattr(recording, "next_is_timed", lambda: True)
    async with running() as gateway, httpx.AsyncClient() as client:
        for at in range(30):
            assert (await infer(client, gateway, f"unknown-{at}")).status_code == 404
        first = await scrape(gateway)
        for at in range(100):
            await infer(client, gateway, f"invented-{at}")
        page = await scrape(gateway)
        assert "invented-" not in page.text
        assert "unknown-" not in page.text
        assert len(page.samples) == len(first.samples)
        assert page.value("gateway_requests_total", model="other", code="NOT_FOUND") == 130
        assert page.value("gateway_errors_total", model="other", reason="model-not-found") == 130


async def test_so_many_models_that_no_route_names_have_a_label() -> None:
    models = REFERENCE.replace("[double, fail, identity]", "[double, count, slow]")
    text = CONFIG.replace(REFERENCE, models) + "metrics: {models: 1}\n"
    async with running(text) as gateway, httpx.AsyncClient() as client:
        for model in ("count", "slow", "count", "double"):
            reply = await client.get(f"{url(gateway)}/v2/models/{model}")
            assert reply.status_code == 200, reply.text
        page = await scrape(gateway)
        assert page.by("gateway_requests_total", "model") == {"count": 2, "other": 1, "double": 1}


async def test_openmetrics_has_exemplars_with_the_request_id() -> None:
    async with running() as gateway, httpx.AsyncClient() as client:
        await client.get(f"{url(gateway)}/v2/models/double", headers={"x-request-id": "the-one"})
        accept = "application/openmetrics-text; version=1.0.0, text/plain; version=0.0.4; q=0.5"
        reply = await client.get(page_url(gateway), headers={"accept": accept})
        assert reply.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        families = {each.name: each for each in openmetrics(reply.text)}
        family = families["gateway_request_seconds"]
        assert family.unit == "seconds"
        (exemplar,) = [sample.exemplar for sample in family.samples if sample.exemplar]
        assert exemplar.labels == {"request_id": "the-one"}
        assert exemplar.timestamp is not None
        assert -1 < float(exemplar.timestamp) - gateway.state.loaded_at.timestamp() < 60
        plain = await client.get(page_url(gateway), headers={"accept": "text/plain"})
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert "the-one" not in plain.text


async def test_the_page_is_compressed_for_those_who_accept_it() -> None:
    async with running() as gateway:
        port = port_of(gateway.ports.all["health"].address)
        packed = await ask(port, get("/metrics").replace(b"\r\n\r\n", b"\r\nAccept-Encoding: gzip\r\n\r\n"))
        head, _, body = packed.partition(b"\r\n\r\n")
        assert b"Content-Encoding: gzip" in head
        assert Page(gzip.decompress(body).decode()).value("gateway_ready") == 1
        plain = await ask(port, get("/metrics"))
        assert b"Content-Encoding" not in plain.partition(b"\r\n\r\n")[0]


async def test_losses_are_counted() -> None:
    """0.1 is none of the values of FP32."""
    async with running(CONFIG.replace(ROUTE, ROUNDING)) as gateway, httpx.AsyncClient() as client:
        await infer(client, gateway)
        assert (await scrape(gateway)).by("gateway_lossy_conversions_total", "kind") == {}
        await infer(client, gateway, inputs=TENTH)
        assert (await scrape(gateway)).by("gateway_lossy_conversions_total", "kind") == {"cast rounded": 1}


async def test_calls_in_flight_and_in_the_queue_show() -> None:
    busy = """
backends: {lab: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:HELD"], max_in_flight: 1, queue: {length: 7}}}
routes: [{match: {model: m}, backend: lab}]
"""
    async with held() as server, running(LISTENERS + busy, HELD=server.port) as gateway:
        clients = [await sent(port_of(gateway.state.listeners["http"].address), INFER) for _ in range(3)]
        await server.arrived.wait()
        page = await scrape(gateway)
        while page.value("gateway_queue_length") < 2:  # the gateway may not have read all of them yet
            page = await scrape(gateway)
        assert page.value("gateway_requests_in_flight", listener="http") == 3
        assert page.value("gateway_connections_open", listener="http") == 3
        assert page.value("gateway_backend_calls_in_flight", backend="lab") == 1
        assert page.value("gateway_backend_slots", backend="lab") == 1
        assert page.value("gateway_queue_limit", backend="lab") == 7
        for _, writer in clients:
            writer.close()
        while page.value("gateway_requests_in_flight"):
            page = await scrape(gateway)
        assert page.by("gateway_requests_total", "code") == {"CANCELLED": 3}


async def test_without_a_page_nothing_is_counted_and_a_reload_turns_it_on_and_off() -> None:
    off = LISTENERS + "metrics: {enabled: false}\n"
    async with running(off) as gateway, httpx.AsyncClient() as client:
        assert gateway.observing.recording(gateway.state.config.listeners[0], gateway.state.config) is None
        reply = await client.get(page_url(gateway))
        assert (reply.status_code, reply.text) == (404, "metrics are off; set metrics.enabled in the configuration")
        await gateway.reload(config(LISTENERS))
        await client.get(f"{url(gateway)}/v2/health/live")
        page = await scrape(gateway)
        assert page.value("gateway_requests_total") == 1
        assert page.value("gateway_configuration_reloads_total") == 1
        await gateway.reload(config(off))
        assert (await client.get(page_url(gateway))).status_code == 404
        assert gateway.observing.recording(gateway.state.config.listeners[0], gateway.state.config) is None


async def test_a_reload_keeps_the_counts_unless_the_buckets_change() -> None:
    async with running(LISTENERS) as gateway, httpx.AsyncClient() as client:
        await client.get(f"{url(gateway)}/v2/health/live")
        await gateway.reload(config(LISTENERS + "metrics: {models: 3}\n"))
        assert (await scrape(gateway)).value("gateway_requests_total") == 1
        await gateway.reload(config(LISTENERS + "metrics: {buckets: [0.5, 1]}\n"))
        await client.get(f"{url(gateway)}/v2/health/live")
        page = await scrape(gateway)
        assert set(page.by("gateway_request_seconds_bucket", "le")) == {"0.5", "1.0", "+Inf"}
        assert page.value("gateway_requests_total") == 1


async def test_what_a_reload_removes_is_on_the_page_no_more() -> None:
    async with running(CONFIG.replace(ROUTE, ROUNDING)) as gateway, httpx.AsyncClient() as client:
        await infer(client, gateway)
        await infer(client, gateway, inputs=TENTH, outputs=[{"name": "no"}])
        await client.get(f"{url(gateway)}/v2/health/live")
        first = await scrape(gateway)
        assert first.value("gateway_errors_total") == first.value("gateway_lossy_conversions_total") == 1
        before = gateway.state.config
        listeners = tuple(each for each in before.listeners if each.name in ("http", "grpc"))
        await gateway.reload(before.model_copy(update={"routes": before.routes[1:], "listeners": listeners}))
        page = await scrape(gateway)
        assert page.by("gateway_requests_total", "model") == {"": 1}
        assert page.value("gateway_request_seconds_count") == 1
        assert page.value("gateway_errors_total") == page.value("gateway_lossy_conversions_total") == 0
        await gateway.reload(before)
        await infer(client, gateway)
        assert (await scrape(gateway)).by("gateway_requests_total", "model") == {"": 1, "double": 1}


async def test_a_route_keeps_its_series_when_another_one_is_added_above_it() -> None:
    async with running() as gateway, httpx.AsyncClient() as client:
        await infer(client, gateway)
        assert (await scrape(gateway)).by("gateway_requests_total", "route") == {"double": 1}
        before = gateway.state.config
        match = before.routes[0].match.model_copy(update={"model": "new"})
        above = before.routes[0].model_copy(update={"name": "above", "match": match})
        changes = await gateway.reload(before.model_copy(update={"routes": (above, *before.routes)}))
        assert changes == ("route 'above' added",)
        await infer(client, gateway)
        assert (await scrape(gateway)).by("gateway_requests_total", "route") == {"double": 2}
        await gateway.reload(before.model_copy(update={"routes": (above,)}))
        assert (await scrape(gateway)).by("gateway_requests_total", "route") == {}


async def test_a_failed_reload_shows() -> None:
    async with running(LISTENERS) as gateway:
        name = "gateway_configuration_last_reload_successful"
        assert (await scrape(gateway)).value(name) == 1
        gateway.state.last_reload_error = LoadError(text="wrong", at=gateway.state.loaded_at)
        assert (await scrape(gateway)).value(name) == 0


def scrape_blocking(address: str) -> str:
    """As `scrape`, while the event loop of this thread does not run."""
    with httpx.Client(timeout=GENEROUS) as client:
        return client.get(f"http://{address}/metrics").text


async def test_the_page_needs_nothing_of_the_event_loop() -> None:
    """The loop is blocked during the scrape, and the page says so."""
    async with running() as gateway:
        address = gateway.ports.all["health"].address
        page = Page(scrape_blocking(address))
        while page.value("gateway_event_loop_lag_seconds") < 0.2:
            page = Page(scrape_blocking(address))
        assert page.value("process_resident_memory_bytes") > 0


class Slow(Collector):
    """Metrics that take until the test lets them go."""

    def __init__(self) -> None:
        self.began, self.release = threading.Event(), threading.Event()

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        self.began.set()
        self.release.wait()
        return [metrics.READY.gauge()]


async def test_probes_do_not_wait_for_a_page_that_takes_long() -> None:
    slow = Slow()
    server = HealthServer(lambda: True, None, metrics=MetricsPage(slow))
    await server.start(Address("127.0.0.1", 0))
    try:
        port = port_of(server.address)
        async with httpx.AsyncClient() as client:
            scraping = threading.Thread(target=scrape_blocking, args=(server.address,))
            scraping.start()
            slow.began.wait()
            assert (await client.get(f"http://127.0.0.1:{port}/healthz")).text == "ok"
            slow.release.set()
            scraping.join()
    finally:
        slow.release.set()
        await server.stop()


@pytest.mark.parametrize(
    ("buckets", "why"),
    [
        ("[1, 2, 2]", ":27: 2 is not more than the bound before it, 2"),
        ("[0, 1]", ":21: must be above 0, got 0"),
        ("[]", ":20: must not be empty"),
        ("[.inf]", ":21: expected a finite number, got inf"),
    ],
)
def test_buckets_that_make_no_histogram_are_refused(buckets: str, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"test.yaml:\d+{why}"):
        config(LISTENERS + f"metrics: {{buckets: {buckets}}}\n")
