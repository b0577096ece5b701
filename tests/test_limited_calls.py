"""Calls that the policies circuit_breaker, concurrency_limit and rate_limit refuse: whole gateways with real model
servers behind them, and what clients of each protocol get."""

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import httpx
import numpy as np
import pytest

from gateway.assembly.registry import protocols
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from gateway.policies import shared_server
from gateway.runtime.app import Gateway
from tests.interop.processes import Process, free_port
from tests.limits import GENEROUS
from tests.paused_server import Held, held
from tests.policies.redis_server import RedisServer
from tests.running_gateway import running_gateway
from tests.test_hung_servers import address, reference

CONFIG = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge, grps-rest, v1-rest, graphpipe]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc, grps-grpc]}
reference:
  - {protocol: v2-grpc, bind: "127.0.0.1:PORT", models: [double, fail, count]}
backends:
  lab: {protocol: v2-grpc, endpoints: ["127.0.0.1:PORT"], policies: [{BACKEND}]}
  held: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:HELD"]}
routes:
  - {match: {model: m}, backend: held, policies: [{ROUTE}]}
  - {match: {model: "*"}, backend: lab, policies: [{ROUTE}]}
"""
INFER = "/inference.GRPCInferenceService/ModelInfer"
NOTHING = "timeout: {seconds: 60}"


class Clients:
    """Clients of a gateway, one for each transport."""

    def __init__(self, gateway: Gateway, http: httpx.AsyncClient, channel: grpc.aio.Channel, held: Held) -> None:
        self.gateway, self.http, self.grpc, self.held = gateway, http, channel, held

    async def rest(self, model: str, data: object, datatype: str = "FP64", key: str = "rest") -> httpx.Response:
        """One inference by V2 REST; `data` is a row."""
        body = {"inputs": [{"name": name_of(model), "datatype": datatype, "shape": [1, 1], "data": [data]}]}
        return await self.http.post(f"/v2/models/{model}/infer", json=body, headers={"x-api-key": key})

    async def rpc(self, model: str, data: object, datatype: str = "FP64") -> grpc.aio.AioRpcError | None:
        """The error of one inference by V2 gRPC."""
        array = np.array([[data]], np.float64 if datatype == "FP64" else np.int32)
        message = encoded("v2-grpc", model, array)
        try:
            await self.grpc.unary_unary(INFER)(b"".join(message.parts), metadata=[("x-api-key", "rpc")])
        except grpc.aio.AioRpcError as error:
            return error
        return None


def name_of(model: str) -> str:
    return {"fail": "kind", "count": "n"}.get(model, "x")


def encoded(protocol: str, model: str, array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> Message:
    request = Request(Operation.INFER, model, inputs=(tensor(name_of(model), array),))
    return protocols()[protocol].encode_request(request, Target("gateway"))


@asynccontextmanager
async def running(backend: str = NOTHING, route: str = NOTHING, text: str = CONFIG) -> AsyncIterator[Clients]:
    """A gateway with these policies."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(held())
        text = text.replace("PORT", str(free_port())).replace("HELD", str(server.port))
        text = text.replace("BACKEND", backend).replace("ROUTE", route)
        gateway = await stack.enter_async_context(running_gateway(text))
        stack.callback(server.release.set)
        base = f"http://{gateway.state.listeners['http'].address}"
        http = await stack.enter_async_context(httpx.AsyncClient(base_url=base, timeout=GENEROUS, trust_env=False))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(gateway.state.listeners["grpc"].address))
        yield Clients(gateway, http, channel, server)


