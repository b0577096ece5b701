"""Literal requests, valid, odd and hostile, and the bytes that the listener answers; each is sent whole and byte by
byte."""

from collections.abc import Awaitable, Callable

import pytest

from tests.transports.http.server.toy_listener import (
    HELLO,
    LAST,
    SAID,
    SAID_LAST,
    TOO_LARGE,
    client,
    get,
    ok,
    reply,
    send_byte_by_byte,
    send_whole,
)

SPEAKS = "this listener speaks toy, other, streamer"


def bad(text: str, status: str = "400 Bad Request", name: str = "toy") -> bytes:
    """The reply to a request that ends its connection."""
    return reply(status, f"{name}: {text}", last=True)


def too_large(what: str, limit: str = "headers, 500", status: str = "431 Request Header Fields Too Large") -> bytes:
    return bad(f"{what} larger than limits.{limit} bytes; send less, or raise the limit", status)


def too_many_headers() -> bytes:
    text = (
        "the request has more than 100 headers, one for each 32 bytes of limits.headers; send fewer, or raise the limit"
    )
    return bad(text, "431 Request Header Fields Too Large")


def body_too_large(size: str = "") -> bytes:
    return too_large(f"the body{size} is", "message, 1000", TOO_LARGE)


def bad_size(text: str) -> bytes:
    return bad(f"b'{text}' is not the size of a chunk")


def unknown(path: str, name: str = "toy") -> bytes:
    return reply("404 Not Found", f"{name}: unknown path: '{path}'; {SPEAKS}")


def bad_timeout(text: str) -> bytes:
    return reply("400 Bad Request", f"toy: Request-Timeout '{text}' is not a positive number of seconds")


def malformed(why: str) -> bytes:
    return bad(f"the request is malformed HTTP: {why}")


def post(*headers: str, body: bytes = b"") -> bytes:
    return request("POST /echo HTTP/1.1", *headers) + body


def request(line: str, *headers: str) -> bytes:
    return "\r\n".join([line, "Host: a", *headers, "", ""]).encode("latin-1")


NO_METHOD = malformed("Invalid method encountered")
NO_TLS = bad("the client began a TLS handshake at a port without TLS; use http:// or a plaintext channel")
NO_SUCH_VERSION = bad("only HTTP/1.1 and HTTP/1.0 are supported; send one of them", "505 HTTP Version Not Supported")
ONLY_CHUNKED = bad("Transfer-Encoding must be chunked and nothing else, and needs HTTP/1.1")
BAD_HOST = bad("the request's Host header is not a host and port; send the host of the URL")
HEAD_TOO_LARGE = too_large("the request line and headers are")
LINE_TOO_LARGE = too_large("a chunk's size line, or the trailers, are")
EXTENSIONS_TOO_LARGE = too_large("the extensions of chunks are")
CHUNKED = "Transfer-Encoding: chunked"
NOT_CRLF = bad("the chunked body has a line that does not end in CRLF")
NO_PATH = bad(f"unknown path: '/nothing'; {SPEAKS}", "404 Not Found")
ONE_HOST = "the request has more than one Host header; send it once"
TWO_LENGTHS = malformed("Duplicate Content-Length")
BAD_CODING = malformed("Invalid `Transfer-Encoding` header value")
NO_FIELD = "a trailer of the chunked body is not `name: value`"
FRAGMENT = bad("the request target has a fragment; remove it")

