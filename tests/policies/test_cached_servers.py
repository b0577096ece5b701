"""A gateway with a cache in front of an UM-Bridge server: clients of every protocol share its answers."""

import json
from contextlib import AbstractAsyncContextManager

import numpy as np
import pytest

from gateway.client import AsyncClient
from gateway.config import Config, ConfigError
from gateway.core.messages import Message
from gateway.runtime.app import Gateway
from tests.interop.processes import free_port
from tests.paused_server import ask, http, port_of
from tests.running_gateway import config_of, running_gateway

CONFIG = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, v1-rest, umbridge, graphpipe, grps-rest],
     reply_headers: true}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc, grps-grpc], reply_headers: true}
  - {name: brpc, bind: "tcp://127.0.0.1:0", protocols: [grps-brpc]}
  - {name: mip, bind: "tcp://127.0.0.1:0", protocols: [mip], model: posterior}
health: {bind: "127.0.0.1:0"}
reference:
  - {protocol: umbridge, bind: "127.0.0.1:PORT", models: [posterior]}
backends:
  science: {protocol: umbridge, endpoints: ["http://127.0.0.1:PORT"], SAFE, policies: [cache: {seconds: AGE}]}
routes:
  - {match: {model: posterior}, backend: science}
"""


def config(port: int, age: int = 3600, safe: str = "safe: true") -> Config:
    text = CONFIG.replace("PORT", str(port)).replace("AGE", str(age)).replace("SAFE", safe)
    return config_of(text)


def running(port: int) -> AbstractAsyncContextManager[Gateway]:
    return running_gateway(config(port))


def counts(gateway: Gateway) -> tuple[object, object]:
    [(_, _, state)] = gateway.state.policy_states
    return state["misses"], state["hits"]


def at(gateway: Gateway, listener: str) -> str:
    return f"127.0.0.1:{port_of(gateway.state.listeners[listener].address)}"


async def posted(gateway: Gateway, path: str, body: object) -> tuple[str, bytes]:
    """The header `gateway-cache` and the body of the reply."""
    request = http(f"POST {path} HTTP/1.1\r\nConnection: close".encode(), json.dumps(body).encode())
    address = gateway.state.listeners["http"].address
    head, _, reply = (await ask(port_of(address), request)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), (head, reply)
    found = [line.partition(": ")[2] for line in head.decode().split("\r\n") if line.startswith("gateway-cache: ")]
    return "".join(found), reply


def v2(*rows: list[float], id: str = "i") -> dict[str, object]:
    data = [number for row in rows for number in row]
    return {"id": id, "inputs": [{"name": "input0", "datatype": "FP64", "shape": [len(rows), 2], "data": data}]}


INFER = "/v2/models/posterior/infer"
CLIENTS = {
    "v2-grpc": "grpc", "grps-grpc": "grpc", "grps-rest": "http", "grps-brpc": "brpc", "mip": "mip", "graphpipe": "http",
    "v1-rest": "http",
}  # fmt: skip
"""The listeners of further protocols."""


async def test_clients_of_all_protocols_share_answers() -> None:
    async with running(free_port()) as gateway:
        first, reply = await posted(gateway, "/Evaluate", {"name": "posterior", "input": [[1.0, 2.0]], "config": {}})
        assert (first, json.loads(reply)) == ("miss", {"output": [[-5.0]]})
        second, reply = await posted(gateway, INFER, v2([1.0, 2.0], id="mine"))
        assert second.startswith("hit; age=")
        assert json.loads(reply)["id"] == "mine"
        assert json.loads(reply)["outputs"][0]["data"] == [-5.0]
        assert counts(gateway) == (1, 1)
        for number, (protocol, listener) in enumerate(CLIENTS.items(), 2):
            path = "/graphpipe/posterior" if protocol == "graphpipe" else ""
            async with AsyncClient(f"{protocol}://{at(gateway, listener)}{path}") as client:
                outputs = await client.infer("posterior", np.array([[1.0, 2.0]]))
                assert [each.reshape(-1).tolist() for each in outputs.values()] == [[-5.0]], protocol
            assert counts(gateway) == (1, number), protocol


async def test_derivatives_are_told_apart_and_rows_of_a_batch_are_calls() -> None:
    async with running(free_port()) as gateway:
        gradient = {"name": "posterior", "input": [[1.0, 2.0]], "outWrt": 0, "inWrt": 0, "sens": [1.0], "config": {}}
        replies = [await posted(gateway, "/Gradient", gradient) for _ in range(2)]
        assert [told.partition(";")[0] for told, _ in replies] == ["miss", "hit"]
        assert json.loads(replies[1][1])["output"] == [20.0, -10.0]
        assert (await posted(gateway, "/Gradient", {**gradient, "sens": [2.0]}))[0] == "miss"
        assert (await posted(gateway, INFER, v2([1.0, 2.0], [1.0, 1.0])))[0] == "miss"
        told, reply = await posted(gateway, INFER, v2([1.0, 1.0], [1.0, 2.0]))
        assert told.startswith("hit")
        assert json.loads(reply)["outputs"][0]["data"] == [-0.0, -5.0]


async def test_the_metrics_count_calls_and_bytes() -> None:
    async with running(free_port()) as gateway:
        for _ in range(3):
            await posted(gateway, INFER, v2([1.0, 2.0]))
        page = gateway.metrics.page(gateway.state.config)
        assert page is not None
        lines = b"".join(page.reply(Message()).parts).decode().splitlines()
        assert 'gateway_cache_calls_total{outcome="hit",owner="backends.science"} 2.0' in lines
        assert 'gateway_cache_calls_total{outcome="miss",owner="backends.science"} 1.0' in lines
        assert 'gateway_cache_answers{owner="backends.science"} 1.0' in lines
        [size] = [line for line in lines if line.startswith("gateway_cache_bytes{")]
        assert 100 < float(size.rpartition(" ")[2]) < 10_000


async def test_a_reload_keeps_answers_where_nothing_has_changed() -> None:
    port = free_port()
    async with running(port) as gateway:
        await posted(gateway, INFER, v2([1.0, 2.0]))
        await gateway.reload(config(port).model_copy(update={"access_log": None}))
        assert (await posted(gateway, INFER, v2([1.0, 2.0])))[0].startswith("hit")
        await gateway.reload(config(port, age=60))
        assert (await posted(gateway, INFER, v2([1.0, 2.0])))[0] == "miss"
        [endpoint] = gateway.state.assembly.backends["science"].endpoints
        endpoint.changed()  # as when it was down and answers again
        assert (await posted(gateway, INFER, v2([1.0, 2.0])))[0] == "miss"


def test_a_backend_that_is_not_safe_must_not_have_one() -> None:
    with pytest.raises(ConfigError, match="cache answers equal calls with one call, which needs safe: true on the bac"):
        config(4242, safe="max_in_flight: 1")
