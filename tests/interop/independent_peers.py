"""For each wire form a client and a server that are not the gateway's own; each doubles one vector."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.interop import tensorflow_serving
from tests.interop.client_scripts import run_steps
from tests.interop.kserve_v1 import asked
from tests.interop.real_clients import doubles, infer, packed, raw_of, tritonclient, tritonclient_grpc, umbridge
from tests.peers.brpc_client import Client
from tests.peers.grps_client import Grpc, Rest
from tests.peers.grps_messages import tensor
from tests.peers.protobuf import Document

Vector = list[float]

SENT: Vector = [0.5, -1.25, 3.0]
DOUBLED: Vector = [1.0, -2.5, 6.0]
"""What every client sends and gets; FP32 holds it, which some servers compute with."""


@dataclass(frozen=True)
class Front:
    """A client: what it is, and what it gets for SENT of each of some models, each at its address."""

    peer: str
    doubled: Callable[[Sequence[Place]], Iterator[Vector]]


@dataclass(frozen=True)
class Place:
    """`host:port` of a listener, and the model that a client asks for there."""

    address: str
    model: str


def _umbridge(places: Sequence[Place]) -> Iterator[Vector]:
    url = f"http://{places[0].address}"
    for [row] in umbridge(url, *({"op": "evaluate", "model": each.model, "input": [SENT]} for each in places)):
        yield row


def _graphpipe(places: Sequence[Place]) -> Iterator[Vector]:
    array = {"dtype": "float64", "shape": [1, 3], "raw": base64.b64encode(packed("d", *SENT)).decode()}
    for place in places:
        step = {"op": "execute", "input": array}
        [found] = run_steps("graphpipe", "graphpipe_client", f"http://{place.address}", [step])
        yield _unpacked(base64.b64decode(found["raw"]))


def _mip(places: Sequence[Place]) -> Iterator[Vector]:
    batch = [[{"json": str(SENT)}]]
    for place in places:
        step = {"op": "infer", "batch": batch}
        [[[output]]] = run_steps("kubemo", "kubemo_client", f"tcp://{place.address}", [step])
        yield output["json"]


def _v1_rest(places: Sequence[Place]) -> Iterator[Vector]:
    steps = [{"op": "infer", "model": each.model, "body": {"instances": [SENT]}} for each in places]
    for found in asked(places[0].address, *steps):
        [row] = found["predictions"]
        yield row


def _v2_rest(places: Sequence[Place]) -> Iterator[Vector]:
    steps = [infer(each.model, doubles("x", [1, 3], *SENT)) for each in places]
    return (_unpacked(raw_of(each)) for each in tritonclient(places[0].address, "sync", *steps))


def _v2_grpc(places: Sequence[Place]) -> Iterator[Vector]:
    steps = [infer(each.model, doubles("x", [1, 3], *SENT)) for each in places]
    return (_unpacked(raw_of(each)) for each in tritonclient_grpc(places[0].address, "sync", *steps))


def _tfs_grpc(places: Sequence[Place]) -> Iterator[Vector]:
    sent = tensorflow_serving.array("DT_DOUBLE", [1, 3], *SENT)
    steps = [{"op": "Predict", "spec": {"name": each.model}, "inputs": {"x": sent}} for each in places]
    for found in tensorflow_serving.asked(places[0].address, *steps):
        [output] = found["outputs"].values()
        yield output["values"]


def _grps_rest(places: Sequence[Place]) -> Iterator[Vector]:
    return (_first(Rest(each.address).predict(_message(), model=each.model).document) for each in places)


def _grps_grpc(places: Sequence[Place]) -> Iterator[Vector]:
    with Grpc(places[0].address) as client:
        yield from (_first(client.call("Predict", _message(each.model))) for each in places)


def _grps_brpc(places: Sequence[Place]) -> Iterator[Vector]:
    with Client(places[0].address) as client:
        yield from (_first(client.call("Predict", _message(each.model)).message) for each in places)


def _message(model: str = "") -> Document:
    named = {"model": model} if model else {}
    return {**named, "gtensors": {"tensors": [tensor("x", "DT_FLOAT64", [1, 3], [*SENT])]}}


def _first(message: Document) -> Vector:
    found: Vector = message["gtensors"]["tensors"][0]["flat_float64"]
    return found


def _unpacked(raw: bytes) -> Vector:
    return list(struct.unpack(f"<{len(raw) // 8}d", raw))


FRONTS: Mapping[str, Front] = {
    "umbridge": Front("`umbridge`, the Python client", _umbridge),
    "graphpipe": Front("`graphpipe`, Oracle's Python client", _graphpipe),
    "mip": Front("`kubemo`, the Python client", _mip),
    "v1-rest": Front("`InferenceRESTClient` of `kserve`", _v1_rest),
    "v2-rest": Front("`tritonclient.http`", _v2_rest),
    "v2-grpc": Front("`tritonclient.grpc`", _v2_grpc),
    "tfs-grpc": Front("the stubs of `tensorflow-serving-api`", _tfs_grpc),
    "grps-rest": Front("plain HTTP, like grps' samples", _grps_rest),
    "grps-grpc": Front("`grpcio` with grps' service definition", _grps_grpc),
    "grps-brpc": Front("a test client, written from observed baidu_std frames", _grps_brpc),
}


@dataclass(frozen=True)
class Back:
    """A server: the form it speaks, what it is, its model, and how that calls and types its tensors."""

    form: str
    peer: str
    model: str = "double"
    names: tuple[str, str] = ("x", "y")
    datatype: str = "FP64"
    version: str = ""


POSITIONS = ("input0", "output0")
PYTHON, CPP = (f"a test server that behaves like grps' {language} server" for language in ("Python", "C++"))


def _twice(form: str, peer: str) -> Back:
    return Back(form, peer, "twice", ("x", "x"), version="1.0.0")


BACKS: Mapping[str, Back] = {
    "umbridge_python": Back("umbridge", "`umbridge`, the Python server", names=POSITIONS),
    "umbridge_cpp": Back("umbridge", "a test server that behaves like the C++ server", names=POSITIONS),
    "graphpipe_go": Back("graphpipe", "a test server that behaves like graphpipe-go's server", names=POSITIONS),
    "kubemo": Back("mip", "`kubemo`, the Python server"),
    "kserve_v1": Back("v1-rest", "KServe", names=POSITIONS),
    "tensorflow_serving": Back("v1-rest", "a test server that behaves like TensorFlow Serving", datatype="FP32"),
    "triton_http": Back("v2-rest", "Triton", "single", datatype="FP32"),
    "mlserver_http": Back("v2-rest", "MLServer"),
    "triton_grpc": Back("v2-grpc", "Triton", "single", datatype="FP32"),
    "mlserver_grpc": Back("v2-grpc", "MLServer"),
    "tensorflow_serving_grpc": Back(
        "tfs-grpc", "a test server that behaves like TensorFlow Serving, with its real stubs", datatype="FP32"
    ),
    "grps_python_http": _twice("grps-rest", PYTHON),
    "grps_cpp_http": _twice("grps-rest", CPP),
    "grps_python_grpc": _twice("grps-grpc", PYTHON),
    "grps_cpp_grpc": _twice("grps-grpc", CPP),
    "grps_cpp_brpc": _twice("grps-brpc", CPP),
}
"""By their names."""
