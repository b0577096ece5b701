"""Requests that two parsers could interpret differently: a model server behind the gateway receives exactly the valid
requests.

In these tests, bodies pass the gateway unchanged, so a request inside a body would reach the server if the gateway or
the server misread the framing.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from tests.attacks import hostile
from tests.attacks.attacked import Attacked, attacked
from tests.attacks.clients import until_closed
from tests.limits import GENEROUS

ROUTES = "  - {match: {path: /p}, backend: recorder, passthrough: true}\n"
PLAIN = re.compile(
    rb"(POST|GET) /p HTTP/1\.1\r\nHost: 127\.0\.0\.1:[0-9]+\r\n(Connection: close\r\n)?gateway-hops: 1\r\n"
    rb"(Content-Length: [0-9]+\r\n)?\r\n"
)
"""The head of every request of the gateway's: one framing, addressed to the server. A body of GET, which servers may
ignore, is the last on its connection."""

SMUGGLED = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\nsmuggled"
LAST = b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlast"
CHUNKED = b"Transfer-Encoding: chunked"
END = b"0\r\n\r\n"


def post(*fields: bytes, body: bytes = b"", line: bytes = b"POST /p HTTP/1.1") -> bytes:
    return b"\r\n".join((line, b"Host: a", *fields, b"", body))


def sized(body: bytes) -> bytes:
    """A legal request."""
    return post(b"Content-Length: %d" % len(body), body=body)


def chunk(body: bytes, extension: bytes = b"") -> bytes:
    return b"%x%b\r\n%b\r\n" % (len(body), extension, body)


OK, BAD = b"200", b"400"


@dataclass(frozen=True)
class Case:
    """What is sent, the bodies of the requests that the server is to see, and the statuses of the replies."""

    sent: bytes
    seen: tuple[bytes, ...] = ()
    statuses: tuple[bytes, ...] = (BAD,)


def refused(sent: bytes, status: bytes = BAD) -> Case:
    """The first request is none: nothing that stands behind it is looked at."""
    return Case(sent + LAST, (), (status,))


def legal(sent: bytes, *seen: bytes) -> Case:
    """All is legal, and read as these bodies."""
    return Case(sent + LAST, (*seen, b"last"), (OK,) * (len(seen) + 1))


CASES: dict[str, Case] = {
    # a length and chunks
    "length, then chunks": refused(post(b"Content-Length: 6", CHUNKED, body=END + b"G")),
    "chunks, then length": refused(post(CHUNKED, b"Content-Length: 6", body=END + b"G")),
    "length of what stands behind the chunks": refused(
        post(b"Content-Length: %d" % (len(END) + len(SMUGGLED)), CHUNKED, body=END + SMUGGLED)
    ),
    "length of the first line alone": refused(
        post(b"Content-Length: 4", CHUNKED, body=b"%x\r\n%b\r\n" % (len(SMUGGLED), SMUGGLED) + END)
    ),
    "length 0 and chunks": refused(post(b"Content-Length: 0", CHUNKED, body=chunk(SMUGGLED) + END)),
    "length and identity": refused(post(b"Content-Length: 3", b"Transfer-Encoding: identity", body=b"abc" + SMUGGLED)),
    "length and chunks, HTTP/1.0": refused(
        post(b"Content-Length: 6", CHUNKED, body=END + b"G", line=b"POST /p HTTP/1.0")
    ),
    # forms of Transfer-Encoding
    "xchunked": refused(post(b"Transfer-Encoding: xchunked", body=chunk(SMUGGLED) + END)),
    "chunked in quotes": refused(post(b'Transfer-Encoding: "chunked"', body=chunk(SMUGGLED) + END)),
    "chunked with a parameter": refused(post(b"Transfer-Encoding: chunked;q=1", body=chunk(SMUGGLED) + END)),
    "chunked, identity": refused(post(b"Transfer-Encoding: chunked, identity", body=chunk(SMUGGLED) + END)),
    "identity, chunked": refused(post(b"Transfer-Encoding: identity, chunked", body=chunk(SMUGGLED) + END)),
    "gzip, chunked": refused(post(b"Transfer-Encoding: gzip, chunked", body=chunk(SMUGGLED) + END)),
    "chunked twice": refused(post(CHUNKED, CHUNKED, body=chunk(SMUGGLED) + END)),
    "chunked, then identity": refused(post(CHUNKED, b"Transfer-Encoding: identity", body=chunk(SMUGGLED) + END)),
    "an empty Transfer-Encoding": refused(post(b"Transfer-Encoding:", b"Content-Length: 3", body=b"abc" + SMUGGLED)),
    "space before the colon": refused(post(b"Transfer-Encoding : chunked", body=chunk(SMUGGLED) + END)),
    "tab before the colon": refused(post(b"Transfer-Encoding\t: chunked", body=chunk(SMUGGLED) + END)),
    "blank before the name": refused(post(b"X: y", b" Transfer-Encoding: chunked", body=chunk(SMUGGLED) + END)),
    "vertical tab before chunked": refused(post(b"Transfer-Encoding:\x0bchunked", body=chunk(SMUGGLED) + END)),
    "NUL behind chunked": refused(post(b"Transfer-Encoding: chunked\0", body=chunk(SMUGGLED) + END)),
    "on a folded line": refused(post(b"Transfer-Encoding:", b" chunked", body=chunk(SMUGGLED) + END)),
    "behind a bare LF": refused(post(b"X: y\nTransfer-Encoding: chunked", body=chunk(SMUGGLED) + END)),
    "behind a bare CR": refused(post(b"X: y\rTransfer-Encoding: chunked", body=chunk(SMUGGLED) + END)),
    "chunked in HTTP/1.0": refused(post(CHUNKED, body=END + SMUGGLED, line=b"POST /p HTTP/1.0")),
    "an underscore for the hyphen": legal(
        post(b"Transfer_Encoding: chunked", b"Content-Length: 3", body=b"abc"), b"abc"
    ),
    "in capitals, with blanks around": legal(
        post(b"TRANSFER-ENCODING: \tChunked ", body=chunk(SMUGGLED) + END), SMUGGLED
    ),
    # forms of Content-Length
    "two lengths": refused(post(b"Content-Length: 3", b"Content-Length: 70", body=b"abc" + SMUGGLED)),
    "the same length twice": refused(post(b"Content-Length: 3", b"Content-Length: 3", body=b"abc")),
    "a list of lengths": refused(post(b"Content-Length: 3, 70", body=b"abc" + SMUGGLED)),
    "a signed length": refused(post(b"Content-Length: +3", body=b"abc" + SMUGGLED)),
    "a negative length": refused(post(b"Content-Length: -3", body=b"abc" + SMUGGLED)),
    "a hexadecimal length": refused(post(b"Content-Length: 0x3", body=b"abc" + SMUGGLED)),
    "an underscore in the length": refused(post(b"Content-Length: 1_0", body=b"abc" + SMUGGLED)),
    "a fraction": refused(post(b"Content-Length: 3.0", body=b"abc" + SMUGGLED)),
    "digits of another script": refused(post("Content-Length: ٣".encode(), body=b"abc" + SMUGGLED)),
    "an empty length": refused(post(b"Content-Length:", body=b"abc" + SMUGGLED)),
    "a length of two words": refused(post(b"Content-Length: 3 70", body=b"abc" + SMUGGLED)),
    "a length that wraps in 64 bits": refused(post(b"Content-Length: 18446744073709551619", body=b"abc" + SMUGGLED)),
    "a space before a length's colon": refused(post(b"Content-Length : 3", body=b"abc" + SMUGGLED)),
    "a length on a folded line": refused(post(b"Content-Length:", b" 3", body=b"abc" + SMUGGLED)),
    "a length behind a NUL": refused(post(b"X: \0Content-Length: 3", body=b"abc" + SMUGGLED)),
    "leading zeros": legal(post(b"Content-Length: 0003", body=b"abc"), b"abc"),
    "a request in a body": legal(sized(SMUGGLED), SMUGGLED),
    # chunks
    "a chunk's size with a sign": refused(post(CHUNKED, body=b"+3\r\nabc\r\n" + END)),
    "a chunk's size with 0x": refused(post(CHUNKED, body=b"0x3\r\nabc\r\n" + END)),
    "a chunk's size with an underscore": refused(post(CHUNKED, body=b"1_0\r\nabc\r\n" + END)),
    "a blank before a chunk's size": refused(post(CHUNKED, body=b" 3\r\nabc\r\n" + END)),
    "a chunk's size that wraps in 64 bits": refused(post(CHUNKED, body=b"10000000000000003\r\nabc\r\n" + END)),
    "no size": refused(post(CHUNKED, body=b"\r\nabc\r\n" + END)),
    "a size that ends in LF": refused(post(CHUNKED, body=b"3\nabc\r\n" + END)),
    "a size that ends in CR": refused(post(CHUNKED, body=b"3\rabc\r\n" + END)),
    "a chunk that ends in LF": refused(post(CHUNKED, body=b"3\r\nabc\n" + END)),
    "a chunk longer than its size": refused(post(CHUNKED, body=b"3\r\nabcX" + SMUGGLED + END)),
    "LF in an extension": refused(post(CHUNKED, body=b"3;a\n" + SMUGGLED + b"\r\nabc\r\n" + END)),
    "CR in an extension": refused(post(CHUNKED, body=b"3;a\rb\r\nabc\r\n" + END)),
    "NUL behind a size": refused(post(CHUNKED, body=b"3\0\r\nabc\r\n" + END)),
    "an end that ends in LF": refused(post(CHUNKED, body=b"0\n\n" + SMUGGLED)),
    "a request line as a trailer": refused(post(CHUNKED, body=b"0\r\n" + SMUGGLED)),
    "an extension that is a size": legal(post(CHUNKED, body=chunk(b"abc", b";70") + END), b"abc"),
    "a length as a trailer": legal(
        post(CHUNKED, body=chunk(b"abc") + b"0\r\nContent-Length: 70\r\nTransfer-Encoding: identity\r\n\r\n"), b"abc"
    ),
    "an end of many zeros": legal(post(CHUNKED, body=chunk(b"abc") + b"000\r\n\r\n"), b"abc"),
    "chunks that hold requests": legal(
        post(CHUNKED, body=chunk(SMUGGLED) + chunk(END + SMUGGLED) + END), SMUGGLED + END + SMUGGLED
    ),
    # lines
    "a bare LF behind the request line": refused(b"POST /p HTTP/1.1\nHost: a\nContent-Length: 3\n\nabc"),
    "a bare LF before the body": refused(b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\nabc"),
    "a bare CR before the body": refused(b"POST /p HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\rabc"),
    "a folded field": refused(post(b"X: y", b" z", b"Content-Length: 3", body=b"abc")),
    "a field without a colon": refused(post(b"X", b"Content-Length: 3", body=b"abc")),
    "a blank behind the version": refused(post(b"Content-Length: 0", line=b"POST /p HTTP/1.1 ")),
    "a blank before the method": refused(post(b"Content-Length: 0", line=b" POST /p HTTP/1.1")),
    "a tab for a space": refused(post(b"Content-Length: 0", line=b"POST\t/p\tHTTP/1.1")),
    "a blank in the target": refused(post(b"Content-Length: 0", line=b"POST /p /q HTTP/1.1")),
    "a request in the target": refused(post(line=b"POST /p?\r\nHost: b\r\n\r\n HTTP/1.1"), b"505"),
    "a method in lower case": refused(post(b"Content-Length: 0", line=b"post /p HTTP/1.1")),
    "a method that is none": refused(post(b"Content-Length: 0", line=b"PO ST /p HTTP/1.1")),
    "HTTP/0.9 behind a request": Case(sized(b"abc") + b"GET /p\r\n" + LAST, (b"abc",), (OK, BAD)),
    "HTTP/2's preface": Case(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + LAST, (), ()),  # it is answered in frames of HTTP/2
    "empty lines before a request": legal(b"\r\n\r\n" + sized(b"abc"), b"abc"),
    # hosts and targets
    "two hosts": refused(post(b"Host: b", b"Content-Length: 3", body=b"abc")),
    "the same host twice": refused(post(b"Host: a", b"Content-Length: 3", body=b"abc")),
    "no host": refused(b"POST /p HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"),
    "a host with a blank": refused(b"POST /p HTTP/1.1\r\nHost: a b\r\nContent-Length: 3\r\n\r\nabc"),
    "another host in the target": legal(
        post(b"Content-Length: 3", body=b"abc", line=b"POST http://other/p HTTP/1.1"), b"abc"
    ),
    "a fragment": refused(post(b"Content-Length: 0", line=b"POST /p#/q HTTP/1.1")),
    "CONNECT": refused(post(line=b"CONNECT a:80 HTTP/1.1")),
    # bodies that are not announced, and connections that go on
    "a body that nothing announced": Case(post(body=b"abc" + LAST), (b"",), (OK, BAD)),
    "a request behind a GET's body": Case(
        post(b"Content-Length: %d" % len(SMUGGLED), body=SMUGGLED, line=b"GET /p HTTP/1.1") + LAST,
        (SMUGGLED, b"last"),
        (OK, OK),
    ),
    "an upgrade with a body": legal(
        post(b"Connection: upgrade", b"Upgrade: h2c", b"Content-Length: 3", body=b"abc"), b"abc"
    ),
    "three in a row": legal(sized(b"one") + post(CHUNKED, body=chunk(b"two") + END), b"one", b"two"),
    "a request behind a close": Case(LAST + SMUGGLED, (b"last",), (OK,)),
    "a length that Connection names": legal(
        post(b"Connection: Content-Length, Transfer-Encoding", b"Content-Length: %d" % len(SMUGGLED), body=SMUGGLED),
        SMUGGLED,
    ),
    "an expectation that is none": refused(post(b"Expect: x", b"Content-Length: 3", body=b"abc"), b"417"),
}


@dataclass(frozen=True)
class Rig:
    gateway: Attacked
    requests: list[tuple[bytes, bytes]]
    """Head and body of each that the server saw."""


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory, works: str) -> Iterator[Rig]:
    requests: list[tuple[bytes, bytes]] = []

    def record(connection: socket.socket) -> None:
        while True:
            requests.append(hostile.http_request(connection))
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with hostile.serving(record) as address:
        backend = f'  recorder: {{protocol: grps-rest, endpoints: ["{address}"]}}\n'
        with attacked(tmp_path_factory.mktemp("smuggling"), works, backends=backend, routes=ROUTES) as gateway:
            yield Rig(gateway, requests)


@pytest.mark.parametrize("bytewise", [False, True], ids=["whole", "bytewise"])
@pytest.mark.parametrize("name", CASES)
def test_the_server_sees_what_is_legal(rig: Rig, name: str, bytewise: bool) -> None:
    case = CASES[name]
    rig.requests.clear()
    with socket.create_connection(rig.gateway.address("http"), GENEROUS) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(ConnectionError):
            for piece in [case.sent[at : at + 1] for at in range(len(case.sent))] if bytewise else [case.sent]:
                connection.sendall(piece)
        statuses = tuple(re.findall(rb"HTTP/1\.1 ([0-9]{3}) [A-Z]", until_closed(connection)))

    assert (tuple(body for _, body in rig.requests), statuses) == (case.seen, case.statuses)
    for head, body in rig.requests:
        assert PLAIN.fullmatch(head)
        assert len(body) == sum(map(int, re.findall(rb"(?i)content-length: ([0-9]+)", head)))
