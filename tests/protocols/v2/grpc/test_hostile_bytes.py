"""Damaged and hostile messages end in an error, in bounded memory."""

import random
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.exchange import decoded
from gateway.core.operations import Operation
from gateway.core.requests import Request, Response
from gateway.core.tensors import Tensor
from gateway.protocols.v2 import V2_GRPC
from gateway.protocols.v2.grpc.schema import ModelInferRequest, ModelInferResponse
from tests.protocols.v2.grpc.by_hand import field, large
from tests.protocols.v2.grpc.wire import LISTENER, RECORDED, TRITON, infer, message, reply
from tests.traced import traced

BODIES = sorted(
    {
        bytes.fromhex(each)
        for recorded in RECORDED.values()
        for conversation in recorded.values()
        for each in (*conversation["requests"], *conversation["replies"])
    }
)


def read(body: bytes) -> None:
    """Read `body` on both sides: as Google's protobuf reads it, or with a DecodeError or GatewayError."""
    with suppress(DecodeError, GatewayError):
        found = decoded(message(body), V2_GRPC, LISTENER)
        asked = ModelInferRequest.FromString(body)
        assert (found.model, found.version) == (asked.model_name, asked.model_version)
        compare(found.inputs, asked.inputs, asked.raw_input_contents)
    for operation in (Operation.INFER, Operation.STREAM, Operation.METADATA):
        with suppress(DecodeError, GatewayError):
            answer = V2_GRPC.decode_response(reply(body), Request(operation, "m"), TRITON)
            if operation is Operation.INFER:
                assert isinstance(answer, Response)
                told = ModelInferResponse.FromString(body)
                compare(answer.outputs, told.outputs, told.raw_output_contents)


def compare(found: Sequence[Tensor], described: Sequence[Any], raw: Sequence[bytes]) -> None:
    """The tensors have the names, datatypes and shapes of the message, and its raw data where it has some."""
    assert [(each.name, each.datatype.value, each.shape) for each in found] == [
        (each.name, each.datatype, tuple(each.shape)) for each in described
    ]
    if raw:
        assert [bytes(each.data) for each in found] == list(raw)
    else:
        assert [each.elements for each in found] == [in_lists(each.contents) for each in described]


def in_lists(contents: Any) -> int:
    """The number of elements in the typed lists."""
    return sum(len(values) for _, values in contents.ListFields())


def test_cut_at_every_length() -> None:
    for body in BODIES:
        for end in range(len(body)):
            read(body[:end])


@pytest.mark.parametrize(("padding", "times"), [(b"", 20), (b"\x7a\x80\x80\x10" + bytes(2**18), 2)])
def test_bits_flipped_at_random(padding: bytes, times: int) -> None:
    """The padding, an unknown field, makes the message so large that it is cut instead of parsed whole."""
    source = random.Random(7)
    for body in BODIES * times:
        damaged = bytearray(body)
        for _ in range(source.randint(1, 3) if body else 0):
            damaged[source.randrange(len(body))] ^= 1 << source.randrange(8)
        read(bytes(damaged) + padding)


def repeated(piece: bytes) -> bytes:
    return piece * (4 * 2**20 // len(piece))


@pytest.mark.long
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
    with traced() as memory, pytest.raises(DecodeError):
        infer(body)
    assert memory.peak < 40 * 2**20
