from urllib.parse import quote

import pytest

from gateway.core.errors import REASONS, GatewayError, Reason, Status, refusal
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.protocols.v2 import V2_GRPC
from tests.protocols.v2.grpc.wire import INFER, SERVICE, TARGET, exchanged, message, reply

REQUEST = Request(Operation.INFER, "m")
READY = Request(Operation.MODEL_READY, "m")


@pytest.mark.parametrize("reason", Reason)
def test_an_error_is_a_status_a_text_and_a_reason(reason: Reason) -> None:
    encoded = V2_GRPC.encode_error(refusal(reason, "größe\n%"), REQUEST, message(b""))
    assert (encoded.status, encoded.body) == (reason.status, "größe\n%".encode())
    assert list(encoded.headers) == [("gateway-reason", reason.value)]


@pytest.mark.parametrize("text", ["\x00" * 5000, "ü" * 5000, "a" + "ü" * 5000, "😀" * 5000, "\ud800" * 5000])
def test_a_text_fits_a_header_of_8_kib_percent_encoded(text: str) -> None:
    encoded = bytes(V2_GRPC.encode_error(refusal(Reason.INTERNAL, text), None, message(b"")).body)
    assert 1500 < len(quote(encoded.decode())) <= 6000
    assert "\ufffd" not in encoded.decode()


@pytest.mark.parametrize(
    ("status", "reason", "expected", "kept"),
    [
        (3, "", Status.INVALID_ARGUMENT, Reason.INVALID_INPUT),
        (5, "", Status.NOT_FOUND, Reason.MODEL_NOT_FOUND),
        (8, "", Status.RESOURCE_EXHAUSTED, Reason.OVERLOADED),
        (8, "too-large", Status.RESOURCE_EXHAUSTED, Reason.TOO_LARGE),
        (9, "", Status.FAILED_PRECONDITION, Reason.FAILED_PRECONDITION),
        (12, "", Status.UNIMPLEMENTED, Reason.UNSUPPORTED),
        (13, "", Status.INTERNAL, Reason.MODEL_ERROR),
        (13, "nonsense", Status.INTERNAL, Reason.MODEL_ERROR),
        (14, "", Status.UNAVAILABLE, Reason.UNREACHABLE),
        (2, "", Status.UNKNOWN, Reason.UNKNOWN),
        (99, "", Status.UNKNOWN, Reason.UNKNOWN),
    ],
)
def test_reads_codes(status: int, reason: str, expected: Status, kept: Reason) -> None:
    assert not reason or reason == "nonsense" or REASONS[reason] is kept
    with pytest.raises(GatewayError, match="why") as raised:
        V2_GRPC.decode_response(reply(b"why\xff", status, reason), REQUEST, TARGET)
    assert (raised.value.status, raised.value.reason) == (expected, kept)


def test_an_error_without_a_text_says_so() -> None:
    with pytest.raises(GatewayError, match="status NOT_FOUND without a text"):
        V2_GRPC.decode_response(reply(b"", 5), REQUEST, TARGET)


@pytest.mark.parametrize("server", ["triton", "mlserver", "kserve"])
def test_an_unknown_model_is_not_ready_at_any_server(server: str) -> None:
    _, _, (encoded,) = exchanged(server, "model_ready_unknown")
    assert V2_GRPC.decode_response(encoded, READY, TARGET) is False


METADATA = Request(Operation.METADATA, "m")


@pytest.mark.parametrize(
    ("request_", "text", "status"),
    [
        (METADATA, b"Unexpected <class 'x'>: y", 2),
        (METADATA, b"gone", 5),
        (READY, b"out of order", 2),
        (READY, b"down", 14),
    ],
)
def test_a_failure_is_an_error_and_not_unreadiness(request_: Request, text: bytes, status: int) -> None:
    with pytest.raises(GatewayError):
        V2_GRPC.decode_response(reply(text, status), request_, TARGET)


NOT_READY = [Reason.UNREACHABLE, Reason.UNSUPPORTED, Reason.TIMEOUT, Reason.INVALID_OUTPUT, Reason.MODEL_ERROR]


@pytest.mark.parametrize("reason", NOT_READY)
def test_a_model_whose_backend_cannot_be_asked_is_not_ready(reason: Reason) -> None:
    """So that tritonclient's is_model_ready() returns false instead of raising."""
    sent = message(b"", SERVICE + "ModelReady")
    encoded = V2_GRPC.encode_error(refusal(reason, "why"), READY, sent)
    assert V2_GRPC.decode_response(encoded, READY, TARGET) is False
    assert list(encoded.headers) == [("gateway-reason", reason.value)]


@pytest.mark.parametrize("reason", [Reason.INVALID_INPUT, Reason.PERMISSION_DENIED, Reason.UNAUTHENTICATED])
def test_a_refused_readiness_request_is_an_error(reason: Reason) -> None:
    encoded = V2_GRPC.encode_error(refusal(reason, "why"), READY, message(b"", SERVICE + "ModelReady"))
    assert (encoded.status, encoded.body) == (reason.status, b"why")


def test_an_unknown_model_is_not_ready_for_clients_as_in_triton() -> None:
    sent = message(b"", SERVICE + "ModelReady")
    encoded = V2_GRPC.encode_error(refusal(Reason.MODEL_NOT_FOUND, "no route"), READY, sent)
    assert (encoded.status, encoded.body) == (0, b"")
    assert V2_GRPC.encode_error(refusal(Reason.MODEL_NOT_FOUND, ""), REQUEST, message(b"", INFER)).status == 5
