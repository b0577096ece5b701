"""What tritonclient 2.73.0 and three real servers said to each other, and damage done to it."""

import random
import subprocess
import sys
import tracemalloc
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.exchange import decoded
from gateway.core.operations import Operation
from gateway.core.protocol import GrpcForm, Target
from gateway.core.types import Request, Response, Tensor
from tests.protocols.v2.grpc.wire import (
    AS_IS,
    KSERVE,
    LISTENER,
    MLSERVER,
    RECORDED,
    SERVICE,
    STREAM,
    TARGET,
    TRITON,
    decode,
    exchanged,
    field,
    infer,
    large,
    message,
    reply,
)
from tests.protocols.v2.rest.wire import V2_GRPC

TARGETS = {"triton": TRITON, "mlserver": MLSERVER, "kserve": KSERVE}
CONVERSATIONS = [(server, name) for server, recorded in RECORDED.items() for name in recorded]
DATATYPES = ["fp64", "fp64_nan", "fp32", "fp16", "bool", "int64", "bytes", "empty", "parameters"]


@pytest.mark.parametrize(("server", "name"), CONVERSATIONS)
def test_passes_on_what_the_client_said(server: str, name: str) -> None:
    """Byte for byte, but for what is the gateway's own business."""
    method, requests, _ = exchanged(server, name)
    for asked in requests:
        request = decoded(message(asked, method), V2_GRPC, LISTENER)
        written = V2_GRPC.encode_request(request, TARGET)
        assert written.path == method
        if "parameters" not in name and "typed" not in name and "empty_final" not in name and "failing" not in name:
            assert written.body == asked
        again = decoded(message(bytes(written.body), method), V2_GRPC, LISTENER)
        assert (again.inputs, again.parameters, again.id) == (request.inputs, request.parameters, request.id)


def test_the_clients_options_arrive() -> None:
    _, (asked,), _ = exchanged("triton", "parameters")
    request = infer(asked, received=100.0)
    assert (request.id, request.deadline, [each.name for each in request.outputs]) == ("42", 105.0, ["OUTPUT0"])
    own = {"text": "größe", "integer": -5, "flag": True, "number": 0.5}
    assert request.parameters == {**own, "sequence_id": 7, "sequence_start": True, "sequence_end": False}


@pytest.mark.parametrize("server", RECORDED)
@pytest.mark.parametrize("name", [*DATATYPES, "typed"])
def test_identity_at_every_server(server: str, name: str) -> None:
    _, (asked,), (told,) = exchanged(server, name)
    request = infer(asked)
    response = V2_GRPC.decode_response(told, request, TARGETS[server])
    assert isinstance(response, Response)
    sent, got = request.inputs[0], response.outputs[0]
    assert (got.datatype, got.shape, bytes(got.data), got.parameters) == (
        sent.datatype,
        sent.shape,
        bytes(sent.data),
        {},
    )
    # for a client that gave no id there is none, whatever the server made up
    written = bytes(V2_GRPC.encode_response(response, request, AS_IS).body)
    assert decode(written, request).id == request.id


def test_traits_and_methods() -> None:
    traits = V2_GRPC.traits
    assert traits.wire.datatypes == frozenset(Datatype)
    assert traits.models.versions is not None
    assert traits.models.versions("v10")
    assert not traits.models.versions("")
    assert set(V2_GRPC.patterns) == {SERVICE + name for name in METHODS}
    assert isinstance(V2_GRPC.carrier, GrpcForm)
    assert V2_GRPC.carrier.streams == {STREAM}
    assert V2_GRPC.example is not None
    assert V2_GRPC.example("h:1", "m", "3") == (
        """grpcurl -plaintext -d '{"name": "m", "version": "3"}' h:1 inference.GRPCInferenceService/ModelMetadata"""
    )


METHODS = {
    "ServerLive",
    "ServerReady",
    "ModelReady",
    "ServerMetadata",
    "ModelMetadata",
    "ModelInfer",
    "ModelStreamInfer",
    "ModelConfig",
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
    "ModelStatistics",
    "TraceSetting",
    "LogSettings",
    # served to tell why they are not
    *(
        f"{kind}SharedMemory{verb}"
        for kind in ("System", "Cuda", "Tpu")
        for verb in ("Status", "Register", "Unregister")
    ),
}


def test_every_method_has_a_reader() -> None:
    for pattern in V2_GRPC.patterns:
        if "SharedMemory" in pattern:
            continue
        assert decoded(message(b"", pattern), V2_GRPC, LISTENER).operation in Operation


tensors = st.lists(
    st.tuples(st.sampled_from(list(Datatype)), st.lists(st.integers(0, 4), max_size=4), st.integers(0, 2**32)),
    max_size=3,
)


