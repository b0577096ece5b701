"""A callable on complex arrays as a model in complex form, and its derivatives through a whole gateway."""

import asyncio
from typing import Any

import numpy as np
import pytest

from gateway.assembly.reference import serve_reference
from gateway.cli.options import catalog
from gateway.client import AsyncClient
from gateway.config import loads
from gateway.config.keys import ReferenceConfig
from gateway.reference import complex_form, signature
from gateway.runtime.app import Gateway

CONFIG = """
listeners:
  - {name: science, bind: "127.0.0.1:0", protocols: [umbridge]}
  - {name: tensors, bind: "127.0.0.1:0", protocols: [v2-grpc]}
backends: {lab: {protocol: PROTOCOL, endpoints: ["ADDRESS"]}}
routes:
  - match: {model: "*"}
    backend: lab
    translate: {derivatives: {method: complex}}
"""
SIGNATURE = """
    signature:
      inputs:
        - {name: x, datatype: FP64, shape: [-1, 2]}
        - {name: n, datatype: INT64, shape: [-1, 1]}
        - {name: x_imag, datatype: FP64, shape: [-1, 2]}
      outputs:
        - {name: y, datatype: FP64, shape: [-1, 1]}
        - {name: y_imag, datatype: FP64, shape: [-1, 1]}
"""


@complex_form
@signature(inputs=[("x", "FP64", [-1, 2]), ("n", "INT64", [-1, 1])], outputs=[("y", "FP64", [-1, 1])])
def wave(x: Any, n: Any) -> Any:
    assert x.dtype == np.complex128
    return np.exp(x[:, :1]) * np.sin(n * x[:, 1:])


X, N = np.array([0.7, 1.3]), 3
VALUE = np.exp(X[0]) * np.sin(N * X[1])
SLOPE = np.array([VALUE, N * np.exp(X[0]) * np.cos(N * X[1])])


@pytest.mark.parametrize("protocol", ["umbridge", "v2-rest", "v2-grpc"])
async def test_clients_see_a_plain_model_with_exact_derivatives(protocol: str) -> None:
    config = ReferenceConfig.model_validate(
        {"protocol": protocol, "bind": "127.0.0.1:0", "models": [f"{__name__}:wave"]}
    )
    server = await serve_reference(config, asyncio.get_running_loop().time)
    address = str(server.address) if protocol == "v2-grpc" else f"http://{server.address}"
    text = CONFIG + (SIGNATURE if protocol == "umbridge" else "")
    text = text.replace("PROTOCOL", protocol).replace("ADDRESS", address)
    gateway = Gateway(loads(text, "test.yaml", catalog(), {}))
    await gateway.start()
    try:
        for name, scheme in (("science", "umbridge"), ("tensors", "v2-grpc")):
            async with AsyncClient(f"{scheme}://{gateway.listeners[name].address}") as client:
                x, n = (X, np.array([float(N)])) if scheme == "umbridge" else (X[None], np.array([[N]]))
                seen = await client.signature("wave")
                assert (len(seen.inputs), len(seen.outputs)) == (2, 1)
                outputs = await client.infer("wave", x, n)
                assert [each.reshape(-1).tolist() for each in outputs.values()] == [[VALUE]]
                found = await client.gradient("wave", x, n, sens=[1.0] if scheme == "umbridge" else [[1.0]])
                assert np.allclose(np.reshape(found, -1), SLOPE, rtol=5e-16, atol=0)
    finally:
        await gateway.drain(0)
        await server.drain(0)


def test_it_declares_imaginary_tensors_of_floats() -> None:
    from gateway.reference.declaration import declaration

    declared = declaration(wave)
    assert [each.name for each in declared.inputs] == ["x", "n", "x_imag"]
    assert [each.name for each in declared.outputs] == ["y", "y_imag"]
    y, imaginary = wave(np.array([X]), np.array([[N]]), np.array([[0.0, 1e-20]]))
    assert (y[0, 0], imaginary[0, 0] / 1e-20) == (VALUE, pytest.approx(SLOPE[1], rel=1e-15))
