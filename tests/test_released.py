"""Nothing of a request outlives its answer: no reference cycle keeps it until the garbage collector runs.

The collector is switched off, one request is sent through the gateway, and then the collector is asked what it finds.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import FrameType, NoneType, TracebackType
from typing import Any

import numpy as np
import pytest

from gateway.assembly import registry
from gateway.client import AsyncClient, ClientError, Timeout
from gateway.core.errors import drop_tracebacks
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.requests import Request, RequestedOutput, Response
from gateway.core.tensors import Tensor, tensor
from gateway.reference import signature
from tests.limits import settle
from tests.running_gateway import reference, running_gateway

KEEPS_BODIES = (Message, Request, Response, Tensor, BaseException, TracebackType, FrameType)

WELL, REFUSING, HANGING = 0.0, 1.0, 2.0


@signature(inputs=[("input0", "FP64", [-1, 2])], outputs=[("output0", "FP64", [-1, 2])])
async def moody(x: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """A model whose first number says what it does."""
    mood = x.reshape(-1)[0]
    if mood == REFUSING:
        raise ValueError("not today")
    if mood == HANGING:
        await asyncio.get_running_loop().create_future()
    return x


PROTOCOLS = tuple(registry.protocols())
PAIRS = [(front, "v2-rest") for front in PROTOCOLS] + [("v2-rest", back) for back in PROTOCOLS if back != "v2-rest"]

CONFIG = """
listeners: [{name: front, bind: "127.0.0.1:0", protocols: [PROTOCOL], LISTENER}]
backends:
  moody: {protocol: BACK, endpoints: ["AT"], policies: [{timeout: {seconds: 30}}]}
  late: {protocol: BACK, endpoints: ["AT"], policies: [{timeout: {seconds: 0.05}}]}
  dead: {protocol: BACK, endpoints: ["127.0.0.1:1"]}
routes:
  - {match: {model: moody}, backend: moody, SIGNATURE}
  - {match: {model: late}, backend: late, rewrite: {model: moody}, SIGNATURE}
  - {match: {model: dead}, backend: dead, rewrite: {model: moody}, SIGNATURE}
"""
SIGNATURE = """signature: {inputs: [{name: input0, datatype: FP64, shape: [-1, 2]}],
    outputs: [{name: output0, datatype: FP64, shape: [-1, 2]}]}"""
OUTPUTS = (RequestedOutput("output0"),)
CASES: dict[str, tuple[str, float, type]] = {
    "answered": ("moody", WELL, NoneType),
    "refused by the model": ("moody", REFUSING, ClientError),
    "refused by the route": ("nobody", WELL, ClientError),
    "unreachable": ("dead", WELL, ClientError),
    "late": ("late", HANGING, Timeout),
    "left": ("moody", HANGING, Timeout),
}


@asynccontextmanager
async def gateway(front: str, back: str, model: str) -> AsyncIterator[str]:
    """The address of a gateway that speaks `front` before a server of `moody` that speaks `back`."""
    listener = f", model: {model}" if registry.protocols()[front].transport == "tcp" else ""
    text = CONFIG.replace("SIGNATURE", SIGNATURE).replace("BACK", back)
    text = text.replace("PROTOCOL", front).replace(", LISTENER", listener)
    async with (
        reference(back, "tests.test_released:moody") as server,
        running_gateway(text.replace("AT", server)) as here,
    ):
        yield here.state.listeners["front"].address


@contextmanager
def uncollected() -> Iterator[list[str]]:
    """The types of what only the collector could have freed, once the block is left."""
    found: list[str] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += [type(each).__name__ for each in gc.garbage if isinstance(each, KEEPS_BODIES)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


async def outcome(client: AsyncClient, request: Request, seconds: float) -> type[ClientError | None]:
    """The type of the error, or NoneType; the error itself goes as it goes where clients are answered."""
    try:
        await client.ask(request, timeout=seconds)
    except ClientError as error:
        drop_tracebacks(error)
        return type(error)
    return NoneType


@pytest.mark.long
@pytest.mark.parametrize(("front", "back"), PAIRS, ids=["-to-".join(pair) for pair in PAIRS])
@pytest.mark.parametrize("case", CASES)
async def test_nothing_of_a_request_is_left_to_the_collector(front: str, back: str, case: str) -> None:
    model, mood, expected = CASES[case]
    patience = 0.05 if case == "left" else 30.0
    answered, request = (
        Request(Operation.INFER, model, inputs=(tensor("input0", np.array([[each, 0.5]])),), outputs=OUTPUTS)
        for each in (WELL, mood)
    )
    async with gateway(front, back, model) as address, AsyncClient(address, protocol=front) as client:
        await outcome(client, answered, 30.0)  # caches fill, which may take longer than a client's patience
        assert issubclass(await outcome(client, request, patience), expected)
        with uncollected() as found:
            assert issubclass(await outcome(client, request, patience), expected)
            await settle(20)
    assert Counter(found) == {}
