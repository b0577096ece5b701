"""Calls that pass unread between two sides of TensorFlow Serving's gRPC, and those that are read instead."""

from contextlib import suppress
from typing import Any

import pytest
from google.protobuf.message import DecodeError as GoogleError
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError, Reason, Status
from gateway.core.exchange import unread
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.protobuf.fields import write_field
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import Request
from gateway.protocols.tensorflow_serving.relay import RELAY
from tests.protocols.tensorflow_serving.test_recorded import CLASSIFIED, CLASSIFY, MULTI, PREDICT, PREDICTED
from tests.protocols.tensorflow_serving.test_recorded import REGRESS_IN_CONTEXT as REGRESS
from tests.protocols.tensorflow_serving.wire import MODELS, PREDICTION, TARGET, TFS, asked, google
from tests.wires import Wires, replying

LISTENER = ListenerSettings("in")
SPEC_M, SPEC_N = bytes.fromhex("0a030a016d"), bytes.fromhex("0a030a016e")
TENSOR = PREDICT[26:]


def message(body: Any, method: str = f"{PREDICTION}Predict") -> Message:
    return Message(path=method, headers=Headers([(b"x", b"y")]), parts=(body,), pattern=method)


def passing(message: Message) -> Request:
    request = unread(message, TFS, LISTENER)
    assert request is not None
    return request


M = passing(message(SPEC_M + TENSOR))


def found(body: bytes, method: str = f"{PREDICTION}Predict") -> tuple[str, str] | None:
    """The model and the version of a message that passes unread; None if it is read."""
    request = RELAY.head(message(body, method), LISTENER)
    return None if request is None else (request.model, request.version)


# --- requests ---


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
@pytest.mark.parametrize(
    ("method", "body", "version"), [("Predict", PREDICT, "2"), ("Classify", CLASSIFY, ""), ("Regress", REGRESS, "")]
)
def test_what_passes_goes_to_the_server_byte_for_byte(method: str, body: bytes, version: str, kind: Any) -> None:
    got = message(kind(body), PREDICTION + method)
    request = passing(got)
    assert (request.operation, request.model, request.version) == (Operation.INFER, "m", version)
    sent = RELAY.request(got, request, TARGET)
    assert sent is not None
    assert (sent.path, sent.parts, sent.headers.raw) == (PREDICTION + method, got.parts, ())


PASSING = {
    "a label": ("0a070a016d220273 31", ("m", "s1")),
    "the last name counts": ("0a060a016e0a016d", ("m", "")),
    "the last version counts": ("0a0a0a016d12020801220173", ("m", "s")),
    "the model behind the tensors": (TENSOR.hex() + "0a030a016d", ("m", "")),
    "a tag of two bytes": ("8a00030a016d", ("m", "")),
    "field 1 of another wire type": ("08070a030a016d", ("m", "")),
    "a later field": ("0a030a016d3a00a006 01", ("m", "")),
}


@pytest.mark.parametrize(("body", "expected"), PASSING.values(), ids=PASSING)
def test_the_model_is_found_as_protobuf_finds_it(body: str, expected: tuple[str, str]) -> None:
    raw = bytes.fromhex(body)
    assert found(raw) == expected
    known = google("tensorflow.serving.PredictRequest").FromString(raw).model_spec
    assert (known.name, known.version_label or str(known.version.value or "")) == expected


READ = {
    "two ModelSpecs, which protobuf joins": SPEC_M + SPEC_N,
    "no ModelSpec": TENSOR,
    "no name": bytes.fromhex("0a0212 00"),
    "an empty message": b"",
    "a name that is not UTF-8": bytes.fromhex("0a030a01ff"),
    "a label that is a number": bytes.fromhex("0a060a016d220131"),
    "a ModelSpec that is malformed": bytes.fromhex("0a030a096d"),
    "a field that is cut short": SPEC_M + b"\x12\x09x",
    "a tag that is cut short": SPEC_M + b"\x92",
    "a group": SPEC_M + b"\x13\x14",
    "field 0": SPEC_M + b"\x02\x00",
    "too many fields": SPEC_M + b"\x12\x00" * 1024,
}


