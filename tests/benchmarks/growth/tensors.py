"""The peak memory of one large tensor, by its size: on each wire form of clients with one binary form behind, and the
other way round; and the largest payload that is promised, 256 MiB."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np

from gateway.core.datatypes import Datatype
from gateway.core.tensors import Tensor
from gateway.protocols.v2.grpc import schema
from tests.attacks.attacked import MIB, reference
from tests.attacks.clients import INFER, Brpc, Connection, Http, Mip, message, post
from tests.benchmarks.contest.process import Watched
from tests.interop.processes import free_port, start_gateway

SIZE = 64 * MIB - 64 * 2**10
"""Bytes: what the default limit of the servers lets through, with the message around it."""
LARGEST = 256 * MIB - MIB
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
AIM = 2.5
"""Times the tensor, above what the gateway has when idle."""

FACES = {"http": "v2-rest, graphpipe", "grpc": "v2-grpc, grps-grpc", "mip": "mip", "brpc": "grps-brpc"}
BEHIND = ("v2-grpc", "v2-rest", "graphpipe", "grps-grpc", "grps-brpc")


@dataclass(frozen=True)
class Peak:
    row: str
    size: int
    """Bytes of the tensor."""
    taken: int
    """Bytes of resident memory, at most, above those before."""

    def shown(self) -> str:
        return f"{self.row:52}{self.size / MIB:8.0f}{self.taken / MIB:8.0f}{self.taken / self.size:9.2f}"


def heading() -> str:
    return f"{f'peak memory of a tensor; aim {AIM} times':52}{'MiB':>8}{'peak':>8}{'times':>9}"


class Grpc:
    """A client of grpcio; `call` sends a message and gives the reply's."""

    def __init__(self, address: tuple[str, int]) -> None:
        host, port = address
        self._channel = grpc.insecure_channel(f"{host}:{port}", UNLIMITED)

    def call(self, request: bytes) -> bytes:
        reply: bytes = self._channel.unary_unary(INFER.decode())(request, timeout=60)
        return reply

    def __enter__(self) -> Grpc:
        return self

    def __exit__(self, *error: object) -> None:
        self._channel.close()


@dataclass(frozen=True)
class Way:
    """How clients send a tensor of FP32, and have it back."""

    name: str
    listener: str
    connect: Callable[[tuple[str, int]], Connection | Grpc]
    request: Callable[[str, bytes], bytes]
    """Of a model."""


def _numbers(data: bytes, content_type: str = "") -> Tensor:
    return Tensor("x", Datatype.FP32, (1, len(data) // 4), data, content_type=content_type)


def _v2_binary(model: str, data: bytes) -> bytes:
    given = {
        "name": "x",
        "datatype": "FP32",
        "shape": [1, len(data) // 4],
        "parameters": {"binary_data_size": len(data)},
    }
    head = json.dumps({"inputs": [given], "parameters": {"binary_data_output": True}}).encode()
    return post(f"/v2/models/{model}/infer", head + data, f"Inference-Header-Content-Length: {len(head)}")


def _graphpipe(model: str, data: bytes) -> bytes:
    return post(f"/graphpipe/{model}", message("graphpipe", model, _numbers(data)))


WAYS = (
    Way("v2-rest, binary", "http", Http, _v2_binary),
    Way("v2-grpc", "grpc", Grpc, lambda model, data: message("v2-grpc", model, _numbers(data))),
    Way("graphpipe", "http", Http, _graphpipe),
    Way("grps-brpc", "brpc", Brpc, lambda model, data: message("grps-brpc", model, _numbers(data))),
    Way("mip, npy", "mip", Mip, lambda model, data: message("mip", model, _numbers(data, "npy"))),
)


def measure(folder: Path, wanted: str = "") -> Iterator[Peak]:
    """Raises AssertionError if the tensor does not come back."""
    data = np.random.default_rng(1).bytes(SIZE)
    rows = [(way, "v2-grpc") for way in WAYS] + [(WAYS[0], behind) for behind in BEHIND[1:]]
    with ExitStack() as stack:
        servers: dict[str, str] = {}
        for way, behind in rows:
            row = f"{way.name} to {behind}"
            if wanted in row:
                if behind not in servers:
                    servers[behind] = stack.enter_context(reference(folder / behind, behind, "identity"))
                yield _measured(row, way, behind, servers[behind], data, folder / row.replace(" ", "-"))
        for way in WAYS[:2]:
            row = f"{way.name} to v2-grpc, the largest"
            if wanted in row:
                data = np.random.default_rng(1).bytes(LARGEST)
                yield _measured(row, way, "v2-grpc", _large_server(stack), data, folder / row.replace(" ", "-"))


def _large_server(stack: ExitStack) -> str:
    """A server of V2 over gRPC for messages of any size, which gives back what it gets."""

    def infer(request: schema.ModelInferRequest, _: grpc.ServicerContext) -> schema.ModelInferResponse:
        reply = schema.ModelInferResponse(model_name=request.model_name)
        for each in request.inputs:
            reply.outputs.add(name=each.name, datatype=each.datatype, shape=each.shape)
        reply.raw_output_contents.extend(request.raw_input_contents)
        return reply

    handler = grpc.unary_unary_rpc_method_handler(
        infer, schema.ModelInferRequest.FromString, schema.ModelInferResponse.SerializeToString
    )
    server = grpc.server(ThreadPoolExecutor(2), options=UNLIMITED)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("inference.GRPCInferenceService", {"ModelInfer": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    stack.callback(lambda: server.stop(0).wait())
    return f"127.0.0.1:{port}"


def _configuration(behind: str, server: str, addresses: dict[str, str]) -> str:
    limits = f"limits: {{message: {LARGEST + MIB}}}"
    endpoint = f"tcp://{server}" if behind in ("mip", "grps-brpc") else server
    lines = [f"limits: {{memory: {2**33}}}", "listeners:"]
    for name, protocols in FACES.items():
        bind = f"tcp://{addresses[name]}" if name in ("mip", "brpc") else addresses[name]
        model = ", model: identity" if name == "mip" else ""
        lines.append(f'  - {{name: {name}, bind: "{bind}", protocols: [{protocols}]{model}, {limits}}}')
    more = ", flavor: triton" if behind == "v2-rest" else ""
    lines.append(f'backends: {{server: {{protocol: {behind}, endpoints: ["{endpoint}"]{more}, {limits}}}}}')
    tensors = "[{name: x, datatype: FP32, shape: [-1, -1]}]"
    signature = f"{{inputs: {tensors}, outputs: {tensors}}}"
    lines.append(f'routes: [{{match: {{model: "*"}}, backend: server, signature: {signature}}}]')
    return "\n".join(lines) + "\n"


def _measured(row: str, way: Way, behind: str, server: str, data: bytes, folder: Path) -> Peak:
    addresses = {name: f"127.0.0.1:{free_port()}" for name in FACES}
    gateway = start_gateway(_configuration(behind, server, addresses), folder)
    try:
        watched = Watched(gateway.process.pid)
        _exchange(way, addresses, b"\0" * 16)
        watched.forget_peak()
        before = watched.peak()
        _exchange(way, addresses, data)
        return Peak(row, len(data), watched.peak() - before)
    finally:
        gateway.stop()


def _exchange(way: Way, addresses: dict[str, str], data: bytes) -> None:
    host, port = addresses[way.listener].split(":")
    with way.connect((host, int(port))) as connection:
        reply = connection.call(way.request("identity", data))
    assert data[-4096:] in reply[-8192:], f"{way.name}: the tensor did not come back: {reply[:300]!r}"
    assert len(reply) >= len(data)
