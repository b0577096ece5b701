"""Hostile graphs, and graphs with hostile servers: ten thousand steps, a server that hangs, a server whose answers
contradict its metadata, and a tensor that claims rows without sending them."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from gateway.client import AsyncClient, ClientError
from gateway.runtime.app import Gateway
from gateway.transports.memory import PROCESS_MEMORY
from tests.cli.commands import gateway as command
from tests.limits import GENEROUS
from tests.observing.scraped import config

CONFIG = """
limits: {memory: 67108864}
listeners: [{name: http, bind: "127.0.0.1:0", protocols: [v2-rest]}]
backends: {hostile: {protocol: v2-rest, flavor: plain, endpoints: ["127.0.0.1:PORT"]}}
routes: [{match: {}, backend: hostile}]
models:
  chain:
    inputs: {x: "FP64 [-1, 2]"}
    steps: {a: {model: first, inputs: {x: $x}}, b: {model: second, inputs: {x: $a}}}
    outputs: {y: $b}
  pair:
    inputs: {x: "FP64 [-1, 2]"}
    steps: {a: {model: first, inputs: {x: $x}}, b: {model: second, inputs: {x: $x}}}
    outputs: {y: {sum: [$a, $b]}}
  wide:
    inputs: {x: "FP64 [-1, -1]"}
    outputs: {y: {sum: $x, axis: 1}}
"""
PROMISED = {
    "inputs": [{"name": "x", "datatype": "FP64", "shape": [-1, 2]}],
    "outputs": [{"name": "y", "datatype": "FP64", "shape": [-1, 2]}],
}
BODY = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [1, 2], "data": [1, 2]}]}


class Hostile:
    """A V2 server that describes its models, and answers with `outputs`. A model without outputs hangs."""

    def __init__(self) -> None:
        self.outputs: dict[str, Mapping[str, Any]] = {}
        self.hanging = 0
        self.hangs, self.all_left = asyncio.Event(), asyncio.Event()
        self.asked: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, path = head.split(b" ", 2)[:2]
                _, _, rest = head.lower().partition(b"content-length:")
                await reader.readexactly(int(rest.split(b"\r\n")[0] or 0))
                model = path.decode().split("/")[3]
                if method == b"GET":
                    reply: Mapping[str, Any] = {"name": model, **PROMISED}
                else:
                    self.asked.append(model)
                    if model not in self.outputs:
                        self.hanging += 1
                        self.hangs.set()
                        assert not await reader.read()
                        self.hanging -= 1
                        if not self.hanging:
                            self.all_left.set()
                        return
                    reply = {"model_name": model, "outputs": [{"name": "y", "datatype": "FP64", **self.outputs[model]}]}
                body = json.dumps(reply).encode()
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                writer.write(head % len(body) + body)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


FITS = {"shape": [1, 2], "data": [1, 2]}


@asynccontextmanager
async def attacked() -> AsyncIterator[tuple[Gateway, Hostile]]:
    hostile, before = Hostile(), PROCESS_MEMORY.limit
    server = await asyncio.start_server(hostile.serve, "127.0.0.1", 0)
    gateway = Gateway(config(CONFIG, PORT=server.sockets[0].getsockname()[1]))
    await gateway.start()
    try:
        async with asyncio.timeout(GENEROUS):
            yield gateway, hostile
    finally:
        await gateway.drain(0)
        server.close()
        PROCESS_MEMORY.limit = before


async def post(gateway: Gateway, model: str, body: object = BODY, **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(timeout=GENEROUS) as client:
        url = f"http://{gateway.state.listeners['http'].address}/v2/models/{model}/infer"
        return await client.post(url, json=body, **more)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"shape": [1, 3], "data": [1, 2, 3]}, "is FP64 [1, 3], but the model's metadata has FP64 [-1, 2]"),
        ({"shape": [2], "data": [1, 2]}, "is FP64 [2], but the model's metadata has FP64 [-1, 2]"),
        ({"shape": [7, 2], "data": [1] * 14}, "expected tensors of the same shape, got FP64 [7, 2] and FP64 [1, 2]"),
        ({"shape": [1, 2], "data": [1, 2], "name": "z"}, "step 'a' has no output 'y'; expected one of z"),
    ],
)
async def test_a_member_that_answers_otherwise_than_it_promised(wrong: dict[str, Any], told: str) -> None:
    async with attacked() as (gateway, hostile):
        hostile.outputs = {"first": wrong, "second": FITS}
        reply = await post(gateway, "pair")
        assert reply.status_code == 502
        assert told in reply.json()["error"]
        if "metadata" in told:
            assert "step 'a' (model 'first'): " in reply.json()["error"]


async def test_a_member_that_hangs_keeps_nobody_else_waiting() -> None:
    async with attacked() as (gateway, hostile):
        hostile.outputs = {"first": FITS}
        waiting = [asyncio.ensure_future(post(gateway, "chain")) for _ in range(50)]
        await hostile.hangs.wait()
        assert (await post(gateway, "first")).status_code == 200
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        await hostile.all_left.wait()
        assert (await post(gateway, "first")).status_code == 200


async def test_the_client_of_a_member_that_hangs_is_answered_at_its_deadline() -> None:
    async with attacked() as (gateway, hostile):
        hostile.outputs = {"first": FITS}
        async with AsyncClient(gateway.state.listeners["http"].address, protocol="v2-rest") as client:
            with pytest.raises(ClientError, match="within"):
                await client.infer("chain", np.ones((1, 2)), timeout=1.0)


async def test_rows_that_are_only_claimed_take_no_memory() -> None:
    """2^40 empty rows fit into a body of 100 bytes. Their sums would take 8 TiB."""
    async with attacked() as (gateway, _):
        body = {"inputs": [{"name": "x", "datatype": "FP64", "shape": [2**40, 0], "data": []}]}
        reply = await post(gateway, "wide", body)
        assert reply.status_code == 429 or "no memory for" in reply.json()["error"], reply.text
        assert PROCESS_MEMORY.used < 2**20


def test_ten_thousand_steps_are_one_error(tmp_path: Path) -> None:
    steps = "".join(f"      s{at}: {{model: m, inputs: {{x: $s{at - 1}}}}}\n" for at in range(1, 10_001))
    path = tmp_path / "gateway.yaml"
    head = CONFIG.replace("PORT", "1").partition("models:")[0]
    path.write_text(
        f'{head}models:\n  deep:\n    inputs: {{s0: "FP64 [2]"}}\n    steps:\n{steps}    outputs: {{y: $s10000}}\n'
    )
    result = command("check", str(path))
    assert result.exit_code == 1
    assert result.stderr.endswith("10000 steps; a graph has at most 1000\n")
    assert result.stderr.count("\n") == 1
