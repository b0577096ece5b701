"""Malformed and hostile messages: a DecodeError or a value, and memory in proportion to the message."""

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from struct import pack

import pytest
from flatbuffers.number_types import Int64Flags, Uint8Flags
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError
from gateway.core.models import Signature
from gateway.core.operations import Operation
from gateway.core.requests import Request, Response
from gateway.protocols.graphpipe import schema
from tests.limits import examples
from tests.protocols.graphpipe.test_flatbuffers import expected, fields, root
from tests.protocols.graphpipe.wire import (
    GRAPHPIPE,
    RECORDED,
    TARGET,
    Back,
    Piece,
    To,
    asked,
    assemble,
    i64,
    reply,
    tensor_message,
    u16,
    u32,
)
from tests.traced import traced

HUGE = 2**32 - 1

INFER, ABOUT = Request(Operation.INFER), Request(Operation.METADATA)


def answered(body: bytes, request: Request = INFER) -> object:
    return GRAPHPIPE.decode_response(reply(body), request, TARGET)


READERS: dict[str, Callable[[bytes], object]] = {
    "request": asked,
    "reply": answered,
    "metadata": lambda body: answered(body, ABOUT),
}


def test_the_unchanged_message_is_read() -> None:
    (tensor,) = asked(tensor_message()).inputs
    assert (tensor.shape, bytes(tensor.data)) == ((2,), b"ab")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "has 0 bytes"),
        (b"\0\0", "has 2 bytes"),
        (bytes(64), "malformed vtable"),
        (b"GET / HTTP/1.1\r\n\r\n", "bytes at offset"),
        (u32(HUGE), "offset 4294967295"),
        (u32(4) + u32(0), "malformed vtable"),  # its own vtable, of no size
        (u32(4) + u32(8), "vtable at offset -4"),
        (u32(4) + pack("<i", -100), "vtable at offset 104"),
        (tensor_message(v_request=[u16(3, 9, 8, 4)]), "malformed vtable"),
        (tensor_message(v_request=[u16(60000, 9, 8, 4)]), "malformed vtable"),
        (tensor_message(v_request=[u16(8, 60000, 8, 4)]), "needs 60000 bytes at offset"),
        (tensor_message(v_request=[u16(8, 9, 9, 4)]), "a field outside the table"),
        (tensor_message(v_request=[u16(8, 9, 8, 6)]), "a field outside the table"),
        (tensor_message(v_request=[u16(8, 9, 3, 4)]), "a field outside the table"),
        (tensor_message(root=[Back("v_request"), To("infer"), b"\0"]), "type is 0"),
        (tensor_message(root=[Back("v_request"), To("infer"), b"\3"]), "type is 3"),
        (tensor_message(root=[Back("v_request"), u32(0), b"\1"]), "1 without a table"),
        (tensor_message(root=[Back("v_request"), u32(HUGE), b"\1"]), "bytes at offset"),
        (tensor_message(root=[Back("v_request"), To("config"), b"\1"]), "malformed vtable"),
        (tensor_message(tensors=[u32(HUGE)]), "bytes at offset"),
        (tensor_message(tensors=[u32(1), u32(HUGE)]), "bytes at offset"),
        (tensor_message(tensors=[u32(1), u32(0)]), "malformed vtable"),
        (tensor_message(names=[u32(1), u32(HUGE)]), "bytes at offset"),
        (tensor_message(names=[u32(1), To("text")], text=[u32(2) + b"\xff\xfe"]), "name is not UTF-8"),
        (tensor_message(names=[u32(2), To("text"), u32(0)], text=[u32(1) + b"a"]), "2 input names for 1 tensors"),
        (tensor_message(outputs=[u32(2), To("text"), To("text")], text=[u32(1) + b"a"]), "'a' is requested twice"),
        (tensor_message(outputs=[u32(2), To("text"), u32(0)], text=[u32(1) + b"a"]), "1 of 2 output names are empty"),
        (tensor_message(type_=0), r"input 0: its type is 0 \(Null\), expected 1 to 12"),
        (tensor_message(type_=13), "its type is 13, expected"),
        (tensor_message(shape=u32(1) + i64(3)), r"input 0: 2 bytes of data, but UINT8 of shape \[3\] takes 3"),
        (tensor_message(shape=u32(0)), r"shape \[\] takes 1"),
        (tensor_message(type_=10), r"FP32 of shape \[2\] takes 8"),
        (tensor_message(shape=u32(1) + i64(-2)), r"\[-2\] has a negative dimension"),
        (tensor_message(shape=u32(2) + i64(-1, -2)), "negative dimension"),
        (tensor_message(shape=u32(3) + i64(2**62, 2**62, 0)), "spans more than"),
        (tensor_message(shape=u32(2) + i64(2**63 - 1, 2**63 - 1)), "spans more than"),
        (tensor_message(shape=u32(33) + i64(*[1] * 33)), "33 dimensions, at most 32"),
        (tensor_message(shape=u32(HUGE) + i64(2)), "bytes at offset"),
        (tensor_message(data=u32(HUGE) + b"ab"), "bytes at offset"),
        (tensor_message(strings=[u32(1), To("text")], text=[u32(1) + b"a"]), "and no strings"),
        (tensor_message(type_=12), r"0 strings, but shape \[2\] takes 2"),
        (tensor_message(type_=12, shape=u32(0), strings=[u32(1), To("text")], text=[u32(1) + b"a"]), "and no data"),
        (tensor_message(type_=12, shape=u32(0), strings=[u32(1), u32(HUGE)], data=u32(0)), "bytes at offset"),
        (
            tensor_message(type_=12, shape=u32(0), strings=[u32(1), To("text")], data=u32(0), text=[u32(2**31) + b"a"]),
            "bytes at offset",
        ),
    ],
)
def test_a_malformed_request_is_refused(body: bytes, text: str) -> None:
    with pytest.raises(DecodeError, match=text):
        asked(body)


