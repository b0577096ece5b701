"""Clients of UM-Bridge and V2 at once -> gateway with `gather` -> the real Triton: batches, and each its own answer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any
from urllib.request import urlopen

import pytest

from tests.interop.exchanges import gateway, post
from tests.interop.processes import Triton, free_port
from tests.limits import GENEROUS

CONFIG = """
listeners: [{{name: all, bind: "127.0.0.1:{port}", protocols: [umbridge, v2-rest]}}]
health: {{bind: "127.0.0.1:{health}"}}
backends:
  triton:
    protocol: {protocol}
    endpoints: ["{triton}"]
    safe: true
    policies: [{{gather: {{rows: 64, wait: 0.05}}}}]
routes:
  - {{match: {{model: "*"}}, backend: triton}}
"""
CLIENTS, CALLS = 16, 200


@pytest.fixture(scope="module", params=["v2-rest", "v2-grpc"])
def urls(
    triton: Triton, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[tuple[str, str]]:
    port, health = free_port(), free_port()
    address = triton.http if request.param == "v2-rest" else triton.grpc
    config = CONFIG.format(port=port, health=health, protocol=request.param, triton=address)
    with gateway(config, tmp_path_factory.mktemp("gateway")):
        yield f"http://127.0.0.1:{port}", f"http://127.0.0.1:{health}"


def evaluate(url: str, number: int) -> Any:
    """Doubles by UM-Bridge, or by V2 with one row or two."""
    point = [number, number + 0.5, -number]
    if number % 3 == 0:
        status, reply = post(url, "/Evaluate", name="batched", input=[point])
        return status, reply["output"][0]
    rows = number % 3
    tensor = {"name": "x", "datatype": "FP32", "shape": [rows, 3], "data": point * rows}
    status, reply = post(url, "/v2/models/batched/infer", id=str(number), inputs=[tensor])
    assert reply["id"] == str(number)
    [output] = reply["outputs"]
    assert output["shape"] == [rows, 3]
    assert output["data"][:3] == output["data"][-3:]
    return status, output["data"][:3]


def counted(health: str) -> dict[str, float]:
    with urlopen(f"{health}/metrics", timeout=GENEROUS) as page:
        text = page.read().decode()
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("gateway_gather_")]
    return {name: float(value) for name, value in lines}


def test_points_of_clients_of_both_protocols_are_joined_and_each_gets_its_own_answer(urls: tuple[str, str]) -> None:
    url, health = urls
    batches, until = 0.0, monotonic() + 60
    counts: dict[str, float] = {}
    while not batches:  # calls go one by one until Triton has told its max_batch_size
        assert monotonic() < until, counts
        with ThreadPoolExecutor(CLIENTS) as clients:
            answers = list(clients.map(lambda number: evaluate(url, number), range(CALLS)))
        assert answers == [(200, [2 * number, 2 * number + 1, -2 * number]) for number in range(CALLS)]
        counts = counted(health)
        batches = counts['gateway_gather_batches_total{backend="triton"}']
    assert counts['gateway_gather_rows_total{backend="triton"}'] <= 8 * batches  # the model's max_batch_size
    assert counts['gateway_gather_requests_total{backend="triton",outcome="joined"}'] >= 2 * batches
    assert counts['gateway_gather_failed_batches_total{backend="triton",cause="shape"}'] == 0
