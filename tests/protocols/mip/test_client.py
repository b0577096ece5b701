"""Requests to backends, and what their replies mean."""

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.frozen import replace
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import Target
from gateway.core.requests import Request
from gateway.core.tensors import Tensor
from tests.protocols.mip.wire import MIP, SPLIT, WHOLE, asked, inference, json, named, of_hex, replied, sent, shown, tlv

EACH = replace(SPLIT, batch="each")
STRINGS = named("s", [["a", "é"], ["b", ""]], Datatype.BYTES)


def encoded(*inputs: Tensor, target: Target = SPLIT) -> bytes:
    return sent(MIP.encode_request(asked(*inputs), target))


def expected(inputs: int, batch: int, *tlvs: bytes) -> bytes:
    return sent(inference(inputs, batch, *tlvs))


@pytest.mark.parametrize(
    ("tensor", "batch", "tlvs"),
    [
        (named("x", [[1, 2], [3, 4]]), 2, json("[1.0,2.0]", "[3.0,4.0]")),
        (named("x", [1, 2], Datatype.INT32), 2, json("1", "2")),
        (named("x", [[True]], Datatype.BOOL), 1, json("[true]")),
        (named("x", [2**64 - 1], Datatype.UINT64), 1, json("18446744073709551615")),
        (named("x", [0.1], Datatype.FP32), 1, json("0.10000000149011612")),
        (named("x", [0.1], Datatype.FP16), 1, json("0.0999755859375")),
        (named("x", [0.1], Datatype.BF16), 1, json("0.10009765625")),
        (named("x", [[]] * 2), 2, json("[]", "[]")),
        (named("x", ["a", "é"], Datatype.BYTES), 2, [tlv(1, b"a"), tlv(1, "é".encode())]),
        (named("x", [["a"], ["b"]], Datatype.BYTES), 2, [tlv(1, b"a"), tlv(1, b"b")]),
        (STRINGS, 2, json('["a","é"]', '["b",""]')),
        (named("x", [b"\xff"], Datatype.BYTES, "image"), 1, [tlv(3, b"\xff")]),
        (named("x", [["{}"]], Datatype.BYTES, "json"), 1, json("{}")),
        (named("x", [["a"]], Datatype.BYTES, "text"), 1, [tlv(1, b"a")]),
        (named("x", [1], content_type="json"), 1, json("1.0")),
    ],
)
def test_each_datatype_has_its_form(tensor: Tensor, batch: int, tlvs: list[bytes]) -> None:
    assert encoded(tensor) == expected(1, batch, *tlvs)


@pytest.mark.parametrize("target", [WHOLE, EACH])
def test_a_packet_of_one_example_holds_whole_tensors(target: Target) -> None:
    inputs = named("a", [[1, 2], [3, 4]]), named("b", 5), named("c", "text", Datatype.BYTES)
    assert encoded(*inputs, target=target) == expected(3, 1, *json("[[1.0,2.0],[3.0,4.0]]", "5.0"), tlv(1, b"text"))


def test_npy_files_are_numpys() -> None:
    packet = encoded(named("x", [[0.5, 1]], Datatype.FP32, "npy"))
    header = b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }" + b" " * 60 + b"\n"
    assert packet == expected(1, 1, tlv(0x4E505900, header + np.array([0.5, 1], "<f4").tobytes()))


def test_large_tensors_are_not_copied() -> None:
    tensor = named("x", np.zeros((2, 100_000)), content_type="npy")
    parts = MIP.encode_request(asked(tensor), SPLIT).parts
    views = [part for part in parts if isinstance(part, memoryview)]
    assert [view.nbytes for view in views] == [800_000, 800_000]
    assert all(np.shares_memory(np.frombuffer(view), np.frombuffer(tensor.data)) for view in views)


def test_many_small_examples_are_few_parts() -> None:
    assert len(MIP.encode_request(asked(named("x", np.zeros((60_000, 4)))), SPLIT).parts) < 40


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        (
            [named("a", [1, 2]), named("b", [1])],
            r"the same in all inputs, got input 'a' \[2\], input 'b' \[1\]; `batch: whole`",
        ),
        ([named("a", 1)], r"counts the examples and must be the same in all inputs, got input 'a' \[\]"),
        ([named("a", np.zeros((0, 2)))], "a batch of 0 rows, but MIP carries 1 to 65535"),
        ([named("a", np.zeros(65536))], "a batch of 65536 rows"),
        ([named("a", [1])] * 256, "256 inputs, but MIP carries at most 255"),
        ([named("a", [b"\xff"], Datatype.BYTES)], "input 'a': element 0 is not UTF-8"),
        ([named("a", [["x", b"\xff"]], Datatype.BYTES)], "input 'a': element 1 is not UTF-8"),
        (
            [named("a", [["x", "y"]], Datatype.BYTES, "image")],
            r"each example of input 'a' has shape \[2\], but as image it must have one element",
        ),
        ([named("a", ["x"], Datatype.BYTES, "npy")], "input 'a' is BYTES, which cannot be sent as npy"),
        ([named("a", [1], content_type="text")], "input 'a' is FP64, which cannot be sent as text"),
    ],
)
def test_inputs_that_mip_cannot_carry_are_refused(inputs: list[Tensor], why: str) -> None:
    with pytest.raises(GatewayError, match=why) as failure:
        encoded(*inputs)
    assert failure.value.reason is Reason.INVALID_INPUT


