"""Facing clients: requests of a real client, what real clients never send, and replies."""

import gzip
import json
import zlib
from collections.abc import Callable
from struct import pack

import pytest

from gateway.core import exchange
from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.exchange import as_gateway_error
from gateway.core.messages import Message
from gateway.core.operations import Operation
from gateway.core.protocol import Limits, ListenerSettings
from gateway.core.requests import DEFAULT_TRANSLATE, Request, Response
from gateway.core.tensors import tensor
from gateway.protocols.grps import GRPS_BRPC
from gateway.protocols.grps.brpc.frames import read_frame, read_meta
from gateway.protocols.grps.brpc.meta import SERVICE
from gateway.protocols.grps.schema import RpcMeta
from tests.protocols.grps.brpc.recorded import META, NUMBER, PAYLOAD, REPLY_META_1_6, REPLY_PAYLOAD, REQUEST, joined
from tests.protocols.grps.brpc.test_client import FP32, ID, LISTENER, OK, ask, outputs_of, reported_error
from tests.protocols.grps.brpc.test_compression import snappy
from tests.protocols.grps.brpc.wire import arrived, written
from tests.protocols.grps.values import CODES


def decoded(data: bytes, listener: ListenerSettings = LISTENER, received: float = 0.0) -> Request:
    return exchange.decoded(arrived(data, received=received), GRPS_BRPC, listener)


def refused(data: bytes, listener: ListenerSettings = LISTENER) -> Message:
    """The reply to a frame that holds no request, as `answer` makes it."""
    message = arrived(data)
    with pytest.raises((DecodeError, GatewayError)) as failure:
        exchange.decoded(message, GRPS_BRPC, listener)
    return GRPS_BRPC.encode_error(as_gateway_error(failure.value), None, message)


def reply_to(request: Request) -> bytes:
    """The reply with the doubled input."""
    [x] = request.inputs
    response = Response((tensor("x", x.array * FP32(2)),))
    return written(GRPS_BRPC.encode_response(response, request, DEFAULT_TRANSLATE))


# --- Requests and replies ---


def test_the_recorded_request() -> None:
    request = decoded(REQUEST)
    assert (request.operation, request.model) == (Operation.INFER, "twice-1.0.0")
    assert (request.deadline, request.peer) == (None, "192.0.2.1:4242")
    [x] = request.inputs
    assert (x.name, x.datatype, x.shape, x.array.tolist()) == ("x", Datatype.FP32, (1, 3), [[1.0, 2.0, 3.0]])


def test_the_reply_is_what_brpc_1_6_writes() -> None:
    assert reply_to(decoded(REQUEST)) == joined(REPLY_META_1_6, REPLY_PAYLOAD)


@pytest.mark.parametrize("number", [0, 1, NUMBER, 2**53 + 1, 2**63 - 1, -1, -(2**63)])
def test_a_reply_has_the_exact_correlation_id(number: int) -> None:
    request = decoded(joined(ask(correlation_id=number), PAYLOAD))
    for reply in (
        reply_to(request),
        written(GRPS_BRPC.encode_error(refusal(Reason.MODEL_NOT_FOUND, "no"), request, arrived(REQUEST))),
        written(refused(joined(ask(correlation_id=number, request={})))),
        written(refused(joined(ask(correlation_id=number), b"\x32\0"))),
    ):
        assert read_meta(arrived(reply)).correlation_id == number


def test_a_request_without_a_correlation_id_is_answered_with_0() -> None:
    request = decoded(joined(META.replace(ID, b""), PAYLOAD))
    assert reply_to(request) == joined(REPLY_META_1_6.removesuffix(ID) + b"\x20\0", REPLY_PAYLOAD)


def fields(**more: object) -> bytes:
    return bytes(RpcMeta(**more).SerializePartialToString())


MORE = {
    "log and trace ids": fields(request={"log_id": -5, "trace_id": 1, "span_id": 2, "parent_span_id": 3}),
    "request id": fields(request={"request_id": "r1"}),
    "authentication": fields(authentication_data=b"\xffsecret"),
    "user fields": fields(user_fields={"tenant": "a"}),
    "attachment": fields(attachment_size=8),
    "response part": fields(response={"error_code": 5}),
    "unknown": bytes.fromhex("8a 06 03 616263"),
    "chunk_info": bytes.fromhex("32 00"),
    "stream": bytes.fromhex("42 02 0801"),
}


