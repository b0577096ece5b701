"""Packets that pass unread between two sides of MIP: which do, and what the server and the client get."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.exchange import unread
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import Request
from tests.protocols.mip.test_recorded import INFERENCES
from tests.protocols.mip.wire import LISTENER, MIP, SPLIT, inference, json, of_hex, received, recorded, sent, tlv

assert MIP.relay is not None
RELAY = MIP.relay
TWO = inference(2, 2, *json("[1e3]", "[ 2]", "{}", "nul"))


def headed(message: Message, listener: ListenerSettings = LISTENER) -> Request:
    request = unread(message, MIP, listener)
    assert request is not None
    return request


def passed(message: Message, reply: Message) -> Message | None:
    return RELAY.reply(reply, headed(message), SPLIT)


def test_a_packet_goes_on_with_the_payload_as_it_came() -> None:
    request = headed(TWO)
    assert (request.operation, request.model) == (Operation.INFER, "classifier")
    message = RELAY.request(TWO, request, SPLIT)
    assert message is not None
    assert sent(message) == sent(TWO)


def test_nothing_of_the_clients_header_goes_on() -> None:
    message = of_hex("00 02 00 3f 00000012 01 05 0001 00000002 00000006 5b312c20325d")
    written = RELAY.request(message, headed(message), SPLIT)
    assert written is not None
    assert sent(written) == bytes.fromhex("0002000000000012 01 05 0001 00000002 00000006 5b312c20325d")


@pytest.mark.parametrize(
    "message",
    [
        of_hex("00 01 00 00 00000000"),  # a ping
        of_hex("00 09 00 00 00000004 00000001"),  # an unknown kind
        of_hex("00 02 01 00 00000004 00000001"),  # a response
        of_hex("00 02 00 00 00000000"),
        of_hex("00 02 00 00 00000003 010000"),
        inference(0, 0),
        inference(1, 0, *json("1")),
        # a real server would wait for the rest, and serve nobody else
        inference(1, 1),
        inference(1, 2, *json("1")),
        of_hex("00 02 00 00 0000000d 01 00 0001 00000002 00000002 31"),
        of_hex("00 02 00 00 0000000d 01 00 0001 00000002 ffffffff 31"),
        of_hex("00 02 00 00 0000000b 01 00 0001 00000002 000000"),
        # and would leave the rest to the next request
        inference(1, 1, *json("1", "2")),
        inference(1, 1, *json("1"), b"\0"),
        inference(1, 4097, *json("1") * 4097),
    ],
)
def test_what_must_be_read_does_not_pass(message: Message) -> None:
    assert RELAY.head(message, LISTENER) is None


@given(
    st.integers(0, 3),
    st.integers(0, 3),
    st.lists(st.tuples(st.sampled_from([1, 2, 3, 77]), st.binary(max_size=3)), max_size=9),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3),
)
def test_what_passes_has_the_tlvs_that_its_counts_tell(
    inputs: int, batch: int, tlvs: list[tuple[int, bytes]], changes: list[tuple[int, int]]
) -> None:
    raw = bytearray(sent(inference(inputs, batch, *(tlv(*each) for each in tlvs))))
    for place, octet in changes:
        raw[8 + place % (len(raw) - 8)] = octet
    message = received(bytes(raw))
    found = RELAY.head(message, LISTENER)
    try:
        read = MIP.decode_request(message, LISTENER)
    except DecodeError as error:
        told = str(error)
        # counts and sizes are right, only the contents are not
        assert found is None or ("TLV" not in told and "too few" not in told and "batch is empty" not in told)
        return
    assert found is not None
    assert (found.operation, found.model) == (read.operation, read.model)


def test_a_reply_goes_on_with_the_payload_as_it_came() -> None:
    reply = inference(2, 2, *json("[ 1]", "2.50", "3", "NaN"), outputs=2, subtype=1)
    message = passed(TWO, reply)
    assert message is not None
    assert sent(message) == sent(reply)


@pytest.mark.parametrize(
    "reply",
    [
        inference(2, 1, *json("1", "2"), outputs=2, subtype=1),  # of another batch
        # kubemo's server tells the number of inputs as that of outputs: its client would drop the last ones
        inference(2, 2, *json("1", "2", "3", "4", "5", "6"), outputs=2, subtype=1),
        inference(2, 2, *json("1", "2"), outputs=2, subtype=1),
        of_hex("00 02 01 00 00000002 0101"),
    ],
)
def test_a_reply_whose_counts_are_wrong_is_read(reply: Message) -> None:
    assert passed(TWO, reply) is None


@pytest.mark.parametrize(
    ("reply", "reason"),
    [(of_hex("00 00 03 00 00000000"), Reason.OVERLOADED), (of_hex("00 00 05 00 00000000"), Reason.MODEL_ERROR)],
)
def test_an_error_is_raised(reply: Message, reason: Reason) -> None:
    with pytest.raises(GatewayError) as raised:
        passed(TWO, reply)
    assert raised.value.reason is reason


def test_a_packet_that_is_no_reply_is_a_faulty_one() -> None:
    with pytest.raises(DecodeError, match="kind 1 and subtype 1"):
        passed(TWO, of_hex("00 01 01 00 00000000"))


@pytest.mark.parametrize("name", sorted(INFERENCES))
def test_what_real_peers_say_passes(name: str) -> None:
    request, reply = recorded(f"{name}.request"), recorded(f"{name}.reply")
    message = passed(request, reply)
    if name == "two_outputs":  # which its server tells as one
        assert message is None
    else:
        assert message is not None
        assert sent(message) == sent(reply)
