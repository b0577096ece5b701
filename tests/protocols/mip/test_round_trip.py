"""What one side writes the other reads; and any bytes are a value or an error."""

import json
from contextlib import suppress
from struct import unpack_from
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gateway.core.datatypes import DATATYPES, Datatype
from gateway.core.errors import DecodeError, GatewayError
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import DEFAULT_TRANSLATE, Request, Response
from gateway.core.tensors import Tensor, tensor
from tests.protocols.mip.wire import (
    LISTENER,
    MIP,
    RECORDED,
    SPLIT,
    WHOLE,
    asked,
    decoded,
    inference,
    named,
    received,
    recorded,
    replied,
    sent,
    tlv,
)  # fmt: skip
from tests.traced import traced

NUMBERS = [datatype for datatype in DATATYPES.values() if datatype is not Datatype.BYTES]
SHAPES = arrays.array_shapes(min_dims=1, max_dims=4, max_side=4)
FINITE: dict[str, Any] = {"allow_nan": False}


def values(datatype: Datatype) -> st.SearchStrategy[Tensor]:
    if datatype is Datatype.BF16:
        return values(Datatype.FP16).map(lambda each: tensor("x", each.array.astype(datatype.dtype), datatype))
    elements = FINITE if datatype.dtype.kind == "f" else {}
    found = arrays.arrays(datatype.dtype, SHAPES, elements=arrays.from_dtype(datatype.dtype, **elements))
    return found.map(lambda array: tensor("x", array, datatype))


TENSORS = st.sampled_from(NUMBERS).flatmap(values)
TEXTS = st.lists(st.text(st.characters(codec="utf-8")), min_size=1, max_size=5)


def travelled(sent_tensor: Tensor, target: Target = SPLIT) -> Tensor:
    [found] = decoded(received(sent(MIP.encode_request(asked(sent_tensor), target))))
    return found


@given(TENSORS)
def test_json_keeps_every_number(tensor: Tensor) -> None:
    found = travelled(tensor)
    assert found.shape == tensor.shape
    assert found.untyped
    widened = tensor.array if tensor.array.dtype.kind in "biu" else tensor.array.astype(np.float64)
    assert np.array_equal(found.array, widened)
    assert np.array_equal(np.signbit(found.array.astype(float)), np.signbit(widened.astype(float)))


@given(TENSORS.filter(lambda each: each.datatype is not Datatype.BF16))
def test_npy_keeps_everything(tensor: Tensor) -> None:
    found = travelled(replace(tensor, content_type="npy"))
    assert (found.datatype, found.shape, bytes(found.data)) == (tensor.datatype, tensor.shape, bytes(tensor.data))


@given(TEXTS)
def test_text_keeps_everything(texts: list[str]) -> None:
    tensor = named("x", texts, Datatype.BYTES)
    found = travelled(tensor)
    assert (found.shape, found.data, found.content_type) == (tensor.shape, tensor.data, "text")


@given(TENSORS)
def test_a_whole_tensor_is_one_example(tensor: Tensor) -> None:
    found = travelled(replace(tensor, content_type="json"), WHOLE)
    assert found.shape == (1, *tensor.shape)
    reply = MIP.encode_response(
        Response((replace(found, name="y"),)), MIP.decode_request(inference(0, 1), LISTENER), DEFAULT_TRANSLATE
    )
    [back] = replied(received(sent(reply)), tensor, target=WHOLE)
    assert (back.shape, bytes(back.data)) == (tensor.shape, bytes(found.data))


# Anything


def read_request(data: bytes) -> None:
    """Read it as the transport hands it over, in two parts: what is in it, or an error."""
    with suppress(DecodeError, GatewayError):
        request = MIP.decode_request(Message(parts=(data[:8], data[8:])), LISTENER)
        if request.operation is Operation.INFER:
            count, _, batch = unpack_from("!2BH", data, 8)
            examples = contents(data)
            assert (len(request.inputs), len(examples)) == (count, count * batch)
            compare(request.inputs, examples, batch)


def read_reply(data: bytes) -> None:
    with suppress(DecodeError, GatewayError):
        answer = MIP.decode_response(Message(parts=(data[:8], data[8:])), Request(Operation.INFER), SPLIT)
        assert isinstance(answer, Response)
        (batch,) = unpack_from("!H", data, 10)
        compare(answer.outputs, contents(data), batch)


def contents(data: bytes) -> list[tuple[int, bytes]]:
    """The types and contents of all examples of a packet, up to its last byte."""
    found, at = [], 12
    while at < len(data):
        form, size = unpack_from("!2L", data, at)
        found.append((form, data[at + 8 : at + 8 + size]))
        at += 8 + size
    assert at == len(data)
    return found


def compare(tensors: tuple[Tensor, ...], examples: list[tuple[int, bytes]], batch: int) -> None:
    """Each tensor has a row for each example of the batch; texts and images are the bytes in it, and the numbers of
    JSON those that Python's `json` reads."""
    for place, each in enumerate(tensors):
        assert each.shape[0] == batch
        mine = examples[place :: len(tensors)]
        if all(form in (1, 3) for form, _ in mine):
            assert each.array.reshape(-1).tolist() == [content for _, content in mine]
        elif all(form == 2 for form, _ in mine) and each.datatype is not Datatype.BYTES:
            rows = np.array([json.loads(content) for _, content in mine], each.datatype.dtype)
            assert np.array_equal(each.array.reshape(-1), rows.reshape(-1), equal_nan=each.datatype is Datatype.FP64)


NAMES = sorted(path.name for path in RECORDED.glob("*.re*") if path.suffix in (".request", ".reply"))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_cut_short_and_with_every_bit_flipped(name: str) -> None:
    whole = sent(recorded(name))
    read = read_request if name.endswith("request") else read_reply
    for end in range(8, len(whole)):
        read(whole[:end])
    for at in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[at // 8] ^= 1 << at % 8
        read(bytes(flipped))


@given(st.binary(max_size=60), st.sampled_from([1, 2, 3, 0x4E505900]))
@example(b"\x93NUMPY\x01\x00", 0x4E505900)
def test_any_content(content: bytes, form: int) -> None:
    read_request(sent(inference(1, 1, tlv(form, content))))
    read_request(sent(inference(1, 2, tlv(form, content), tlv(form, content[::-1]))))


@pytest.mark.long
@pytest.mark.parametrize(
    ("form", "content", "count"),
    [
        (1, b"", 65535), (2, b"1", 65535), (2, b"[]", 65535), (2, b"[[],[]]", 30000), (2, b"[" * 500_000, 1),
        (2, b"[" + b"[]," * 200_000 + b"[]]", 1), (2, b'["' + b"x" * 500_000 + b'"]', 1), (3, b"x" * 500_000, 1),
        (2, b'{"a":' * 100_000, 1), (2, b"9" * 300_000, 1), (2, b"[null" + b",null" * 100_000 + b"]", 1),
        (0x4E505900, b"\x93NUMPY\1\0" + b"\xff" * 300_000, 1),
    ],
)  # fmt: skip
def test_memory_is_bounded_by_what_was_sent(form: int, content: bytes, count: int) -> None:
    data = sent(inference(1, count, *[tlv(form, content)] * count))
    read_request(data[:100])
    with traced() as memory, suppress(DecodeError, GatewayError):  # it is compared by the tests above
        MIP.decode_request(Message(parts=(data[:8], data[8:])), LISTENER)
    assert memory.peak <= 16 * len(data) + 64 * 2**10
