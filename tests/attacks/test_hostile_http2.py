"""gRPC servers that violate HTTP/2: every client gets its answer, or an error in its own protocol."""

from __future__ import annotations

import gzip
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from tests.attacks import hostile
from tests.attacks.behind import LIMIT, Mode, Rig, rig
from tests.attacks.test_servers import echo
from tests.core.http2 import by_hand as http2
from tests.core.http2.by_hand import (
    CONTENT_TYPE,
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    OK,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
    head,
    settings,
)

Reply = Callable[[int, bytes], bytes]
"""Returns the frames for a call, from its stream and from the message that a correct server would send."""

PRIORITY, PUSH_PROMISE, UNKNOWN = 2, 5, 0x42
PADDED = 8
BEGIN = settings() + http2.window_update(0, 2**30)
GZIP = (b"grpc-encoding", b"gzip")
BOMB = gzip.compress(bytes(50 * LIMIT))


def speaking(reply: Reply, begin: bytes = BEGIN, *, closes: bool = False) -> hostile.Script:
    """Send `begin`, then the reply to each call. Close the connection after the first reply, or keep it open until the
    gateway closes it."""

    def script(connection: socket.socket) -> None:
        connection.sendall(begin)
        hostile.exactly(connection, len(http2.PREFACE))
        while True:
            stream, asked = hostile.http2_request(connection)
            connection.sendall(reply(stream, echo(asked[5:])))
            if closes:
                return

    return script


def fails(reply: Reply, expected: str) -> Mode:
    """The call fails, and its connection serves the next one."""
    return Mode(speaking(reply), expected, stays=True)


def breaks(reply: Reply, expected: str, *, closes: bool = False) -> Mode:
    """The call fails, and with it the connection."""
    return Mode(speaking(reply, closes=closes), expected)


def passes(reply: Reply, begin: bytes = BEGIN) -> Mode:
    return Mode(speaking(reply, begin), stays=True)


def begins(begin: bytes, expected: str) -> Mode:
    """Return a mode in which the first bytes of the server are wrong."""
    return Mode(speaking(good, begin), expected)


def hangs(reply: Reply, begin: bytes = BEGIN, *, stays: bool = True) -> Mode:
    # The policy's limit, or the same time as the call's deadline where nothing was sent: either may be noticed first.
    return Mode(speaking(reply, begin), "within 0. | before the gateway sent the request", hangs=True, stays=stays)


def good(stream: int, message: bytes) -> bytes:
    return http2.reply(message, stream=stream)


def instead(frames: bytes) -> Reply:
    """These frames and no reply."""
    return lambda stream, message: frames


def first(frames: bytes) -> Reply:
    """These frames before a good reply."""
    return lambda stream, message: frames + good(stream, message)


def of(made: Callable[[int], bytes]) -> Reply:
    """Frames for the stream of the call and no reply."""
    return lambda stream, message: made(stream)


def framed(kind: int, flags: int, payload: bytes = b"") -> Reply:
    """A frame for the stream of the call and no reply."""
    return of(lambda stream: frame(kind, flags, stream, payload))


def reset(code: int) -> Reply:
    return of(lambda stream: http2.reset(code, stream))


def within(made: Callable[[int], bytes]) -> Reply:
    """Frames for the stream of the call between the head and the message of a good reply."""
    return lambda stream, message: begun(stream) + made(stream) + http2.data(message, stream=stream) + ended(stream)


def begun(stream: int, *fields: tuple[bytes, bytes]) -> bytes:
    return head(OK, CONTENT_TYPE, *fields, stream=stream)


def ended(stream: int, *fields: tuple[bytes, bytes]) -> bytes:
    return head(*(fields or ((b"grpc-status", b"0"),)), end=True, stream=stream)


def block(octets: bytes) -> Reply:
    """A header block of these bytes."""
    return framed(HEADERS, END_HEADERS, octets)


def headed(*fields: tuple[bytes, bytes]) -> Reply:
    """A good reply with this head."""
    return lambda stream, message: head(*fields, stream=stream) + http2.data(message, stream=stream) + ended(stream)


def trailed(*fields: tuple[bytes, bytes]) -> Reply:
    """A good reply with these trailers."""
    return lambda stream, message: begun(stream) + http2.data(message, stream=stream) + ended(stream, *fields)


