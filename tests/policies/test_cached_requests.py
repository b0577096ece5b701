"""A gateway with a cache: who may see an answer, a cache on a route, over gRPC, before servers that hang or load other
models, and with deadlines."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import numpy as np
import pytest

from gateway.auth.keys import new_key, write_keys
from gateway.core.tensors import tensor
from gateway.runtime.app import Gateway
from tests.attacks.clients import message
from tests.limits import until
from tests.paused_server import ask, http, port_of
from tests.policies.states import caches
from tests.running_gateway import config_of, running_gateway
from tests.runtime.workers.counted import Counted, counted
from tests.runtime.workers.test_shared_state import Server
from tests.skipping_loop import skip
from tests.test_hung_servers import address, reference

CONFIG = """
{more}
listeners:
  - {{name: http, bind: "127.0.0.1:0", protocols: [v2-rest, umbridge], reply_headers: true{listener}}}
  - {{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc], reply_headers: true}}
backends:
  lab: {{endpoints: ["{address}"], safe: true, {backend}}}
routes: [{{match: {{model: "*"}}, backend: lab{route}}}]
"""
CACHED = "policies: [{cache: {}}]"


def text(address: str, backend: str, **more: str) -> str:
    return CONFIG.format(address=address, backend=backend, **{"more": "", "listener": "", "route": "", **more})


@asynccontextmanager
async def umbridge() -> AsyncIterator[Counted]:
    """An UM-Bridge server with `posterior` that counts its evaluations."""
    own = 'listeners: [{name: own, bind: "127.0.0.1:0", protocols: [v2-rest]}]\n'
    own += 'reference: [{protocol: umbridge, bind: "127.0.0.1:0", models: [posterior]}]\n'
    async with running_gateway(own) as server, counted(port_of(server.references[0].address)) as relay:
        yield relay


async def posted(gateway: Gateway, path: str, body: object, *headers: str) -> tuple[int, str, bytes]:
    """The status, the header `gateway-cache` without the age, and the body of the reply."""
    start = "\r\n".join((f"POST {path} HTTP/1.1", "Connection: close", *headers)).encode()
    reply = await ask(port_of(gateway.state.listeners["http"].address), http(start, json.dumps(body).encode()))
    head, _, rest = reply.partition(b"\r\n\r\n")
    lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    return int(head.split()[1]), lines.get("gateway-cache", "").partition(";")[0], rest


def evaluate(number: float) -> tuple[str, object]:
    return "/Evaluate", {"name": "posterior", "input": [[number, 2.0]], "config": {}}


def infer(model: str, number: float) -> tuple[str, object]:
    data = {"name": "theta", "datatype": "FP64", "shape": [1, 2], "data": [number, 2.0]}
    return f"/v2/models/{model}/infer", {"inputs": [data]}


async def test_who_may_not_call_the_model_does_not_get_its_cached_answers(tmp_path: Path) -> None:
    alice, alices = new_key("alice")
    bob, bobs = new_key("bob")
    keys = tmp_path / "keys.yaml"
    keys.write_text(write_keys((alices, bobs)))
    access = f"""
auth: {{keys: {{file: {keys}}}}}
permissions:
  all models: [{{operations: [infer], models: ["*"]}}]
  others: [{{operations: [infer], models: ["other"]}}]