@pytest.mark.parametrize("name", MORE)
def test_what_is_read_and_ignored(name: str) -> None:
    request = decoded(joined(META + MORE[name], PAYLOAD + (b"attached" if name == "attachment" else b"")))
    assert request.model == "twice-1.0.0"
    assert request.inputs[0].array.tolist() == [[1.0, 2.0, 3.0]]


def test_the_bare_name_of_the_service() -> None:
    meta = ask(request={"service_name": "GrpsBrpcService", "method_name": "CheckReadiness"})
    assert decoded(joined(meta)).operation is Operation.READY


def test_the_time_a_client_waits_is_the_deadline() -> None:
    request = {"service_name": SERVICE, "method_name": "Predict", "timeout_ms": 500}
    assert decoded(joined(ask(request=request), PAYLOAD), received=100.0).deadline == 100.5
    assert decoded(joined(ask(request={**request, "timeout_ms": -1}), PAYLOAD), received=100.0).deadline is None


@pytest.mark.parametrize(("coding", "compress"), [(1, snappy), (2, gzip.compress), (3, zlib.compress)])
def test_compressed_requests_and_replies(coding: int, compress: Callable[[bytes], bytes]) -> None:
    request = decoded(joined(ask(compress_type=coding), compress(PAYLOAD)))
    assert request.inputs[0].array.tolist() == [[1.0, 2.0, 3.0]]
    assert reply_to(request) == joined(REPLY_META_1_6, REPLY_PAYLOAD)  # never compressed
    packed = joined(REPLY_META_1_6 + bytes([0x18, coding]), compress(REPLY_PAYLOAD))
    assert outputs_of(packed) == [[[2.0, 4.0, 6.0]]]


@pytest.mark.parametrize("content_type", [1, 2])
def test_a_request_in_json_is_answered_in_protobuf(content_type: int) -> None:
    tensors = [{"name": "x", "dtype": "DT_FLOAT32", "shape": [1, 3], "flat_float32": [1, 2, 3]}]
    payload = json.dumps({"model": "twice-1.0.0", "gtensors": {"tensors": tensors}}).encode()
    request = decoded(joined(ask(content_type=content_type), payload))
    assert request.model == "twice-1.0.0"
    assert reply_to(request) == joined(REPLY_META_1_6, REPLY_PAYLOAD)


@pytest.mark.parametrize(
    ("method", "payload", "operation", "model"),
    [
        ("Online", b"", Operation.ONLINE, ""),
        ("Offline", b"", Operation.OFFLINE, ""),
        ("CheckLiveness", b"", Operation.LIVE, ""),
        ("CheckReadiness", b"", Operation.READY, ""),
        ("ServerMetadata", b"", Operation.MODELS, ""),
        ("ModelMetadata", b"\x22\x04echo", Operation.METADATA, "echo"),
        ("Predict", b"\x22\x04echo", Operation.INFER, ""),
    ],
)
def test_methods(method: str, payload: bytes, operation: Operation, model: str) -> None:
    request = decoded(joined(ask(request={"service_name": SERVICE, "method_name": method}), payload))
    assert (request.operation, request.model) == (operation, model)


@pytest.mark.parametrize(
    ("method", "answer", "payload"),
    [
        ("CheckLiveness", True, OK),
        ("CheckReadiness", False, bytes.fromhex("0a1a 08f703 1213") + b"Service Unavailable" + b"\x18\x02"),
        ("Online", True, OK),
    ],
)
def test_health(method: str, answer: bool, payload: bytes) -> None:
    request = decoded(joined(ask(request={"service_name": SERVICE, "method_name": method})))
    reply = GRPS_BRPC.encode_response(answer, request, DEFAULT_TRANSLATE)
    assert written(reply) == joined(REPLY_META_1_6, payload)


def call(service: str, method: str) -> bytes:
    return joined(ask(request={"service_name": service, "method_name": method}), PAYLOAD)


