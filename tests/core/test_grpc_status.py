"""What the errors of gRPC servers mean."""

import pytest

from gateway.core.errors import Reason, Status
from gateway.core.grpc_status import error_of
from gateway.core.messages import Headers, Message

EXHAUSTED = [
    # what gRPC's libraries say of a message that is too large: C and Python, Go, Java, .NET
    (b"SERVER: Received message larger than max (4194310 vs. 4194304)", Reason.TOO_LARGE),
    (b"CLIENT: Sent message larger than max (9 vs. 8)", Reason.TOO_LARGE),
    (b"grpc: received message larger than max (4194310 vs. 4194304)", Reason.TOO_LARGE),
    (b"grpc: received message after decompression larger than max (9 vs. 8)", Reason.TOO_LARGE),
    (b"gRPC message exceeds maximum size 4194304: 4194310", Reason.TOO_LARGE),
    (b"Decompressed gRPC message exceeds maximum size 4194304", Reason.TOO_LARGE),
    (b"Received message exceeds the maximum configured message size.", Reason.TOO_LARGE),
    (b"received metadata size exceeds hard limit (value length 9000 vs. 8192)", Reason.HEADERS_TOO_LARGE),
    # and what busy servers say: grpcio, TensorFlow
    (b"Concurrent RPC limit exceeded!", Reason.OVERLOADED),
    (b"The batch scheduling queue to which this task was submitted is full", Reason.OVERLOADED),
    (b"OOM when allocating tensor with shape[9,9]", Reason.OVERLOADED),
    (b"", Reason.OVERLOADED),
]


@pytest.mark.parametrize(("text", "reason"), EXHAUSTED)
def test_exhausted_is_overloaded_unless_the_text_says_that_a_message_is_too_large(text: bytes, reason: Reason) -> None:
    error = error_of(Message(status=8, parts=(text,)))
    assert (error.status, error.reason) == (Status.RESOURCE_EXHAUSTED, reason)


def test_another_gateway_says_which_it_is() -> None:
    told = Headers(((b"gateway-reason", b"too-large"),))
    assert error_of(Message(status=8, parts=(b"12 bytes",), headers=told)).reason is Reason.TOO_LARGE


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ([], None),
        ([(b"retry-after", b"12")], 12),
        ([(b"retry-after", b"Wed, 21 Oct 2026 07:28:00 GMT")], None),
        ([(b"grpc-retry-pushback-ms", b"1500")], 1.5),
        ([(b"grpc-retry-pushback-ms", b"0")], 0),
        ([(b"grpc-retry-pushback-ms", b"-1")], None),
        ([(b"grpc-retry-pushback-ms", b"1" * 40)], None),
        ([(b"grpc-retry-pushback-ms", b"1500"), (b"retry-after", b"12")], 12),
    ],
)
def test_the_time_to_try_again_is_in_the_trailers(fields: list[tuple[bytes, bytes]], seconds: float | None) -> None:
    assert error_of(Message(status=8, parts=(b"busy",), headers=Headers(fields))).retry_after == seconds