def test_null_and_missing_fields_are_read_as_empty() -> None:
    """A null name, no shape (a scalar), no data (no elements), tables and numbers at odd places."""
    (named,) = asked(tensor_message(names=[u32(1), u32(0)])).inputs
    assert named.name == ""
    (scalar,) = asked(tensor_message(v_tensor=[u16(12, 17, 16, 0, 8, 12)], data=u32(1) + b"a")).inputs
    assert (scalar.shape, bytes(scalar.data)) == ((), b"a")
    (empty,) = asked(tensor_message(v_tensor=[u16(12, 17, 16, 4, 0, 12)], shape=u32(2) + i64(0, 7))).inputs
    assert (empty.shape, bytes(empty.data)) == ((0, 7), b"")
    (short,) = asked(tensor_message(v_tensor=[u16(10, 17, 16, 4, 8)])).inputs
    assert bytes(short.data) == b"ab"


def check_against_the_package(reader: str, body: bytes) -> None:
    """What is read of `body`, if it is not refused, is what the `flatbuffers` package reads in the same places."""
    try:
        found = READERS[reader](body)
    except (DecodeError, GatewayError):
        return
    if isinstance(found, Request) and found.operation is Operation.METADATA:
        assert root(body).number(schema.Request.REQ_TYPE, Uint8Flags) == schema.METADATA_REQUEST
    elif isinstance(found, Request):
        infer = root(body).table(schema.Request.REQ)
        assert list(map(fields, infer.tables(schema.InferRequest.INPUT_TENSORS))) == list(map(expected, found.inputs))
        outputs = [name.decode() for name in infer.strings(schema.InferRequest.OUTPUT_NAMES)]
        assert [each.name for each in found.outputs] == [name for name in outputs if name]
    elif isinstance(found, Response):
        outputs_there = root(body).tables(schema.InferResponse.OUTPUT_TENSORS)
        assert list(map(fields, outputs_there)) == list(map(expected, found.outputs))
    else:
        assert isinstance(found, Signature)
        about, slots = root(body), schema.MetadataResponse
        assert about.string(slots.NAME).decode() == found.name
        for slot, specs in ((slots.INPUTS, found.inputs), (slots.OUTPUTS, found.outputs)):
            there = about.tables(slot)
            assert [each.number(schema.IOMetadata.TYPE, Uint8Flags) for each in there] == [
                schema.TYPE_NUMBERS[spec.datatype] for spec in specs
            ]
            assert [each.numbers(schema.IOMetadata.SHAPE, Int64Flags) for each in there] == [
                [*each.shape] for each in specs
            ]