async def test_a_model_that_fails_gets_no_calls_while_another_of_its_backend_goes_on() -> None:
    async with running(backend="circuit_breaker: {failures: 3, seconds: 3600}") as clients:
        found = [await clients.rest("fail", 13, "INT32") for _ in range(4)]
        assert [each.status_code for each in found] == [500] * 3 + [503]
        assert found[3].headers["gateway-reason"] == "circuit-open"
        text = r"model 'fail' failed too often, so it gets no calls now; try again in (3600|3[\d.]+) s"
        assert re.fullmatch(text, found[3].json()["error"])
        refused = await clients.rpc("fail", 0, "INT32")
        assert refused is not None
        assert refused.code() is grpc.StatusCode.UNAVAILABLE
        assert "model 'fail' failed too often" in str(refused.details())
        assert [(await clients.rest("double", 1)).status_code for _ in range(3)] == [200] * 3
        assert await clients.rpc("double", 1) is None
        [policy] = clients.gateway.state.status().policies
        assert (policy.place, policy.policy) == ("backends.lab", "circuit_breaker")
        [model] = policy.state["models"]
        assert (model["model"], model["state"]) == ("'fail'", "open")


async def test_wrong_requests_do_not_open_the_circuit_for_others() -> None:
    async with running(backend="circuit_breaker: {failures: 1, seconds: 3600}") as clients:
        for _ in range(3):
            assert (await clients.rest("double", "text", "BYTES")).status_code == 400
            assert (await clients.rest("absent", 1)).status_code == 404
        assert (await clients.rest("double", 1)).status_code == 200


FORWARDING = """
listeners:
  - {name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}
  - {name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}
backends:
  lab: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:PORT"], policies: POLICIES}
routes: [{match: {model: "*"}, backend: lab}]
"""


def double(port: int, folder: Path) -> Process:
    """A model server in a process of its own."""
    process = reference("v2-rest", folder, "double", f"127.0.0.1:{port}")
    address(process)  # waits until it is ready
    return process


def forwarding(port: int, policies: str) -> AbstractAsyncContextManager[Clients]:
    """A gateway before the server at this port, with these policies."""
    return running(text=FORWARDING.replace("PORT", str(port)).replace("POLICIES", policies))


@pytest.mark.long
async def test_a_server_that_was_killed_is_tried_again_by_one_call(tmp_path: Path) -> None:
    port = free_port()
    server = double(port, tmp_path)
    try:
        async with forwarding(port, "[{circuit_breaker: {failures: 2, seconds: 2}}]") as clients:
            assert (await clients.rest("double", 1)).status_code == 200
            server.signal(signal.SIGKILL)
            server.stop()
            reasons = [(await clients.rest("double", 1)).headers["gateway-reason"] for _ in range(3)]
            assert reasons == ["unreachable", "unreachable", "circuit-open"]
            server = double(port, tmp_path)
            for _ in range(600):
                if (await clients.rest("double", 1)).status_code == 200:
                    break
                await asyncio.sleep(0.05)
            assert [(await clients.rest("double", 1)).status_code for _ in range(5)] == [200] * 5
    finally:
        server.stop()


BREAKER, TIMEOUT = "{circuit_breaker: {failures: 2, seconds: 3600}}", "{timeout: {seconds: 1}}"


@pytest.mark.long
@pytest.mark.parametrize(
    "policies", [f"[{TIMEOUT}, {BREAKER}]", f"[{BREAKER}, {TIMEOUT}]"], ids=["timeout around it", "timeout within"]
)
async def test_calls_that_a_hung_server_does_not_answer_open_the_circuit(policies: str, tmp_path: Path) -> None:
    port = free_port()
    server = double(port, tmp_path)
    try:
        async with forwarding(port, policies) as clients:
            assert (await clients.rest("double", 1)).status_code == 200
            server.signal(signal.SIGSTOP)
            assert [(await clients.rest("double", 1)).status_code for _ in range(4)] == [504, 504, 503, 503]
    finally:
        server.signal(signal.SIGCONT)
        server.stop()


async def test_calls_beyond_the_concurrency_limit_are_refused_while_others_run() -> None:
    async with running(route="concurrency_limit: {calls: 1}") as clients:
        first = asyncio.ensure_future(clients.rest("m", 1))
        await clients.held.arrived.wait()
        refused = await clients.rest("m", 1)
        assert refused.status_code == 429
        assert refused.headers["gateway-reason"] == "overloaded"
        assert refused.json()["error"].startswith("1 calls are running, which is the limit")
        error = await clients.rpc("m", 1)
        assert error is not None
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await clients.rest("double", 1)).status_code == 200  # another route has a limit of its own
        clients.held.release.set()
        assert (await first).status_code == 200
        assert (await clients.rest("m", 1)).status_code == 200


