"""A client that goes away ends its call at the model server, for every pair of wire forms: the server sees the call
cancelled. Servers that finish every call keep their slot until they have; over brpc, which cannot cancel, the call is
abandoned."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import numpy as np
import pytest

from gateway.assembly import registry
from gateway.assembly.connecting import connect
from gateway.assembly.listening import exchanges, listen
from gateway.core.address import Address
from gateway.core.errors import GatewayError, not_found
from gateway.core.exchange import ask
from gateway.core.operations import Operation
from gateway.core.protocol import DEFAULT_LIMITS, ListenerSettings, Protocol, StreamBinding, Target
from gateway.core.requests import Answer, Request, Response
from gateway.core.tensors import tensor
from gateway.core.transport import Destination
from gateway.runtime.app import Gateway
from tests.limits import GENEROUS, until
from tests.running_gateway import running_gateway

PROTOCOLS = registry.protocols()
CONFIG = """
listeners: [{{name: clients, bind: "{scheme}127.0.0.1:0", protocols: [{client}], model: m}}]
backends: {{server: {{protocol: {server}, endpoints: ["{address}"], {flavor}}}}}
routes:
  - match: {{}}
    backend: server
    rewrite: {{model: m}}
    signature:
      inputs: [{{name: x, datatype: FP64, shape: [-1, 2]}}]
      outputs: [{{name: y, datatype: FP64, shape: [-1, 2]}}]
"""
FLAVORS = {"v2-rest": "flavor: plain", "v1-rest": "flavor: kserve"}


class Hanging:
    """A model that answers when `release` is set."""

    def __init__(self) -> None:
        self.arrived, self.release, self.ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.is_cancelled = False

    def select(self, request: Request) -> Destination:
        if request.operation is not Operation.INFER:
            raise not_found(f"no {request.operation.value} here")
        return Destination(self._infer)

    async def _infer(self, request: Request) -> Answer:
        self.arrived.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        finally:
            self.ended.set()
        return Response((tensor("y", np.array([[1.0, 2.0]])),))


@asynccontextmanager
async def serving(model: Hanging, protocol: Protocol) -> AsyncIterator[str]:
    settings = ListenerSettings("server", model="m")
    listener = await listen(settings, [(protocol, "")], exchanges(settings, model.select), Address("127.0.0.1", 0))
    try:
        yield listener.address
    finally:
        model.release.set()
        await listener.drain(0)


def gateway(client: Protocol, server: Protocol, address: str) -> AbstractAsyncContextManager[Gateway]:
    scheme = "tcp://" if client.transport == "tcp" else ""
    names = {"client": client.name, "server": server.name, "flavor": FLAVORS.get(server.name, "")}
    return running_gateway(CONFIG.format(scheme=scheme, address=address, **names))


@pytest.mark.parametrize("server", PROTOCOLS.values(), ids=PROTOCOLS)
@pytest.mark.parametrize("client", PROTOCOLS.values(), ids=PROTOCOLS)
async def test_a_client_that_goes_away_ends_its_call(client: Protocol, server: Protocol) -> None:
    model = Hanging()
    row = np.array([1.0, 2.0])
    inputs = (tensor("x", row if client.traits.wire.points else row[None]),)
    async with (
        asyncio.timeout(GENEROUS),
        serving(model, server) as address,
        gateway(client, server, address) as between,
    ):
        first, second = (connect(between.state.listeners["clients"].address, client, DEFAULT_LIMITS) for _ in range(2))
        request = Request(Operation.INFER, "m", inputs=inputs)
        call = asyncio.ensure_future(ask(request, client, first, Target("gateway")))
        await model.arrived.wait()
        await first.close()
        await asyncio.gather(call, return_exceptions=True)
        if server.traits.servers.runs_to_the_end:
            # The gateway has read the end of the first connection before it answers on the second one.
            with suppress(GatewayError):
                await ask(Request(Operation.METADATA, "m"), client, second, Target("gateway"))
            assert in_flight(between) == 1
            assert not model.ended.is_set()
            model.release.set()
        elif isinstance(server.binding, StreamBinding):
            await until_free(between)
            assert not model.ended.is_set()
            model.release.set()
        await model.ended.wait()
        await until_free(between)
        is_told = not server.traits.servers.runs_to_the_end and not isinstance(server.binding, StreamBinding)
        assert model.is_cancelled == is_told
        await second.close()


def in_flight(between: Gateway) -> int:
    return between.state.status().backends["server"].endpoints[0].in_flight


async def until_free(between: Gateway) -> None:
    """Until the slot of the call is given back."""
    await until(lambda: not in_flight(between), 0)
