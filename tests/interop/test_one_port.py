"""Real clients of every transport at one port of one gateway, all at once: tritonclient over HTTP and gRPC, umbridge,
graphpipe, kubemo, and a client of baidu_std, in front of the real UM-Bridge server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from tests.interop.client_scripts import run_client
from tests.interop.exchanges import Listen
from tests.interop.real_clients import doubles, infer, raw_of, tritonclient, tritonclient_grpc, umbridge
from tests.peers.brpc_client import Call, Client
from tests.peers.grps_messages import tensor

CONFIG = """
listeners:
  - name: all
    bind: "127.0.0.1:{all}"
    protocols: [v2-rest, v2-grpc, umbridge, graphpipe, grps-rest, grps-grpc, grps-brpc, mip]
    model: double
backends:
  science: {{protocol: umbridge, endpoints: ["{science}"]}}
routes:
  - {{match: {{model: "*"}}, backend: science}}
"""
ROUNDS = 5


INPUT = doubles("input0", [1, 3], 1.0, 2.5, -3.0)
OUTPUT = doubles("output0", [1, 3], 2.0, 5.0, -6.0)
DOUBLED = raw_of({"outputs": [OUTPUT]})


def over_rest(address: str) -> None:
    results = tritonclient(address, "sync", *[infer("double", INPUT)] * ROUNDS)
    assert [raw_of(each) for each in results] == [DOUBLED] * ROUNDS


def over_grpc(address: str) -> None:
    results = tritonclient_grpc(address, "sync", *[infer("double", INPUT)] * ROUNDS)
    assert [raw_of(each) for each in results] == [DOUBLED] * ROUNDS


def over_umbridge(address: str) -> None:
    step = {"op": "evaluate", "model": "double", "input": [[1.0, 2.5, -3.0]]}
    assert umbridge(f"http://{address}", *[step] * ROUNDS) == [[[2.0, 5.0, -6.0]]] * ROUNDS


def over_mip(address: str) -> None:
    step = {"op": "infer", "batch": [[{"json": "[1, 2.5, -3]"}]]}
    results = run_client("kubemo", "kubemo_client", f"tcp://{address}", [{"op": "ping"}, *[step] * ROUNDS])
    assert results == [True, *[[[{"json": [2.0, 5.0, -6.0]}]]] * ROUNDS]


def over_brpc(address: str) -> None:
    x = tensor("input0", "DT_FLOAT64", [1, 3], [1.0, 2.5, -3.0])
    with Client(address) as client:
        replies = client.exchange([Call({"model": "double", "gtensors": {"tensors": [x]}})] * ROUNDS)
    for reply in replies:
        assert reply.code == 0, reply.text
        assert reply.message["gtensors"]["tensors"][0]["flat_float64"] == [2.0, 5.0, -6.0]


def over_graphpipe(address: str) -> None:
    given, doubled = ({"dtype": "float64", "shape": [1, 3], "raw": each["raw"]} for each in (INPUT, OUTPUT))
    step = {"op": "execute", "path": "/double", "input": given}
    results = run_client("graphpipe", "graphpipe_client", f"http://{address}/graphpipe", [step] * ROUNDS)
    assert results == [doubled] * ROUNDS


CLIENTS = (over_rest, over_grpc, over_umbridge, over_mip, over_brpc, over_graphpipe)


def test_real_clients_of_every_transport_at_once(listen: Listen, umbridge_server: str) -> None:
    address = listen(CONFIG, science=umbridge_server)["all"]
    with ThreadPoolExecutor(len(CLIENTS)) as pool:
        running = {each.__name__: pool.submit(each, address) for each in CLIENTS}
        for each in running.values():
            each.result()
