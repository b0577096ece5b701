"""Over the real transport of every protocol, a message stays the same however its bytes are split on arrival."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest

from gateway.core.errors import GatewayError, Status
from gateway.core.exchange import ask
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Target
from gateway.core.requests import Request, Response
from gateway.core.tensors import tensor
from gateway.core.transport import Connector
from tests.contract.cases import each
from tests.contract.comparing import numbers
from tests.contract.installed import PROTOCOLS
from tests.contract.matrix import connected
from tests.contract.relay import Passage, relayed
from tests.limits import GENEROUS
from tests.running_gateway import reference

each_protocol = each(protocol=PROTOCOLS)
each_message_stream = each(
    {"all calls share a connection, which ends with bytes that are no frame": lambda each: each.transport == "grpc"},
    protocol=PROTOCOLS,
)


@asynccontextmanager
async def serving(protocol: Protocol) -> AsyncIterator[str]:
    """Yield the address of a server of the model `double` over `protocol`."""
    async with reference(protocol.name, "double") as address:
        yield address.removeprefix(f"{protocol.transport}://")


async def check_calls(protocol: Protocol, connector: Connector) -> None:
    """Check that calls get the outputs of the model, one after the other."""
    assert await doubled(protocol, connector, 0.5, 1.25, -3.5) == [1.0, 2.5, -7.0]
    assert await doubled(protocol, connector, 1.5, 2.5, 3.5) == [3.0, 5.0, 7.0]


@asynccontextmanager
async def through(protocol: Protocol, address: str, requests: Passage, replies: Passage) -> AsyncIterator[Connector]:
    """Yield a Connector to a relay to the listener at `address`."""
    async with relayed(address, requests, replies) as relay, connected(protocol, relay) as connector:
        yield connector


async def doubled(protocol: Protocol, connector: Connector, *values: float) -> list[object]:
    """Return the model's output for one row."""
    row = np.array(values)
    inputs = (tensor("x", row if protocol.traits.wire.points else row[None]),)
    async with asyncio.timeout(GENEROUS):
        answer = await ask(Request(Operation.INFER, "double", inputs=inputs), protocol, connector, Target("relay"))
    assert isinstance(answer, Response)
    [output] = answer.outputs
    return numbers(output)


@each_protocol
@pytest.mark.parametrize("piece", [0, 1], ids=["whole", "byte by byte"])
async def test_a_message_is_the_same_however_it_is_cut(protocol: Protocol, piece: int) -> None:
    requests, replies = Passage(piece=piece), Passage(piece=piece)
    async with serving(protocol) as address, through(protocol, address, requests, replies) as connector:
        await check_calls(protocol, connector)


async def lengths(protocol: Protocol, address: str, *values: float) -> tuple[int, int]:
    """Return the sizes of a request and its reply, in bytes."""
    requests, replies = Passage(), Passage()
    async with through(protocol, address, requests, replies) as connector:
        await doubled(protocol, connector, *values)
    return len(requests.passed), len(replies.passed)


@each_message_stream
@pytest.mark.parametrize("tail", [b"\x00", b"HTTP/1.1 200 OK\r\n\r\n", b"\xff" * 64], ids=["NUL", "a head", "ones"])
async def test_a_tail_belongs_to_no_reply(protocol: Protocol, tail: bytes) -> None:
    async with serving(protocol) as address:
        _, length = await lengths(protocol, address, 0.5, 1.25, -3.5)
        replies = Passage(tail=tail, after=length)
        async with through(protocol, address, Passage(), replies) as connector:
            await check_calls(protocol, connector)


@each_message_stream
@pytest.mark.parametrize("tail", [b"\x00", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64], ids=["NUL", "a head", "ones"])
async def test_a_tail_belongs_to_no_request(protocol: Protocol, tail: bytes) -> None:
    """It is another one, or none; what came before it is answered all the same."""
    async with serving(protocol) as address:
        length, _ = await lengths(protocol, address, 0.5, 1.25, -3.5)
        requests = Passage(tail=tail, after=length)
        async with through(protocol, address, requests, Passage()) as connector:
            assert await doubled(protocol, connector, 0.5, 1.25, -3.5) == [1.0, 2.5, -7.0]
        async with connected(protocol, address) as connector:
            assert await doubled(protocol, connector, 1.5, 2.5, 3.5) == [3.0, 5.0, 7.0]


@pytest.mark.long
@each_protocol
async def test_a_reply_that_is_cut_is_none(protocol: Protocol) -> None:
    async with serving(protocol) as address:
        _, length = await lengths(protocol, address, 0.5, 1.25, -3.5)
        for cut in range(length):
            async with through(protocol, address, Passage(), Passage(cut=cut)) as connector:
                with pytest.raises(GatewayError) as caught:
                    await doubled(protocol, connector, 0.5, 1.25, -3.5)
            assert caught.value.status in (Status.UNAVAILABLE, Status.INTERNAL)


@pytest.mark.long
@each_protocol
async def test_requests_that_are_cut_leave_the_others_alone(protocol: Protocol) -> None:
    async with serving(protocol) as address, connected(protocol, address) as other:
        length, _ = await lengths(protocol, address, 0.5, 1.25, -3.5)
        for cut in range(length):
            async with through(protocol, address, Passage(cut=cut), Passage()) as connector:
                with pytest.raises(GatewayError):
                    await doubled(protocol, connector, 0.5, 1.25, -3.5)
            assert await doubled(protocol, other, 1.5, 2.5, 3.5) == [3.0, 5.0, 7.0]
