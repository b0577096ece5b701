"""The worked example of docs/policies/mirror.md: `config/examples/mirror.yaml`, with model servers for its backends."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from gateway.config import Config
from gateway.runtime.app import Gateway
from tests.interop.processes import free_port
from tests.observing.scraped import scrape
from tests.peers.graphpipe_go import Array, serve
from tests.policies.states import mirrors
from tests.running_gateway import config_of, running_gateway

EXAMPLE = (Path(__file__).parents[2] / "config/examples/mirror.yaml").read_text()
SERVERS = """
reference:
  - {protocol: v2-grpc, bind: "127.0.0.1:NEW", models: [double]}
"""
ROW = [1.5, 2.5]


def twice(inputs: list[Array], config: str) -> list[Array]:
    return [each + each for each in inputs]


def config(text: str, old: str) -> Config:
    """The example with servers on ports of this machine, and every call mirrored."""
    text = text.replace("http://127.0.0.1:9000/", old).replace(":8001", ":NEW")
    for port in ("8080", "8081", "9090", "9091"):
        text = text.replace(f":{port}", ":0")
    text = text.replace("sample: 0.1", "sample: 1") + SERVERS
    return config_of(text.replace("NEW", str(free_port())))


@asynccontextmanager
async def started(config: str | Config) -> AsyncIterator[tuple[Gateway, httpx.AsyncClient]]:
    async with (
        running_gateway(config) as gateway,
        httpx.AsyncClient(base_url=f"http://{gateway.state.listeners['http'].address}") as client,
    ):
        yield gateway, client


@asynccontextmanager
async def running(text: str = EXAMPLE) -> AsyncIterator[tuple[Gateway, httpx.AsyncClient]]:
    with serve(twice, inputs=1, outputs=1) as old:
        async with started(config(text, old.url)) as running:
            yield running


async def infer(client: httpx.AsyncClient, name: str = "input0") -> httpx.Response:
    body = {"inputs": [{"name": name, "datatype": "FP64", "shape": [1, 2], "data": ROW}]}
    return await client.post("/v2/models/double/infer", json=body)


async def found(gateway: Gateway) -> Any:
    """What /status shows when no call is on its way."""
    [mirror] = mirrors(gateway)
    await mirror.ended()
    async with httpx.AsyncClient() as client:
        status = (await client.get(f"http://{gateway.ports.all['admin'].address}/status")).json()
    [policy] = status["policies"]
    return policy["state"]


async def test_clients_get_the_old_server_s_answers_and_the_new_one_s_are_equal() -> None:
    async with running() as (gateway, client):
        reply = await infer(client)
        assert reply.json()["outputs"] == [{"name": "output0", "datatype": "FP64", "shape": [1, 2], "data": [3.0, 5.0]}]
        state = await found(gateway)
        assert (state["equal"], state["different"], state["failed"], state["dropped"]) == (1, 0, 0, 0)
        assert state["last_differences"] == []
        assert state["mean_seconds"]["actual"] > 0
        page = await scrape(gateway)
        while not page.value("gateway_requests_total"):  # requests are counted in batches
            page = await scrape(gateway)
        labels = {"route": "double", "backend": "triton"}
        assert page.value("gateway_mirror_requests_total", **labels, outcome="equal") == 1
        assert page.value("gateway_requests_total") == 1  # the mirrored request is none of a client's
        assert page.value("gateway_backend_calls_in_flight", backend="triton") == 0


async def test_what_the_page_tells_of_names_that_differ() -> None:
    """Without `rename` the new server does not know the old one's names."""
    before, mark, _ = EXAMPLE.partition("          rename:")
    assert mark
    async with running(before) as (gateway, client):
        assert (await infer(client)).status_code == 200
        state = await found(gateway)
        assert state["differences"] == {"status": 1}
        [last] = state["last_differences"]
        assert last["status"] == {"expected": "OK", "actual": "INVALID_ARGUMENT"}
        assert "input 'x' of model 'double' is missing" in last["text"]
    only_inputs = before + "          rename: {inputs: [{client: input0, backend: x}]}\n"
    async with running(only_inputs) as (gateway, client):
        await infer(client)
        state = await found(gateway)
        assert state["differences"] == {"missing output": 1, "extra output": 1}
    async with running(only_inputs + "          outputs: positions\n") as (gateway, client):
        await infer(client)
        assert (await found(gateway))["equal"] == 1


async def test_the_change_itself_is_what_the_mirror_has_proved() -> None:
    """The last step: the route names the new backend, and has the renaming."""
    before, _, _ = EXAMPLE.partition("routes:")
    after = """routes:
  - match: {model: double}
    backend: triton
    translate:
      rename: {inputs: [{client: input0, backend: x}], outputs: [{client: output0, backend: y}]}
"""
    async with running(before + after) as (gateway, client):
        reply = await infer(client)
        assert reply.json()["outputs"] == [{"name": "output0", "datatype": "FP64", "shape": [1, 2], "data": [3.0, 5.0]}]
        assert mirrors(gateway) == []


DERIVATIVES = """
health: {bind: "127.0.0.1:0"}
admin: {bind: "127.0.0.1:0"}
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge]}
backends:
  old: {protocol: umbridge, endpoints: ["http://127.0.0.1:FIRST"]}
  new: {protocol: v2-grpc, endpoints: ["127.0.0.1:NEW"]}
routes:
  - match: {model: posterior}
    backend: old
    policies:
      - mirror:
          backend: new
          sample: 1
          tolerance: {ulp: 4}
          rename: {inputs: [{client: input0, backend: theta}]}
reference:
  - {protocol: umbridge, bind: "127.0.0.1:FIRST", models: [posterior]}
  - {protocol: v2-grpc, bind: "127.0.0.1:NEW", models: [posterior]}
"""


def derivatives(text: str) -> AbstractAsyncContextManager[tuple[Gateway, httpx.AsyncClient]]:
    for word in ("FIRST", "NEW"):
        text = text.replace(word, str(free_port()))
    return started(text)


async def gradient(client: httpx.AsyncClient, name: str) -> httpx.Response:
    """The gradient as V2 clients ask for it."""
    inputs = [
        {"name": name, "datatype": "FP64", "shape": [1, 2], "data": [1.0, 2.0]},
        {"name": "sens", "datatype": "FP64", "shape": [1, 1], "data": [1.0]},
    ]
    return await client.post("/v2/models/posterior.gradient/infer", json={"inputs": inputs})


async def test_derivatives_of_umbridge_are_compared_with_those_of_companion_models() -> None:
    async with derivatives(DERIVATIVES) as (gateway, client):
        asked = {"name": "posterior", "input": [[1.0, 2.0]], "config": {}, "outWrt": 0, "inWrt": 0, "sens": [1.0]}
        reply = await client.post("/Gradient", json=asked)
        assert reply.status_code == 200, reply.text
        reply = await gradient(client, "input0")
        assert reply.status_code == 200, reply.text
        state = await found(gateway)
        assert (state["equal"], state["last_differences"]) == (2, [])


async def test_companion_models_are_compared_with_derivatives_of_umbridge() -> None:
    text = DERIVATIVES.replace("backend: old", "backend: turned").replace("backend: new", "backend: old")
    text = text.replace("backend: turned", "backend: new")
    text = text.replace("client: input0, backend: theta", "client: theta, backend: input0")
    async with derivatives(text) as (gateway, client):
        reply = await gradient(client, "theta")
        assert reply.status_code == 200, reply.text
        state = await found(gateway)
        assert (state["equal"], state["last_differences"]) == (1, [])
