"""Requests of clients, and what they are answered."""

from math import inf
from struct import pack

import numpy as np
import pytest

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.requests import DEFAULT_TRANSLATE, Response, Translate
from tests.protocols.mip.wire import LISTENER, MIP, decoded, inference, json, named, of_hex, sent, shown, tlv


def test_the_reserved_byte_and_the_number_of_outputs_are_not_looked_at() -> None:
    message = inference(1, 1, *json("[1]"), outputs=9)
    header = bytearray(message.parts[0])
    header[3] = 255
    assert shown(decoded(Message(parts=(bytes(header), message.parts[1])))) == [("INT64~", [1, 1], [1])]


assert MIP.traits.servers.takes_many is not None
TAKES_MANY = MIP.traits.servers.takes_many
LATER = GatewayError(Reason.NOT_READY.status, Reason.NOT_READY, "later")
ASKING = of_hex("0001003f00000000")
"""A ping that asks whether more than one call is taken at once."""


def test_a_client_that_asks_is_told_that_many_calls_are_taken() -> None:
    assert sent(TAKES_MANY.question()) == sent(ASKING)
    request = MIP.decode_request(ASKING, LISTENER)
    assert request.operation is Operation.READY
    reply = MIP.encode_response(True, request, DEFAULT_TRANSLATE)
    assert sent(reply) == bytes.fromhex("0001012100000000")
    assert TAKES_MANY.says_so(reply)


def test_so_it_is_by_an_error_in_the_place_of_the_reply() -> None:
    """A gateway that is not ready is one all the same."""
    reply = MIP.encode_error(LATER, None, ASKING)
    assert sent(reply)[:4].hex() == "00000521"
    assert TAKES_MANY.says_so(reply)


@pytest.mark.parametrize("header", ["0001000000000000", "0001002100000000", "000100ff00000000", "0002003f00000000"])
def test_nobody_else_is_told(header: str) -> None:
    ping = of_hex(header)
    if header[3] == "1":
        request = MIP.decode_request(ping, LISTENER)
        assert sent(MIP.encode_response(True, request, DEFAULT_TRANSLATE)) == bytes.fromhex("0001010000000000")
    reply = MIP.encode_error(LATER, None, ping)
    assert sent(reply)[:4].hex() == "00000500"


BAD = [
    ("no counts", of_hex("0002000000000003 010000"), "has 3 bytes, expected at least 4"),
    ("an empty batch", inference(1, 0), "the batch is empty"),
    ("too few TLVs", inference(2, 2, *json("1", "2", "3")), "3 TLVs, expected 4 for 2 examples of 2 inputs"),
    ("too many TLVs", inference(1, 1, *json("1", "2")), "2 TLVs, expected 1"),
    ("a TLV that is too long", inference(1, 1, pack("!2L", 2, 0xFFFFFFFF) + b"1"), "TLV 0 has 4294967295 bytes"),
    ("half a TLV", inference(1, 1, *json("1"), b"\0\0\0\2"), "4 bytes after TLV 1"),
    ("a registered type", inference(1, 2, *json("1"), tlv(9, b"1")), "input 0 is JSON and of type 0x9 in one batch"),
    ("two types", inference(1, 2, *json("1"), tlv(1, b"1")), "input 0 is TEXT and JSON in one batch"),
    ("empty JSON", inference(1, 1, tlv(2, b"")), "input 0 of example 0"),
    ("blank JSON", inference(1, 2, *json("1", " ")), "input 0 of example 1"),
    ("bad JSON", inference(1, 2, *json("[1]", "[2")), "input 0 of example 1"),
    ("bad UTF-8", inference(1, 1, tlv(2, b'"\xff"')), "input 0 of example 0"),
    ("bad UTF-16", inference(1, 1, tlv(2, b"\xff\xfe\x00\xd8")), "not JSON"),
    ("half a surrogate", inference(1, 1, tlv(2, b'"\\ud800"')), "input 0 of example 0"),
    ("two values", inference(1, 1, *json("1, 2")), "input 0 of example 0"),
    ("a member", inference(1, 1, *json('1, "a": 2')), "input 0 of example 0: not JSON"),
    ("duplicate keys", inference(1, 1, *json('{"a": 1, "a": 2}')), "input 0 of example 0"),
    ("values without end", inference(1, 1, *json("[" + "[],1," * 6000 + "1]")), "limits.json_values"),
    ("nested without end", inference(1, 1, *json("[" * 5000)), "input 0 of example 0"),
]


