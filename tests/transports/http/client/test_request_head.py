import pytest

from gateway.core.messages import Headers, Message
from gateway.transports.http.address import parse_address
from gateway.transports.http.client.request_head import HeadWriter

JSON = Headers([(b"content-type", b"application/json")])
WRITER = HeadWriter(parse_address("http://127.0.0.1:8000/base"), close=False)
CLOSING = HeadWriter(parse_address("http://[::1]"), close=True)

BASE = b" HTTP/1.1\r\nHost: 127.0.0.1:8000\r\n"
GET_V2 = b"GET /base/v2" + BASE
OTHER_FRAMING = Headers([(b"content-length", b"7"), (b"transfer-encoding", b"chunked"), (b"host", b"x")])

HEADS = [
    (WRITER, Message("GET", "/v2"), 0, None, GET_V2 + b"\r\n"),
    (CLOSING, Message("GET", "/Info"), 0, None, b"GET /Info HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n"),
    # A POST without a length keeps the C++ UM-Bridge server waiting for up to a year.
    (WRITER, Message("POST", "/v2/index"), 0, None, b"POST /base/v2/index" + BASE + b"Content-Length: 0\r\n\r\n"),
    (
        WRITER,
        Message("POST", "/a%20b", JSON, query="x=1"),
        12,
        1.5,
        b"POST /base/a%20b?x=1" + BASE + b"content-type: application/json\r\n"
        b"Content-Length: 12\r\nRequest-Timeout: 1.500\r\n\r\n",
    ),
    # Our own listener, for one, refuses a timeout of zero, and one of more than nine digits.
    (WRITER, Message("GET", "/v2"), 0, 1e-9, GET_V2 + b"Request-Timeout: 0.001\r\n\r\n"),
    (WRITER, Message("GET", "/v2"), 0, 1.8e13, GET_V2 + b"Request-Timeout: 999999999.000\r\n\r\n"),
    (WRITER, Message("GET", "/v2", OTHER_FRAMING), 0, None, GET_V2 + b"\r\n"),
]
OWN = ((b"host", b"iris.example.com"), (b"x-tenant", b"a"), (b"accept", b"text/csv"), (b"connection", b"upgrade"))


@pytest.mark.parametrize("close", [False, True])
def test_own_headers_take_the_place_of_those_of_the_message(close: bool) -> None:
    message = Message("POST", "/v2", Headers([(b"X-Tenant", b"b"), (b"accept", b"*/*"), (b"x-other", b"c")]))
    head = HeadWriter(parse_address("http://127.0.0.1:8000"), close=close, headers=OWN).write(message, 2, 1.5)
    assert head == (
        b"POST /v2 HTTP/1.1\r\nHost: iris.example.com\r\n"
        + (b"Connection: close\r\n" if close else b"")
        + b"x-tenant: a\r\naccept: text/csv\r\nx-other: c\r\nContent-Length: 2\r\nRequest-Timeout: 1.500\r\n\r\n"
    )


@pytest.mark.parametrize(("writer", "message", "size", "remaining", "head"), HEADS)
def test_a_head_is_written(
    writer: HeadWriter, message: Message, size: int, remaining: float | None, head: bytes
) -> None:
    assert writer.write(message, size, remaining) == head


@pytest.mark.parametrize(
    "message",
    [
        Message("GET", "/v2\r\nX: y"),
        Message("GET", "/v2 HTTP/1.1"),
        Message("GET", "/v2", query="a b"),
        Message("GET\n", "/v2"),
        Message("GET", "/v2", Headers([(b"x", b"y\r\nHost: z")])),
        Message("GET", "/v2", Headers([(b"x\n", b"y")])),
        Message("GET", "/v2", Headers([(b"x", b"y\r")])),
        Message("GET", "/ä"),
    ],
)
def test_line_breaks_and_bad_paths_are_refused(message: Message) -> None:
    with pytest.raises(ValueError, match=r"line break|absolute|ascii"):
        CLOSING.write(message, 0, None)


def test_a_head_that_was_written_before_has_the_length_of_this_body() -> None:
    head = b"POST /base/v2" + BASE + b"content-type: application/json\r\nContent-Length: %d\r\n"
    for size in (7, 0, 123_456, 7):
        assert WRITER.write(Message("POST", "/v2", JSON), size, None) == head % size + b"\r\n"
        limited = WRITER.write(Message("POST", "/v2", JSON), size, 1.5)
        assert limited == head % size + b"Request-Timeout: 1.500\r\n\r\n"


def test_headers_that_differ_from_request_to_request_follow_those_that_do_not() -> None:
    messages = [Message("GET", "/v2", further=((b"x-request-id", id), (b"traceparent", b"t"))) for id in (b"1", b"2")]
    heads = [WRITER.write(each, 0, None) for each in messages]
    assert heads == [GET_V2 + b"x-request-id: %b\r\ntraceparent: t\r\n\r\n" % id for id in (b"1", b"2")]
