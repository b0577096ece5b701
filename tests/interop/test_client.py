"""`gateway.client` -> the real servers, without a gateway between them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gateway.client import AsyncClient, Client, InvalidInput, NotFound, Outputs, ServerError, Timeout, Unsupported
from gateway.core.operations import Operation
from tests.interop.kubemo_server import start_kubemo
from tests.interop.processes import Triton, V2Server
from tests.interop.servers.functions import DOUBLE, POSTERIOR, TWO

THETA = [0.5, -1.25]
INTEGERS = ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")
FLOATS = {"FP16": np.float16, "FP32": np.float32, "FP64": np.float64, "BF16": ml_dtypes.bfloat16}
NUMPY: dict[str, Any] = {"BOOL": np.bool_, **{name: np.dtype(name.lower()) for name in INTEGERS}, **FLOATS}


@pytest.fixture(scope="module")
def science(umbridge_server: str) -> Iterator[Client]:
    with Client(umbridge_server, protocol="umbridge", timeout=60) as client:
        yield client


def test_umbridge_models_and_signatures(science: Client) -> None:
    assert {"posterior", "double", "two"} <= {each.name for each in science.models()}
    two = science.signature("two")
    assert [each.shape for each in two.inputs] == [(-1, size) for size in TWO.input_sizes]
    assert {Operation.GRADIENT, Operation.APPLY_HESSIAN} <= two.operations
    assert science.ready("posterior")
    assert science.server().name == "umbridge"


def test_umbridge_computes_points_and_batches(science: Client) -> None:
    assert science.infer("posterior", THETA)["output0"].tolist() == POSTERIOR.evaluate([THETA])[0]
    batch = science.infer("double", np.ones((3, DOUBLE.input_sizes[0])))["output0"]
    assert batch.shape == (3, DOUBLE.output_sizes[0])
    scaled = science.infer("scaled", [1.0, 2.0], parameters={"config": {"scale": 3}})["output0"]
    assert scaled.tolist() == [3.0, 6.0]


def test_umbridge_derivatives_are_the_formulas(science: Client) -> None:
    inputs = [np.linspace(0.5, 1, size).tolist() for size in TWO.input_sizes]
    for out_wrt, size in enumerate(TWO.output_sizes):
        for in_wrt in range(len(inputs)):
            sens = [1.0] * size
            found = science.gradient("two", *inputs, sens=sens, out_wrt=out_wrt, in_wrt=in_wrt)
            np.testing.assert_allclose(found, TWO.gradient(out_wrt, in_wrt, inputs, sens), rtol=1e-14)
            vec = [1.0] * len(inputs[in_wrt])
            found = science.apply_jacobian("two", *inputs, vec=vec, out_wrt=out_wrt, in_wrt=in_wrt)
            np.testing.assert_allclose(found, TWO.apply_jacobian(out_wrt, in_wrt, inputs, vec), rtol=1e-14)
    found = science.apply_hessian("posterior", THETA, sens=[1.0], vec=[1.0, 2.0])
    np.testing.assert_allclose(found, POSTERIOR.apply_hessian(0, 0, 0, [THETA], [1.0], [1.0, 2.0]), rtol=1e-14)


def test_umbridge_errors(science: Client) -> None:
    with pytest.raises(NotFound):
        science.infer("nobody", [1.0])
    with pytest.raises(ServerError):
        science.infer("crash", [1.0])
    with pytest.raises(InvalidInput, match=r"input 'input0' has shape \[3\], expected \[-1, 2\]"):
        science.infer("posterior", [1.0, 2.0, 3.0])
    with pytest.raises(Unsupported):
        science.gradient("evaluate_only", [1.0], sens=[1.0])


def test_umbridge_does_not_answer_in_time(science: Client, tmp_path: Path) -> None:
    release = tmp_path / "go"
    config = {"file": str(release)}
    with pytest.raises(Timeout):
        science.infer("slow", [1.0], parameters={"config": config}, timeout=1)
    release.touch()
    assert science.infer("slow", [1.0])["output0"].tolist() == [2.0]  # after the server has finished the first


@pytest.fixture(scope="module", params=["v2-rest", "v2-grpc"])
def triton_client(request: pytest.FixtureRequest, triton: Triton) -> Iterator[Client]:
    place = triton.http if request.param == "v2-rest" else triton.grpc
    with Client(f"{request.param}://{place}") as client:
        yield client


@pytest.mark.parametrize("datatype", NUMPY)
def test_triton_keeps_every_datatype(triton_client: Client, datatype: str) -> None:
    array = np.array([0, 1, 1], NUMPY[datatype])
    found = triton_client.infer(f"identity_{datatype}", INPUT0=array)["OUTPUT0"]
    assert (found.dtype, found.tolist()) == (array.dtype, array.tolist())


def test_triton_bytes_versions_batches_and_parameters(triton_client: Client) -> None:
    text = triton_client.infer("identity_BYTES", [b"a\0", "é", b""])["OUTPUT0"]
    assert text.tolist() == [b"a\0", "é".encode(), b""]
    assert triton_client.infer("versioned", [1], version="1")["version"].tolist() == [1]
    assert triton_client.infer("versioned", [1])["version"].tolist() == [2]
    assert triton_client.infer("batched", [1.0, 2.0, 3.0])["y"].tolist() == [2.0, 4.0, 6.0]
    outputs = triton_client.infer("add_sub", [3], [1], outputs=["OUTPUT1"])
    assert {name: each.tolist() for name, each in outputs.items()} == {"OUTPUT1": [2]}
    assert (outputs.model, outputs.version) == ("add_sub", "1")
    told = triton_client.infer("parameters", [1], parameters={"a": 1, "b": True})["json"].item()
    assert b'"a"' in told


def test_triton_models_signatures_and_derivatives(triton_client: Client) -> None:
    models = {each.name: each.state for each in triton_client.models()}
    assert models["posterior"] == "READY"
    assert Operation.GRADIENT in triton_client.signature("posterior").operations
    assert triton_client.gradient("posterior", THETA, sens=[1.0]).tolist() == POSTERIOR.gradient(0, 0, [THETA], [1.0])
    assert triton_client.server().name == "triton"


def test_triton_errors(triton_client: Client) -> None:
    with pytest.raises(NotFound):
        triton_client.infer("nobody", [1.0])
    with pytest.raises(InvalidInput, match="is INT64, expected FP64"):
        triton_client.infer("posterior", np.array([1, 2]))
    with pytest.raises(InvalidInput, match="unknown input 'thet', did you mean 'theta'"):
        triton_client.infer("posterior", thet=[1.0, 2.0])


def test_triton_streams(triton: Triton) -> None:
    with Client(f"v2-grpc://{triton.grpc}") as client:
        assert [each["OUTPUT0"].item() for each in client.stream("repeat", n=[3])] == [0, 1, 2]
        with pytest.raises(Unsupported, match="`stream`"):
            client.infer("repeat", n=[3])
        responses = client.stream("repeat", n=[10_000])
        assert next(responses)["OUTPUT0"].item() == 0
        responses.close()
        received: list[Outputs] = []
        with pytest.raises((ServerError, InvalidInput)):
            received.extend(client.stream("repeat", n=[-2]))
        assert client.infer("posterior", THETA)["logdensity"].shape == (1,)


async def test_triton_stops_a_cancelled_call(triton: Triton, tmp_path: Path) -> None:
    told = tmp_path / "told"
    async with AsyncClient(f"v2-grpc://{triton.grpc}") as client:
        call = asyncio.ensure_future(client.infer("cancellable", file=[str(told)]))
        while not told.exists():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while told.read_text() != "cancelled":  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("form", ["v2-rest", "v2-grpc"])
def test_mlserver(form: str, mlserver: V2Server) -> None:
    with Client(f"{form}://{mlserver.http if form == 'v2-rest' else mlserver.grpc}") as client:
        assert client.infer("double", x=[[1.0, 2.0, 3.0]])["y"].tolist() == [[2.0, 4.0, 6.0]]
        assert client.infer("double", [1.0, 2.0, 3.0])["y"].tolist() == [2.0, 4.0, 6.0]
        assert client.infer("upper", ["a", "bc"])["OUTPUT0"].tolist() == [b"A", b"BC"]
        with pytest.raises(NotFound):
            client.infer("nobody", [1.0])


@pytest.mark.parametrize("form", ["v2-rest", "v2-grpc"])
def test_kserve(form: str, kserve: V2Server) -> None:
    with Client(f"{form}://{kserve.http if form == 'v2-rest' else kserve.grpc}") as client:
        assert client.infer("double", [1.0, 2.0, 3.0])["y"].tolist() == [2.0, 4.0, 6.0]
        assert client.ready("double")


@pytest.mark.parametrize("unix", [False, True])
def test_kubemo(unix: bool, tmp_path: Path) -> None:
    with (
        start_kubemo(tmp_path / "kubemo", unix=unix) as server,
        Client(server.url.replace("unix://" if unix else "tcp://", "mip://")) as client,
    ):
        assert client.ready()
        with pytest.raises(Unsupported):
            client.signature("any")
        (found,) = client.infer("any", np.array([[1.0, 2.0], [3.0, 4.0]])).values()
        assert found.shape[0] == 2