@pytest.mark.parametrize(("message", "why"), [each[1:] for each in BAD], ids=[each[0] for each in BAD])
def test_bad_payloads_are_the_clients_fault(message: Message, why: str) -> None:
    with pytest.raises(DecodeError) as failure:
        MIP.decode_request(message, LISTENER)
    assert why in str(failure.value)


def test_an_unknown_kind_is_unsupported() -> None:
    expected = r"kind 9 is not supported; expected 1 \(ping\) or 2 \(inference\)"
    with pytest.raises(GatewayError, match=expected) as failure:
        MIP.decode_request(of_hex("0009000000000000"), LISTENER)
    assert failure.value.reason is Reason.UNSUPPORTED


def test_limits_are_the_listeners() -> None:
    small = ListenerSettings(limits=Limits(json_values=3))
    with pytest.raises(DecodeError, match=r"limits\.json_values"):
        MIP.decode_request(inference(1, 1, *json("[1, null, 2, null]")), small)


# Replies


def answered(message: Message, *outputs: object, translate: Translate = DEFAULT_TRANSLATE) -> bytes:
    request = MIP.decode_request(message, LISTENER)
    return sent(MIP.encode_response(Response(outputs), request, translate))  # type: ignore[arg-type]


def test_a_reply_has_the_counts_of_inputs_and_outputs() -> None:
    reply = answered(inference(1, 2, *json("1", "2")), named("a", [[1.5], [2]]), named("b", [3, 4], Datatype.INT32))
    assert reply == sent(inference(1, 2, *json("[1.5]", "3", "[2.0]", "4"), outputs=2, subtype=1))


def test_numbers_are_npy_for_a_client_that_sends_it() -> None:
    file = answered(inference(1, 1, *json("1")), named("y", [[1, 2]], content_type="npy"))
    request = inference(1, 1, file[12:])
    assert answered(request, named("y", [[1, 2]])) == file
    assert answered(request, named("y", [["a"]], Datatype.BYTES))[12:] == tlv(1, b"a")
    assert answered(request, named("y", [[1, 2]], content_type="json"))[12:] == tlv(2, b"[1.0,2.0]")


@pytest.mark.parametrize("shape", [[], [1], [3, 1]])
def test_outputs_without_a_row_for_each_example_are_the_backends_fault(shape: list[int]) -> None:
    with pytest.raises(GatewayError, match="expected a first dimension of 2, one row for each example") as failure:
        answered(inference(1, 2, *json("1", "2")), named("y", np.zeros(shape)))
    assert failure.value.reason is Reason.INVALID_OUTPUT


def test_nan_is_written_as_the_route_says() -> None:
    message, output = inference(1, 1, *json("1")), named("y", [[float("nan"), -inf]])
    assert answered(message, output)[12:] == tlv(2, b"[NaN,-Infinity]")
    assert answered(message, output, translate=Translate(nan="null"))[12:] == tlv(2, b"[null,null]")
    with pytest.raises(GatewayError, match="output 'y': element 0 is nan"):
        answered(message, output, translate=Translate(nan="error"))


def test_a_gateway_that_drains_does_not_answer_pings_as_ready() -> None:
    request = MIP.decode_request(of_hex("0001000000000000"), LISTENER)
    with pytest.raises(GatewayError) as failure:
        MIP.encode_response(False, request, DEFAULT_TRANSLATE)
    assert failure.value.reason is Reason.NOT_READY


def test_the_number_of_contents_is_bounded() -> None:
    """A packet could hold millions of TLVs: 65535 are allowed, plus limits.json_values."""
    few = ListenerSettings("vision", Limits(json_values=5), "classifier")
    fits = inference(6, 10923, *[tlv(1, b"")] * 65538)
    assert len(MIP.decode_request(fits, few).inputs) == 6
    why = r"more than 65540 TLVs, which is 65535 for the rows and 5 of limits\.json_values"
    with pytest.raises(DecodeError, match=why):
        MIP.decode_request(inference(6, 10924, *[tlv(1, b"")] * 65544), few)
