import json

import pytest

from gateway.core.errors import GatewayError, Reason, refusal
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.requests import Request
from tests.protocols.umbridge.wire import TARGET, UMBRIDGE, reply

EVALUATE = Request(Operation.INFER, "m")

FORMS = {
    Reason.INVALID_INPUT: (400, "InvalidInput"),
    Reason.MODEL_NOT_FOUND: (400, "ModelNotFound"),
    Reason.UNSUPPORTED: (400, "UnsupportedFeature"),
    Reason.FAILED_PRECONDITION: (400, "InvalidInput"),
    Reason.OUT_OF_RANGE: (400, "InvalidInput"),
    Reason.ALREADY_EXISTS: (400, "InvalidInput"),
    Reason.UNAUTHENTICATED: (401, "Unauthenticated"),
    Reason.PERMISSION_DENIED: (403, "PermissionDenied"),
    Reason.PATH_NOT_FOUND: (404, "UnsupportedFeature"),
    Reason.METHOD_NOT_ALLOWED: (405, "UnsupportedFeature"),
    Reason.REQUEST_TIMEOUT: (408, "Timeout"),
    Reason.LENGTH_REQUIRED: (411, "InvalidInput"),
    Reason.TOO_LARGE: (413, "InvalidInput"),
    Reason.UNSUPPORTED_MEDIA_TYPE: (415, "InvalidInput"),
    Reason.UNSUPPORTED_ENCODING: (415, "InvalidInput"),
    Reason.HEADERS_TOO_LARGE: (431, "InvalidInput"),
    Reason.CANCELLED: (499, "Cancelled"),
    Reason.INVALID_OUTPUT: (500, "InvalidOutput"),
    Reason.MODEL_ERROR: (500, "ModelError"),
    Reason.INTERNAL: (500, "ModelError"),
    Reason.UNKNOWN: (500, "ModelError"),
    Reason.ABORTED: (500, "ModelError"),
    Reason.DATA_LOSS: (500, "ModelError"),
    Reason.UNREACHABLE: (503, "UpstreamUnavailable"),
    Reason.NOT_READY: (503, "UpstreamUnavailable"),
    Reason.CIRCUIT_OPEN: (503, "UpstreamUnavailable"),
    Reason.OVERLOADED: (503, "Overloaded"),
    Reason.RATE_LIMITED: (429, "RateLimited"),
    Reason.TIMEOUT: (504, "Timeout"),
    Reason.VERSION_NOT_SUPPORTED: (505, "UnsupportedFeature"),
}


def encoded(error: GatewayError) -> Message:
    return UMBRIDGE.encode_error(error, None, Message())


def raised(message: Message, request: Request = EVALUATE) -> GatewayError:
    with pytest.raises(GatewayError) as caught:
        UMBRIDGE.decode_response(message, request, TARGET)
    return caught.value


@pytest.mark.parametrize("reason", Reason)
def test_every_error_is_a_json_object_with_a_type(reason: Reason) -> None:
    message = encoded(refusal(reason, 'why "it" failed\n'))
    status, type_ = FORMS[reason]
    assert message.status == status
    assert message.headers.get("content-type") == "application/json"
    assert message.headers.get("gateway-reason") == reason.value
    assert json.loads(bytes(message.body)) == {"error": {"type": type_, "message": 'why "it" failed\n'}}


@pytest.mark.parametrize("reason", Reason)
def test_another_gateway_reads_the_same_error(reason: Reason) -> None:
    error = raised(encoded(refusal(reason, "why")))
    assert (error.status, error.reason, error.message) == (reason.status, reason, "why")


@pytest.mark.parametrize("reason", Reason)
def test_without_the_header_status_type_and_text_stay(reason: Reason) -> None:
    first = encoded(refusal(reason, "why"))
    again = encoded(raised(reply(bytes(first.body), first.status)))
    assert (again.status, again.body) == (first.status, first.body)


