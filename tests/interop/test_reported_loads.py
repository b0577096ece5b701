"""`balance: least_load` with real Tritons, which tell their loads on their metrics pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack

import grpc.aio
import numpy as np
import pytest

from gateway.assembly.registry import protocols
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from tests.interop.processes import Triton, free_port, start_triton
from tests.limits import until
from tests.running_gateway import running_gateway

MODEL = "identity_FP32"
CONFIG = """
listeners: [{{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}}]
backends: {{lab: {{protocol: {protocol}, endpoints: {endpoints}, balance: least_load, load: {load}}}}}
routes: [{{match: {{}}, backend: lab}}]
"""
QUESTION = Request(Operation.INFER, MODEL, inputs=(tensor("INPUT0", np.ones(4, np.float32)),))
BODY = b"".join(protocols()["v2-grpc"].encode_request(QUESTION, Target()).parts)


@pytest.fixture(scope="module")
def tritons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Triton, str]]]:
    """Two real Tritons with one model, and the addresses of their pages."""
    with ExitStack() as stack:
        started = []
        for _ in range(2):
            pages = free_port()
            options = ["--allow-metrics=true", "--metrics-address=127.0.0.1", f"--metrics-port={pages}"]
            options += ["--model-control-mode=explicit", f"--load-model={MODEL}"]
            triton = stack.enter_context(start_triton(tmp_path_factory.mktemp("triton"), *options))
            started.append((triton, f"http://127.0.0.1:{pages}/metrics"))
        yield started


async def told(config: str, calls: int) -> list[float | None]:
    """The loads that the status shows after some calls, once every server has told one; None of those that never do."""
    async with (
        running_gateway(config) as gateway,
        grpc.aio.insecure_channel(gateway.state.listeners["grpc"].address) as channel,
    ):
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        for _ in range(calls):
            await call(BODY)

        def found() -> list[float | None]:
            return [each.load for each in gateway.state.status().backends["lab"].endpoints]

        if "orca" not in config:
            await until(lambda: None not in found())
        return found()


def configuration(protocol: str, endpoints: list[dict[str, str]], load: str) -> str:
    return CONFIG.format(protocol=protocol, endpoints=json.dumps(endpoints), load=load)


@pytest.mark.parametrize("protocol", ["v2-rest", "v2-grpc"])
async def test_the_pages_of_real_tritons_are_read(tritons: list[tuple[Triton, str]], protocol: str) -> None:
    endpoints = [
        {"address": triton.http if protocol == "v2-rest" else triton.grpc, "load_url": page} for triton, page in tritons
    ]
    found = await told(configuration(protocol, endpoints, "{interval: 0.05}"), 20)
    assert all(each is not None and 0 <= each < 1 for each in found), found


async def test_the_gauge_of_a_real_triton_is_read(tritons: list[tuple[Triton, str]]) -> None:
    endpoints = [{"address": triton.grpc, "load_url": page} for triton, page in tritons]
    load = '{from: prometheus, url: "http://{host}:1/", metric: nv_inference_pending_request_count, interval: 0.05}'
    found = await told(configuration("v2-grpc", endpoints, load), 1)
    assert all(each in (0.0, 1.0) for each in found), found


async def test_a_triton_without_reports_answers_all_the_same(tritons: list[tuple[Triton, str]]) -> None:
    """It sends the header for TensorRT-LLM's models only."""
    endpoints = [{"address": triton.http} for triton, _ in tritons]
    assert await told(configuration("v2-rest", endpoints, "{from: orca}"), 4) == [None, None]