def told(flag: int, size: int | None, *fields: tuple[bytes, bytes], packed: bytes | None = None) -> Reply:
    """A reply whose message has this prefix: a flag and a size, the right one if None."""

    def reply(stream: int, message: bytes) -> bytes:
        data = message if packed is None else packed
        prefix = struct.pack(">BL", flag, len(data) if size is None else size)
        pieces = [(prefix + data)[at : at + 2**14] for at in range(0, len(prefix + data), 2**14)]
        return b"".join([begun(stream, *fields), *(frame(DATA, 0, stream, each) for each in pieces), ended(stream)])

    return reply


def one_frame_padded(stream: int, message: bytes) -> bytes:
    data = b"\3" + b"\0" + len(message).to_bytes(4) + message + bytes(3)
    return begun(stream) + frame(DATA, PADDED, stream, data) + ended(stream)


def byte_by_byte(stream: int, message: bytes) -> bytes:
    data = b"\0" + len(message).to_bytes(4) + message
    return b"".join(
        [begun(stream), *(frame(DATA, 0, stream, data[at : at + 1]) for at in range(len(data))), ended(stream)]
    )


def go_away(last: int, code: int = 0) -> bytes:
    return frame(GOAWAY, 0, 0, struct.pack(">LL", last, code) + b"bye")


def endless(start: Callable[[int], bytes], piece: Callable[[int], bytes]) -> hostile.Script:
    """A reply that never ends. What the gateway sends meanwhile may stay unread: it is little."""

    def script(connection: socket.socket) -> None:
        hostile.http2_opening(connection)
        stream, _ = hostile.http2_request(connection)
        connection.sendall(start(stream))
        while True:
            connection.sendall(piece(stream) * 100)

    return script


def closes_at_once(connection: socket.socket) -> None:
    pass


