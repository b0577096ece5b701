"""Clients at once -> gateway with `gather` -> the real MLServer: each reply is that without `gather`.

What the requests vary is what MLServer's own batching gets wrong, or got: requested outputs are ignored or missing,
tensors of a request have unequal first dimensions, parameters of one client go to all, and the second client gets
empty data.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.interop.exchanges import gateway, post
from tests.interop.processes import free_port
from tests.interop.test_gather import counted
from tests.interop.v2_servers import V2Server

CONFIG = """
listeners:
  - {{name: gathered, bind: "127.0.0.1:{ports[0]}", protocols: [v2-rest]}}
  - {{name: plain, bind: "127.0.0.1:{ports[1]}", protocols: [v2-rest]}}
health: {{bind: "127.0.0.1:{ports[2]}"}}
backends:
  gathered:
    protocol: {protocol}
    endpoints: ["{address}"]
    safe: true
    policies: [{{gather: {{wait: 0.05, models: [double, undeclared, upper]}}}}]
  plain: {{protocol: {protocol}, endpoints: ["{address}"]}}
routes:
  - {{match: {{listener: gathered}}, backend: gathered}}
  - {{match: {{listener: plain}}, backend: plain}}
"""
CLIENTS, CALLS = 16, 160


@pytest.fixture(scope="module", params=["v2-rest", "v2-grpc"])
def urls(
    mlserver: V2Server, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[list[str]]:
    ports = [free_port() for _ in range(3)]
    address = mlserver.http if request.param == "v2-rest" else mlserver.grpc
    config = CONFIG.format(ports=ports, protocol=request.param, address=address)
    with gateway(config, tmp_path_factory.mktemp("gateway")):
        yield [f"http://127.0.0.1:{port}" for port in ports]


def tensor(name: str, datatype: str, shape: list[int], data: list[Any]) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def ask(url: str, number: int) -> Any:
    """Status and reply of the request of this number."""
    body: dict[str, Any] = {"id": str(number), "parameters": {"tag": number % 3 // 2}}
    rows, model = 1 + number % 3, "double"
    match number % 8:
        case 0:  # first dimensions that are not equal
            model = "undeclared"
            few = tensor("few", "FP64", [1, 2], [number, 0.5])
            body["inputs"] = [few, tensor("many", "INT32", [rows + 1, 1], [number] * (rows + 1))]
        case 1:
            model = "upper"
            body["inputs"] = [tensor("INPUT0", "BYTES", [rows], [f"text {number}", "", "é"][:rows])]
        case _:
            body["inputs"] = [tensor("x", "FP64", [rows, 3], [number, 0.5, -number] * rows)]
            if number % 8 == 2:
                body["outputs"] = [{"name": "y"}]
            elif number % 8 == 3:
                body["outputs"] = [{"name": "nobody has this"}]
    return post(url, f"/v2/models/{model}/infer", **body)


def test_each_reply_is_that_without_gather(urls: list[str]) -> None:
    gathered, plain, health = urls
    for number in range(3):
        ask(gathered, number)  # a model is gathered once it has answered
    with ThreadPoolExecutor(CLIENTS) as clients:
        replies = list(clients.map(lambda number: ask(gathered, number), range(CALLS)))
    for number, reply in enumerate(replies):
        status, body = ask(plain, number)
        if status != 200:
            body["error"] = body["error"].replace("backend 'plain'", "backend 'gathered'")
            assert number % 8 == 3
        assert reply == (status, body), number
    status, one = replies[4]
    assert (status, one["outputs"][0]["data"]) == (200, [8.0, 1.0, -8.0] * 2)
    counts = counted(health)
    assert counts['gateway_gather_requests_total{backend="gathered",outcome="joined"}'] > CALLS / 8
    assert counts['gateway_gather_failed_batches_total{backend="gathered",cause="shape"}'] == 0
