"""HTTP/1.1 servers that violate the protocol: every client gets its answer, or an error in its own protocol."""

from __future__ import annotations

import gzip
import json
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from tests.attacks import hostile
from tests.attacks.behind import LIMIT, Mode, Rig, rig

Reply = Callable[[bytes], bytes]
"""Of the document of a good reply."""

END = b"\r\n\r\n"
BOMB = gzip.compress(bytes(50 * LIMIT))


def document_for(body: bytes) -> bytes:
    """Return the answer of a correct server: the tensor of the request."""
    given = json.loads(body)["inputs"][0]
    output = {"name": "x", "datatype": given["datatype"], "shape": given["shape"], "data": given["data"]}
    return json.dumps({"model_name": "m", "outputs": [output]}).encode()


def answering(reply: Reply | bytes, *, closes: bool = False) -> hostile.Script:
    """Answer each request. Close the connection after the first reply, or keep it open until the gateway closes it."""
    made = reply if callable(reply) else (lambda body: reply)

    def script(connection: socket.socket) -> None:
        while True:
            connection.sendall(made(document_for(hostile.http_request(connection)[1])))
            if closes:
                return

    return script


def endless(start: bytes, piece: bytes) -> hostile.Script:
    """A reply that never ends."""

    def script(connection: socket.socket) -> None:
        hostile.http_request(connection)
        connection.sendall(start)
        while True:
            connection.sendall(piece)

    return script


def fails(reply: Reply | bytes, expected: str) -> Mode:
    """The call fails, and its connection serves the next one."""
    return Mode(answering(reply), expected, stays=True)


def breaks(reply: Reply | bytes, expected: str, *, closes: bool = False) -> Mode:
    """The call fails, and with it the connection."""
    return Mode(answering(reply, closes=closes), expected)


def passes(reply: Reply, *, closes: bool = False, stays: bool = False) -> Mode:
    return Mode(answering(reply, closes=closes), stays=stays)


def hangs(reply: Reply | bytes) -> Mode:
    return Mode(answering(reply), "within 0.", hangs=True)


def good(body: bytes, line: bytes = b"HTTP/1.1 200 OK", *fields: bytes) -> bytes:
    return b"\r\n".join((line, *fields, b"Content-Length: %d" % len(body), b"", body))


def lined(line: bytes) -> Reply:
    """A good reply but for its first line."""
    return lambda body: good(body, line)


def fielded(*fields: bytes) -> Reply:
    """A good reply with these fields as well."""
    return lambda body: good(body, b"HTTP/1.1 200 OK", *fields)


def framed(*fields: bytes) -> Reply:
    """A reply whose length only these fields tell."""
    return lambda body: b"\r\n".join((b"HTTP/1.1 200 OK", *fields, b"", body))