REPLIES = [
    (400, '{"error":{"type":"InvalidInput","message":"why"}}', Reason.INVALID_INPUT, "why"),
    (400, '{"error":{"type":"ModelNotFound","message":"why"}}', Reason.MODEL_NOT_FOUND, "why"),
    (400, '{"error":{"type":"UnsupportedFeature","message":"why"}}', Reason.UNSUPPORTED, "why"),
    (500, '{"error":{"type":"InvalidOutput","message":"why"}}', Reason.INVALID_OUTPUT, "why"),
    # the clients raise it whatever the status is
    (200, '{"error":{"type":"InvalidInput","message":"why"}}', Reason.INVALID_INPUT, "why"),
    (200, '{"output":[[1]],"error":{"type":"Timeout","message":"why"}}', Reason.TIMEOUT, "why"),
    # Julia: InvalidOutput with 400, and types of its own
    (400, '{"error":{"type":"InvalidOutput","message":"why"}}', Reason.INVALID_OUTPUT, "why"),
    (500, '{"error":{"type":"InvalidGradient","message":"why"}}', Reason.MODEL_ERROR, "InvalidGradient: why"),
    (400, '{"error":{"type":"Busy","message":"why"}}', Reason.INVALID_INPUT, "Busy: why"),
    (200, '{"error":{"type":"Busy","message":"why"}}', Reason.INVALID_OUTPUT, "Busy: why"),
    (429, '{"error":"slow down"}', Reason.OVERLOADED, "slow down"),
    (500, '{"error":{"message":"why"}}', Reason.MODEL_ERROR, "why"),
    (500, '{"error":{}}', Reason.MODEL_ERROR, ""),
    (422, '{"detail":"why"}', Reason.INVALID_OUTPUT, '{"detail":"why"}'),
    # an `output` under another status than success is none
    (500, '{"output":[[1.0]]}', Reason.MODEL_ERROR, '{"output":[[1.0]]}'),
    (500, "", Reason.MODEL_ERROR, "HTTP status 500 with an empty body"),
    (302, "", Reason.INVALID_OUTPUT, "HTTP status 302 with an empty body"),
    # proxies before the servers
    (413, "<h1>413</h1>", Reason.TOO_LARGE, "<h1>413</h1>"),
    (502, "Bad Gateway", Reason.UNREACHABLE, "Bad Gateway"),
    (503, "No server is available\n", Reason.UNREACHABLE, "No server is available"),
    (504, "The server didn't respond in time.", Reason.TIMEOUT, "The server didn't respond in time."),
    (401, b"\xff denied", Reason.UNAUTHENTICATED, "\ufffd denied"),
    (403, "no", Reason.PERMISSION_DENIED, "no"),
]


@pytest.mark.parametrize(("status", "body", "reason", "text"), REPLIES)
def test_the_errors_of_servers_have_a_reason(status: int, body: str | bytes, reason: Reason, text: str) -> None:
    error = raised(reply(body, status))
    assert (error.reason, error.status, error.message) == (reason, reason.status, text)


@pytest.mark.parametrize(
    "request_",
    [
        Request(Operation.GRADIENT, "m"),
        Request(Operation.METADATA, "m", part="InputSizes"),
        Request(Operation.METADATA, "m", part="ModelInfo"),
        Request(Operation.MODELS),
        Request(Operation.READY),
    ],
)
def test_every_request_can_be_answered_with_an_error(request_: Request) -> None:
    error = raised(reply('{"error":{"type":"ModelNotFound","message":"why"}}', 400), request_)
    assert (error.reason, error.message) == (Reason.MODEL_NOT_FOUND, "why")


def test_the_c_server_s_exceptions_are_in_a_header() -> None:
    headers = Headers([(b"exception_what", b"std::bad_alloc")])
    error = raised(reply("", 500, headers))
    assert (error.reason, error.message) == (Reason.MODEL_ERROR, "std::bad_alloc")
    assert json.loads(bytes(encoded(error).body)) == {"error": {"type": "ModelError", "message": "std::bad_alloc"}}


def test_an_unknown_reason_of_a_header_is_not_believed() -> None:
    headers = Headers([(b"gateway-reason", b"bored")])
    assert raised(reply('{"error":{"type":"Timeout","message":"why"}}', 504, headers)).reason is Reason.TIMEOUT


def test_lone_surrogates_in_the_text_of_an_error_are_replaced() -> None:
    body = encoded(refusal(Reason.MODEL_NOT_FOUND, "no model \ud800")).body
    assert json.loads(bytes(body)) == {"error": {"type": "ModelNotFound", "message": "no model ?"}}