@pytest.mark.parametrize("body", READ.values(), ids=READ)
def test_what_is_read(body: bytes) -> None:
    assert found(body) is None


@pytest.mark.parametrize(
    ("method", "body"),
    [
        (f"{PREDICTION}MultiInference", MULTI),
        (f"{PREDICTION}GetModelMetadata", SPEC_M),
        (f"{MODELS}GetModelStatus", SPEC_M),
        (f"{MODELS}HandleReloadConfigRequest", SPEC_M),
    ],
)
def test_other_methods_are_read(method: str, body: bytes) -> None:
    assert found(body, method) is None


FIELDS = [
    SPEC_M, SPEC_N, TENSOR, b"\x0a\x00", b"\x08\x07", b"\x1a\x01y", b"\x12", b"\x8a\x00\x03\x0a\x01n", b"\x0a",
    b"\x0a\x83\x00\x0a\x01n", b"\x0d1234", b"\x13", b"\x8a\x80\x80\x80\x10\x03\x0a\x01n", b"\xff" * 10,
]  # fmt: skip


@given(st.lists(st.sampled_from(FIELDS), max_size=5).map(b"".join) | st.binary(max_size=20))
def test_the_model_is_the_one_that_readers_find(body: bytes) -> None:
    passing = found(body)
    if passing is None:
        return
    with suppress(GoogleError):
        assert passing[0] == google("tensorflow.serving.PredictRequest").FromString(body).model_spec.name
    try:
        request = asked(body)
    except (DecodeError, GatewayError):
        return
    assert (request.model, request.version) == passing


# --- replies ---


def test_a_reply_passes_as_it_came() -> None:
    told = Message(headers=Headers([(b"x", b"y")]), parts=(memoryview(PREDICTED),))
    passed = RELAY.reply(told, M, TARGET)
    assert passed is not None
    assert (passed.status, passed.parts, passed.headers.raw) == (0, told.parts, ())


def test_an_error_is_raised_though_nothing_of_the_request_was_read() -> None:
    told = Message(parts=(b"Servable not found for request: Latest(m) (why)",), status=Status.NOT_FOUND)
    with pytest.raises(GatewayError, match=r"^why$") as caught:
        RELAY.reply(told, M, TARGET)
    assert caught.value.reason is Reason.MODEL_NOT_FOUND


# --- through a gateway ---

CONFIG = """
listeners: [{name: in, bind: "127.0.0.1:0", protocols: [tfs-grpc]}]
backends: {lab: {protocol: tfs-grpc, endpoints: ["lab:1"]}}
routes: [{match: {model: m}, backend: lab}]
"""


@pytest.mark.parametrize(
    ("method", "body", "told"),
    [
        # output_filter twice, and a list that is shorter than the shape: no reader of ours takes either
        ("Predict", PREDICT + b"\x1a\x01y\x1a\x01y\x3a\x01x", PREDICTED),
        ("Classify", CLASSIFY + write_field(9, b"more"), CLASSIFIED + write_field(9, b"more")),
    ],
)
async def test_bytes_pass_through_a_gateway_in_both_directions(method: str, body: bytes, told: bytes) -> None:
    wires = Wires(CONFIG, lab=replying(told, status=0, headers=[(b"x", b"y")]))
    passed = await wires.send("tfs-grpc", Message(path=PREDICTION + method, parts=(body,)))
    assert (passed.status, passed.body, passed.headers.raw) == (0, told, ())
    assert [(each.path, each.body) for each in wires.sent["lab"]] == [(PREDICTION + method, body)]


async def test_a_second_model_reaches_no_server() -> None:
    wires = Wires(CONFIG, lab=replying(PREDICTED, status=0))
    passed = await wires.send("tfs-grpc", Message(path=f"{PREDICTION}Predict", parts=(PREDICT + SPEC_N,)))
    assert passed.status == Status.NOT_FOUND
    assert wires.sent["lab"] == []