LIMITED = "rate_limit: {requests: 1, seconds: 3600, by: header, header: x-api-key}"


def is_told(text: object) -> bool:
    return re.fullmatch(r"more than 1 requests in 3600 s; try again in (3600|3[\d.]+) s", str(text)) is not None


async def test_a_client_beyond_its_rate_is_told_so_in_the_words_of_its_protocol() -> None:
    async with running(route=LIMITED) as clients:

        async def refused(key: str, path: str, body: object) -> Any:
            """The JSON of the reply to the second of two calls."""
            headers = {"x-api-key": key}
            assert (await clients.http.post(path, json=body, headers=headers)).status_code == 200
            reply = await clients.http.post(path, json=body, headers=headers)
            assert (reply.status_code, reply.headers["gateway-reason"]) == (429, "rate-limited")
            return reply.json()

        x = {"name": "x", "datatype": "FP64", "shape": [1, 1], "data": [1.0]}
        assert is_told((await refused("rest", "/v2/models/double/infer", {"inputs": [x]}))["error"])

        assert await clients.rpc("double", 1) is None
        error = await clients.rpc("double", 1)
        assert error is not None
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert is_told(error.details())
        assert ("gateway-reason", "rate-limited") in list(error.trailing_metadata() or ())

        evaluation = {"name": "double", "input": [[1.0]], "config": {}}
        told = (await refused("umbridge", "/Evaluate", evaluation))["error"]
        assert told["type"] == "RateLimited"
        assert is_told(told["message"])

        message = encoded("grps-rest", "double", np.ones((1, 1)))
        status = (await refused("grps", f"{message.path}?{message.query}", json.loads(b"".join(message.parts))))[
            "status"
        ]
        assert (status["code"], status["status"]) == (429, "FAILURE")
        assert is_told(status["msg"])

        assert is_told((await refused("v1", "/v1/models/double:predict", {"instances": [{"x": [1.0]}]}))["error"])


@pytest.mark.real("redis-server")
async def test_two_gateways_share_a_limit_and_close_their_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from redis.asyncio import Redis

    monkeypatch.setattr(shared_server, "SECONDS", 10.0)  # a loaded machine may be late
    server = RedisServer(tmp_path)
    limit = f'rate_limit: {{requests: 10, seconds: 3600, redis: "{server.url}"}}'
    try:
        async with running(route=limit) as first, running(route=limit) as second, Redis.from_url(server.url) as client:
            both = [gateway.rest("double", 1) for _ in range(20) for gateway in (first, second)]
            found = [each.status_code for each in await asyncio.gather(*both)]
            assert (found.count(200), found.count(429)) == (10, 30)
            assert len(await client.client_list()) > 1
        async with Redis.from_url(server.url) as client:
            assert len(await client.client_list()) == 1
    finally:
        server.process.stop()


async def test_metadata_and_readiness_are_not_limited() -> None:
    async with running(route=LIMITED) as clients:
        await clients.rest("double", 1)
        for path in ("/v2/models/double", "/v2/models/double/ready", "/v2/health/ready"):
            found = [(await clients.http.get(path, headers={"x-api-key": "rest"})).status_code for _ in range(3)]
            assert found == [200] * 3


async def test_the_state_of_policies_is_in_the_status() -> None:
    async with running(route=f"{LIMITED}}}, {{concurrency_limit: {{adaptive: gradient}}") as clients:
        for _ in range(3):
            await clients.rest("double", 1)
        found = json.loads(clients.gateway.state.status().model_dump_json())["policies"]
        assert found[2:] == [
            {"place": "*", "policy": "rate_limit", "state": {"clients": 1, "refused": 2}},
            {"place": "*", "policy": "concurrency_limit", "state": {"in_flight": 0, "limit": 20, "refused": 0}},
        ]
