"""Clients at once -> gateway with `gather` -> the real MLServer: each reply is that without `gather`.

What the requests vary is what MLServer's own batching gets wrong, or got: requested outputs are ignored or missing,
tensors of a request have unequal first dimensions, parameters of one client go to all, and the second client gets
empty data.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

import pytest

from tests.interop.exchanges import Addresses, Listen, metric, post
from tests.interop.processes import V2Server, eventually
from tests.limits import GENEROUS

CONFIG = """
listeners:
  - {{name: gathered, bind: "127.0.0.1:{gathered}", protocols: [v2-rest]}}
  - {{name: plain, bind: "127.0.0.1:{plain}", protocols: [v2-rest]}}
health: {{bind: "127.0.0.1:{health}"}}
backends:
  gathered:
    protocol: {protocol}
    endpoints: ["{address}"]
    safe: true
    policies: [{{gather: {{wait: 0.05, models: [double, undeclared, upper]}}}}]
  plain: {{protocol: {protocol}, endpoints: ["{address}"]}}
routes:
  - {{match: {{listener: gathered}}, backend: gathered}}
  - {{match: {{listener: plain}}, backend: plain, check: full}}
"""
CLIENTS, CALLS = 16, 160


@pytest.fixture(scope="module", params=["v2-rest", "v2-grpc"])
def addresses(listen: Listen, mlserver: V2Server, request: pytest.FixtureRequest) -> Addresses:
    address = mlserver.http if request.param == "v2-rest" else mlserver.grpc
    return listen(CONFIG, protocol=request.param, address=address)


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


def ask_together(url: str, numbers: Sequence[int]) -> list[Any]:
    """The replies to the requests of these numbers, which begin at the same time."""
    everyone = Barrier(len(numbers))

    def ask_with_others(number: int) -> Any:
        everyone.wait(GENEROUS)
        return ask(url, number)

    with ThreadPoolExecutor(len(numbers)) as clients:
        return list(clients.map(ask_with_others, numbers))


def without_gather(plain: str, number: int) -> Any:
    """The reply to the request of this number, as the backend `gathered` would name itself in it."""
    status, body = ask(plain, number)
    if number % 8 == 3:
        assert status != 200
        body["error"] = body["error"].replace("backend 'plain'", "backend 'gathered'")
    else:
        assert status == 200
    return status, body


def test_each_reply_is_that_without_gather(addresses: Addresses) -> None:
    counted = partial(metric, addresses["health"])
    expected = [without_gather(addresses["plain"], number) for number in range(CALLS)]
    assert expected[4][1]["outputs"][0]["data"] == [8.0, 1.0, -8.0] * 2

    def some_are_joined() -> bool:
        for first in range(0, CALLS, CLIENTS):
            numbers = range(first, first + CLIENTS)
            assert ask_together(addresses["gathered"], numbers) == [expected[number] for number in numbers]
        return counted("gateway_gather_batches_total") > 0

    assert eventually(some_are_joined, GENEROUS)  # a model is gathered once it has answered, and its server was asked
    assert counted("gateway_gather_rows_total") > counted("gateway_gather_batches_total")
    assert counted("gateway_gather_failed_batches_total", 'cause="shape"') == 0