WHOLE = sorted(RECORDED.glob("*.re[pq]*"))


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.name)
@pytest.mark.parametrize("reader", READERS)
def test_a_message_cut_at_any_length_or_with_flipped_bits(path: Path, reader: str) -> None:
    whole = path.read_bytes()
    dice = random.Random(7)
    flipped = []
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(dice.choice((1, 1, 2, 5))):
            changed[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
        flipped.append(bytes(changed))
    for body in (*(whole[:end] for end in range(len(whole))), *flipped, whole + b"tail"):
        check_against_the_package(reader, body)


@settings(max_examples=examples(300), deadline=None)
@given(st.binary(max_size=300), st.sampled_from(sorted(READERS)))
def test_any_bytes(body: bytes, reader: str) -> None:
    for each in (body, u32(4) + body, u32(12) + u16(8, 12, 8, 4) + body):
        check_against_the_package(reader, each)


# Small messages that stand for large ones, if their offsets are followed again and again.

COUNT = 20_000


def many(target: str) -> list[Piece]:
    return [u32(COUNT), *[To(target)] * COUNT]


SHORT: list[Piece] = [u32(2) + b"ab"]
LONG: list[Piece] = [u32(9000) + b"x" * 9000]
BOMBS = {
    "many names of one string": tensor_message(names=many("text"), text=SHORT),
    "many names of one long string": tensor_message(names=many("text"), text=LONG),
    "many outputs of one string": tensor_message(outputs=many("text"), text=SHORT),
    "one tensor many times": tensor_message(tensors=many("tensor")),
    "one small tensor many times": tensor_message(
        tensors=many("small"),
        v_small=[u16(10, 9, 4, 0, 5)],
        small=[Back("v_small"), b"\1", To("one")],
        one=[u32(1), b"a"],
    ),
    "one string many times": tensor_message(
        type_=12, shape=u32(1) + i64(COUNT), data=u32(0), strings=many("text"), text=LONG
    ),
    "an empty string many times": tensor_message(
        type_=12, shape=u32(1) + i64(COUNT), data=u32(0), strings=many("text"), text=[u32(0)]
    ),
    "many dimensions": tensor_message(shape=u32(COUNT) + i64(*[1] * COUNT)),
    "vectors that are each other": tensor_message(
        tensors=many("tensor"), tensor=[Back("v_tensor"), u32(4), u32(4), u32(4), b"\1"]
    ),
    "many errors of one message": assemble(
        root=[Back("v_root"), To("errors")],
        errors=many("error"),
        v_root=[u16(8, 8, 0, 4)],
        v_error=[u16(8, 8, 0, 4)],
        error=[Back("v_error"), To("text")],
        text=LONG,
    ),
    "one input many times": assemble(
        root=[Back("v_root"), To("inputs")],
        inputs=many("input"),
        v_root=[u16(14, 8, 0, 0, 0, 0, 4)],
        v_input=[u16(12, 9, 4, 0, 0, 8)],
        input=[Back("v_input"), To("text"), b"\1"],
        text=SHORT,
    ),
}


@pytest.mark.parametrize("body", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("reader", READERS)
def test_a_small_message_never_becomes_a_large_value(body: bytes, reader: str) -> None:
    assert peak(READERS[reader], body) <= 16 * len(body) + 64 * 2**10


def peak(read: Callable[[bytes], object], body: bytes) -> int:
    """The most memory that was allocated at once, in bytes; also if it ends in a DecodeError."""
    with traced() as memory, suppress(DecodeError, GatewayError):
        read(body)
    return memory.peak