def raw_tensor(position: int, datatype: Datatype, shape: list[int], seed: int, *, copies: int) -> Tensor:
    """Any bits, NaNs of every kind among them; large on demand."""
    source, dimensions = random.Random(seed), (*shape, copies)
    elements = Tensor("", datatype, dimensions, b"").elements
    if datatype is Datatype.BYTES:
        pieces = (source.randbytes(source.randrange(3)) for _ in range(elements))
        data = b"".join(len(piece).to_bytes(4, "little") + piece for piece in pieces)
    elif datatype is Datatype.BOOL:
        data = bytes(source.choices((0, 1), k=elements))
    else:
        data = source.randbytes(elements * datatype.size)
    return Tensor(f"t{position}", datatype, dimensions, data)


@settings(deadline=None, max_examples=50)  # large ones take their time
@given(tensors, st.sampled_from([1, 1, 20000]), st.sampled_from([TARGET, MLSERVER, KSERVE]))
def test_every_datatype_and_shape_survives_both_ways(given: Any, copies: int, target: Target) -> None:
    sent = tuple(raw_tensor(position, *each, copies=copies) for position, each in enumerate(given))
    if target.flavor and any(each.datatype is Datatype.BF16 for each in sent):
        return  # widened, as another test has it
    for operation in (Operation.INFER, Operation.STREAM):
        request = Request(operation, "m", inputs=sent)
        asked = V2_GRPC.encode_request(request, target)
        got = infer(b"".join(asked.parts), asked.path)
        assert got.inputs == sent
        told = b"".join(V2_GRPC.encode_response(Response(sent, "m"), got, AS_IS).parts)
        assert decode(told, got).outputs == sent


BODIES = sorted(
    {
        bytes.fromhex(each)
        for recorded in RECORDED.values()
        for conversation in recorded.values()
        for each in (*conversation["requests"], *conversation["replies"])
    }
)


ASKED = (
    (Request(Operation.INFER, "m"), TRITON),
    (Request(Operation.STREAM, "m"), TRITON),
    (Request(Operation.METADATA, "m"), TRITON),
)


def read(body: bytes) -> None:
    """Both sides read `body`; nothing but the two errors of the contract may come out."""
    with suppress(DecodeError, GatewayError):
        decoded(message(body), V2_GRPC, LISTENER)
    for request, target in ASKED:
        with suppress(DecodeError, GatewayError):
            V2_GRPC.decode_response(reply(body), request, target)


def test_cut_at_every_length() -> None:
    for body in BODIES:
        for end in range(len(body)):
            read(body[:end])


@pytest.mark.parametrize(("padding", "times"), [(b"", 20), (b"\x7a\x80\x80\x10" + bytes(2**18), 2)])
def test_bits_flipped_at_random(padding: bytes, times: int) -> None:
    """The padding, a field that nobody knows, makes of a message one that is cut and not parsed whole."""
    source = random.Random(7)
    for body in BODIES * times:
        damaged = bytearray(body)
        for _ in range(source.randint(1, 3) if body else 0):
            damaged[source.randrange(len(body))] ^= 1 << source.randrange(8)
        read(bytes(damaged) + padding)


def repeated(piece: bytes) -> bytes:
    return piece * (4 * 2**20 // len(piece))


@pytest.mark.parametrize(
    "body",
    [
        repeated(field(5, b"")),
        repeated(field(7, b"")),
        repeated(field(6, b"")),
        repeated(field(4, b"")),
        repeated(field(4, field(1, "key") + field(2, field(2, 1)))),
        repeated(field(15, b"")),
        repeated(field(5, field(5, b""))),
        large("BYTES", 1, repeated(field(8, b""))),
        large("INT64", 1, repeated(field(3, b""))),
        large("INT64", 4 * 2**20, repeated(field(3, 1))),
        large("INT8", 1, b"\x12\x80\x80\x80\x02" + bytes(4 * 2**20)),
        b"\x2a\x80\x80\x80\x02" + repeated(field(5, b"")),
        b"\x2a\x85\x80\x80\x02\x1a\x80\x80\x80\x02" + bytes(4 * 2**20),
    ],
)
def test_hostile_bytes_are_refused_in_bounded_memory(body: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError):
            infer(body)
        assert tracemalloc.get_traced_memory()[1] < 40 * 2**20
    finally:
        tracemalloc.stop()


IN_A_PROCESS_OF_ITS_OWN = """
from google.protobuf import descriptor_pb2, descriptor_pool
file = descriptor_pb2.FileDescriptorProto(name="grpc_service.proto", package="inference", syntax="proto3")
file.message_type.add(name="ModelInferRequest").field.add(name="other", number=1, type=5, label=1)
descriptor_pool.Default().AddSerializedFile(file.SerializeToString())
from gateway.protocols.v2.grpc import schema
assert schema.ModelInferRequest(model_name="m").SerializeToString() == bytes((10, 1)) + b"m"
"""


def test_works_beside_others_who_registered_the_same_names() -> None:
    """tritonclient, KServe and MLServer register an `inference.ModelInferRequest` each."""
    subprocess.run([sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN], check=True)
