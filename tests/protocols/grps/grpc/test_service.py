"""GrpsService, facing clients and backends."""

import numpy as np
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from gateway.core.datatypes import Datatype
from gateway.core.errors import DecodeError, GatewayError, Reason, refusal
from gateway.core.exchange import decoded
from gateway.core.messages import Headers, Message
from gateway.core.models import Signature, TensorSpec
from gateway.core.operations import Operation
from gateway.core.protocol import GrpcBinding, Limits, ListenerSettings, Target
from gateway.core.requests import Request, Response, Translate
from gateway.core.tensors import tensor
from gateway.protocols.grps import PROTOCOLS
from gateway.protocols.grps.protobuf.message import read_message
from gateway.protocols.grps.schema import Payload

[GRPS_GRPC] = [protocol for protocol in PROTOCOLS if protocol.name == "grps-grpc"]

LISTENER = ListenerSettings("grpc", Limits(message=2**20), "default")
TARGET = Target("backend", "127.0.0.1:1")
X = tensor("x", np.array([1, 2, 3], np.float32))

# a client's request to double three numbers, and a real server's reply
TWICE = "120b74776963652d312e302e302a180a160a017810071a0103520c0000803f0000004000004040"
DOUBLED = "0a0908c80112024f4b18012a180a160a017810071a0103520c00000040000080400000c040"
OK = "0a0908c80112024f4b1801"
UNAVAILABLE = "0a1a 08f703 1213 5365727669636520556e617661696c61626c65 1802"


def path(method: str) -> str:
    return f"/grps.protos.v1.GrpsService/{method}"


def message(method: str, octets: str | bytes = "") -> Message:
    body = bytes.fromhex(octets) if isinstance(octets, str) else octets
    return Message(method=path(method), path=path(method), parts=(body,), pattern=path(method), deadline=7.0)


def asked(method: str, octets: str | bytes = "") -> Request:
    return decoded(message(method, octets), GRPS_GRPC, LISTENER)


def reply(octets: str | bytes, status: int = 0, reason: str = "") -> Message:
    headers = Headers(((b"gateway-reason", reason.encode()),) if reason else ())
    octets = bytes.fromhex(octets) if isinstance(octets, str) else octets
    return Message(headers=headers, parts=(octets,), status=status)


def body(sent: Message) -> bytes:
    return b"".join(sent.parts)


def test_serves_every_method_of_the_service() -> None:
    names = "Predict PredictStreaming Online Offline CheckLiveness CheckReadiness ServerMetadata ModelMetadata"
    assert set(GRPS_GRPC.patterns) == set(map(path, names.split()))
    assert isinstance(GRPS_GRPC.binding, GrpcBinding)
    assert GRPS_GRPC.binding.streams == {path("PredictStreaming")}


def test_reflection_tells_of_this_service_alone() -> None:
    assert isinstance(GRPS_GRPC.binding, GrpcBinding)
    [file] = FileDescriptorSet.FromString(GRPS_GRPC.binding.descriptors).file
    assert [service.name for service in file.service] == ["GrpsService"]
    assert "GrpsMessage" in {each.name for each in file.message_type}
    assert "RpcMeta" not in {each.name for each in file.message_type}


INFERENCES = pytest.mark.parametrize(
    ("method", "operation"), [("Predict", Operation.INFER), ("PredictStreaming", Operation.STREAM)]
)


@INFERENCES
def test_an_inference(method: str, operation: Operation) -> None:
    request = asked(method, TWICE)
    assert (request.operation, request.model, request.deadline) == (operation, "twice-1.0.0", 7.0)
    assert request.inputs == (X,)
    response = Response((tensor("x", np.array([2, 4, 6], np.float32)),))
    assert body(GRPS_GRPC.encode_response(response, request, Translate())) == bytes.fromhex(DOUBLED)


@INFERENCES
def test_an_inference_of_a_backend(method: str, operation: Operation) -> None:
    request = Request(operation, "twice", "1.0.0", inputs=(X,))
    sent = GRPS_GRPC.encode_request(request, TARGET)
    assert (sent.path, body(sent)) == (path(method), bytes.fromhex(TWICE))
    answer = GRPS_GRPC.decode_response(reply(DOUBLED), request, TARGET)
    assert isinstance(answer, Response)
    [output] = answer.outputs
    assert (output.name, output.array.tolist()) == ("x", [2, 4, 6])


@pytest.mark.parametrize(
    ("method", "operation"),
    [
        ("Online", Operation.ONLINE),
        ("Offline", Operation.OFFLINE),
        ("CheckLiveness", Operation.LIVE),
        ("CheckReadiness", Operation.READY),
    ],
)
def test_health(method: str, operation: Operation) -> None:
    request = asked(method)
    assert request.operation is operation
    assert body(GRPS_GRPC.encode_response(True, request, Translate())).hex() == OK
    assert body(GRPS_GRPC.encode_response(False, request, Translate())) == bytes.fromhex(UNAVAILABLE)