# name: (what is sent, what comes back until the listener closes)
REFUSED_AND_CLOSED: dict[str, tuple[bytes, bytes]] = {
    # not HTTP/1 at all
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", NO_TLS),
    "text": (b"hello\r\n\r\n", NO_METHOD),
    "JSON": (b'{"name": "m"}\r\n\r\n', NO_METHOD),
    "NULs": (b"\0" * 20, NO_METHOD),
    "HTTP/2.0": (request("GET /hello HTTP/2.0"), NO_SUCH_VERSION),
    "HTTP/1.2": (request("GET /hello HTTP/1.2"), NO_SUCH_VERSION),
    "HTTP/0.9": (b"GET /hello\r\n\r\n", NO_SUCH_VERSION),
    "another protocol's name": (request("GET /hello ICE/1.0"), malformed("Expected SOURCE method for ICE/x.x request")),
    "unknown method": (request("FROB /hello HTTP/1.1"), NO_METHOD),
    "method in lower case": (b"get /hello HTTP/1.1\r\nHost: a\r\n\r\n", NO_METHOD),
    "blank before the method": (request(" GET /hello HTTP/1.1"), NO_METHOD),
    # lines
    "bare LF behind the request line": (b"GET /hello HTTP/1.1\nHost: a\n\n", malformed("Expected CRLF after version")),
    "bare LF behind a header": (
        b"GET /hello HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
        malformed("Missing expected CR after header value"),
    ),
    "bare CR": (b"GET /hello HTTP/1.1\rHost: a\r\r", malformed("Expected CRLF after version")),
    "blank behind the version": (request("GET /hello HTTP/1.1 "), malformed("Expected CRLF after version")),
    # headers
    "folded": (get("/hello", "X: b", " c"), malformed("Unexpected whitespace after header value")),
    "blank before the first header": (
        b"GET /hello HTTP/1.1\r\n Host: a\r\n\r\n",
        malformed("Unexpected space after start line"),
    ),
    "space before the colon": (get("/hello", "X : b"), malformed("Invalid header token")),
    "no colon": (get("/hello", "X"), malformed("Invalid header token")),
    "no name": (get("/hello", ": b"), malformed("Invalid header token")),
    "non-ASCII name": (get("/hello", "X\xe4: b"), malformed("Invalid header token")),
    "NUL in a value": (get("/hello", "X: a\0b"), malformed("Invalid header value char")),
    "control byte in a value": (get("/hello", "X: a\x01b"), malformed("Invalid header value char")),
    "no Host": (b"GET /hello HTTP/1.1\r\n\r\n", bad("the request has no Host header, which HTTP/1.1 requires; add it")),
    "two Hosts": (get("/hello", "Host: a"), bad(ONE_HOST)),
    "two Hosts, other protocol": (get("/other", "host: b"), bad(ONE_HOST, name="other")),
    "Host that is none": (b"GET /hello HTTP/1.1\r\nHost: a b\r\n\r\n", BAD_HOST),
    "Host with a path": (b"GET /hello HTTP/1.1\r\nHost: a/b\r\n\r\n", BAD_HOST),
    "Host list": (b"GET /hello HTTP/1.1\r\nHost: a, b\r\n\r\n", BAD_HOST),
    "one header beyond the limit": (get("/hello", "X: " + "x" * 500), HEAD_TOO_LARGE),
    "many small headers": (get("/hello", *["X: y"] * 200), HEAD_TOO_LARGE),
    "more headers than the limit": (get("/hello", *["X:"] * 100), too_many_headers()),
    "target beyond the limit": (get("/" + "x" * 600), HEAD_TOO_LARGE),
    "line that never ends": (b"GET /" + b"x" * 600, HEAD_TOO_LARGE),
    # where the body ends
    "two lengths": (post("Content-Length: 3", "Content-Length: 4", body=b"abcd"), TWO_LENGTHS),
    "the same length twice": (post("Content-Length: 3", "Content-Length: 3", body=b"abc"), TWO_LENGTHS),
    "a list of lengths": (post("Content-Length: 3, 3", body=b"abc"), malformed("Invalid character in Content-Length")),
    "signed length": (post("Content-Length: +3", body=b"abc"), malformed("Invalid character in Content-Length")),
    "negative length": (post("Content-Length: -3", body=b"abc"), malformed("Invalid character in Content-Length")),
    "hexadecimal length": (post("Content-Length: 0x3", body=b"abc"), malformed("Invalid character in Content-Length")),
    "empty length": (post("Content-Length:"), malformed("Empty Content-Length")),
    "length beyond 64 bits": (post("Content-Length: 99999999999999999999"), malformed("Content-Length overflow")),
    "length beyond the limit": (post("Content-Length: 1001"), body_too_large(" of 1001 bytes")),
    "length and chunked": (
        post("Content-Length: 5", CHUNKED, body=b"0\r\n\r\n"),
        malformed("Transfer-Encoding can't be present with Content-Length"),
    ),
    "chunked and length": (
        post(CHUNKED, "Content-Length: 5", body=b"0\r\n\r\n"),
        malformed("Content-Length can't be present with Transfer-Encoding"),
    ),
    "gzip, chunked": (post("Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"), ONLY_CHUNKED),
    "chunked twice": (post(CHUNKED, CHUNKED, body=b"0\r\n\r\n"), BAD_CODING),
    "chunked, identity": (post("Transfer-Encoding: chunked, identity"), BAD_CODING),
    "xchunked": (post("Transfer-Encoding: xchunked"), malformed("Request has invalid `Transfer-Encoding`")),
    "chunked in HTTP/1.0": (b"POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ONLY_CHUNKED),
    # chunks
    "chunk size that is none": (post(CHUNKED, body=b"zz\r\n"), bad_size("zz")),
    "negative chunk": (post(CHUNKED, body=b"-1\r\n"), bad_size("-1")),
    "0x chunk": (post(CHUNKED, body=b"0x3\r\nabc\r\n"), bad_size("0x3")),
    "empty chunk size": (post(CHUNKED, body=b"\r\n"), bad_size("")),
    "chunk size of 17 digits": (post(CHUNKED, body=b"10000000000000003\r\nabc\r\n"), bad_size("10000000000000003")),
    "bare LF in chunks": (post(CHUNKED, body=b"3\nabc\n0\n\n"), NOT_CRLF),
    "bare LF in a chunk extension": (post(CHUNKED, body=b"3;a\nb\r\nabc\r\n"), NOT_CRLF),
    "chunk longer than its size": (
        post(CHUNKED, body=b"3\r\nabcd\r\n0\r\n\r\n"),
        bad("a chunk is longer than its size line says"),
    ),
    "chunk beyond the limit": (post(CHUNKED, body=b"3e9\r\n"), body_too_large()),
    "chunks beyond the limit": (post(CHUNKED, body=b"1f4\r\n" + b"x" * 500 + b"\r\n1f5\r\n"), body_too_large()),
    "huge chunk extension": (post(CHUNKED, body=b"3;" + b"x" * 600), LINE_TOO_LARGE),
    "extensions of many chunks": (post(CHUNKED, body=b"1;xxxxxxxxx\r\na\r\n" * 60), EXTENSIONS_TOO_LARGE),
    "huge trailers": (post(CHUNKED, body=b"0\r\n" + b"X: yyyyy\r\n" * 60), LINE_TOO_LARGE),
    "trailer that is none": (post(CHUNKED, body=b"0\r\nGET / HTTP/1.1\r\n\r\n"), bad(NO_FIELD)),
    # targets
    "fragment": (get("/hello#x"), FRAGMENT),
    "fragment in the query": (get("/hello?a#x"), FRAGMENT),
    "asterisk": (request("OPTIONS * HTTP/1.1"), bad("expected a path or an http URL as request target, got '*'")),
    "CONNECT": (request("CONNECT a:80 HTTP/1.1"), bad("expected a path or an http URL as request target, got 'a:80'")),
    "ftp URL": (get("ftp://a/hello"), bad("expected a path or an http URL as request target, got 'ftp://a/hello'")),
    "relative target": (get("hello"), malformed("Invalid characters in url")),
    "non-ASCII target": (get("/h\xe4llo"), malformed("Invalid char in url path")),
    "control byte in the target": (get("/h\x7fllo"), malformed("Invalid char in url path")),
    # expectations
    "unknown expectation": (
        post("Expect: tea", "Content-Length: 3", body=b"abc"),
        bad("Expect: 'tea' is not supported; send 100-continue, or leave it out", "417 Expectation Failed"),
    ),
    "100-continue for what is too large": (
        post("Expect: 100-continue", "Content-Length: 2000"),
        body_too_large(" of 2000 bytes"),
    ),
    "100-continue for a path that is not there": (
        request("POST /nothing HTTP/1.1", "Expect: 100-continue", "Content-Length: 3"),
        NO_PATH,
    ),
    "chunked to a path that is not there": (
        b"POST /nothing HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        NO_PATH,
    ),
    # pipelined
    "garbage behind a request": (HELLO + b"garbage\r\n\r\n", SAID + NO_METHOD),
    "body that nothing announced": (post(body=b"{}"), ok("POST /echo []") + NO_METHOD),
    "what follows a refused request is dropped": (get("/hello#x") + HELLO, FRAGMENT),
}

# name: (what is sent, what comes back); the connection serves one more request afterwards
SERVED: dict[str, tuple[bytes, bytes]] = {
    "plain": (HELLO, SAID),
    "query": (get("/hello?a=%20&b"), ok("GET /hello?a=%20&b []")),
    "empty query": (get("/hello?"), SAID),
    "absolute form": (get("http://elsewhere:1/hello?a"), ok("GET /hello?a []")),
    "absolute form in capitals": (get("HTTP://elsewhere/hello"), SAID),
    "doubled slash": (get("//hello"), ok("GET //hello []")),
    "empty lines before": (b"\r\n\r\n" + HELLO, SAID),
    "empty Host": (b"GET /hello HTTP/1.1\r\nHost:\r\n\r\n", SAID),
    "IPv6 Host": (b"GET /hello HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", SAID),
    "blanks around a value": (post("Content-Length: \t 3 \t", body=b"abc"), ok("POST /echo [abc]")),
    "blanks behind a value": (get("/hello", "Request-Timeout: 5 \t"), SAID),
    "Latin-1 value": (get("/hello", "X: \xe4"), SAID),
    "sized": (post("Content-Length: 3", body=b"a\0b"), ok("POST /echo [a\0b]")),
    "sized, nothing": (post("Content-Length: 0"), ok("POST /echo []")),
    "no length": (post(), ok("POST /echo []")),
    "as large as allowed": (post("Content-Length: 1000", body=b"x" * 1000), ok(f"POST /echo [{'x' * 1000}]")),
    "chunked": (post(CHUNKED, body=b"3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n"), ok("POST /echo [abcd]")),
    "chunked, nothing": (post(CHUNKED, body=b"0\r\n\r\n"), ok("POST /echo []")),
    "chunks with extensions and trailers": (
        post("Transfer-Encoding: Chunked", body=b'0A ;a="b"\r\n0123456789\r\n00;z\r\nX: y\r\nZ:\r\n\r\n'),
        ok("POST /echo [0123456789]"),
    ),
    "chunked as large as allowed": (
        post(CHUNKED, body=b"3E8\r\n" + b"\r" * 1000 + b"\r\n0\r\n\r\n"),
        ok(f"POST /echo [{chr(13) * 1000}]"),
    ),
    "three in a row": (
        HELLO + post("Content-Length: 2", body=b"ab") + post(CHUNKED, body=b"1\r\nc\r\n0\r\n\r\n"),
        SAID + ok("POST /echo [ab]") + ok("POST /echo [c]"),
    ),
    "captured segment": (request("POST /models/a%2Fb HTTP/1.1"), ok("POST /models/a%2Fb model=a/b []")),
    "100-continue": (
        post("Expect: 100-Continue", "Content-Length: 3", body=b"abc"),
        b"HTTP/1.1 100 Continue\r\n\r\n" + ok("POST /echo [abc]"),
    ),
    "100-continue without a body": (post("Expect: 100-continue", "Content-Length: 0"), ok("POST /echo []")),
    "HEAD": (
        request("HEAD /hello HTTP/1.1"),
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 14\r\n\r\n",
    ),
    "HTTP/1.0 kept alive": (
        b"GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n"
        b"Connection: keep-alive\r\n\r\nGET /hello []",
    ),
    "upgrade is not taken up": (
        get("/hello", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x"),
        SAID,
    ),
    "upgrade with a body": (
        post("Connection: Upgrade", "Upgrade: h2c", "Content-Length: 3", body=b"abc"),
        ok("POST /echo [abc]"),
    ),
    # refused, with the connection in order
    "unknown path": (get("/nothing"), unknown("/nothing")),
    "unknown path of the other protocol": (get("/other/x"), unknown("/other/x", "other")),
    "unknown path with a body": (
        b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        unknown("/nothing"),
    ),
    "unknown path, HEAD": (
        request("HEAD /nothing HTTP/1.1"),
        b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 72\r\n\r\n",
    ),
    "trailing slash": (get("/hello/"), unknown("/hello/")),
    "other method": (
        get("/echo"),
        reply("405 Method Not Allowed", "toy: GET is not allowed for '/echo'; allowed: POST", "Allow: POST"),
    ),
    "OPTIONS": (
        request("OPTIONS /hello HTTP/1.1"),
        reply(
            "405 Method Not Allowed", "toy: OPTIONS is not allowed for '/hello'; allowed: GET, HEAD", "Allow: GET, HEAD"
        ),
    ),
    "broken percent-encoding": (
        request("POST /models/%zz HTTP/1.1"),
        reply("400 Bad Request", "toy: path segment '%zz' has a % without two hexadecimal digits; write % as %25"),
    ),
    "path that climbs": (request("POST /models/%2e%2e HTTP/1.1"), unknown("/models/%2e%2e")),
    "unknown coding": (
        post("Content-Encoding: br", "Content-Length: 3", body=b"abc"),
        reply(
            "415 Unsupported Media Type", "toy: Content-Encoding 'br' is not supported; gzip, deflate and identity are"
        ),
    ),
    "timeout that is none": (post("Request-Timeout: soon"), bad_timeout("soon")),
    "timeout of nothing": (post("Request-Timeout: 0"), bad_timeout("0")),
}

CLOSING = {
    "close": (LAST, SAID_LAST),
    "close among others": (get("/hello", "Connection: keep-alive, Close"), SAID_LAST),
    "HTTP/1.0": (b"GET /hello HTTP/1.0\r\n\r\n", SAID_LAST),
    "100-continue in HTTP/1.0": (
        b"POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc",
        reply("200 OK", "POST /echo [abc]", last=True),
    ),
    "HTTP/1.0 with two Hosts": (request("GET /hello HTTP/1.0", "Host: a"), bad(ONE_HOST)),
    "close, then one more": (LAST + HELLO, SAID_LAST),
}

ROWS = REFUSED_AND_CLOSED | CLOSING | {name: (sent + LAST, said + SAID_LAST) for name, (sent, said) in SERVED.items()}


@pytest.mark.parametrize("send", [send_whole, send_byte_by_byte])
@pytest.mark.parametrize("name", ROWS)
async def test_answers(name: str, send: Callable[..., Awaitable[None]]) -> None:
    sent, expected = ROWS[name]
    async with client() as (reader, writer):
        await send(writer, sent)
        assert await reader.read() == expected
