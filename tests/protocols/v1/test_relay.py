"""Calls that pass unread between two sides of V1, and those that are read instead."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.errors import DecodeError, GatewayError, Reason
from gateway.core.exchange import unread
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import Protocol, Target
from gateway.core.requests import Request
from gateway.protocols.v1.relay import RELAY
from gateway.protocols.v1.schema import GATEWAY, KSERVE, TENSORFLOW
from tests.protocols.v1.wire import (
    FACES,
    LISTENER,
    TARGET,
    TF_TARGET,
    V1,
    post,
    received,
    recorded_reply,
    recorded_request,
)
from tests.wires import Wires, replying

TARGETS = {each: Target("lab", "lab:1", flavor=each) for each in (KSERVE, TENSORFLOW, GATEWAY)}
JSON = ((b"content-type", b"application/json"),)


def passing(message: Message) -> Request:
    request = unread(message, V1, LISTENER)
    assert request is not None
    return request


M, EXPLAINED = (passing(post(f"/v1/models/m:{verb}", b"{}")) for verb in ("predict", "explain"))


def test_both_faces_and_the_backends_have_one_relay() -> None:
    assert {id(each.relay) for each in (V1, *FACES.values())} == {id(RELAY)}


# --- requests ---

PATHS = {
    "/v1/models/m:predict": (Operation.INFER, "m", ""),
    "/v1/models/m%20n:predict": (Operation.INFER, "m n", ""),
    "/v1/models/m/versions/12:predict": (Operation.INFER, "m", "12"),
    "/v1/models/m/labels/stable:predict": (Operation.INFER, "m", "stable"),
    "/v1/models/m:explain": (Operation.EXPLAIN, "m", ""),
}


@pytest.mark.parametrize(("path", "asked"), PATHS.items(), ids=PATHS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_passes_goes_to_the_server_byte_for_byte(path: str, asked: tuple[Operation, str, str], kind: Any) -> None:
    body = kind(b'{"signature_name": "s",  "instances": [[1e0, null], {"b64": "AA=="}], "more": {}}')
    message = received(Message("POST", path, Headers([(b"x", b"y")]), (body,), query="a=b"))
    request = passing(message)
    assert (request.operation, request.model, request.version) == asked
    sent = RELAY.request(message, request, TF_TARGET)
    assert sent is not None
    assert (sent.method, sent.path, sent.query, sent.parts) == ("POST", path, "", (body,))
    assert sent.headers.raw == JSON


EVENT = b'{"id":"1","source":"s","specversion":"1.0","type":"t","time":"","data":{"instances":[1]}}'


@pytest.mark.parametrize(
    "message",
    [
        post("/v1/models/m:predict", b""),
        post("/v1/models/m:predict", EVENT),
        replace(post("/v1/models/m:predict", b'{"instances":[1]}'), headers=Headers([(b"ce-specversion", b"9")])),
        received(Message("GET", "/v1/models/m")),
        received(Message("GET", "/v1/models/m/metadata")),
        post("/v1/models/m:classify", b'{"examples":[]}', FACES[TENSORFLOW]),
    ],
    ids=["no body", "structured event", "binary event", "readiness", "metadata", "classify"],
)
def test_what_is_read(message: Message) -> None:
    assert RELAY.head(message, LISTENER) is None


def test_columns_are_read_for_kserve_whose_models_choose_the_key_of_the_reply() -> None:
    message = post("/v1/models/m:predict", b'{"inputs":[[1]]}')
    taken = {flavor: RELAY.request(message, passing(message), target) is not None for flavor, target in TARGETS.items()}
    assert taken == {KSERVE: False, TENSORFLOW: True, GATEWAY: True}


RECORDED = ["any_json", "bytes", "client_rows", "columns", "explain", "members", "named_rows", "error_malformed"]


@pytest.mark.parametrize("name", [*RECORDED, "event_binary", "event_structured"])
def test_calls_of_the_real_client_pass_but_for_events(name: str) -> None:
    message = recorded_request(name)
    request = RELAY.head(message, LISTENER)
    assert (request is None) is name.startswith("event")
    if request is not None and name != "error_malformed":
        read = V1.decode_request(message, LISTENER)
        assert (request.operation, request.model, request.version) == (read.operation, read.model, read.version)


@given(
    path=st.sampled_from([*PATHS, "/v1/models/a%2Eb:c:predict", "/v1/models/m/versions/x/y:predict"]),
    body=st.sampled_from([b'{"instances":[[1,2]]}', b'{"inputs":{"x":[1]}}', EVENT, b"[1]", b"\xff"]),
    face=st.sampled_from([*FACES.values()]),
)
def test_the_model_is_the_one_that_is_found_by_reading(path: str, body: bytes, face: Protocol) -> None:
    try:
        message = post(path, body, face)
    except AssertionError:  # no such path
        return
    request = RELAY.head(message, LISTENER)
    try:
        read = face.decode_request(message, LISTENER)
    except (DecodeError, GatewayError):
        return
    if request is not None:
        assert (request.operation, request.model, request.version) == (read.operation, read.model, read.version)


# --- replies ---


def reply(body: bytes, status: int = 200, content_type: bytes = b"application/json") -> Message:
    return Message(headers=Headers([(b"content-type", content_type), (b"x", b"y")]), parts=(body,), status=status)


@pytest.mark.parametrize(
    "body",
    [
        b'{"predictions": [2.5, 3.0, 4.5\n    ]\n}',
        b'{"outputs":{"a":[1e0]},"more":null}',
        b'{"predictions":["N","Inf"]}',
        b"[1, null]",
    ],
)
def test_a_reply_passes_as_it_came(body: bytes) -> None:
    passed = RELAY.reply(reply(body), M, TARGET)
    assert passed is not None
    assert (passed.status, passed.parts, passed.headers.raw) == (200, (body,), JSON)


def test_an_explanation_may_be_any_json() -> None:
    assert RELAY.reply(reply(b'{"explanations": NaN}'), EXPLAINED, TARGET) is not None


@pytest.mark.parametrize(
    "told",
    [
        reply(b'{"predictions":[NaN]}'),
        reply(b'{"predictions":[-Infinity]}'),
        reply(b'{"message":"{}","batchId":"","predictions":null}'),
        reply(b"text", content_type=b"text/plain"),
        Message(parts=(b"text without a type, as KServe sends it",), status=200),
    ],
    ids=["NaN", "infinity", "batcher", "text", "no type"],
)
def test_replies_that_are_read(told: Message) -> None:
    assert RELAY.reply(told, M, TARGET) is None


ERRORS = {
    "error_crash": Reason.MODEL_ERROR,
    "error_malformed": Reason.INVALID_INPUT,
    "error_not_ready": Reason.NOT_READY,
    "error_unknown_model": Reason.MODEL_NOT_FOUND,
}


@pytest.mark.parametrize(("name", "reason"), ERRORS.items(), ids=ERRORS)
def test_an_error_is_raised_though_nothing_of_the_request_was_read(name: str, reason: Reason) -> None:
    with pytest.raises(GatewayError) as caught:
        RELAY.reply(recorded_reply(name), M, TARGET)
    assert caught.value.reason is reason


def test_another_status_is_no_reply() -> None:
    with pytest.raises(DecodeError, match="status 204"):
        RELAY.reply(reply(b"", 204), M, TARGET)


# --- through a gateway ---


def config(face: str, flavor: str) -> str:
    return f"""
