"""Messages that pass unread between two sides of grps-grpc: which do, and what the server and the client get."""

from contextlib import suppress

import pytest
from google.protobuf.message import DecodeError as NotParsed
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.exchange import unread
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings, Relay, Target
from gateway.core.requests import Request
from gateway.protocols.grps import GRPS_GRPC
from gateway.protocols.grps.errors import ModelFailure
from tests.limits import examples
from tests.protocols.grps.protobuf.upb import GRPS

assert GRPS_GRPC.relay is not None
RELAY: Relay = GRPS_GRPC.relay
SERVICE = "/grps.protos.v1.GrpsService"
LISTENER, TARGET = ListenerSettings("grpc"), Target("grps", "127.0.0.1:1")
WITH_MODEL = ListenerSettings("grpc", model="default")

# of a real client and a real server
TWICE = bytes.fromhex("120b74776963652d312e302e302a180a160a017810071a0103520c0000803f0000004000004040")
DOUBLED = bytes.fromhex("0a0908c80112024f4b18012a180a160a017810071a0103520c00000040000080400000c040")
OK = bytes.fromhex("0a0908c80112024f4b1801")
DATA = bytes.fromhex("2202 6869")  # str_data: hi


def called(body: bytes, method: str = "Predict") -> Message:
    path = f"{SERVICE}/{method}"
    return Message(path=path, pattern=path, parts=(body,))


def headed(body: bytes, method: str = "Predict", listener: ListenerSettings = LISTENER) -> Request | None:
    return unread(called(body, method), GRPS_GRPC, listener)


def passing(body: bytes, method: str = "Predict", listener: ListenerSettings = LISTENER) -> Request:
    """The request of a message that passes."""
    request = headed(body, method, listener)
    assert request is not None
    return request


def replied(reply: Message, method: str = "Predict") -> Message | None:
    return RELAY.reply(reply, passing(TWICE, method), TARGET)


@pytest.mark.parametrize(
    ("method", "operation"), [("Predict", Operation.INFER), ("PredictStreaming", Operation.STREAM)]
)
def test_an_inference_goes_on_as_it_came(method: str, operation: Operation) -> None:
    request = passing(TWICE, method)
    assert (request.operation, request.model, request.version) == (operation, "twice-1.0.0", "")
    sent = RELAY.request(called(TWICE, method), request, TARGET)
    assert sent is not None
    assert (sent.path, sent.parts) == (f"{SERVICE}/{method}", (TWICE,))


M, N = bytes.fromhex("1201 6d"), bytes.fromhex("1201 6e")


@pytest.mark.parametrize(
    ("body", "model"),
    [
        (M + DATA, "m"),
        (DATA + M, "m"),
        (M + N + DATA, "n"),  # of several the last one counts
        (M + DATA + bytes.fromhex("1200"), ""),
        (bytes.fromhex("9200 01 6d") + DATA, "m"),  # the key in two bytes
        (bytes.fromhex("12 8100 6d") + DATA, "m"),  # the size in two bytes
        (DATA, ""),
        (DATA + bytes.fromhex("4203 12016e"), ""),  # in a field that no schema has
    ],
)
def test_the_model_is_that_which_servers_read(body: bytes, model: str) -> None:
    assert passing(body).model == GRPS.FromString(body).model == model


@pytest.mark.parametrize(
    "body",
    [
        b"",
        M,  # without data
        M + OK,
        M + DATA[:-1],
        M + bytes.fromhex("3200"),  # an ndarray, whose numbers JSON alone can hold
        bytes.fromhex("1201 ff") + DATA,  # not UTF-8
        bytes.fromhex("1005") + DATA,  # a number as the model
        DATA + bytes.fromhex("4001"),
        DATA + bytes.fromhex("43 12016d 44"),  # a group
        M * 40 + DATA,
        DATA + bytes.fromhex("1a00") * 40,
    ],
)
def test_what_must_be_read_does_not_pass(body: bytes) -> None:
    assert headed(body) is None


@pytest.mark.parametrize("method", ["ModelMetadata", "CheckLiveness", "Online"])
def test_other_methods_are_read(method: str) -> None:
    assert headed(TWICE, method) is None


def test_the_model_of_a_listener_is_written_into_a_message_without_one() -> None:
    assert headed(DATA, listener=WITH_MODEL) is None
    assert GRPS_GRPC.decode_request(called(DATA), WITH_MODEL).model == "default"
    assert passing(M + DATA, listener=WITH_MODEL).model == "m"


FIELDS = st.sampled_from(
    [
        *(M, N, DATA, OK, TWICE[13:]),
        *map(bytes.fromhex, ("1200", "1a01ff", "3200", "3a00", "1001", "9200016f", "12036d126d")),
        *map(bytes.fromhex, ("1203 12016d", "2a03 12016e", "4203 12016e", "9280808000 016f")),
    ]
)


@settings(max_examples=examples(500))
@given(st.lists(FIELDS, max_size=6), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 255)), max_size=3))
def test_where_a_message_passes_its_model_is_that_which_protobuf_reads(
    pieces: list[bytes], changes: list[tuple[int, int]]
) -> None:
    body = bytearray(b"".join(pieces))
    for place, octet in changes:
        if body:
            body[place % len(body)] = octet
    found = headed(bytes(body))
    if found is None:
        return
    with suppress(NotParsed):
        assert GRPS.FromString(bytes(body)).model == found.model
    try:
        read = GRPS_GRPC.decode_request(called(bytes(body)), LISTENER)
    except (DecodeError, GatewayError):
        return
    assert (read.operation, read.model) == (found.operation, found.model)


@pytest.mark.parametrize(
    "body",
    [
        DOUBLED,
        OK,
        bytes.fromhex("0a05 08c901 1801") + DATA,  # another code of a success
        DATA,
        bytes.fromhex("0a02 1802") + OK + DATA,  # two statuses: the last flag counts
    ],
)
@pytest.mark.parametrize("method", ["Predict", "PredictStreaming"])
def test_a_reply_goes_on_as_it_came(body: bytes, method: str) -> None:
    reply = replied(Message(parts=(body,), headers=Headers(((b"x-own", b"1"),))), method)
    assert reply is not None
    assert (reply.parts, list(reply.headers), reply.status) == ((body,), [], 0)


@pytest.mark.parametrize("body", [b"", M, b"\xff", DOUBLED[:-1], OK + b"\x40\x01"])
def test_a_reply_without_a_status_and_data_is_read(body: bytes) -> None:
    assert replied(Message(parts=(body,))) is None


@pytest.mark.parametrize("before", [b"", DATA, OK])
def test_an_error_in_a_reply_is_raised_with_its_code(before: bytes) -> None:
    with pytest.raises(ModelFailure, match="bad") as raised:
        replied(Message(parts=(before + bytes.fromhex("0a0a 08a603 1203 626164 1802"),)))
    assert raised.value.code == 422


def test_a_call_that_failed_is_raised() -> None:
    with pytest.raises(GatewayError, match="busy") as raised:
        replied(Message(status=8, parts=(b"busy",)))
    assert raised.value.reason is Reason.OVERLOADED
