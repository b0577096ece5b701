"""Calls to three model servers, which are processes of their own and answer with their number: who gets how many."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import grpc.aio
import numpy as np
import pytest

from gateway.assembly.registry import protocols
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request, Response
from gateway.core.tensors import tensor
from tests.interop.processes import Process
from tests.running_gateway import running_gateway
from tests.test_hung_servers import address, reference

MODEL = """
import numpy
from gateway.reference import signature

@signature(inputs=[("x", "INT32", [1])], outputs=[("number", "INT32", [1])])
def number(x):
    return numpy.full(1, {number}, "i4")
"""
CONFIG = """
listeners: [{{name: grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}}]
backends: {{lab: {{protocol: {protocol}, endpoints: {endpoints}, balance: {balance}}}}}
routes: [{{match: {{}}, backend: lab}}]
"""
CLIENT = protocols()["v2-grpc"]
QUESTION = Request(Operation.INFER, "number", inputs=(tensor("x", np.ones(1, np.int32)),))
PROTOCOLS = ("v2-rest", "v2-grpc")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[str]]]:
    """The addresses of three servers of each protocol; the answers are 1, 2 and 3."""
    with ExitStack() as stack:
        started: dict[str, list[Process]] = {}
        for protocol in PROTOCOLS:
            for number in (1, 2, 3):
                folder: Path = tmp_path_factory.mktemp("server")
                (folder / "numbered.py").write_text(MODEL.format(number=number))
                server = reference(protocol, folder, "numbered:number")
                stack.callback(server.stop)
                started.setdefault(protocol, []).append(server)
        yield {protocol: [address(each) for each in three] for protocol, three in started.items()}


@asynccontextmanager
async def asking(
    protocol: str, balance: str, endpoints: Sequence[object]
) -> AsyncIterator[grpc.aio.UnaryUnaryMultiCallable]:
    """The call of one client, which has one HTTP/2 connection, to a gateway before these endpoints."""
    text = CONFIG.format(protocol=protocol, balance=balance, endpoints=json.dumps(endpoints))
    async with (
        running_gateway(text) as gateway,
        grpc.aio.insecure_channel(gateway.state.listeners["grpc"].address) as channel,
    ):
        yield channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")


async def answer(call: grpc.aio.UnaryUnaryMultiCallable) -> int:
    """The number of the server that answered."""
    body = await call(b"".join(CLIENT.encode_request(QUESTION, Target()).parts))
    response = CLIENT.decode_response(Message(parts=(body,)), QUESTION, Target())
    assert isinstance(response, Response)
    return int(np.frombuffer(bytes(response.outputs[0].data), "<i4")[0])


@pytest.mark.parametrize("balance", ["least_in_flight", "round_robin", "power_of_two"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_servers_get_calls_by_their_weight(servers: dict[str, list[str]], protocol: str, balance: str) -> None:
    one, two, three = servers[protocol]
    endpoints = [one, {"address": two, "weight": 2}, {"address": three, "weight": 3}]
    async with asking(protocol, balance, endpoints) as call:
        counts = Counter([await answer(call) for _ in range(180)])
    if balance == "power_of_two":  # at random: each is more than four standard deviations from these bounds
        assert counts[3] > counts[1] > 9
        assert sum(counts.values()) == 180
    else:
        assert counts == {1: 30, 2: 60, 3: 90}


@pytest.mark.long
@pytest.mark.parametrize("balance", ["least_in_flight", "round_robin", "power_of_two"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_the_calls_of_one_http2_connection_go_to_all_servers(
    servers: dict[str, list[str]], protocol: str, balance: str
) -> None:
    async with asking(protocol, balance, servers[protocol]) as call:
        counts = Counter(await asyncio.gather(*(answer(call) for _ in range(60))))
    assert sorted(counts) == [1, 2, 3]
    assert sum(counts.values()) == 60
    if balance == "round_robin":
        assert set(counts.values()) == {20}
