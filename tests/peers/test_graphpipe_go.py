"""The independent Go-like GraphPipe server, against what was observed of the original."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection, RemoteDisconnected

import numpy as np
import pytest

from tests.limits import GENEROUS
from tests.peers.graphpipe_go import Array, Server, Table, read_tensor, serve

METADATA = bytes.fromhex("0c00000008000c000b000400080000000c000000000000020400040004000000")
ONES = bytes.fromhex(
    "100000000000000008000c000b0004000800000014000000000000010c001400100008000c0004000c000000100000001000000010000000"
    "600000000000000000000000010000001000000000000a0010000b000c0004000a0000000c0000000000000a20000000180000000000803f"
    "0000803f0000803f0000803f0000803f0000803f02000000020000000000000003000000000000000000000000000000"
)
STRINGS = bytes.fromhex(
    "0c00000008000c000b0004000800000014000000000000010c0014000400100008000c000c00000010000000140000006800000068000000"
    "000000000000000001000000100000000c0010000b000c00000004000c0000001c0000000000000c04000000010000000300000000000000"
    "000000000300000018000000100000000400000003000000630064000000000002000000616200000000000000000000"
)


@pytest.fixture
def server() -> Iterator[Server]:
    with serve() as running:
        yield running


def exchange(server: Server, method: str, path: str, body: bytes = b"") -> tuple[int, str, bytes]:
    connection = HTTPConnection(server.url.removeprefix("http://"), timeout=GENEROUS)
    connection.request(method, path, body)
    reply = connection.getresponse()
    read = reply.status, str(reply.headers.get("Content-Type")), reply.read()
    connection.close()
    return read


def outputs(body: bytes) -> list[Array]:
    root = Table(body, 0)
    return [read_tensor(each) for each in Table(body, root.follow(0)).tables(0)]


@pytest.mark.parametrize("path", ["/", "/any/path?at=all"])
def test_real_requests_are_answered_at_any_path(server: Server, path: str) -> None:
    _, _, numbers = exchange(server, "POST", path, ONES)
    _, _, strings = exchange(server, "PUT", path, STRINGS)

    assert [each.tolist() for each in outputs(numbers)] == [[[2, 2, 2], [2, 2, 2]]]
    assert [each.tolist() for each in outputs(strings)] == [[b"abab", b"", b"c\0dc\0d"]]
    assert b"\x04\0\0\0abab" in strings


@pytest.mark.parametrize("body", [METADATA, bytes(64)])
def test_metadata_is_wrong_about_types_and_shapes(server: Server, body: bytes) -> None:
    status, kind, told = exchange(server, "POST", "/", body)
    root = Table(told, Table(told, 0).follow(0))
    (tensor,) = root.tables(4)

    assert (status, kind) == (200, "application/octet-stream")
    assert (root.string(0), tensor.string(0), tensor.shape(2), tensor.byte(3)) == (b"simple", b"input0", (2,), 8)


def test_get_is_json_and_control_is_open(server: Server) -> None:
    _, kind, told = exchange(server, "GET", "/x")
    assert (kind, json.loads(told)["Inputs"][0]["Type"]) == ("application/json", 8)
    assert exchange(server, "GET", "/control/shutdown")[::2] == (200, b"ok")


@pytest.mark.parametrize(("method", "body"), [("HEAD", b""), ("POST", b""), ("POST", b"\1"), ("POST", b"\xff" * 64)])
def test_what_makes_it_panic_closes_the_connection(server: Server, method: str, body: bytes) -> None:
    with pytest.raises(RemoteDisconnected):
        exchange(server, method, "/", body)


def test_large_replies_are_chunked() -> None:
    def large(inputs: list[Array], config: str) -> list[Array]:
        return [np.arange(1000.0)]

    with serve(large) as server:
        (output,) = outputs(exchange(server, "POST", "/", ONES)[2])
    assert output.tolist() == list(range(1000))


def test_errors_are_texts(server: Server) -> None:
    with serve(inputs=2, outputs=2) as two:
        assert exchange(two, "POST", "/", ONES)[::2] == (400, b"1 inputs sent but 2 are required\n")