REFUSED: list[tuple[str, bytes, int, str]] = [
    ("unknown method", call(SERVICE, "Guess"), 1002, f"[E1002]Fail to find method={SERVICE}/Guess; expected Predict"),
    ("unknown service", call("a.b.C", "Predict"), 1002, "[E1002]Fail to find method=a.b.C/Predict; expected"),
    ("gRPC's service", call("grps.protos.v1.GrpsService", "Predict"), 1002, "[E1002]Fail to find method=grps.protos"),
    ("gRPC's method", call(SERVICE, "PredictStreaming"), 1002, "[E1002]Fail to find method"),
    ("PredictByHttp", call(SERVICE, "PredictByHttp"), 1002, "[E1002]Fail to find method"),
    ("unknown method of the bare name", call("GrpsBrpcService", "Guess"), 1002, "[E1002]Fail to find method=Grps"),
    ("unknown service without a dot", call("EchoService", "Echo"), 1001, "[E1001]Fail to find method=EchoService/Echo"),
    ("no request part", joined(ID, PAYLOAD), 1001, "[E1001]the frame's meta has no request part"),
    ("empty request part", joined(b"\x0a\0" + ID), 1003, "[E1003]the request part of the frame's meta lacks"),
    ("no method's name", joined(b"\x0a\3\x0a\1A" + ID), 1003, "[E1003]the request part of the frame's meta lacks"),
    ("names that are no UTF-8", joined(b"\x0a\6\x0a\1\xff\x12\1\xfe" + ID), 1001, "[E1001]Fail to find method=\ufffd"),
    ("no GrpsMessage", joined(ask(), b"\xff"), 1003, "[E1003]"),
    ("lz4", joined(ask(compress_type=4), PAYLOAD), 1003, "[E1003]compress_type 4 is unknown, expected 0 (none)"),
    ("unknown coding", joined(ask(compress_type=-1), PAYLOAD), 1003, "[E1003]compress_type -1 is unknown"),
    ("bad snappy", joined(ask(compress_type=1), b"\x05ab"), 1003, "[E1003]the payload is not snappy data"),
    ("bad gzip", joined(ask(compress_type=2), PAYLOAD), 1003, "[E1003]the payload is not gzip data"),
    ("bad zlib", joined(ask(compress_type=3), PAYLOAD), 1003, "[E1003]the payload is not zlib data"),
    ("long attachment", joined(ask(attachment_size=47), b"a" * 46), 1003, "[E1003]attachment_size is 47, but payload"),
    ("negative attachment", joined(ask(attachment_size=-1), PAYLOAD), 1003, "[E1003]attachment_size is -1"),
    ("wrong sum", joined(ask(checksum_type=1), PAYLOAD), 1003, "[E1003]checksum_value is empty"),
    ("unknown checksum", joined(ask(checksum_type=2), PAYLOAD), 1003, "[E1003]checksum_type 2 is unknown"),
    ("where JSON does not", joined(ask(content_type=1), b"{"), 1003, "[E1003]"),
    ("proto-text", joined(ask(content_type=3), PAYLOAD), 1003, "[E1003]content_type 3 is not supported"),
]


@pytest.mark.parametrize(("data", "code", "text"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED])
def test_errors_in_the_meta(data: bytes, code: int, text: str) -> None:
    reply = read_frame(arrived(written(refused(data))))
    assert (reply.meta.response.error_code, reply.meta.correlation_id) == (code, NUMBER)
    assert reply.meta.response.error_text.startswith(text)
    assert bytes(reply.payload) == b""


def test_an_empty_meta_is_1001() -> None:
    assert read_meta(arrived(written(refused(joined(b""))))).response.error_code == 1001


def test_a_bomb_is_1003() -> None:
    small = ListenerSettings(limits=Limits(message=1000))
    reply = read_meta(arrived(written(refused(joined(ask(compress_type=2), gzip.compress(bytes(2000))), small))))
    assert (reply.response.error_code, reply.correlation_id) == (1003, NUMBER)
    assert "inflates to more than 1000 bytes" in reply.response.error_text


