"""A whole gateway in front of two servers with different models, in each protocol whose servers list their models."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from gateway.client import AsyncClient, NotFound
from gateway.runtime.app import Gateway
from tests.running_gateway import reference, running_gateway

CONFIG = """
listeners:
- {{name: v2-grpc, bind: "127.0.0.1:0", protocols: [v2-grpc]}}
- {{name: v2-rest, bind: "127.0.0.1:0", protocols: [v2-rest]}}
backends:
  fleet: {{protocol: {protocol}, endpoints: {endpoints}, placement: {{}}}}
routes:
- {{match: {{model: renamed}}, backend: fleet, rewrite: {{model: posterior}}}}
- {{match: {{model: "*"}}, backend: fleet}}
"""
LISTING = ("v2-grpc", "v2-rest", "v1-rest", "grps-grpc", "grps-rest", "grps-brpc", "umbridge")
"""Protocols whose servers list their models."""


@asynccontextmanager
async def fleet(protocol: str) -> AsyncIterator[Gateway]:
    """A gateway in front of one server with `double` and one with `posterior`."""
    async with (
        reference(protocol, "double") as one,
        reference(protocol, "posterior") as other,
        running_gateway(CONFIG.format(protocol=protocol, endpoints=json.dumps([one, other]))) as gateway,
    ):
        yield gateway


@pytest.mark.parametrize("protocol", LISTING)
async def test_two_servers_are_one(protocol: str) -> None:
    x, theta = ("input0", "input0") if protocol == "umbridge" else ("x", "theta")
    async with fleet(protocol) as gateway:
        for client_protocol in ("v2-grpc", "v2-rest") if protocol == "v2-grpc" else ("v2-grpc",):
            address = f"{client_protocol}://{gateway.state.listeners[client_protocol].address}"
            async with AsyncClient(address) as client:
                (doubled,) = (await client.infer("double", inputs={x: np.array([[1.0, 2.0, 3.0]])})).values()
                assert doubled.tolist() == [[2.0, 4.0, 6.0]]
                for name in ("posterior", "renamed"):
                    (density,) = (await client.infer(name, inputs={theta: np.array([[0.5, 0.5]])})).values()
                    assert density.shape == (1, 1)
                assert {"double", "posterior", "renamed"} <= {each.name for each in await client.models()}
                with pytest.raises(NotFound, match="nowhere"):
                    await client.infer("nowhere", inputs={x: np.array([[1.0]])})
                assert await client.ready("posterior")