@pytest.mark.parametrize(
    ("octets", "ready"),
    [(OK, True), (UNAVAILABLE, False), ("0a05 089303 1802", False), ("0a05 08f403 1802", False)],
    ids=["ready", "503 of the C++ server", "403 of the Python server", "500"],
)
def test_readiness_of_a_backend(octets: str, ready: bool) -> None:
    for operation in (Operation.READY, Operation.MODEL_READY):
        request = Request(operation, "m")
        assert GRPS_GRPC.encode_request(request, TARGET) == Message(
            path=path("CheckReadiness"), parts=(b"",), pattern=path("CheckReadiness")
        )
        assert GRPS_GRPC.decode_response(reply(octets), request, TARGET) is ready


def test_metadata_of_a_model() -> None:
    request = asked("ModelMetadata", "2203616263")
    assert (request.operation, request.model) == (Operation.METADATA, "abc")
    signature = Signature((TensorSpec("x", Datatype.FP32, (-1, 2)),), name="abc")
    told = GRPS_GRPC.encode_response(signature, request, Translate())
    assert read_message(body(told), 2**20).payload is Payload.STR_DATA
    assert GRPS_GRPC.decode_response(told, request, TARGET) == signature
    assert body(GRPS_GRPC.encode_request(request, TARGET)).hex() == "2203616263"


@pytest.mark.parametrize("reason", [Reason.INVALID_INPUT, Reason.MODEL_NOT_FOUND, Reason.OVERLOADED, Reason.CANCELLED])
def test_an_error_is_a_message_and_has_its_reason_in_the_trailers(reason: Reason) -> None:
    told = GRPS_GRPC.encode_error(refusal(reason, "größe \ud800"), None, message("Predict"))
    assert told.status == 0
    assert list(told.headers) == [("gateway-reason", reason.value)]
    assert "größe ?".encode() in body(told)


@pytest.mark.parametrize(
    ("status", "text", "told", "reason"),
    [
        (12, "Method not found!", "", Reason.UNSUPPORTED),
        (13, "Exception deserializing request!", "", Reason.MODEL_ERROR),
        (14, "gone", "", Reason.UNREACHABLE),
        (8, "Concurrent RPC limit exceeded!", "", Reason.OVERLOADED),
        (8, "SERVER: Received message larger than max (5 vs. 4)", "", Reason.TOO_LARGE),
        (8, "the body is too large", "too-large", Reason.TOO_LARGE),
    ],
)
def test_calls_that_failed(status: int, text: str, told: str, reason: Reason) -> None:
    with pytest.raises(GatewayError, match=text[:10]) as raised:
        GRPS_GRPC.decode_response(reply(text.encode(), status, told), Request(Operation.INFER), TARGET)
    assert raised.value.reason is reason


@pytest.mark.parametrize(
    ("octets", "told"),
    [
        ("4a0161", "holds no data, but field 9, which a GrpsMessage does not have"),
        ("12016d 4a0161", "holds no data, but field 9"),
        ("3200", "ndarray holds its numbers in JSON only"),
        ("2a14 0a08 0a0178 1002 2a0105 0a08 0a0178 1002 2a0105", "'x' occurs twice"),
        ("ff", "no whole number"),
    ],
)
def test_invalid_requests(octets: str, told: str) -> None:
    with pytest.raises(DecodeError, match=told):
        asked("Predict", octets)


def test_tensors_beyond_the_limits_of_either_side() -> None:
    zeros = tensor("x", np.zeros(2**18 + 1, np.float32))
    wire = body(GRPS_GRPC.encode_request(Request(Operation.INFER, inputs=(zeros,)), TARGET))
    with pytest.raises(GatewayError, match=r"limits\.message"):
        asked("Predict", wire)
    small = Target("backend", "127.0.0.1:1", limits=Limits(message=2**20))
    with pytest.raises(GatewayError, match=r"limits\.message"):
        GRPS_GRPC.decode_response(reply(wire), Request(Operation.INFER), small)


def test_operations_without_a_method() -> None:
    for operation in (Operation.CONFIG, Operation.ONLINE, Operation.OFFLINE):
        with pytest.raises(GatewayError) as raised:
            GRPS_GRPC.encode_request(Request(operation), TARGET)
        assert raised.value.reason is Reason.UNSUPPORTED


def test_an_ndarray_has_no_form_on_this_wire() -> None:
    request = Request(Operation.INFER, inputs=(X,), translate=Translate(payload="ndarray"))
    with pytest.raises(GatewayError, match="expected gtensors"):
        GRPS_GRPC.encode_request(request, TARGET)