def test_errors_of_a_message_that_could_be_read_are_in_a_message() -> None:
    reply = read_frame(arrived(written(refused(joined(ask(), b"\x32\0")))))
    assert reply.meta.response.error_code == 0
    assert bytes(reply.payload).startswith(bytes.fromhex("0a"))
    assert b"ndarray holds its numbers in JSON only" in bytes(reply.payload)
    probe = ask(request={"service_name": SERVICE, "method_name": "CheckLiveness"}, attachment_size=3)
    reply = read_frame(arrived(written(refused(joined(probe, b"abc")))))
    assert reply.meta.response.error_code == 0
    assert b"an attachment of 3 bytes; only Predict can have one" in bytes(reply.payload)


@pytest.mark.parametrize(("reason", "code"), CODES.items())
def test_the_error_of_a_request_is_in_the_body_and_finds_its_way_back(reason: Reason, code: int) -> None:
    reply = GRPS_BRPC.encode_error(refusal(reason, "why"), decoded(REQUEST), arrived(REQUEST))
    frame = read_frame(arrived(written(reply)))
    assert (frame.meta.response.error_code, frame.meta.correlation_id) == (0, NUMBER)
    body = b"\x08" + pack("B", code & 0x7F | 0x80) + pack("B", code >> 7) + b"\x12\x03why\x18\x02"
    assert bytes(frame.payload) == b"\x0a" + bytes([len(body)]) + body
    assert reported_error(written(reply)) == (reason, "why")


# --- Refusals of the listener itself ---

REFUSALS: list[tuple[Reason, int]] = [
    (Reason.INVALID_INPUT, 1003),
    (Reason.MODEL_NOT_FOUND, 1002),
    (Reason.UNAUTHENTICATED, 1004),
    (Reason.PERMISSION_DENIED, 1004),
    (Reason.TOO_LARGE, 1003),
    (Reason.HEADERS_TOO_LARGE, 1003),
    (Reason.OVERLOADED, 2004),
    (Reason.RATE_LIMITED, 2004),
    (Reason.TIMEOUT, 1008),
    (Reason.REQUEST_TIMEOUT, 1008),
    (Reason.NOT_READY, 2003),
    (Reason.CANCELLED, 125),
    (Reason.FAILED_PRECONDITION, 1003),
    (Reason.INVALID_OUTPUT, 2001),
    (Reason.INTERNAL, 2001),
    (Reason.UNKNOWN, 2001),
]


@pytest.mark.parametrize(("reason", "code"), REFUSALS)
def test_refusals_have_brpcs_numbers(reason: Reason, code: int) -> None:
    """Of a message of which only header and meta have come."""
    header, meta = REQUEST[:12], META
    reply = GRPS_BRPC.encode_error(refusal(reason, "why"), None, Message(parts=(header, meta)))
    found = read_meta(arrived(written(reply)))
    assert (found.response.error_code, found.response.error_text) == (code, f"[E{code}]why")
    assert found.correlation_id == NUMBER
    assert reported_error(written(reply)) == (reason, "why")


def test_a_listener_that_stops_says_so_in_the_frame() -> None:
    """ELOGOFF in the body of a successful reply would keep brpc's clients from trying another server."""
    reply = GRPS_BRPC.encode_error(refusal(Reason.NOT_READY, "why"), None, arrived(REQUEST))
    found = read_meta(arrived(written(reply)))
    assert (found.response.error_code, found.response.error_text) == (2003, "[E2003]why")
    assert found.correlation_id == NUMBER


@pytest.mark.parametrize("header", [b"", b"PRPC", b"GET / HTTP/1", b"PRPC" + b"\xff" * 8])
def test_errors_for_bytes_that_are_not_a_frame(header: bytes) -> None:
    reply = GRPS_BRPC.encode_error(refusal(Reason.INVALID_INPUT, "why"), None, Message(parts=(header, b"")))
    found = read_meta(arrived(written(reply)))
    assert (found.response.error_code, found.correlation_id) == (1003, 0)


def test_texts_that_are_no_utf8() -> None:
    reply = GRPS_BRPC.encode_error(refusal(Reason.INVALID_INPUT, "\udc80"), None, arrived(joined(b"")))
    assert read_meta(arrived(written(reply))).response.error_text == "[E1003]?"
