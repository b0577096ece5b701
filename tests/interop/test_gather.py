"""Clients of UM-Bridge and V2 at once -> gateway with `gather` -> the real Triton: batches, and each its own answer."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.interop.exchanges import Addresses, Listen, metric, post
from tests.interop.processes import Triton, eventually
from tests.limits import GENEROUS

CONFIG = """
listeners: [{{name: all, bind: "127.0.0.1:{all}", protocols: [umbridge, v2-rest]}}]
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
def addresses(listen: Listen, triton: Triton, request: pytest.FixtureRequest) -> Addresses:
    address = triton.http if request.param == "v2-rest" else triton.grpc
    return listen(CONFIG, protocol=request.param, triton=address)


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


def test_points_of_clients_of_both_protocols_are_joined_and_each_gets_its_own_answer(addresses: Addresses) -> None:
    counted = partial(metric, addresses["health"])

    def some_are_joined() -> bool:
        with ThreadPoolExecutor(CLIENTS) as clients:
            answers = list(clients.map(lambda number: evaluate(addresses["all"], number), range(CALLS)))
        assert answers == [(200, [2 * number, 2 * number + 1, -2 * number]) for number in range(CALLS)]
        return counted("gateway_gather_batches_total") > 0

    assert eventually(some_are_joined, GENEROUS)  # calls go one by one until Triton has told its max_batch_size
    batches = counted("gateway_gather_batches_total")
    assert counted("gateway_gather_rows_total") <= 8 * batches  # the model's max_batch_size
    assert counted("gateway_gather_requests_total", 'outcome="joined"') >= 2 * batches
    assert counted("gateway_gather_failed_batches_total", 'cause="shape"') == 0