listeners: [{{name: in, bind: "127.0.0.1:0", protocols: [v1-rest], flavor: {{v1-rest: {face}}}}}]
backends: {{lab: {{protocol: v1-rest, endpoints: ["lab:1"], flavor: {flavor}}}}}
routes: [{{match: {{model: m}}, backend: lab}}]
"""


@pytest.mark.parametrize("flavor", [KSERVE, TENSORFLOW, GATEWAY])
@pytest.mark.parametrize("face", [KSERVE, TENSORFLOW])
async def test_bytes_pass_through_a_gateway_in_both_directions(face: str, flavor: str) -> None:
    body, told = b'{"instances":  [[1e0, 0.10]], "more": {}}', b'{"predictions":  [[1e0,\n0.10]], "more": 1}'
    wires = Wires(config(face, flavor), lab=replying(told, headers=[*JSON, (b"server", b"x")]))
    passed = await wires.post("v1-rest", "/v1/models/m:predict?a=b", body, "text/plain")
    assert (passed.status, passed.body, passed.headers.raw) == (200, told, JSON)
    assert [(each.path, each.query, each.body) for each in wires.sent["lab"]] == [("/v1/models/m:predict", "", body)]


@pytest.mark.parametrize(("face", "written"), [(KSERVE, b"null,null"), (TENSORFLOW, b"NaN,-Infinity")])
async def test_each_face_has_its_own_nan(face: str, written: bytes) -> None:
    wires = Wires(config(face, TENSORFLOW), lab=replying(b'{"predictions": [NaN, -Infinity, 1.0]}', headers=JSON))
    passed = await wires.post("v1-rest", "/v1/models/m:predict", b'{"instances": [1, 2, 3]}')
    assert passed.body == b'{"predictions":[%b,1.0]}' % written


async def test_columns_are_answered_by_columns_whatever_kserve_calls_them() -> None:
    wires = Wires(config(TENSORFLOW, KSERVE), lab=replying(b'{"predictions": [[1.0]]}', headers=JSON))
    passed = await wires.post("v1-rest", "/v1/models/m:predict", b'{"inputs": [[1.0]]}')
    assert passed.body == b'{"outputs":[[1.0]]}'


async def test_an_error_comes_back_as_the_server_wrote_it() -> None:
    told = b'{\n    "error": "Servable not found for request: Latest(m)"\n}'
    wires = Wires(config(TENSORFLOW, TENSORFLOW), lab=replying(told, status=404, headers=JSON))
    passed = await wires.post("v1-rest", "/v1/models/m:predict", b'{"instances": [1.0]}')
    assert (passed.status, passed.body) == (404, told)