def test_parameters_are_refused_by_name() -> None:
    with pytest.raises(GatewayError, match="parameters are not supported by MIP, got 'config'"):
        MIP.encode_request(replace(asked(), parameters={"config": "{}"}), SPLIT)
    with pytest.raises(GatewayError, match="parameters are not supported by MIP, got 'unit'"):
        encoded(replace(named("a", [1]), parameters={"gateway_datatype": "FP16", "unit": "m"}))


@pytest.mark.parametrize("operation", [Operation.METADATA, Operation.MODELS, Operation.GRADIENT, Operation.CONFIG])
def test_an_operation_that_mip_does_not_have_is_refused(operation: Operation) -> None:
    with pytest.raises(GatewayError, match=f"operation '{operation.value}' is not supported by MIP") as failure:
        MIP.encode_request(Request(operation, "m"), SPLIT)
    assert failure.value.reason is Reason.UNSUPPORTED


def reply(inputs: int, outputs: int, batch: int, *tlvs: bytes) -> Message:
    return inference(inputs, batch, *tlvs, outputs=outputs, subtype=1)


ONE = named("x", [[1, 2]])
TWO = named("x", [[1, 2], [3, 4]])


def test_outputs_are_counted() -> None:
    """A real server sends n-input as n-output."""
    assert shown(replied(reply(1, 1, 1, *json("[1]", "2")), ONE)) == [("INT64~", [1, 1], [1]), ("INT64~", [1], [2])]


def test_one_example_is_the_whole_tensor() -> None:
    assert shown(replied(reply(1, 1, 1, *json("[[1], [2]]")), TWO, target=WHOLE)) == [("INT64~", [2, 1], [1, 2])]
    assert shown(replied(reply(1, 1, 1, tlv(1, b"a")), TWO, target=EACH)) == [("BYTES", [], [b"a"])]


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (reply(1, 1, 2, *json("1", "2")), "the response has a batch of 2, expected 1 as in the request"),
        (reply(1, 1, 1, tlv(7, b"\xff\xff"), b"\0"), "1 bytes after TLV 1"),
        (reply(1, 1, 1, *json("[")), "output 0 of example 0"),
        (inference(1, 1, *json("1")), "kind 2 and subtype 0, expected kind 2 (inference) and subtype 1 (response)"),
        (of_hex("0001010000000000"), "a packet of kind 1 and subtype 1"),
        (of_hex("0002010000000002 0101"), "has 2 bytes, expected at least 4"),
    ],
)
def test_replies_that_do_not_fit_the_request_are_refused(message: Message, why: str) -> None:
    with pytest.raises(DecodeError) as failure:
        replied(message, ONE)
    assert why in str(failure.value)


def test_outputs_must_be_as_many_in_each_example() -> None:
    with pytest.raises(DecodeError, match="3 TLVs, expected as many for each of 2 examples"):
        replied(reply(1, 1, 2, *json("1", "2", "3")), TWO)


@pytest.mark.parametrize(
    ("packet", "reason", "text"),
    [
        ("0000050000000004 6f6f7073", Reason.MODEL_ERROR, "the server answered with MIP error 5 (INTERNAL): oops"),
        ("0000090000000000", Reason.MODEL_ERROR, "the server answered with MIP error 9"),
        # another gateway's, whose reason is believed where it has this number
        ("000005000000000d 74696d656f75743a206f6f7073", Reason.TIMEOUT, "oops"),
        (
            "000004000000000d 74696d656f75743a206f6f7073",
            Reason.INVALID_INPUT,
            "the server answered with MIP error 4 (SHAPE): timeout: oops",
        ),
        ("0000040000000001 ff", Reason.INVALID_INPUT, "the server answered with MIP error 4 (SHAPE): \ufffd"),
    ],
)
def test_an_error_with_a_text_or_an_unknown_number(packet: str, reason: Reason, text: str) -> None:
    with pytest.raises(GatewayError) as failure:
        replied(of_hex(packet), ONE)
    assert (failure.value.reason, failure.value.message) == (reason, text)
