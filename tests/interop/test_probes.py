"""Probes of the real UM-Bridge and kubemo servers, which serve one call at a time and answer nothing meanwhile: they
hold up no call, and a server that is busy is not taken for dead."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.runtime.app import Gateway
from tests.interop.kubemo_server import start_kubemo
from tests.interop.processes import start_umbridge
from tests.limits import until
from tests.paused_server import ask, http, port_of
from tests.running_gateway import running_gateway

CONFIG = """
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [umbridge, v2-rest]}]
backends:
  lab:
    protocol: PROTOCOL
    endpoints: ["URL"]
    health: {interval: 0.02, timeout: 0.1, unhealthy: 2}
routes:
"""
UMBRIDGE = '  - {match: {model: "*"}, backend: lab}\n'
MIP = """
  - match: {model: evaluate_only}
    backend: lab
    signature:
      inputs: [{name: x, datatype: FP64, shape: [-1, 1]}]
      outputs: [{name: y, datatype: FP64, shape: [-1, 1]}]
  - match: {model: slow}
    backend: lab
    signature:
      inputs: [{name: what, datatype: BYTES, shape: [-1, 1], content_type: json}]
      outputs: [{name: y, datatype: FP64, shape: [-1, 1]}]
"""
CALLS = 30
BUSY = 1.0


@pytest.fixture(params=["umbridge", "mip over tcp", "mip over unix"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    is_umbridge = request.param == "umbridge"
    unix = request.param.endswith("unix")
    with start_umbridge(tmp_path) if is_umbridge else start_kubemo(tmp_path, unix=unix) as server:
        text = CONFIG.replace("URL", server.url).replace("PROTOCOL", request.param.split()[0])
        yield text + (UMBRIDGE if is_umbridge else MIP)


async def evaluated(gateway: Gateway, number: float) -> list[list[float]]:
    found = await _post(gateway, "/Evaluate", {"name": "evaluate_only", "input": [[number]], "config": {}})
    output: list[list[float]] = found["output"]
    return output


async def busy(gateway: Gateway, protocol: str) -> Any:
    """A call that takes BUSY seconds."""
    if protocol == "umbridge":
        return await _post(gateway, "/Evaluate", {"name": "slow", "input": [[1]], "config": {"seconds": BUSY}})
    command = json.dumps({"sleep": BUSY, "value": 2})
    given = {"name": "what", "datatype": "BYTES", "shape": [1, 1], "data": [command]}
    return await _post(gateway, "/v2/models/slow/infer", {"inputs": [given]})


async def _post(gateway: Gateway, path: str, document: dict[str, Any]) -> dict[str, Any]:
    head = f"POST {path} HTTP/1.1\r\nConnection: close".encode()
    reply = await ask(port_of(gateway.state.listeners["http"].address), http(head, json.dumps(document).encode()))
    found: dict[str, Any] = json.loads(reply.partition(b"\r\n\r\n")[2])
    return found


async def test_a_server_of_one_call_is_probed_between_its_calls_and_never_taken_for_dead(
    config: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_gateway(config) as gateway:
        (endpoint,) = gateway.state.assembly.endpoints.values()
        await until(lambda: endpoint.health.state.value == "up", pause=0)  # probes find it so
        found = await asyncio.gather(*(evaluated(gateway, number) for number in range(CALLS)))
        assert found == [[[2 * number]] for number in range(CALLS)]
        protocol = gateway.state.config.backends["lab"].protocol
        reply = await busy(gateway, protocol)
        assert reply["output"] == [[2]] if protocol == "umbridge" else reply["outputs"][0]["data"] == [2]
    assert [each.getMessage() for each in caplog.records if "is down" in each.getMessage()] == []
