"""Servers that flood the gateway, and servers that send unrequested replies."""

from __future__ import annotations

import itertools
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from gateway.assembly import registry
from gateway.core.messages import Message as Received
from gateway.core.protocol import ListenerSettings
from gateway.core.requests import Response, Translate
from tests.attacks import hostile
from tests.attacks.attacked import Attacked, attacked_by
from tests.attacks.clients import INFER, Http, at_once, infer, message, post, tensor
from tests.attacks.stalls import STALL, Figure, once, stalls
from tests.core.http2 import by_hand as http2
from tests.limits import GENEROUS

FRAMES = 100_000
V2_GRPC = registry.protocols()["v2-grpc"]


def flood_of(piece: Callable[[int], bytes]) -> hostile.Script:
    """Answers each call after so many of the same frame."""

    def script(connection: socket.socket) -> None:
        hostile.http2_opening(connection)
        # What the client answers to PING and SETTINGS has to be read.
        calls: list[tuple[int, bytes]] = []
        come = threading.Condition()

        def read() -> None:
            try:
                while True:
                    call = hostile.http2_request(connection)
                    with come:
                        calls.append(call)
                        come.notify()
            except (OSError, EOFError):
                with come:
                    calls.append((0, b""))
                    come.notify()

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
        while True:
            with come:
                come.wait_for(lambda: calls)
                stream, message = calls.pop(0)
            if not stream:
                return
            connection.sendall(http2.head(http2.OK, http2.CONTENT_TYPE, stream=stream))
            block = piece(stream) * 1000
            for _ in range(FRAMES // 1000):
                connection.sendall(block)
            connection.sendall(http2.data(echo(message[5:]), stream=stream))
            connection.sendall(http2.head((b"grpc-status", b"0"), end=True, stream=stream))

    return script


def echo(message: bytes) -> bytes:
    """The reply of a V2 gRPC server that gives back what it gets."""
    path = INFER.decode()
    request = V2_GRPC.decode_request(Received("POST", path, parts=(message,), pattern=path), ListenerSettings())
    reply = V2_GRPC.encode_response(Response(request.inputs, request.model), request, Translate())
    return b"".join(map(bytes, reply.parts))


FLOODS = {
    "empty DATA": lambda stream: http2.frame(http2.DATA, 0, stream, b""),
    "PING": lambda stream: http2.frame(http2.PING, 0, 0, bytes(8)),
    "SETTINGS": lambda stream: http2.frame(http2.SETTINGS, 0, 0, b""),
    "WINDOW_UPDATE": lambda stream: http2.window_update(0, 1),
    "unknown frames": lambda stream: http2.frame(0x42, 0, 0, b""),
}  # fmt: skip


@pytest.mark.parametrize("name", FLOODS)
def test_http2_servers_do_not_stop_the_loop(tmp_path: Path, works: str, name: str, figure: Figure) -> None:
    with attacked_by(flood_of(FLOODS[name]), "v2-grpc", tmp_path, works) as gateway:
        assert stalls(gateway, once(Http, "http", lambda: infer("hostile", b"abc")), figure) < STALL


def empty_frames(connection: socket.socket) -> None:
    hostile.brpc_request(connection)
    for _ in range(FRAMES // 1000):
        connection.sendall((b"PRPC" + bytes(8)) * 1000)


def empty_tlvs(connection: socket.socket) -> None:
    hostile.mip_request(connection)
    payload = struct.pack("!2BH", 1, 1, 1) + bytes(60 * 2**20)
    connection.sendall(struct.pack("!4BL", 0, 2, 1, 0, len(payload)) + payload)
    hostile.silent(connection)


def small_chunks(connection: socket.socket) -> None:
    while True:  # the gateway keeps a connection whose replies are whole
        hostile.http_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(2 * FRAMES // 1000):
            connection.sendall(b"1\r\nx\r\n" * 1000)
        connection.sendall(b"0\r\n\r\n")


def empty_vectors(connection: socket.socket) -> None:
    hostile.http_request(connection)
    body = b'{"output":[%b[]]}' % (b"[]," * (20 * 2**20))
    while True:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        hostile.http_request(connection)


OTHERS = {
    "empty frames": ("grps-brpc", "", empty_frames),
    "empty TLVs": ("mip", "", empty_tlvs),
    "chunks of one byte": ("v2-rest", "flavor: plain", small_chunks),
    "empty vectors": ("umbridge", "", empty_vectors),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_servers_do_not_stop_the_loop(tmp_path: Path, works: str, name: str, figure: Figure) -> None:
    protocol, more, script = OTHERS[name]
    with attacked_by(script, protocol, tmp_path, works, more=more) as gateway:
        assert stalls(gateway, once(Http, "http", lambda: infer("hostile", b"abc")), figure) < STALL


ROUTE = "  - {match: {model: hostile}, backend: hostile}\n"


def twice(connection: socket.socket) -> None:
    """Two replies at once to every request."""
    while True:
        connection.sendall(2 * echoed(hostile.http_request(connection)[1]))


def late(connection: socket.socket) -> None:
    """A second reply some time after the first."""
    while True:
        reply = echoed(hostile.http_request(connection)[1])
        connection.sendall(reply)
        time.sleep(0.002)
        connection.sendall(reply)


def early(connection: socket.socket) -> None:
    """A reply before there is a request."""
    connection.sendall(answer(0, "none"))
    while True:
        connection.sendall(echoed(hostile.http_request(connection)[1]))


def echoed(body: bytes) -> bytes:
    document = json.loads(body)
    return answer(document["inputs"][0]["data"][0], document.get("id", ""))


def answer(number: int, name: str = "") -> bytes:
    output = {"name": "x", "datatype": "INT64", "shape": [1, 1], "data": [number]}
    document = {"model_name": "hostile", "outputs": [output]} | ({"id": name} if name else {})
    body = json.dumps(document).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


# HTTP/1.1 cannot tell a reply that comes once the next request is under way: for these there are ids.
@pytest.mark.parametrize(("script", "ids"), [(twice, False), (twice, True), (late, True), (early, True)])
def test_a_reply_is_never_that_to_another_request(
    tmp_path: Path, works: str, script: hostile.Script, ids: bool, figure: Figure
) -> None:
    with attacked_by(script, "v2-rest", tmp_path, works, more="flavor: plain", routes=ROUTE) as gateway:
        numbers = itertools.count(1)
        found: list[tuple[int, bytes]] = []

        def ask() -> None:
            with Http(gateway.address("http")) as connection:
                for number in itertools.islice(numbers, 100):
                    given = {"name": "x", "datatype": "INT64", "shape": [1, 1], "data": [number]}
                    document = {"inputs": [given]} | ({"id": f"id-{number}"} if ids else {})
                    request = post("/v2/models/hostile/infer", json.dumps(document).encode())
                    found.append((number, connection.call(request)))

        at_once(4, ask)
    good = [(number, body) for number, body in found if b" 200 " in body[:20]]
    wrong = [number for number, body in good if re.search(rb'"data": *\[%d\]' % number, body) is None]
    figure(f"{len(found)} calls, {len(good)} answered, {len(wrong)} with another's reply")
    assert not wrong
    assert len(found) == 400
    assert good or script is early


def test_binary_metadata_reaches_http_as_text(tmp_path: Path, works: str) -> None:
    heads: list[bytes] = []

    def script(connection: socket.socket) -> None:
        while True:
            heads.append(hostile.http_request(connection)[0])
            connection.sendall(answer(1))

    more = "flavor: plain\n    forward_headers: [x-trace-bin]"
    with attacked_by(script, "v2-rest", tmp_path, works, more=more, routes=ROUTE) as gateway:
        for octets in (b"\0\xff\x80", b"a\r\nevil: 1", b"plain"):
            call_with_metadata(gateway, octets)
        assert "Traceback" not in gateway.log
    for head in heads:
        assert b"\r\nevil" not in head
        assert all(octet in b"\r\n" or 0x20 <= octet < 0x7F for octet in head)


def call_with_metadata(gateway: Attacked, octets: bytes) -> None:
    host, port = gateway.address("grpc")
    with grpc.insecure_channel(f"{host}:{port}") as channel:
        method = channel.unary_unary(INFER.decode())
        try:
            method(message("v2-grpc", "hostile", tensor(b"1")), metadata=(("x-trace-bin", octets),), timeout=GENEROUS)
        except grpc.RpcError as error:
            assert error.code() is not grpc.StatusCode.UNKNOWN  # noqa: PT017
