import pytest

from gateway.core.errors import Reason, Status, TransportError
from gateway.core.messages import Message
from gateway.core.protocol import Limits
from gateway.transports.http.client.reply import ReplyReader
from gateway.transports.http.client.reply_heads import LARGEST_HEAD, MOST_HEADS, ReplyHeadCache
from gateway.transports.memory import MIN_COUNTED, PROCESS_MEMORY

LIMITS = Limits(message=200_000, headers=200)
LARGE = bytes(range(256)) * 400

# bytes, status, body, whether the connection can be used again
LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 102400\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REPLIES = [
    (SIZED, 200, b"ok", True),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, b"", True),
    (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", True),
    (b"HTTP/1.1 500 Oh no\r\ncOnTent-LENGTH: 2\r\n\r\nok", 500, b"ok", True),
    (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
    (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", True),
    (CHUNKED + b"1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n", 200, b"ok", True),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: CHUNKED\r\n\r\n2\r\nok\r\n0\r\nTrailer: x\r\n\r\n", 200, b"ok", True),
    (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b"", False),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Hints\r\nLink: </x>\r\n\r\n" + SIZED, 200, b"ok", True),
    (LONG + LARGE, 200, LARGE, True),
    (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 102400\r\n\r\n" + LARGE, 200, LARGE, False),
    (CHUNKED + b"19000\r\n" + LARGE + b"\r\n0\r\n\r\n", 200, LARGE, True),
]
UNTIL_CLOSE = [
    (b"HTTP/1.1 200 OK\r\n\r\n", b""),
    (b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nok", b"ok"),
    (b"HTTP/1.1 200 OK\r\n\r\n" + LARGE, LARGE),
]
MALFORMED = [
    (b"HTTP/1.1 000 OK\r\nContent-Length: 2\r\n\r\nok", "the status 0"),
    (b"HTTP/1.1 099 OK\r\nContent-Length: 2\r\n\r\nok", "the status 99"),
    (b"garbage\r\n\r\n", "not HTTP/1.1"),
    (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", "not HTTP/1.1"),
    (b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/2.0, expected HTTP/1.1"),
    (b"HTTP/0.9 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/0.9, expected HTTP/1.1"),
    (b"HTTP/1.1 2x0 OK\r\n\r\n", "not HTTP/1.1"),
    (b"HTTP/1.1 200 OK\nContent-Length: 0\n\n", "not HTTP/1.1"),
    (b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n", "switched protocols"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", "Content-Length"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\nok", "Content-Length"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok", "Content-Length"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok", "Content-Length"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok", "'gzip', expected chunked"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", "'gzip, chunked', expected"),
    (CHUNKED + b"xyz\r\n", "not HTTP/1.1"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 200001\r\n\r\n", r"200001 bytes, at most 200000 .*limits\.message"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n", "Content-Length"),
    (CHUNKED + b"30d41\r\n" + bytes(200_001), r"more than 200000 bytes, .*limits\.message"),
    (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(200_001), r"more than 200000 bytes, .*limits\.message"),
    (
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300 + b"\r\nContent-Length: 0\r\n\r\n",
        r"200 bytes of headers .limits\.headers",
    ),
    (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 300, r"limits\.headers"),
    (b"HTTP/1.1 100 Continue\r\n\r\n" * 40, r"limits\.headers"),
    (CHUNKED + b"0\r\nX: " + b"x" * 300, r"limits\.headers"),
    (CHUNKED + b"2;" + b"x" * 300, r"limits\.headers"),
]
BROKEN_OFF = [
    (b"", "closed the connection before it answered"),
    (b"HTTP/1.1 2", "closed the connection in the middle of its reply's headers"),
    (b"HTTP/1.1 100 Continue\r\n\r\n", "closed the connection in the middle of its reply's headers"),
    (SIZED[:-1], "closed the connection in the middle of its reply, after 1 of 2 bytes of the body"),
    (
        LONG + LARGE[:70_000],
        "closed the connection in the middle of its reply, after 70000 of 102400 bytes of the body",
    ),
    (CHUNKED + b"2\r\nok\r\n", "closed the connection in the middle of its reply, after 2 bytes of the body"),
]
STEPS = [10**9, 1, 7, 1000]


def feed(reply: ReplyReader, data: bytes, step: int) -> Message | None:
    """Feed `data` as a connection does: into `body_buffer` if there is one, else at most 64 KiB at a time."""
    left = memoryview(data)
    while left and reply.message is None:
        if reply.body_buffer is None:
            piece = left[: min(step, 64 * 2**10)]
            reply.read(piece)
        else:
            piece = left[: min(step, len(reply.body_buffer))]
            reply.body_buffer[: len(piece)] = piece
            reply.filled(len(piece))
        left = left[len(piece) :]
    return reply.message


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("data", "status", "body", "keep_alive"), REPLIES)
def test_a_reply_is_read(data: bytes, status: int, body: bytes, keep_alive: bool, step: int) -> None:
    reply = ReplyReader(LIMITS)
    message = feed(reply, data, step)
    assert message is not None
    assert (message.status, bytes(message.body), reply.keep_alive) == (status, body, keep_alive)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("data", "body"), UNTIL_CLOSE)
def test_a_reply_is_read_until_the_close(data: bytes, body: bytes, step: int) -> None:
    reply = ReplyReader(LIMITS)
    assert feed(reply, data, step) is None
    assert bytes(reply.end().body) == body
    assert not reply.keep_alive


@pytest.mark.parametrize("tail", [b"x", b"H", SIZED, b"HTTP/1.1 500 Injected\r\nContent-Length: 0\r\n\r\n"])
@pytest.mark.parametrize(("data", "status", "body"), [reply[:3] for reply in REPLIES if len(reply[0]) < 1000])
def test_bytes_behind_a_reply_change_nothing_and_end_its_connection(
    data: bytes, status: int, body: bytes, tail: bytes
) -> None:
    reply = ReplyReader(LIMITS)
    message = feed(reply, data + tail, 10**9)
    assert message is not None
    assert (message.status, bytes(message.body), reply.keep_alive) == (status, body, False)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("data", "why"), MALFORMED)
def test_a_malformed_reply_is_refused(data: bytes, why: str, step: int) -> None:
    with pytest.raises(TransportError, match=why) as caught:
        feed(ReplyReader(LIMITS), data, step)
    error = caught.value
    assert (error.status, error.reason, error.sent) == (Status.INTERNAL, Reason.INVALID_OUTPUT, True)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(("data", "why"), BROKEN_OFF)
def test_a_reply_cut_short_is_an_error_that_tells_how_far_it_came(data: bytes, why: str, step: int) -> None:
    reply = ReplyReader(LIMITS)
    assert feed(reply, data, step) is None
    with pytest.raises(TransportError) as caught:
        reply.end()
    assert (caught.value.status, caught.value.reason) == (Status.UNAVAILABLE, Reason.UNREACHABLE)
    assert (caught.value.message, caught.value.sent) == (why, True)


@pytest.mark.parametrize("fields", [b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n", b""])
def test_a_reply_to_head_has_no_body(fields: bytes) -> None:
    reply = ReplyReader(LIMITS, to_head=True)
    message = feed(reply, b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n", 1)
    assert message is not None
    assert (message.body, reply.keep_alive) == (b"", False)


def test_header_names_are_lower_case_and_those_of_interim_replies_and_trailers_are_dropped() -> None:
    data = (
        b"HTTP/1.1 103 Hints\r\nA: 1\r\n\r\nHTTP/1.1 200 OK\r\nB-C: D\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"1\r\nx\r\n0\r\nE: 2\r\n\r\n"
    )
    message = feed(ReplyReader(LIMITS), data, 10**9)
    assert message is not None
    assert list(message.headers) == [("b-c", "D"), ("transfer-encoding", "chunked")]


def test_many_small_chunks_are_no_long_headers() -> None:
    data = CHUNKED + b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n"
    message = feed(ReplyReader(LIMITS), data, 1)
    assert message is not None
    assert message.body == b"x" * 1000


# A head that was seen before is not parsed again.

SHORT = [data for data, *_ in REPLIES if len(data) < 1000]
OTHERS = [SIZED + SIZED, SIZED + b"\r\n", b"\r\n" + SIZED, SIZED[:-1], SIZED + b"x", b""]


def seen(reply: ReplyReader, pieces: list[bytes]) -> tuple[object, ...]:
    """All that a connection sees of a reply that arrives in `pieces`, after which the peer closes."""
    try:
        for piece in pieces:
            if reply.message is None:
                reply.read(memoryview(piece))
        if reply.message is None:
            reply.end()
    except TransportError as error:
        return error.status, error.reason, error.message, error.sent
    message = reply.message
    assert message is not None
    return message, reply.keep_alive, reply.has_extra_bytes, reply.coding


def knowing(*replies: bytes) -> ReplyHeadCache:
    """The heads that are known after `replies`."""
    heads = ReplyHeadCache()
    for data in replies:
        seen(ReplyReader(LIMITS, heads=heads), [data])
    return heads


@pytest.mark.parametrize("data", [*SHORT, *OTHERS, *(each for each, _ in MALFORMED + BROKEN_OFF if len(each) < 1000)])
def test_a_reply_is_the_same_whether_its_head_is_known_and_wherever_it_is_split(data: bytes) -> None:
    heads = knowing(SIZED, *SHORT, data)
    splits = [[data], [data[at : at + 1] for at in range(len(data))]]
    splits += [[data[:at], data[at:]] for at in range(1, len(data))]
    for pieces in splits:
        assert seen(ReplyReader(LIMITS, heads=heads), pieces) == seen(ReplyReader(LIMITS), pieces)
        assert seen(ReplyReader(LIMITS, True, heads=heads), pieces) == seen(ReplyReader(LIMITS, True), pieces)


@pytest.mark.parametrize(("length", "body"), [(b"2", b"ko"), (b"3", b"yes")])
def test_a_known_head_is_not_parsed_whatever_its_length(
    length: bytes, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads = knowing(SIZED)
    monkeypatch.setattr("gateway.transports.http.client.reply.httptools", None)
    message = ReplyReader(LIMITS, heads=heads).read(memoryview(SIZED[:-2].replace(b": 2\r", b": %b\r" % length) + body))
    assert message is not None
    assert (message.status, message.body, message.headers.get("content-length")) == (200, body, length.decode())


LENGTHS = [b"0", b"2", b"0002", b"", b"-2", b"+2", b" 2", b"2 ", b"2\t", b"1_0", b"0x2", b"2,2", b"2" * 16, b"2" * 30]


@pytest.mark.parametrize("length", [*LENGTHS, b"%d" % LIMITS.message, b"%d" % (LIMITS.message + 1)])
@pytest.mark.parametrize("head", [SIZED[:-2], b"HTTP/1.1 200 OK\r\nX-Content-Length: 9\r\ncontent-length: 2\r\n\r\n"])
@pytest.mark.parametrize("size", [0, 1, 2, LIMITS.message, LIMITS.message + 1])
def test_another_length_means_the_same_whether_the_head_is_known(head: bytes, length: bytes, size: int) -> None:
    heads = knowing(head + b"ok")
    assert len(heads) == 1
    at = head.lower().index(b"\r\ncontent-length: ") + 18
    data = head[:at] + length + head[at + 1 :] + b"x" * size
    assert seen(ReplyReader(LIMITS, heads=heads), [data]) == seen(ReplyReader(LIMITS), [data])


@pytest.mark.parametrize("at", range(len(SIZED)))
def test_a_head_that_differs_in_one_byte_is_parsed(at: int) -> None:
    heads = knowing(SIZED)
    for byte in b"\0\r\n :123x\xff":
        data = SIZED[:at] + bytes([byte]) + SIZED[at + 1 :]
        assert seen(ReplyReader(LIMITS, heads=heads), [data]) == seen(ReplyReader(LIMITS), [data])


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" + SIZED,
        b"HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 2\r\n\r\nok",
        SIZED + b"x",
        SIZED + b"\r\n",
        SIZED[:-1],
        CHUNKED + b"0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nok",
        *(data for data, _ in MALFORMED),
    ],
)
def test_only_the_head_of_one_whole_reply_with_a_length_becomes_known(data: bytes) -> None:
    assert len(knowing(data)) == 0


def test_a_large_head_does_not_become_known() -> None:
    for size in (LARGEST_HEAD, LARGEST_HEAD + 1):
        heads = ReplyHeadCache()
        head = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: \r\n\r\n"
        seen(ReplyReader(Limits(), heads=heads), [head.replace(b": \r", b": %b\r" % (b"x" * (size - len(head))))])
        assert len(heads) == (1 if size == LARGEST_HEAD else 0)


def test_a_reply_to_head_makes_no_head_known() -> None:
    heads = ReplyHeadCache()
    seen(ReplyReader(LIMITS, True, heads=heads), [b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"])
    assert len(heads) == 0


def test_a_body_that_looks_like_a_reply_is_a_body() -> None:
    heads = knowing(SIZED)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(SIZED)
    for pieces in ([head, SIZED], [head + SIZED], [head[:1], head[1:], SIZED]):
        reply = ReplyReader(LIMITS, heads=heads)
        for piece in pieces:
            reply.read(memoryview(piece))
        assert reply.message is not None
        assert reply.message.body == SIZED


def test_known_heads_are_bounded_and_the_newest_are_kept() -> None:
    replies = [b"HTTP/1.1 200 OK\r\nDate: %d\r\nContent-Length: 2\r\n\r\nok" % each for each in range(3 * MOST_HEADS)]
    heads = knowing(*replies)
    assert len(heads) == MOST_HEADS
    assert [heads.find(data) is not None for data in replies] == [False] * 2 * MOST_HEADS + [True] * MOST_HEADS


def test_a_large_body_of_a_known_head_is_counted() -> None:
    data = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % MIN_COUNTED + bytes(MIN_COUNTED)
    heads = knowing(data)
    before = PROCESS_MEMORY.used
    message = ReplyReader(LIMITS, heads=heads).read(memoryview(data))
    assert PROCESS_MEMORY.used == before + MIN_COUNTED
    assert message is not None
    assert len(message.body) == MIN_COUNTED
