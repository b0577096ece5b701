"""Real clients of every transport at one port of one gateway, all at once: tritonclient over HTTP and gRPC, umbridge,
graphpipe, kubemo, and a client of baidu_std, in front of the real UM-Bridge server."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.interop.client_scripts import run_client
from tests.interop.exchanges import gateway
from tests.interop.processes import free_port
from tests.interop.real_clients import doubles, infer, raw_of, tritonclient, tritonclient_grpc, umbridge
from tests.peers.brpc_client import Call, Client
from tests.peers.grps_messages import tensor

CONFIG = """
listeners:
  - name: all
    bind: "127.0.0.1:{port}"
    protocols: [v2-rest, v2-grpc, umbridge, graphpipe, grps-rest, grps-grpc, grps-brpc, mip]
    model: double
backends:
  science: {{protocol: umbridge, endpoints: ["{science}"]}}
routes:
  - {{match: {{model: "*"}}, backend: science}}
"""
ROUNDS = 5


@pytest.fixture(scope="module")
def port(umbridge_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port = free_port()
    with gateway(CONFIG.format(port=port, science=umbridge_server), tmp_path_factory.mktemp("one_port")):
        yield port


INPUT = doubles("input0", [1, 3], 1.0, 2.5, -3.0)
OUTPUT = doubles("output0", [1, 3], 2.0, 5.0, -6.0)
DOUBLED = raw_of({"outputs": [OUTPUT]})


def over_rest(port: int) -> None:
    results = tritonclient(f"127.0.0.1:{port}", "sync", *[infer("double", INPUT)] * ROUNDS)
    assert [raw_of(each) for each in results] == [DOUBLED] * ROUNDS


def over_grpc(port: int) -> None:
    results = tritonclient_grpc(f"127.0.0.1:{port}", "sync", *[infer("double", INPUT)] * ROUNDS)
    assert [raw_of(each) for each in results] == [DOUBLED] * ROUNDS


def over_umbridge(port: int) -> None:
    step = {"op": "evaluate", "model": "double", "input": [[1.0, 2.5, -3.0]]}
    assert umbridge(f"http://127.0.0.1:{port}", *[step] * ROUNDS) == [[[2.0, 5.0, -6.0]]] * ROUNDS


def over_mip(port: int) -> None:
    step = {"op": "infer", "batch": [[{"json": "[1, 2.5, -3]"}]]}
    results = run_client("kubemo", "kubemo_client", f"tcp://127.0.0.1:{port}", [{"op": "ping"}, *[step] * ROUNDS])
    assert results == [True, *[[[{"json": [2.0, 5.0, -6.0]}]]] * ROUNDS]


def over_brpc(port: int) -> None:
    x = tensor("input0", "DT_FLOAT64", [1, 3], [1.0, 2.5, -3.0])
    with Client(f"127.0.0.1:{port}") as client:
        replies = client.exchange([Call({"model": "double", "gtensors": {"tensors": [x]}})] * ROUNDS)
    for reply in replies:
        assert reply.code == 0, reply.text
        assert reply.message["gtensors"]["tensors"][0]["flat_float64"] == [2.0, 5.0, -6.0]


def over_graphpipe(port: int) -> None:
    given, doubled = ({"dtype": "float64", "shape": [1, 3], "raw": each["raw"]} for each in (INPUT, OUTPUT))
    step = {"op": "execute", "path": "/double", "input": given}
    results = run_client("graphpipe", "graphpipe_client", f"http://127.0.0.1:{port}/graphpipe", [step] * ROUNDS)
    assert results == [doubled] * ROUNDS


CLIENTS = (over_rest, over_grpc, over_umbridge, over_mip, over_brpc, over_graphpipe)


def test_real_clients_of_every_transport_at_once(port: int) -> None:
    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        running = {each.__name__: pool.submit(each, port) for each in CLIENTS}
        for each in running.values():
            each.result()
