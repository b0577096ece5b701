"""`gateway probe` recognises the real servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.assembly.registry import protocols
from gateway.tools.probing.asking import ServerAccess
from gateway.tools.probing.probe import Probed, probe
from tests.interop.kubemo_server import start_kubemo
from tests.interop.processes import Triton, V2Server
from tests.interop.tensorflow_serving import TensorFlowServing


async def probed(address: str) -> Probed:
    return await probe(address, protocols(), ServerAccess(), seconds=20)


def spoken(found: Probed) -> list[tuple[str, str]]:
    return [(each.protocol, each.flavor) for each in found.spoken]


@pytest.mark.parametrize("form", ["v2-rest", "v2-grpc"])
async def test_triton(form: str, triton: Triton) -> None:
    found = await probed(triton.http if form == "v2-rest" else triton.grpc)
    assert spoken(found) == [(form, "triton")]
    assert "add_sub" in {each.name for each in found.spoken[0].models.own}


@pytest.mark.parametrize("form", ["v2-rest", "v2-grpc"])
async def test_mlserver(form: str, mlserver: V2Server) -> None:
    found = await probed(mlserver.http if form == "v2-rest" else mlserver.grpc)
    assert spoken(found) == [(form, "mlserver")]


async def test_tensorflow_serving(tensorflow_server: TensorFlowServing) -> None:
    found = await probe(tensorflow_server.address, protocols(), ServerAccess(), seconds=20, names=["double"])
    assert spoken(found) == [("tfs-grpc", "")]
    [model] = found.spoken[0].models.models
    assert (model.name, model.versions) == ("double", ("2",))


async def test_umbridge(umbridge_server: str) -> None:
    found = await probed(umbridge_server.removeprefix("http://"))
    assert [each.protocol for each in found.spoken] == ["umbridge"]


@pytest.mark.parametrize("unix", [False, True])
async def test_kubemo(unix: bool, tmp_path: Path) -> None:
    with start_kubemo(tmp_path / "kubemo", unix=unix) as server:
        found = await probed(server.url if unix else server.address)
    assert [each.protocol for each in found.spoken] == ["mip"]
