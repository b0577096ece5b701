"""Customized HTTP, passed through."""

from gateway.core.errors import Reason, refusal
from gateway.core.exchange import decoded
from gateway.core.messages import Headers, Message
from gateway.core.operations import Operation
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import DEFAULT_TRANSLATE, Response
from gateway.protocols.grps import GRPS_REST, PASSTHROUGH
from tests.protocols.grps.rest.wire import LISTENER, TARGET

FORWARDED = ((b"content-type", b"application/json; charset=utf-8"), (b"accept", b"text/event-stream"))
CALL = Message(
    "POST",
    "/v1/chat/completions",
    Headers(((b"host", b"gateway"), (b"authorization", b"Bearer secret"), *FORWARDED)),
    (b'{"stream": true, \xff', b"}"),
    query="model=m-1&x=%20",
    deadline=5.0,
)


def test_a_request_goes_out_as_it_came_without_credentials() -> None:
    request = decoded(CALL, PASSTHROUGH, LISTENER)
    assert (request.operation, request.model, request.deadline) == (Operation.STREAM, "m-1", 5.0)
    message = PASSTHROUGH.encode_request(request, TARGET)
    assert (message.method, message.path, message.query) == ("POST", "/v1/chat/completions", "model=m-1&x=%20")
    assert (message.headers, message.parts) == (Headers(FORWARDED), CALL.parts)
    assert decoded(Message("GET", "/x"), PASSTHROUGH, ListenerSettings(model="own")).model == "own"


def test_a_reply_comes_back_as_it_was() -> None:
    """Also what is of its connection: the transport drops that, with what else `Connection` names."""
    headers = ((b"content-type", b"text/event-stream"), (b"connection", b"close, x-hop"), (b"x-hop", b"1"))
    reply = Message(headers=Headers(headers), parts=(b"data: 1\n",), status=418)
    request = decoded(CALL, PASSTHROUGH, LISTENER)
    answer = PASSTHROUGH.decode_response(reply, request, TARGET)
    assert isinstance(answer, Response)
    assert PASSTHROUGH.encode_response(answer, request, DEFAULT_TRANSLATE) == reply


def test_every_request_is_a_stream_of_the_same_protocol() -> None:
    assert PASSTHROUGH.http.wants_stream is not None
    assert PASSTHROUGH.http.wants_stream(CALL)
    assert GRPS_REST.http.passthrough is PASSTHROUGH
    assert PASSTHROUGH.name == GRPS_REST.name


def test_errors_are_those_of_grps() -> None:
    reply = PASSTHROUGH.encode_error(refusal(Reason.UNREACHABLE, "down"), None, CALL)
    assert (reply.status, bytes(reply.body)) == (503, b'{"status":{"code":503,"msg":"down","status":"FAILURE"}}')