principals: {{alice: {{permissions: [all models]}}, bob: {{permissions: [others]}}}}
"""
    async with umbridge() as server:
        written = text(f"http://127.0.0.1:{server.port}", f"protocol: umbridge, {CACHED}", more=access)
        async with running_gateway(written.replace("reply_headers: true", "reply_headers: true, auth: {}")) as gateway:
            path, body = evaluate(1.0)
            assert (await posted(gateway, path, body, f"x-api-key: {alice}"))[:2] == (200, "miss")
            assert (await posted(gateway, path, body, f"x-api-key: {alice}"))[:2] == (200, "hit")
            status, told, reply = await posted(gateway, path, body, f"x-api-key: {bob}")
            assert (status, told) == (403, "")
            assert b"-5.0" not in reply
            assert (await posted(gateway, path, body))[0] == 401
            async with grpc.aio.insecure_channel(gateway.state.listeners["grpc"].address) as channel:
                call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
                asked = message("v2-grpc", "posterior", tensor("input0", np.array([[1.0, 2.0]])))
                assert await call(asked, metadata=(("x-api-key", alice),))
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await call(asked, metadata=(("x-api-key", bob),))
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
            assert server.calls == 1


async def test_over_grpc_metadata_tell_what_the_cache_did() -> None:
    async with umbridge() as server:
        written = text(f"http://127.0.0.1:{server.port}", f"protocol: umbridge, {CACHED}")
        async with running_gateway(written) as gateway:
            async with grpc.aio.insecure_channel(gateway.state.listeners["grpc"].address) as channel:
                infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
                told = []
                for _ in range(2):
                    call = infer(message("v2-grpc", "posterior", tensor("input0", np.array([[1.0, 2.0]]))))
                    assert await call
                    fields = [*(await call.initial_metadata() or ()), *(await call.trailing_metadata() or ())]
                    told += [value for name, value in fields if name == "gateway-cache"]
            assert told == ["miss", "hit; age=0"]
            path, body = evaluate(1.0)
            assert (await posted(gateway, path, body))[:2] == (200, "hit")


async def test_a_route_keeps_its_answers_through_a_reload_that_does_not_concern_it() -> None:
    async with umbridge() as server:
        endpoint = f"http://127.0.0.1:{server.port}"
        written = text(endpoint, "protocol: umbridge", route=f", {CACHED}")
        path, body = evaluate(1.0)
        async with running_gateway(written) as gateway:
            assert (await posted(gateway, path, body))[1] == "miss"
            await gateway.reload(config_of(written + "drain: {timeout: 1}\n"))
            assert gateway.state.reloads == 1
            assert (await posted(gateway, path, body))[1] == "hit"
            above = written.replace("routes: [", "routes: [{match: {model: above}, backend: lab}, ")
            await gateway.reload(config_of(above))
            assert (await posted(gateway, path, body))[1] == "hit"
            changed = written.replace("protocol: umbridge", "protocol: umbridge, max_in_flight: 2")
            await gateway.reload(config_of(changed))
            assert (await posted(gateway, path, body))[1] == "miss"
            assert server.calls == 2
            assert await gateway.clear_caches("*") == ["*"]
            assert (await posted(gateway, path, body))[1] == "miss"


class Repository(Server):
    """It loads and unloads models."""

    def _reply(self, request: bytes) -> bytes:
        if request.startswith(b"GET /v2 "):
            told = {"name": "repository", "version": "1", "extensions": ["model_repository"]}
            return http(b"HTTP/1.1 200 OK\r\nContent-Type: application/json", json.dumps(told).encode())
        return super()._reply(request)


async def test_loading_or_unloading_a_model_through_the_gateway_empties_the_cache() -> None:
    server = Repository()
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    written = text(f"127.0.0.1:{port}", f"protocol: v2-rest, {CACHED}", listener=", allow_control: true")
    body = {"inputs": [{"name": "x", "datatype": "INT32", "shape": [1], "data": [1]}]}
    try:
        async with running_gateway(written) as gateway:
            told = [(await posted(gateway, "/v2/models/m/infer", body))[1] for _ in range(2)]
            for change in ("load", "unload"):
                assert (await posted(gateway, f"/v2/repository/models/m/{change}", {}))[0] == 200
                told += [(await posted(gateway, "/v2/models/m/infer", body))[1] for _ in range(2)]
    finally:
        listening.close()
        await server.close()
    assert told == ["miss", "hit"] * 3


async def test_before_a_server_that_hangs_equal_calls_fail_together_and_leave_nothing(tmp_path: Path) -> None:
    process = reference("v2-rest", tmp_path)
    try:
        policies = "policies: [{cache: {}}, {timeout: {seconds: 30}}]"
        written = text(await asyncio.to_thread(address, process), f"protocol: v2-rest, flavor: plain, {policies}")
        async with running_gateway(written) as gateway:
            known = await posted(gateway, *infer("posterior", 1.0))
            assert known[:2] == (200, "miss")
            process.signal(signal.SIGSTOP)
            calls = asyncio.gather(*(posted(gateway, *infer("posterior", 3.0)) for _ in range(20)))
            await until(lambda: caches(gateway)[0].outcomes["shared"] == 19)
            await skip(30)
            found = await calls
            assert [status for status, *_ in found] == [504] * 20
            assert sorted(told for _, told, _ in found) == ["miss", *["shared"] * 19]
            assert (await posted(gateway, *infer("posterior", 1.0)))[:2] == (200, "hit")
            process.signal(signal.SIGCONT)
            while (again := await posted(gateway, *infer("posterior", 3.0)))[0] != 200:
                pass  # the endpoint is down for a moment
            assert again[1] == "miss"
            [cache] = caches(gateway)
            assert not cache._flights
            assert gateway.state.status().backends["lab"].endpoints[0].in_flight == 0
    finally:
        process.signal(signal.SIGCONT)
        process.stop()


async def test_who_waits_with_a_client_whose_deadline_passes_gets_an_answer_all_the_same() -> None:
    """UM-Bridge servers compute to the end: the slot of the first client's call stays taken."""
    async with umbridge() as server:
        written = text(f"http://127.0.0.1:{server.port}", f"protocol: umbridge, max_in_flight: 1, {CACHED}")
        async with running_gateway(written) as gateway:
            assert (await posted(gateway, *evaluate(7.0)))[0] == 200
            server.holding.clear()
            server.arrived.clear()
            async with grpc.aio.insecure_channel(gateway.state.listeners["grpc"].address) as channel:
                infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
                first = infer(message("v2-grpc", "posterior", tensor("input0", np.array([[1.0, 2.0]]))), timeout=30)
                await server.arrived.wait()
                second = asyncio.ensure_future(posted(gateway, *evaluate(1.0)))
                [cache] = caches(gateway)
                await until(lambda: cache.outcomes["shared"])
                await skip(30)
                with pytest.raises(grpc.aio.AioRpcError) as late:
                    await first
                assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert not second.done()
            server.holding.set()
            status, _, reply = await second
            assert (status, json.loads(reply)) == (200, {"output": [[-5.0]]})
            assert server.most == 1
            assert (await posted(gateway, *evaluate(1.0)))[1] == "hit"
            assert gateway.state.status().backends["lab"].endpoints[0].in_flight == 0