def chunked(chunks: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def documented(document: object) -> bytes:
    """A reply of this JSON."""
    return good(document if isinstance(document, bytes) else json.dumps(document).encode())


def tensors(**members: object) -> bytes:
    """A reply of one output with these members instead."""
    output = {"name": "x", "datatype": "INT64", "shape": [1, 1], "data": [7]} | members
    return documented({"model_name": "m", "outputs": [{key: each for key, each in output.items() if each is not ...}]})


def closes_at_once(connection: socket.socket) -> None:
    pass


def resets(connection: socket.socket) -> None:
    hostile.http_request(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def resets_within(connection: socket.socket) -> None:
    hostile.http_request(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def speaks_first(connection: socket.socket) -> None:
    connection.sendall(b"hello" + END)
    hostile.silent(connection)


MODES: dict[str, Mode] = {
    # status lines
    "not HTTP": breaks(b"hello" + END, "Expected HTTP/, RTSP/ or ICE/"),
    "frames of HTTP/2": breaks(b"\0\0\0\4\0\0\0\0\0" * 9, "Expected HTTP/, RTSP/ or ICE/"),
    "no head": breaks(lambda body: body, "Expected HTTP/, RTSP/ or ICE/", closes=True),
    "HTTP/1.0": passes(lined(b"HTTP/1.0 200 OK"), closes=True),
    "HTTP/1.0, kept open": passes(lined(b"HTTP/1.0 200 OK")),
    "HTTP/0.9": breaks(lined(b"HTTP/0.9 200 OK"), "reply is HTTP/0.9, expected HTTP/1.1"),
    "HTTP/2.0": breaks(lined(b"HTTP/2.0 200 OK"), "reply is HTTP/2.0, expected HTTP/1.1"),
    "HTTP/9.9": breaks(lined(b"HTTP/9.9 200 OK"), "Invalid HTTP version"),
    "http in lower case": breaks(lined(b"http/1.1 200 OK"), "Expected HTTP/, RTSP/ or ICE/"),
    "no version": breaks(lined(b"HTTP 200 OK"), "Expected HTTP/, RTSP/ or ICE/"),
    "two digits of status": breaks(lined(b"HTTP/1.1 20 OK"), "Invalid status code"),
    "four digits of status": breaks(lined(b"HTTP/1.1 2000 OK"), "Invalid response status"),
    "a status that is none": breaks(lined(b"HTTP/1.1 OK OK"), "Invalid status code"),
    "status 000": breaks(lined(b"HTTP/1.1 000 OK"), "the status 0"),
    "status 999": fails(lined(b"HTTP/1.1 999 OK"), "model_name"),
    "no reason": passes(lined(b"HTTP/1.1 200"), stays=True),
    "no space before the status": breaks(lined(b"HTTP/1.1200 OK"), "Expected space after version"),
    "NUL in the reason": passes(lined(b"HTTP/1.1 200 O\0K"), stays=True),
    "half a status line": breaks(b"HTTP/1.1 20", "in the middle of its reply's headers", closes=True),
    # heads
    "lines that end in LF": breaks(
        lambda body: good(body).replace(b"\r\n", b"\n"), "Missing expected CR after response line"
    ),
    "lines that end in CR": breaks(lambda body: good(body).replace(b"\r\n", b"\r"), "Expected LF after CR"),
    "NUL in a field": breaks(fielded(b"X: a\0b"), "Invalid header value char"),
    "CR in a field": breaks(fielded(b"X: a\rb"), "Missing expected LF after header value"),
    "a control byte in a field": breaks(fielded(b"X: a\1b"), "Invalid header value char"),
    "space before the colon": breaks(fielded(b"X : a"), "Invalid header token"),
    "a field that is folded": breaks(fielded(b"X: a", b" b"), "Unexpected whitespace after header value"),
    "a field without a colon": breaks(fielded(b"X"), "Invalid header token"),
    "a field without a name": breaks(fielded(b": x"), "Invalid header token"),
    "a name that is not ASCII": breaks(fielded(b"\xe4: x"), "Invalid header token"),
    "a huge field": breaks(fielded(b"X: " + b"x" * 10**6), "limits.headers"),
    "a hundred thousand fields": breaks(fielded(*[b"X: y"] * 100_000), "limits.headers"),
    "a head that never ends": Mode(endless(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 1000), "limits.headers"),
    "a field that never ends": Mode(endless(b"HTTP/1.1 200 OK\r\nX: ", b"y" * 10_000), "limits.headers"),
    "half a head": breaks(b"HTTP/1.1 200 OK\r\nContent-Le", "in the middle of its reply's headers", closes=True),
    "a head and no more": hangs(b"HTTP/1.1 200 OK\r\n"),
    # other statuses than 200
    "interim replies before the answer": passes(
        lambda body: b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + good(body),
        stays=True,
    ),
    "interim replies and no more": hangs(b"HTTP/1.1 100 Continue\r\n\r\n" * 3),
    "interim replies without end": Mode(endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000), "limits.headers"),
    "another protocol": breaks(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade" + END, "switched protocols"
    ),
    "an upgrade in the answer": passes(fielded(b"Upgrade: h2c", b"Connection: upgrade"), stays=True),
    "204": fails(b"HTTP/1.1 204 No Content" + END, "status 204, expected 200"),
    "204 with a body": breaks(lined(b"HTTP/1.1 204 No Content"), "status 204, expected 200"),
    "304 with a length": breaks(lined(b"HTTP/1.1 304 Not Modified"), "status 304, expected 200"),
    "a redirect": fails(
        lambda body: good(b"", b"HTTP/1.1 302 Found", b"Location: http://127.0.0.1:1/"), "status 302, expected 200"
    ),
    "an error page": fails(lambda body: good(b"<h1>no</h1>\r\n\0\xff", b"HTTP/1.1 500 x"), "<h1>no</h1>"),
    "an error with line breaks": fails(
        lambda body: good(b'{"error":"a\\r\\nX: y\\u0000\\ud800"}', b"HTTP/1.1 400 Bad Request"), "X: y"
    ),
    # where the body ends
    "a length and chunks": breaks(
        lambda body: (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + chunk(body) + chunk(b"")
        ),
        "Content-Length can't be present with Transfer-Encoding",
    ),
    "two lengths": breaks(framed(b"Content-Length: 3", b"Content-Length: 70"), "Duplicate Content-Length"),
    "the same length twice": breaks(fielded(b"Content-Length: 3"), "Duplicate Content-Length"),
    "a list of lengths": breaks(framed(b"Content-Length: 3, 3"), "Invalid character in Content-Length"),
    "a negative length": breaks(framed(b"Content-Length: -1"), "Invalid character in Content-Length"),
    "a length with a sign": breaks(framed(b"Content-Length: +3"), "Invalid character in Content-Length"),
    "a hexadecimal length": breaks(framed(b"Content-Length: 0x40"), "Invalid character in Content-Length"),
    "an empty length": breaks(framed(b"Content-Length:"), "Empty Content-Length"),
    "a length beyond 64 bits": breaks(framed(b"Content-Length: 99999999999999999999"), "Content-Length overflow"),
    "a length beyond the limit": breaks(framed(b"Content-Length: %d" % (LIMIT + 1)), "limits.message"),
    "fewer bytes than the length": breaks(
        framed(b"Content-Length: 1000"), "in the middle of its reply, after", closes=True
    ),
    "fewer bytes, and no close": hangs(framed(b"Content-Length: 1000")),
    "more bytes than the length": passes(lambda body: good(body) + b"x"),
    "two replies": passes(lambda body: good(body) + good(b'{"model_name":"m","outputs":[]}')),
    "an answer and an error behind it": passes(lambda body: good(body) + b"HTTP/1.1 500 x\r\nContent-Length: 0" + END),
    "until the close": passes(framed(), closes=True),
    "until a close that does not come": hangs(framed()),
    "without end until the close": Mode(endless(b"HTTP/1.1 200 OK" + END, b" " * 65536), "limits.message"),
    "gzip as a Transfer-Encoding": breaks(
        framed(b"Transfer-Encoding: gzip"), "reply has Transfer-Encoding 'gzip', expected chunked"
    ),
    "chunked, gzip": breaks(
        framed(b"Transfer-Encoding: chunked, gzip"), "reply has Transfer-Encoding 'chunked, gzip', expected chunked"
    ),
    "chunked twice": breaks(
        framed(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"),
        "reply has Transfer-Encoding 'chunked, chunked', expected chunked",
    ),
    "an unknown Transfer-Encoding": breaks(
        framed(b"Transfer-Encoding: xchunked"), "reply has Transfer-Encoding 'xchunked', expected chunked"
    ),
    # chunks
    "chunks": passes(lambda body: chunked(chunk(body[:9]) + chunk(body[9:]) + b"0\r\nX: y" + END), stays=True),
    "a chunk's size that is none": breaks(chunked(b"zz\r\n"), "Invalid character in chunk size"),
    "a chunk of a negative size": breaks(chunked(b"-1\r\nx"), "Invalid character in chunk size"),
    "a chunk beyond 64 bits": breaks(chunked(b"fffffffffffffffff\r\nx"), "Chunk size overflow"),
    "a chunk beyond the limit": hangs(chunked(b"%x\r\nx" % (LIMIT + 1))),
    "a chunk longer than its size": breaks(chunked(b"1\r\nxyz\r\n0" + END), "Expected LF after chunk data"),
    "chunks that end in LF": breaks(
        lambda body: chunked(chunk(body) + b"0" + END).replace(b"\r\n", b"\n"),
        "Missing expected CR after response line",
    ),
    "a chunk's extension without end": Mode(endless(chunked(b"2;"), b"x" * 10_000), "limits.headers"),
    "chunks without end": Mode(endless(chunked(b""), chunk(b" " * 30_000)), "limits.message"),
    "trailers without end": Mode(endless(chunked(b"0\r\n"), b"X: y\r\n" * 1000), "limits.headers"),
    "chunks cut off": breaks(lambda body: chunked(chunk(body)), "in the middle of its reply, after", closes=True),
    "chunks without the last": hangs(lambda body: chunked(chunk(body))),
    # connections
    "closes at once": Mode(closes_at_once, "connection"),
    "closes without a reply": breaks(b"", "closed the connection before it answered", closes=True),
    "resets": Mode(resets, "reset the connection before it answered"),
    "resets within its reply": Mode(resets_within, "reset the connection in the middle of its reply"),
    "says nothing": hangs(b""),
    "speaks first": Mode(speaks_first, "backend 'mode"),
    # codings
    "gzip that is none": fails(fielded(b"Content-Encoding: gzip"), "the body is not gzip data"),
    "gzip cut off": fails(
        lambda body: good(gzip.compress(body)[:-9], b"HTTP/1.1 200 OK", b"Content-Encoding: gzip"),
        "the body ends before its gzip data does",
    ),
    "gzip of too much": fails(
        lambda body: good(BOMB, b"HTTP/1.1 200 OK", b"Content-Encoding: gzip"), "limits.inflation"
    ),
    "an unknown Content-Encoding": fails(
        fielded(b"Content-Encoding: br"), "Content-Encoding 'br', expected one of gzip"
    ),
    # documents
    "an empty body": fails(documented(b""), "empty body, expected a JSON object"),
    "no JSON": fails(documented(b"<html>"), "not JSON"),
    "half a document": fails(lambda body: good(body[:-5]), "not JSON"),
    "another document behind it": fails(lambda body: good(body + body), "not JSON"),
    "not UTF-8": fails(documented(b'{"model_name":"\xff","outputs":[]}'), "not UTF-8: byte 0xff at 15"),
    "brackets": fails(documented(b"[" * 10**5), "limits.json_values is the limit"),
    "an array": fails(documented([]), "expected a JSON object, found an array"),
    "no outputs": fails(documented({"model_name": "m"}), "outputs are missing"),
    "an output twice": fails(
        documented({"outputs": [{"name": "x", "datatype": "INT64", "shape": [1, 1], "data": [1]}] * 2}),
        "output 'x' occurs twice",
    ),
    "another output": fails(tensors(name="y"), "unknown output 'y'"),
    "an unknown datatype": fails(tensors(datatype="INT65"), "datatype must be one of BOOL"),
    "another datatype": fails(tensors(datatype="FP64", data=[1.5]), "output 'x' is FP64, expected INT64"),
    "more elements than the shape": fails(tensors(data=[1, 2]), "2 elements, but shape [1, 1] takes 1"),
    "a shape beyond memory": fails(tensors(shape=[2**40, 2**40]), "spans more than 2^63 bytes"),
    "a negative shape": fails(tensors(shape=[-1, 1]), "each dimension must be an integer of at least 0"),
    "another shape": fails(tensors(shape=[1, 1, 1]), "output 'x' has shape [1, 1, 1]"),
    "no data": fails(tensors(data=...), "output 'x' has neither data nor binary_data_size"),
    "a number beyond the datatype": fails(tensors(data=[2**63]), "is out of the range of INT64"),
    "text for numbers": fails(tensors(data=["7"]), "output 'x' holds strings, expected INT64"),
    "binary data that are not there": fails(
        tensors(data=..., parameters={"binary_data_size": 8}), "binary_data_size is 8, but 0 bytes are left"
    ),
}


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory, works: str) -> Iterator[Rig]:
    with rig(tmp_path_factory.mktemp("http"), works, MODES, "v2-rest", "flavor: plain") as made:
        yield made


@pytest.mark.parametrize("name", MODES)
def test_every_client_gets_an_answer_or_an_error(behind: Rig, name: str) -> None:
    behind.check(name)
