import pytest

from gateway.core.errors import REASONS, GatewayError, Reason, Status, refusal
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.requests import Request
from gateway.protocols.v2 import V2_REST
from tests.protocols.v2.rest.wire import TARGET, reply

NUMBERS = {
    reason: number
    for number, reasons in {
        400: [Reason.INVALID_INPUT, Reason.FAILED_PRECONDITION, Reason.OUT_OF_RANGE],
        401: [Reason.UNAUTHENTICATED],
        403: [Reason.PERMISSION_DENIED],
        404: [Reason.MODEL_NOT_FOUND, Reason.PATH_NOT_FOUND],
        405: [Reason.METHOD_NOT_ALLOWED],
        408: [Reason.REQUEST_TIMEOUT],
        409: [Reason.ALREADY_EXISTS, Reason.ABORTED],
        411: [Reason.LENGTH_REQUIRED],
        413: [Reason.TOO_LARGE],
        415: [Reason.UNSUPPORTED_MEDIA_TYPE, Reason.UNSUPPORTED_ENCODING],
        429: [Reason.OVERLOADED, Reason.RATE_LIMITED],
        431: [Reason.HEADERS_TOO_LARGE],
        499: [Reason.CANCELLED],
        500: [Reason.DATA_LOSS, Reason.UNKNOWN, Reason.MODEL_ERROR, Reason.INTERNAL],
        501: [Reason.UNSUPPORTED],
        502: [Reason.INVALID_OUTPUT],
        503: [Reason.CIRCUIT_OPEN, Reason.UNREACHABLE, Reason.NOT_READY],
        504: [Reason.TIMEOUT],
        505: [Reason.VERSION_NOT_SUPPORTED],
    }.items()
    for reason in reasons
}


def read(message: Message, operation: Operation = Operation.INFER) -> GatewayError:
    with pytest.raises(GatewayError) as raised:
        V2_REST.decode_response(message, Request(operation, "m"), TARGET)
    return raised.value


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_a_number(reason: Reason) -> None:
    message = V2_REST.encode_error(refusal(reason, "no ümlaut"), None, Message())
    assert message.status == NUMBERS[reason]
    assert message.body == '{"error":"no ümlaut"}'.encode()
    assert list(message.headers) == [("content-type", "application/json"), ("gateway-reason", reason.value)]


def test_an_error_text_with_a_lone_surrogate_is_written() -> None:
    assert V2_REST.encode_error(refusal(Reason.INTERNAL, "\ud800"), None, Message()).body == b'{"error":"?"}'


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, Reason.INVALID_INPUT),
        (401, Reason.UNAUTHENTICATED),
        (403, Reason.PERMISSION_DENIED),
        (404, Reason.MODEL_NOT_FOUND),
        (405, Reason.UNSUPPORTED),
        (413, Reason.TOO_LARGE),
        (418, Reason.MODEL_ERROR),
        (422, Reason.INVALID_INPUT),
        (429, Reason.OVERLOADED),
        (499, Reason.CANCELLED),
        (500, Reason.MODEL_ERROR),
        (501, Reason.UNSUPPORTED),
        (502, Reason.INVALID_OUTPUT),
        (503, Reason.UNREACHABLE),
        (504, Reason.TIMEOUT),
        (599, Reason.MODEL_ERROR),
    ],
)
def test_reads_statuses_without_a_reason_header(status: int, reason: Reason) -> None:
    error = read(reply(b'{"error":"why"}', status=status))
    assert (error.status, error.reason, error.message) == (reason.status, reason, "why")


def test_ignores_a_reason_that_it_does_not_know() -> None:
    headers = Headers(((b"gateway-reason", b"boredom"),))
    assert "boredom" not in REASONS
    assert read(Message(status=404, headers=headers)).status is Status.NOT_FOUND


@pytest.mark.parametrize("operation", [Operation.MODELS, Operation.SERVER_METADATA])
def test_a_server_without_the_path_does_not_have_the_operation(operation: Operation) -> None:
    assert read(reply(b'{"detail":"Not Found"}', status=404), operation).reason is Reason.UNSUPPORTED


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error":"Request for unknown model"}', "Request for unknown model"),
        (
            b'{"detail":[{"type":"missing","loc":["body","inputs"],"msg":"Field required","input":{}},'
            b'{"type":"x","loc":["body","inputs",0,"datatype"],"msg":"bad"}]}',
            "body.inputs: Field required; body.inputs.0.datatype: bad",
        ),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b"Internal Server Error", "Internal Server Error"),
        (b'{"error":{"code":7}}', '{"error":{"code":7}}'),
        (b'{"error":"cut', '{"error":"cut'),
        (b'{"detail":7}', '{"detail":7}'),
        (b'{"detail":[7]}', '{"detail":[7]}'),
        (b"{}", "{}"),
        (b"\xff", "\ufffd"),
        (b"", "status 500 without a body"),
        (b" \n", "status 500 without a body"),
        (b"<" * 100_000, "<" * 8192),
        (b'{"error":"' + b"e" * 100_000 + b'"}', "e" * 8192),
    ],
)
def test_reads_the_error_text_of_any_body(body: bytes, text: str) -> None:
    assert read(reply(body, status=500)).message == text


def test_reads_an_error_sent_as_one_event() -> None:
    events = Headers(((b"content-type", b"text/event-stream; charset=utf-8"),))
    assert read(Message(status=500, headers=events, parts=(b'data: {"error":"no"}\n\n',))).message == "no"
    assert read(Message(status=500, headers=events, parts=(b"no event",))).message == "no event"
    assert read(Message(status=500, parts=(b"data: 1\n\n",))).message == "data: 1"


@pytest.mark.parametrize("reason", Reason)
def test_a_model_that_is_not_ready_is_a_4xx_with_the_reason(reason: Reason) -> None:
    """ "a 4xx status code indicates false": also if the backend is down or cannot be asked."""
    ready = Request(Operation.MODEL_READY, "m")
    message = V2_REST.encode_error(refusal(reason, "why"), ready, Message())
    assert message.status == (NUMBERS[reason] if NUMBERS[reason] < 500 else 400)
    assert message.body == b'{"name":"m","ready":false,"error":"why"}'
    if reason is Reason.MODEL_NOT_FOUND:
        assert V2_REST.decode_response(message, ready, TARGET) is False
    else:  # through another gateway the reason is not lost
        again = read(message, Operation.MODEL_READY)
        assert (again.reason, again.message) == (reason, "why")
