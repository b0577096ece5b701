"""Every row and every column of the matrix once more, with a client and a server that are not the gateway's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gateway.assembly import registry
from gateway.assembly.connecting import connect
from gateway.core.exchange import ask
from gateway.core.operations import Operation
from gateway.core.protocol import DEFAULT_LIMITS, Protocol, Target
from gateway.core.requests import Request, Response
from gateway.core.tensors import tensor
from tests.contract.flavors import names_models
from tests.interop.exchanges import gateway
from tests.interop.independent_peers import BACKS, DOUBLED, FRONTS, SENT, Back, Place
from tests.interop.kserve_v1 import start_kserve_v1
from tests.interop.kubemo_server import start_kubemo
from tests.interop.processes import Triton, V2Server, free_port
from tests.interop.tensorflow_serving import TensorFlowServing
from tests.peers import graphpipe_go, grps_cpp, grps_python, tensorflow_serving, umbridge_cpp

PROTOCOLS = registry.protocols()
NUMBERS = np.array(SENT)


@pytest.fixture(scope="module")
def endpoints(
    umbridge_server: str,
    tensorflow_server: TensorFlowServing,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[dict[str, str]]:
    """The addresses of BACKS."""
    triton: Triton = request.getfixturevalue("triton")
    mlserver: V2Server = request.getfixturevalue("mlserver")
    folder = tmp_path_factory.mktemp("servers")
    with (
        start_kubemo(folder / "kubemo") as kubemo,
        start_kserve_v1(folder / "kserve") as kserve,
        umbridge_cpp.serve() as cpp,
        graphpipe_go.serve() as go,
        tensorflow_serving.serve() as tensorflow,
        grps_python.serve() as python_grps,
        grps_cpp.serve() as cpp_grps,
    ):
        yield {
            "umbridge_python": umbridge_server,
            "umbridge_cpp": cpp.url,
            "graphpipe_go": go.url,
            "kubemo": kubemo.url,
            "kserve_v1": kserve.address,
            "tensorflow_serving": tensorflow.address,
            "tensorflow_serving_grpc": tensorflow_server.address,
            "triton_http": triton.http,
            "triton_grpc": triton.grpc,
            "mlserver_http": mlserver.http,
            "mlserver_grpc": mlserver.grpc,
            "grps_python_http": python_grps.http.address,
            "grps_python_grpc": python_grps.grpc.address,
            "grps_cpp_http": cpp_grps.http.address,
            "grps_cpp_grpc": cpp_grps.grpc.address,
            "grps_cpp_brpc": cpp_grps.brpc.address,
        }


class Site:
    """Where the gateway listens: for each protocol that names models once, else for each model."""

    def __init__(self, endpoints: dict[str, str]) -> None:
        self._endpoints = endpoints
        self._models = [ours(name) for name in PROTOCOLS] + [theirs(name) for name in endpoints]
        self._ports = {self._listener(protocol, model): free_port() for protocol, model in self._faces()}
        self._own = {name: free_port() for name in PROTOCOLS}

    def place(self, protocol: Protocol, model: str) -> Place:
        return Place(f"127.0.0.1:{self._ports[self._listener(protocol, model)]}", model)

    def config(self) -> dict[str, Any]:
        references = [
            {"protocol": name, "bind": f"127.0.0.1:{port}", "models": ["double"]} for name, port in self._own.items()
        ]
        backends = {ours(name): _backend(name, f"127.0.0.1:{port}") for name, port in self._own.items()}
        backends |= {theirs(name): _backend(BACKS[name].form, endpoint) for name, endpoint in self._endpoints.items()}
        routes = [_route(ours(name), OURS) for name in PROTOCOLS]
        routes += [_route(theirs(name), BACKS[name]) for name in self._endpoints]
        return {"listeners": [*self._listeners()], "reference": references, "backends": backends, "routes": routes}

    def _faces(self) -> Iterator[tuple[Protocol, str]]:
        return ((protocol, model) for protocol in PROTOCOLS.values() for model in self._models)

    def _listener(self, protocol: Protocol, model: str) -> str:
        return protocol.name if names_models(protocol.traits) else f"{protocol.name}-{model}"

    def _listeners(self) -> Iterator[dict[str, Any]]:
        faces = {self._listener(protocol, model): (protocol, model) for protocol, model in self._faces()}
        for name, (protocol, model) in faces.items():
            face = {"name": name, "bind": f"127.0.0.1:{self._ports[name]}", "protocols": [protocol.name]}
            yield face if names_models(protocol.traits) else {**face, "model": model}


OURS = Back("", "the gateway's own")


def ours(name: str) -> str:
    return f"ours-{name}"


def theirs(name: str) -> str:
    return f"theirs-{name}"


def _backend(protocol: str, endpoint: str) -> dict[str, Any]:
    return {"protocol": protocol, "endpoints": [endpoint]}


def _route(model: str, back: Back) -> dict[str, Any]:
    inputs, outputs = ([{"name": name, "datatype": back.datatype, "shape": [-1, 3]}] for name in back.names)
    return {
        "match": {"model": model},
        "backend": model,
        "rewrite": {"model": back.model, "version": back.version},
        "signature": {"inputs": inputs, "outputs": outputs},
        "translate": {
            "cast": "round",
            "rename": {
                "inputs": [{"client": "x", "backend": back.names[0]}],
                "outputs": [{"client": "y", "backend": back.names[1]}],
            },
        },
    }


@pytest.fixture(scope="module")
def site(endpoints: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    found = Site(endpoints)
    with gateway(json.dumps(found.config()), tmp_path_factory.mktemp("gateway")):
        yield found


def test_no_form_is_left_out() -> None:
    assert FRONTS.keys() == {back.form for back in BACKS.values()} == PROTOCOLS.keys()


@pytest.mark.parametrize("front", FRONTS)
def test_a_client_that_is_not_ours_in_front_of_every_form(site: Site, front: str) -> None:
    places = [site.place(PROTOCOLS[front], ours(back)) for back in PROTOCOLS]
    assert [*FRONTS[front].doubled(places)] == [DOUBLED] * len(places)


@pytest.mark.parametrize("back", BACKS)
@pytest.mark.parametrize("front", PROTOCOLS)
async def test_a_server_that_is_not_ours_behind_every_form(site: Site, front: str, back: str) -> None:
    protocol = PROTOCOLS[front]
    place = site.place(protocol, theirs(back))
    sent = tensor("x", NUMBERS if protocol.traits.wire.points else NUMBERS[None])
    connector = connect(place.address, protocol, DEFAULT_LIMITS)
    try:
        request = Request(Operation.INFER, place.model, inputs=(sent,))
        answer = await ask(request, protocol, connector, Target("gateway", place.address))
    finally:
        await connector.close()
    assert isinstance(answer, Response)
    assert answer.outputs[0].array.reshape(-1).tolist() == DOUBLED
