"""Errors: to clients, and from backends."""

import pytest

from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.frozen import replace
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.requests import Request
from tests.protocols.graphpipe.wire import GRAPHPIPE, TARGET, call, recorded, reply

INFER = Request(Operation.INFER)


STATUSES = {
    Reason.INVALID_INPUT: 400,
    Reason.MODEL_NOT_FOUND: 404,
    Reason.PATH_NOT_FOUND: 404,
    Reason.UNSUPPORTED: 501,
    Reason.UNAUTHENTICATED: 401,
    Reason.PERMISSION_DENIED: 403,
    Reason.TOO_LARGE: 413,
    Reason.OVERLOADED: 429,
    Reason.RATE_LIMITED: 429,
    Reason.CIRCUIT_OPEN: 503,
    Reason.TIMEOUT: 504,
    Reason.UNREACHABLE: 503,
    Reason.CANCELLED: 499,
    Reason.FAILED_PRECONDITION: 400,
    Reason.INVALID_OUTPUT: 502,
    Reason.MODEL_ERROR: 500,
    Reason.INTERNAL: 500,
}


@pytest.mark.parametrize(("reason", "status"), STATUSES.items(), ids=lambda each: str(each))
def test_an_error_is_a_status_and_errors(reason: Reason, status: int) -> None:
    message = GRAPHPIPE.encode_error(refusal(reason, "wärum"), None, call(b""))
    assert message.status == status
    with pytest.raises(GatewayError) as caught:
        GRAPHPIPE.decode_response(message, INFER, TARGET)
    assert (caught.value.reason, caught.value.message) == (reason, "wärum")


def test_errors_under_status_200_on_request() -> None:
    """Only these show their text to users of the Python client."""
    error = refusal(Reason.TOO_LARGE, "why")
    message = GRAPHPIPE.encode_error(error, None, call(b"", query="a=b&errors=200"))
    assert message.status == 200
    with pytest.raises(GatewayError, match="why") as caught:
        GRAPHPIPE.decode_response(reply(message.body), INFER, TARGET)
    assert caught.value.reason is Reason.TOO_LARGE  # by the code, 413
    assert GRAPHPIPE.encode_error(error, None, call(b"", query="errors=2000")).status == 413


def test_errors_to_get_are_plain_text() -> None:
    message = GRAPHPIPE.encode_error(refusal(Reason.MODEL_NOT_FOUND, "no \ud800"), None, call(b"", method="GET"))
    assert (message.status, bytes(message.body)) == (404, b"no ?")
    assert message.headers.get("content-type").startswith("text/plain")


def test_errors_to_go_s_client_are_plain_text() -> None:
    """It prints the body of a reply that is not 200, as it is."""
    asked = replace(call(b""), headers=Headers(((b"user-agent", b"Go-http-client/1.1"),)))
    message = GRAPHPIPE.encode_error(refusal(Reason.MODEL_NOT_FOUND, "no model 'm'"), None, asked)
    assert (message.status, bytes(message.body)) == (404, b"no model 'm'")
    with pytest.raises(GatewayError, match="no model 'm'") as caught:
        GRAPHPIPE.decode_response(message, INFER, TARGET)
    assert caught.value.reason is Reason.MODEL_NOT_FOUND


@pytest.mark.parametrize(
    ("body", "status", "reason", "text"),
    [
        (b"Unexpected input for 'foo' was sent\n", 400, Reason.INVALID_INPUT, "Unexpected input for 'foo' was sent"),
        (b"Unhandled GET\n", 500, Reason.MODEL_ERROR, "Unhandled GET"),
        (b"", 503, Reason.UNREACHABLE, "status 503 without a message"),
        (b"\xff" * 20_000, 418, Reason.MODEL_ERROR, "\N{REPLACEMENT CHARACTER}" * 8192),
        (recorded("float32.reply"), 400, Reason.INVALID_INPUT, "."),
    ],
)
def test_other_servers_errors(body: bytes, status: int, reason: Reason, text: str) -> None:
    with pytest.raises(GatewayError, match=text) as caught:
        GRAPHPIPE.decode_response(reply(body, status), INFER, TARGET)
    assert caught.value.reason is reason


def test_the_reason_of_another_gateway_takes_precedence() -> None:
    told = Message(headers=Headers(((b"gateway-reason", b"overloaded"),)), parts=(b"busy",), status=400)
    with pytest.raises(GatewayError) as caught:
        GRAPHPIPE.decode_response(told, INFER, TARGET)
    assert caught.value.reason is Reason.OVERLOADED
