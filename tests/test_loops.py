"""Routes that lead back to their own listener: what they cost is bounded, and their clients are told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from gateway.client import AsyncClient, ClientError
from gateway.core.errors import Reason
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.core.tensors import tensor
from tests.descriptors import open_descriptors
from tests.interop.processes import free_port
from tests.running_gateway import running_gateway

pytestmark = pytest.mark.long

CONFIG = """
listeners: [{name: round, bind: "ADDRESS", protocols: [PROTOCOL], model: m}]
backends: {round: {protocol: PROTOCOL, endpoints: ["ADDRESS"], policies: POLICIES}}
routes: [{match: {model: m}, backend: round}]
"""

INFER = Request(Operation.INFER, "m", inputs=(tensor("x", np.ones((1, 2))),))

COUNTED = ["v2-rest", "v2-grpc", "graphpipe", "grps-rest", "grps-grpc"]
"""Those that have headers and send a server any number of calls at once."""
BOUNDED = ["umbridge", "mip", "grps-brpc"]
"""A server of these gets one call at a time, or there is no place for a count."""


@asynccontextmanager
async def going_round(protocol: str, policies: str) -> AsyncIterator[AsyncClient]:
    address = f"127.0.0.1:{free_port()}"
    text = CONFIG.replace("ADDRESS", address).replace("PROTOCOL", protocol).replace("POLICIES", policies)
    async with running_gateway(text), AsyncClient(address, protocol=protocol) as client:
        yield client


@pytest.mark.parametrize("protocol", COUNTED)
async def test_a_circle_is_refused_after_a_few_rounds(protocol: str) -> None:
    async with going_round(protocol, "[]") as client:
        before = open_descriptors()
        for _ in range(20):
            with pytest.raises(ClientError) as refused:
                await client.ask(INFER)
            assert "the request has passed 8 gateways" in refused.value.message
            assert "backend 'round'" in refused.value.message
        assert open_descriptors() - before <= 40


@pytest.mark.parametrize("protocol", BOUNDED)
async def test_a_circle_without_a_count_is_bounded_by_slots_connections_and_the_policy_timeout(protocol: str) -> None:
    """It waits for itself. 20 clients at once get an error, and no connection is left of that."""
    async with going_round(protocol, "[{timeout: {seconds: 0.2}}]") as client:
        before = open_descriptors()
        failures = await asyncio.gather(*(client.ask(INFER) for _ in range(20)), return_exceptions=True)
        assert all(isinstance(each, ClientError) for each in failures)
        assert Reason.TIMEOUT in {each.reason for each in failures if isinstance(each, ClientError)}
        assert open_descriptors() - before <= 100
