"""One server of any protocol, without a configuration."""

import asyncio

import numpy as np
import pytest

from gateway.assembly.one_backend import one_backend
from gateway.assembly.reference import serve_reference
from gateway.cli.options import catalog
from gateway.config import reference_config
from gateway.core.operations import Operation
from gateway.core.types import Request, Response, Tensor, tensor
from gateway.registry import protocols

POINT = np.array([[1.0, 2.0]])
SENS = tensor("sens", np.ones((1, 1)))


@pytest.mark.parametrize(
    ("model", "further", "expected"), [("posterior", (), [-5.0]), ("posterior.gradient", (SENS,), [20.0, -10.0])]
)
@pytest.mark.parametrize(("protocol", "name"), [("umbridge", "input0"), ("v2-rest", "theta")])
async def test_one_server_of_any_protocol_can_be_asked_for_models_and_companions(
    protocol: str, name: str, model: str, further: tuple[Tensor, ...], expected: list[float]
) -> None:
    config = reference_config(protocol, "127.0.0.1:0", ["posterior"], catalog())
    listener = await serve_reference(config, asyncio.get_running_loop().time)
    sent = Request(Operation.INFER, model, inputs=(tensor(name, POINT), *further), protocol="v2-rest")
    try:
        async with one_backend(protocols()[protocol], listener.address, protocols()["v2-rest"]) as handler:
            answer = await handler(sent)
    finally:
        await listener.drain(0)
    assert isinstance(answer, Response)
    assert answer.outputs[0].array.tolist() == [expected]