def resets(connection: socket.socket) -> None:
    hostile.http2_opening(connection)
    hostile.http2_request(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def half_a_block(connection: socket.socket) -> None:
    hostile.http2_opening(connection)
    stream, _ = hostile.http2_request(connection)
    connection.sendall(frame(HEADERS, 0, stream, http2.block(OK)))
    hostile.silent(connection)


def setting(number: int, value: int) -> bytes:
    return frame(SETTINGS, 0, 0, struct.pack(">HL", number, value))


MODES: dict[str, Mode] = {
    # what comes first
    "HTTP/1": begins(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "it speaks HTTP/1, not HTTP/2"),
    "no frames": begins(b"hello, this is something else\r\n", "a frame of 6841708 bytes"),
    "no SETTINGS": begins(frame(PING, 0, 0, bytes(8)), "a frame of type 6, expected type 4"),
    "an acknowledgement first": begins(
        frame(SETTINGS, 1, 0, b""), "SETTINGS that acknowledge something, but come first"
    ),
    "SETTINGS of a stream": begins(frame(SETTINGS, 0, 1, b""), "SETTINGS of stream 1"),
    "SETTINGS of five bytes": begins(frame(SETTINGS, 0, 0, bytes(5)), "SETTINGS of 5 bytes"),
    "a window beyond 2^31": begins(setting(4, 2**31), "SETTINGS set INITIAL_WINDOW_SIZE to 2147483648"),
    "frames of one byte": begins(setting(5, 1), "SETTINGS set MAX_FRAME_SIZE to 1"),
    "frames beyond 2^24": begins(setting(5, 2**24), "SETTINGS set MAX_FRAME_SIZE to 16777216"),
    "a push that is neither on nor off": begins(setting(2, 2), "SETTINGS set ENABLE_PUSH to 2, it is 0 or 1"),
    "pushing": passes(good, setting(2, 1) + BEGIN),
    "a large table": passes(good, setting(1, 2**32 - 1) + BEGIN),
    "unknown settings": passes(good, setting(0xABCD, 7) + BEGIN),
    "no calls allowed": hangs(good, settings(MAX_CONCURRENT_STREAMS=0)),
    "no room for a request": hangs(good, settings(INITIAL_WINDOW_SIZE=0)),
    "nothing first": Mode(speaking(good, b""), "within 0.", hangs=True, stays=True),
    "GOAWAY first": begins(BEGIN + go_away(0), "the endpoint closed the connection immediately"),
    "closes at once": Mode(closes_at_once, "without a reply"),
    # frames where they do not belong
    "DATA of no stream": breaks(instead(frame(DATA, 0, 0, b"x")), "DATA of stream 0, which was never opened"),
    "HEADERS of no stream": breaks(
        instead(head(OK, CONTENT_TYPE, stream=0)), "HEADERS of stream 0, which was never opened"
    ),
    "RST_STREAM of no stream": breaks(instead(http2.reset(1, 0)), "RST_STREAM of stream 0, which was never opened"),
    "CONTINUATION of no stream": breaks(
        instead(frame(CONTINUATION, 4, 0, b"")), "CONTINUATION of no header block, on stream 0"
    ),
    "PRIORITY of no stream": breaks(instead(frame(PRIORITY, 0, 0, bytes(5))), "PRIORITY of stream 0"),
    "SETTINGS of the call": breaks(framed(SETTINGS, 0, b""), "SETTINGS of stream 1"),
    "PING of the call": breaks(framed(PING, 0, bytes(8)), "PING of stream 1; it has stream 0"),
    "GOAWAY of the call": breaks(framed(GOAWAY, 0, bytes(8)), "GOAWAY of stream 1; it has stream 0"),
    "DATA of an idle stream": breaks(instead(frame(DATA, 0, 99, b"x")), "DATA of stream 99, which was never opened"),
    "HEADERS of an idle stream": breaks(
        instead(head(OK, CONTENT_TYPE, stream=99)), "HEADERS of stream 99, which was never opened"
    ),
    "HEADERS of a stream of its own": breaks(
        instead(head(OK, CONTENT_TYPE, stream=2)), "HEADERS of stream 2, which was never opened"
    ),
    "RST_STREAM of an idle stream": breaks(
        instead(http2.reset(8, 99)), "RST_STREAM of stream 99, which was never opened"
    ),
    "WINDOW_UPDATE of an idle stream": breaks(
        instead(http2.window_update(99, 1)), "WINDOW_UPDATE of stream 99, which was never opened"
    ),
    "PUSH_PROMISE": breaks(
        framed(PUSH_PROMISE, 4, bytes([0, 0, 0, 2])), "PUSH_PROMISE, which this side does not accept"
    ),
    "PRIORITY on itself": passes(within(lambda stream: frame(PRIORITY, 0, stream, struct.pack(">LB", stream, 1)))),
    "HEADERS that depend on themselves": passes(
        lambda stream, message: (
            frame(HEADERS, 0x24, stream, struct.pack(">LB", stream, 1) + http2.block(OK, CONTENT_TYPE))
            + http2.data(message, stream=stream)
            + ended(stream)
        )
    ),
    "unknown frames": passes(within(lambda stream: frame(UNKNOWN, 0xFF, stream, b"x" * 100))),
    # sizes
    "a frame beyond the limit": breaks(framed(DATA, 0, bytes(2**14 + 1)), "a frame of 16385 bytes"),
    "a frame of 16 MiB": breaks(
        of(lambda stream: b"\xff\xff\xff\0\0" + stream.to_bytes(4)), "a frame of 16777215 bytes"
    ),
    "a frame of an unknown type, of 16 MiB": breaks(
        of(lambda stream: b"\xff\xff\xff\x42\0" + stream.to_bytes(4)), "a frame of 16777215 bytes"
    ),
    "RST_STREAM of three bytes": breaks(framed(RST_STREAM, 0, bytes(3)), "RST_STREAM of 3 bytes"),
    "PING of seven bytes": breaks(instead(frame(PING, 0, 0, bytes(7))), "PING of 7 bytes"),
    "GOAWAY of seven bytes": breaks(instead(frame(GOAWAY, 0, 0, bytes(7))), "GOAWAY of 7 bytes"),
    "WINDOW_UPDATE of five bytes": breaks(instead(frame(WINDOW_UPDATE, 0, 0, bytes(5))), "WINDOW_UPDATE of 5 bytes"),
    "an acknowledgement of SETTINGS with settings": breaks(
        instead(frame(SETTINGS, 1, 0, bytes(6))), "SETTINGS that acknowledge something, and have values"
    ),
    # padding
    "padding": passes(one_frame_padded),
    "more padding than DATA": breaks(within(lambda stream: frame(DATA, PADDED, stream, b"\5abc")), "DATA of 4 bytes"),
    "padding without its length": breaks(within(lambda stream: frame(DATA, PADDED, stream, b"")), "DATA of 0 bytes"),
    "more padding than HEADERS": breaks(
        of(lambda stream: frame(HEADERS, PADDED | 4, stream, b"\xff")), "HEADERS of 1 bytes"
    ),
    "HEADERS too short for their priority": breaks(framed(HEADERS, 0x24, b"abc"), "HEADERS of 3 bytes"),
    # windows
    "WINDOW_UPDATE by 0": breaks(instead(http2.window_update(0, 0)), "WINDOW_UPDATE by 0"),
    "WINDOW_UPDATE of the call by 0": breaks(of(lambda stream: http2.window_update(stream, 0)), "WINDOW_UPDATE by 0"),
    "a window of the connection beyond 2^31": breaks(
        instead(http2.window_update(0, 2**31 - 1) * 2), "WINDOW_UPDATE by 2147483647 to "
    ),
    "a window of the call, widened when it has been sent": passes(
        within(lambda stream: http2.window_update(stream, 2**31 - 1) * 2)
    ),
    # the first call is told of the message, later ones perhaps of the connection, which ends meanwhile
    "more than the window": Mode(
        endless(begun, lambda stream: frame(DATA, 0, stream, b"\0\xff\xff\xff\xff" + bytes(16000))), "backend 'mode"
    ),
    # header blocks
    "CONTINUATION of no block": breaks(framed(CONTINUATION, 4, b""), "CONTINUATION of no header block, on stream 1"),
    "CONTINUATION of another stream": breaks(
        of(lambda stream: frame(HEADERS, 0, stream, b"") + frame(CONTINUATION, 4, stream + 2, b"")),
        "CONTINUATION of no header block, on stream 3",
    ),
    "a frame within a block": breaks(
        of(lambda stream: frame(HEADERS, 0, stream, b"") + frame(PING, 0, 0, bytes(8))),
        "a frame of type 6, expected type 9",
    ),
    "a block in pieces": passes(
        lambda stream, message: (
            frame(HEADERS, 0, stream, http2.block(OK))
            + frame(CONTINUATION, 0, stream, b"")
            + frame(CONTINUATION, 4, stream, http2.block(CONTENT_TYPE))
            + http2.data(message, stream=stream)
            + ended(stream)
        )
    ),
    "a block without end": Mode(
        endless(
            lambda stream: frame(HEADERS, 0, stream, b""), lambda stream: frame(CONTINUATION, 0, stream, b"x" * 100)
        ),
        "a header block without an end",
    ),
    "a block of empty pieces without end": Mode(
        endless(lambda stream: frame(HEADERS, 0, stream, b""), lambda stream: frame(CONTINUATION, 0, stream, b"")),
        "a header block without an end",
    ),
    "half a block": Mode(half_a_block, "within 0.", hangs=True, stays=True),
    "HPACK's index 0": fails(block(b"\x80"), "a header block refers to entry 0"),
    "an index beyond the table": fails(block(b"\xff\x80\x01"), "a header block refers to entry 255"),
    "an index that never ends": fails(block(b"\xff" + b"\xff" * 20), "a header block has an integer that does not end"),
    "an index cut off": fails(block(b"\xff"), "a header block has an integer that does not end"),
    "a name cut off": fails(block(b"\0\x20abc"), "a header block has a string of 32 bytes"),
    "Huffman code that is none": fails(
        block(b"\0\x84\xff\xff\xff\xff\x01x"), "a Huffman-coded string does not end with a symbol and its padding"
    ),
    "a table beyond what was allowed": fails(
        block(b"\x3f\xe1\xff\x03"), "a header block sets a dynamic table of 65536 bytes"
    ),
    "a huge header": fails(
        headed(OK, CONTENT_TYPE, *[(b"x-%d" % at, b"y" * 120) for at in range(120)]), "limits.headers"
    ),
    "a field that grows when it is read": fails(
        framed(HEADERS, 4, http2.block(OK, CONTENT_TYPE) + b"\x90" * 16000), "limits.headers"
    ),
    "a name in capitals": fails(headed(OK, CONTENT_TYPE, (b"X-Name", b"y")), "is not allowed"),
    "a line break in a value": fails(headed(OK, CONTENT_TYPE, (b"x", b"a\r\nb: c")), "holds a line break or a NUL"),
    "NUL in a value": fails(headed(OK, CONTENT_TYPE, (b"x", b"a\0")), "holds a line break or a NUL"),
    "a field of the connection": fails(headed(OK, CONTENT_TYPE, (b"connection", b"close")), "is not allowed"),
    "a pseudo-header behind the others": fails(headed(CONTENT_TYPE, OK), "is unknown, late or there twice"),
    "an unknown pseudo-header": fails(headed(OK, CONTENT_TYPE, (b":other", b"y")), "is unknown, late or there twice"),
    "a request's pseudo-header": fails(headed(OK, (b":path", b"/"), CONTENT_TYPE), "is unknown, late or there twice"),
    "two statuses": fails(headed(OK, (b":status", b"500"), CONTENT_TYPE), "is unknown, late or there twice"),
    "no HTTP status": fails(headed(CONTENT_TYPE), "reply has no HTTP status"),
    "an HTTP status that is none": fails(headed((b":status", b"OK"), CONTENT_TYPE), "a head has the HTTP status b'OK'"),
    "HTTP status 503": fails(
        headed((b":status", b"503"), (b"content-type", b"text/html")),
        "HTTP status 503 without a gRPC status and with a web page",
    ),
    "an HTML page": fails(
        headed(OK, (b"content-type", b"text/html")), "HTTP status 200 without a gRPC status and with a web page"
    ),
    "no content type": fails(headed(OK), "HTTP status 200 without a gRPC status"),
    "interim heads": passes(
        lambda stream, message: head((b":status", b"103"), stream=stream) * 3 + good(stream, message)
    ),
    "interim heads without end": Mode(
        endless(lambda stream: b"", lambda stream: head((b":status", b"103"), stream=stream)),
        "too many heads of one reply",
    ),
    # messages
    "DATA before HEADERS": fails(
        lambda stream, message: http2.data(message, stream=stream) + good(stream, message),
        "reply begins without a head",
    ),
    "DATA that end the stream": fails(
        lambda stream, message: begun(stream) + http2.data(message, end=True, stream=stream),
        "reply ended without a status",
    ),
    "HEADERS that end the stream without a status": fails(
        of(lambda stream: head(OK, CONTENT_TYPE, end=True, stream=stream)), "reply ended without a status"
    ),
    "two heads": fails(
        lambda stream, message: begun(stream) + good(stream, message), "reply has trailers that do not end it"
    ),
    "trailers that do not end": fails(
        lambda stream, message: (
            begun(stream) + http2.data(message, stream=stream) + head((b"grpc-status", b"0"), stream=stream)
        ),
        "reply has trailers that do not end it",
    ),
    "trailers twice": passes(lambda stream, message: good(stream, message) + ended(stream)),
    "a message behind the trailers": passes(
        lambda stream, message: good(stream, message) + http2.data(b"other", stream=stream)
    ),
    "a length that is too large": fails(told(0, 1000), "reply ended within a message"),
    "a length that is too small": fails(told(0, 3), "a message's Compressed-Flag is"),
    "a length of 4 GiB": fails(told(0, 2**32 - 1), "limits.message"),
    "half a length": fails(
        lambda stream, message: begun(stream) + frame(DATA, 0, stream, b"\0\0") + ended(stream),
        "reply ended within a message",
    ),
    "compressed, in no coding": fails(told(1, None), "reply is compressed with grpc-encoding '', identity was offered"),
    "a flag that is none": fails(told(2, None), "a message's Compressed-Flag is 2, it is 0 or 1"),
    "compressed in an unknown coding": fails(
        told(1, None, (b"grpc-encoding", b"snappy")),
        "reply is compressed with grpc-encoding 'snappy', identity was offered",
    ),
    "gzip that is none": fails(told(1, None, GZIP), "the message is not gzip data"),
    "gzip cut off": fails(
        told(1, None, GZIP, packed=gzip.compress(b"abc" * 50)[:-9]), "the message ends before its gzip data does"
    ),
    "gzip of too much": fails(told(1, None, GZIP, packed=BOMB), "limits.inflation"),
    "no message": fails(
        lambda stream, message: begun(stream) + ended(stream), "the status is OK, but the reply is missing"
    ),
    "no message, and one head": fails(
        of(lambda stream: head(OK, CONTENT_TYPE, (b"grpc-status", b"0"), end=True, stream=stream)),
        "the status is OK, but the reply is missing",
    ),
    "two messages": fails(
        lambda stream, message: begun(stream) + http2.data(message, stream=stream) * 2 + ended(stream),
        "reply has more than one message",
    ),
    "a message that is none": fails(
        told(0, None, packed=b"\xff\xff\xff"), "is no inference.ModelInferResponse message"
    ),
    "an empty message": fails(told(0, None, packed=b""), "0 outputs, expected 1"),
    "a message byte by byte": passes(byte_by_byte),
    "no status": fails(trailed((b"x", b"y")), "reply ended without a status"),
    "a status that is none": fails(trailed((b"grpc-status", b"zero")), "status UNKNOWN without a text"),
    "an empty status": fails(trailed((b"grpc-status", b"")), "status UNKNOWN without a text"),
    "an unknown status": fails(trailed((b"grpc-status", b"99")), "status UNKNOWN without a text"),
    "a negative status": fails(trailed((b"grpc-status", b"-1")), "status UNKNOWN without a text"),
    "a huge status": fails(trailed((b"grpc-status", b"0" * 100)), "status UNKNOWN without a text"),
    "two gRPC statuses": fails(
        trailed((b"grpc-status", b"13"), (b"grpc-status", b"0")), "status INTERNAL without a text"
    ),
    "a text that is not percent-encoded": fails(
        trailed((b"grpc-status", b"3"), (b"grpc-message", b"%zz%0d%0aX: y%00%ff")), "%zz"
    ),
    "a huge text": fails(trailed((b"grpc-status", b"3"), *[(b"grpc-message", b"y" * 120)] * 115), "limits.headers"),
    # ends
    "RST_STREAM": fails(reset(8), "the call was reset: CANCEL"),
    "RST_STREAM without an error": fails(reset(0), "the call was reset: NO_ERROR"),
    "RST_STREAM: refused": fails(reset(7), "the call was reset: REFUSED_STREAM"),
    "RST_STREAM: HTTP/1.1 required": fails(reset(13), "the call was reset: HTTP_1_1_REQUIRED"),
    "RST_STREAM of an unknown code": fails(reset(2**32 - 1), "the call was reset: error code 2147483647"),
    "RST_STREAM within the reply": fails(
        of(lambda stream: begun(stream) + http2.reset(2, stream)), "the call was reset: INTERNAL_ERROR"
    ),
    "RST_STREAM behind the reply": passes(lambda stream, message: good(stream, message) + http2.reset(0, stream)),
    "GOAWAY before the call": breaks(
        instead(go_away(0)), "the endpoint takes no more calls on this connection: NO_ERROR"
    ),
    "GOAWAY behind the call, and its reply": Mode(
        speaking(lambda stream, message: go_away(stream) + good(stream, message))
    ),
    "GOAWAY of an error, and its reply": Mode(
        speaking(lambda stream, message: go_away(stream, 2) + good(stream, message))
    ),
    "GOAWAY whose last stream grows": Mode(
        speaking(lambda stream, message: go_away(stream) + go_away(2**31 - 1) + good(stream, message))
    ),
    "GOAWAY and close": breaks(
        of(lambda stream: go_away(stream, 2)), "the connection was closed without a reply", closes=True
    ),
    "GOAWAY and silence": Mode(speaking(of(lambda stream: go_away(stream))), "within 0.", hangs=True),
    "closes within a frame": breaks(
        of(lambda stream: begun(stream)[:-3]), "the connection was closed without a reply", closes=True
    ),
    "closes within its reply": breaks(
        of(lambda stream: begun(stream)), "the connection was closed without a reply", closes=True
    ),
    "closes without a reply": breaks(instead(b""), "the connection was closed without a reply", closes=True),
    "resets the connection": Mode(resets, "the connection was reset without a reply"),
    "says nothing": hangs(instead(b"")),
    "a head and no more": hangs(of(lambda stream: begun(stream))),
    "half a message": hangs(of(lambda stream: begun(stream) + http2.data(b"abc", size=100, stream=stream))),
    "a message and no more": hangs(lambda stream, message: begun(stream) + http2.data(message, stream=stream)),
}


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory, works: str) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("http2"), works, MODES, "v2-grpc", "flavor: plain") as made:
        yield made


@pytest.mark.parametrize("name", MODES)
def test_every_client_gets_an_answer_or_an_error(behind: Rig, name: str) -> None:
    behind.check(name)
