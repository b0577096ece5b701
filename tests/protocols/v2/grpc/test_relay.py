"""Requests that pass unread between two sides of V2 gRPC: which of them a server of each type gets."""

import pytest

from gateway.core.exchange import unread
from gateway.protocols.v2 import V2_GRPC
from gateway.protocols.v2.grpc.relay import MOST_FIELDS
from tests.protocols.v2.grpc.by_hand import field, parameter, tensor
from tests.protocols.v2.grpc.wire import INFER, LISTENER, STREAM, TARGETS, message

X = field(1, "m") + tensor("x", "FP32", 1) + field(7, bytes(4))
TOP = X + field(6, field(1, "y") + parameter(2, "classification", field(2, 3)))


@pytest.mark.parametrize(
    ("server", "method", "body", "passes"),
    [
        ("triton", INFER, X, True),
        ("triton", STREAM, X, True),
        ("mlserver", INFER, X, True),
        ("mlserver", STREAM, X, False),  # its streams have another message
        ("triton", INFER, TOP, True),
        ("mlserver", INFER, TOP, False),
        ("triton", INFER, X.replace(b"FP32", b"BF16"), True),
        ("kserve", INFER, X.replace(b"FP32", b"BF16"), False),
    ],
)
def test_what_a_server_gets_unread(server: str, method: str, body: bytes, passes: bool) -> None:
    asked = message(body, method)
    request = unread(asked, V2_GRPC, LISTENER)
    assert request is not None
    assert V2_GRPC.relay is not None
    sent = V2_GRPC.relay.request(asked, request, TARGETS[server])
    assert (sent is not None) is passes
    if sent is not None:
        assert (sent.path, bytes(sent.body)) == (method, body)


def test_a_message_of_many_fields_is_read() -> None:
    few = X + field(15, b"") * (MOST_FIELDS - 4)
    assert unread(message(few), V2_GRPC, LISTENER) is not None
    assert unread(message(few + field(15, b"")), V2_GRPC, LISTENER) is None
